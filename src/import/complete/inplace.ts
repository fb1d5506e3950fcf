/** Takes a graph of torch.export's training IR and gives the same without in-place calls. */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { linePosition } from '../../graph/nodes.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import { eachOperand, getOwn, isRef, mapOperands, setOwn } from '../../graph/value.ts';

/**
 * Graphs of torch.export's training IR change values in place: `relu_ = aten.relu_.default(x)`. A
 * graph here is a list of values, so every later use of `x` is made a use of `relu_`, and a changed
 * input is returned as a mutation. The call keeps its name; its record means the functional
 * operator.
 *
 * @throws E_UNSUPPORTED where another view of the changed memory is read later, which a list of
 *   values cannot say
 */
export function withoutMutation(graph: Graph): Graph {
  const bodies: Record<string, Graph> = {};
  let changed = false;
  for (const name of Object.keys(graph.subgraphs)) {
    const body = getOwn(graph.subgraphs, name)!;
    const made = withoutMutation(body);
    changed ||= made !== body;
    setOwn(bodies, name, made);
  }
  if (!graph.nodes.some(isMutation)) return changed ? { ...graph, subgraphs: bodies } : graph;
  const { nodes, outputs } = new Mutations(graph).run();
  return { ...graph, nodes, outputs, subgraphs: bodies };
}

/** `aten.add_.Tensor`, `aten.__iand__.Tensor`: the first argument is changed and returned. */
function isMutation(node: Node): boolean {
  return node.kind === 'call' && /^aten\.(__i[a-z]+__|[a-z0-9_]*[a-z0-9]_)\./.test(node.target);
}

/**
 * Operators whose result can share the memory of their first argument: those whose schema in
 * PyTorch 2.13 says so (`alias_info` of a result that is not written), for dense tensors, and
 * `_unsafe_view`. Pieces of `unsafe_split` count as memory of their own: that is what it promises.
 */
const VIEWS: ReadonlySet<string> = new Set(
  (
    '_conj _neg_view _reshape_alias adjoint alias as_strided broadcast_to chunk conj contiguous ' +
    'cpu cuda detach diagonal dsplit expand expand_as flatten hsplit imag lift_fresh ' +
    'linalg_diagonal mH mT matrix_H moveaxis movedim narrow numpy_T permute pin_memory positive ' +
    'ravel real reshape reshape_as resolve_conj resolve_neg select slice split split_with_sizes ' +
    'squeeze swapaxes swapdims t tensor_split to transpose unbind unflatten unfold unsqueeze ' +
    'view view_as view_as_complex view_as_real vsplit _unsafe_view'
  ).split(' '),
);

function isView({ target }: Node): boolean {
  const [namespace, name = ''] = target.split('.');
  return namespace === 'aten' && VIEWS.has(name);
}

/** A value that is changed in place, under all its names. */
interface Version {
  /** The present value of its names. */
  current: string;
  /** The call that changed its memory through another name since. */
  staleBy?: string;
}

class Mutations {
  /** The versions by their older names; names of one value share one object. */
  private readonly now = new Map<string, Version>();
  private readonly byCurrent = new Map<string, Version>();
  /** First value of the memory that a value is in. */
  private readonly memory = new Map<string, string>();
  /** By memory: the names that may still be read, those of one version as one. */
  private readonly live = new Map<string, (string | Version)[]>();
  private readonly views = new Set<string>();
  /** Values whose memory was changed through another name, with that call. */
  private readonly stale = new Map<string, string>();

  constructor(private readonly graph: Graph) {}

  run(): { nodes: Node[]; outputs: Output[] } {
    const nodes = this.graph.nodes.map((node) => this.node(node));
    const outputs = this.graph.outputs.map((output) =>
      output.value === null ? output : { ...output, value: this.use(output.value, undefined) },
    );
    const returned = new Set(outputs.filter((o) => o.role === 'mutation').map((o) => o.of));
    const updates = this.graph.nodes.flatMap((node): Output[] => {
      const { role, roleName } = node.meta;
      if (
        node.kind !== 'placeholder' ||
        !this.isChanged(node.name) ||
        roleName === undefined ||
        role === 'arg'
      )
        return [];
      const value = this.use(node.name, undefined);
      return returned.has(roleName) ? [] : [{ value, role: 'mutation', of: roleName }];
    });
    return { nodes, outputs: [...updates, ...outputs] };
  }

  private node(node: Node): Node {
    let renamed = node;
    if (this.now.size > 0) {
      let uses = false;
      eachOperand(node, (name) => (uses ||= this.isChanged(name)));
      if (uses) renamed = mapOperands(node, (name) => this.use(name, node));
    }
    const [first] = renamed.args;
    const source = isRef(first) ? first.name : undefined;
    if (isView(node)) this.views.add(node.name);
    // Pieces of a split share its memory; the results of any other call are memory of their own.
    const piece =
      node.target === 'operator.getitem' && source !== undefined && this.views.has(source);
    if (source !== undefined && (isMutation(node) || this.views.has(node.name) || piece))
      this.share(node.name, source);
    else this.share(node.name, node.name);
    if (source !== undefined && isMutation(node)) this.change(source, node);
    return renamed;
  }

  private share(name: string, source: string): void {
    const root = this.memory.get(source) ?? source;
    this.memory.set(name, root);
    const live = this.live.get(root);
    if (live === undefined) this.live.set(root, [name]);
    else live.push(name);
  }

  /**
   * All older names of the changed value mean its result; other views of its memory may not be read
   * any more.
   */
  private change(source: string, node: Node): void {
    const version: Version = this.byCurrent.get(source) ?? { current: source };
    this.byCurrent.delete(source);
    this.now.set(source, version);
    version.current = node.name;
    this.byCurrent.set(node.name, version);
    const root = this.memory.get(source) ?? source;
    for (const other of this.live.get(root) ?? []) {
      if (typeof other !== 'string') {
        if (other !== version) other.staleBy = node.name;
      } else if (other !== node.name && this.now.get(other) !== version)
        this.stale.set(other, node.name);
    }
    this.live.set(root, [version]);
  }

  private versionOf(name: string): Version | undefined {
    return this.now.get(name) ?? this.byCurrent.get(name);
  }

  private isChanged(name: string): boolean {
    return (
      this.now.has(name) || this.stale.has(name) || this.versionOf(name)?.staleBy !== undefined
    );
  }

  private use(name: string, user: Node | undefined): string {
    const by = this.stale.get(name) ?? this.versionOf(name)?.staleBy;
    if (by === undefined) return this.now.get(name)?.current ?? name;
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `'${name}' shares memory with a value that ${by} changed in place`,
      {
        node: user?.name ?? name,
        ...defined({ position: linePosition(user?.meta.line) }),
        hint:
          'functionalize the graph first: ExportedProgram.run_decompositions() does, and so ' +
          'does AOTAutograd',
      },
    );
  }
}

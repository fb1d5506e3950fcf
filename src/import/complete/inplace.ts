/** Takes a graph of torch.export's training IR and gives the same without in-place calls. */

import { ShardwrightError } from '../../errors.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import { eachOperand, getOwn, isRef, mapOperands, setOwn } from '../../graph/value.ts';

/**
 * Graphs of torch.export's training IR change values in place: `relu_ = aten.relu_.default(x)`. A graph here is a list of
 * values, so every later use of `x` is made a use of `relu_`, and a changed input is returned as a mutation. The call keeps
 * its name; its record means the functional operator.
 *
 * @throws E_UNSUPPORTED where another view of the changed memory is read later, which a list of values cannot say
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
export function isMutation(node: Node): boolean {
  return node.kind === 'call' && /^aten\.(__i[a-z]+__|[a-z0-9_]*[a-z0-9]_)\./.test(node.target);
}

/** Operators whose result shares the memory of their first argument. */
const VIEW =
  /^aten\.(view|_unsafe_view|reshape|flatten|unflatten|transpose|permute|t|numpy_T|mT|movedim|expand|expand_as|unsqueeze|squeeze|slice|narrow|select|diagonal|split|split_with_sizes|chunk|unbind|detach|alias|as_strided|contiguous|to|view_as)\./;

class Mutations {
  /** The value that a name stands for now. */
  private readonly now = new Map<string, string>();
  /** First value of the memory that a value is in. */
  private readonly memory = new Map<string, string>();
  private readonly members = new Map<string, string[]>();
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
      const value = this.now.get(node.name);
      if (node.kind !== 'placeholder' || value === undefined || roleName === undefined || role === 'arg') return [];
      return returned.has(roleName) ? [] : [{ value, role: 'mutation', of: roleName }];
    });
    return { nodes, outputs: [...updates, ...outputs] };
  }

  private node(node: Node): Node {
    let renamed = node;
    if (this.now.size > 0) {
      let uses = false;
      eachOperand(node, (name) => (uses ||= this.now.has(name) || this.stale.has(name)));
      if (uses) renamed = mapOperands(node, (name) => this.use(name, node));
    }
    const first = renamed.args.length > 0 ? renamed.args[0] : null;
    const source = isRef(first) ? first.name : undefined;
    if (VIEW.test(node.target)) this.views.add(node.name);
    // Pieces of a split share its memory; the results of any other call are memory of their own.
    const piece = node.target === 'operator.getitem' && source !== undefined && this.views.has(source);
    if (source !== undefined && (isMutation(node) || this.views.has(node.name) || piece)) this.share(node.name, source);
    else this.share(node.name, node.name);
    if (source !== undefined && isMutation(node)) this.change(source, node);
    return renamed;
  }

  private share(name: string, source: string): void {
    const root = this.memory.get(source) ?? source;
    this.memory.set(name, root);
    const members = this.members.get(root);
    if (members === undefined) this.members.set(root, [name]);
    else members.push(name);
  }

  /** All older names of the changed value mean its result; other views of its memory may not be read any more. */
  private change(source: string, node: Node): void {
    for (const [name, current] of this.now) if (current === source) this.now.set(name, node.name);
    this.now.set(source, node.name);
    const root = this.memory.get(source) ?? source;
    for (const member of this.members.get(root) ?? [])
      if (member !== node.name && this.now.get(member) !== node.name) this.stale.set(member, node.name);
  }

  private use(name: string, user: Node | undefined): string {
    const by = this.stale.get(name);
    if (by === undefined) return this.now.get(name) ?? name;
    throw new ShardwrightError('E_UNSUPPORTED', `'${name}' shares memory with a value that ${by} changed in place`, {
      node: user?.name ?? name,
      ...(user?.meta.line !== undefined ? { position: { line: user.meta.line, column: 1 } } : {}),
      hint: 'functionalize the graph first: ExportedProgram.run_decompositions() does, and so does AOTAutograd',
    });
  }
}

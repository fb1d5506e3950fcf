/**
 * Finds the phases of a training step that states none: a program of JAX has its forward pass, its
 * backward pass and the update of its parameters in one line. The order is that in which JAX writes
 * a step: what `jax.grad` differentiates is written out first, with what the backward pass keeps of
 * it; its transpose and the update follow.
 */

import { ownersOfOutputs } from '../../graph/carried.ts';
import { indexGraph } from '../../graph/order.ts';
import { phased } from '../../graph/phases.ts';
import type { Graph, Node, Phase } from '../../graph/types.ts';
import { eachGraphRef, getOwn } from '../../graph/value.ts';
import { isFloating } from '../../ops/record/dtypes.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/**
 * A step with phases: what comes before its loss is the forward pass; what comes behind is the
 * backward pass, and from the gradients to the new values the optimizer. A graph that returns
 * neither new values nor gradients, has no loss, or has no product behind it is returned as it is.
 */
export function withStepPhases(graph: Graph, table: OperatorTable): Graph {
  if (graph.nodes.some(({ meta }) => meta.role === 'tangent')) return graph;
  const step = new Step(graph, table);
  const loss = step.loss();
  const end = loss === undefined ? undefined : step.endOfForward(loss);
  if (loss === undefined || end === undefined || !step.hasBackward(end)) return graph;
  const optimizer = step.optimizer(end);
  const phases = graph.nodes.map((_, i): Phase => {
    if (i <= end || loss[i] === 1) return 'forward';
    return optimizer[i] === 1 ? 'optimizer' : 'backward';
  });
  const trained = step.trained(loss, phases);
  const nodes = graph.nodes.map((node, i) =>
    trained.has(i) ? { ...node, meta: { ...node.meta, role: 'parameter' as const } } : node,
  );
  return phased({ ...graph, nodes }, phases, step.savedOnly(end));
}

/** The kind of work of a call, bodies included; `sum` is a reduction to one number. */
type Kind = 'elementwise' | 'sum' | 'product' | 'other';

const ELEMENTWISE_CLASSES: ReadonlySet<string> = new Set([
  'pointwise',
  'view',
  'factory',
  'random',
  'control',
]);

/** A graph with its edges by position, walked from its outputs. */
class Step {
  private readonly index: ReturnType<typeof indexGraph>;
  private readonly kinds: readonly Kind[];

  constructor(
    private readonly graph: Graph,
    private readonly table: OperatorTable,
  ) {
    this.index = indexGraph(graph);
    this.kinds = graph.nodes.map((node) => this.kindOf(node, graph));
  }

  /**
   * By position, 1 for what the loss is made of: the returned number that depends on the fewest
   * values. Undefined where only results are returned, or where no number is made of a product:
   * learning rates and counts are not.
   */
  loss(): Uint8Array | undefined {
    const { graph, index, kinds } = this;
    if (graph.outputs.every(({ role }) => role === 'output')) return undefined;
    const numbers = graph.outputs.flatMap(({ role, value }) => {
      const at = value === null ? undefined : index.position.get(value);
      if (role !== 'output' || at === undefined || !isNumber(graph.nodes[at])) return [];
      const needed = this.neededBy([at]);
      return needed.some((one, i) => one === 1 && kinds[i] === 'product') ? [needed] : [];
    });
    const count = (needed: Uint8Array): number => needed.reduce((a, b) => a + b, 0);
    return numbers.sort((a, b) => count(a) - count(b))[0];
  }

  /**
   * Position of the last call that a loss is made of. What is done to the number itself may come
   * anywhere behind.
   */
  endOfForward(loss: Uint8Array): number | undefined {
    const { nodes } = this.graph;
    for (let i = nodes.length - 1; i >= 0; i--)
      if (loss[i] === 1 && nodes[i].kind === 'call' && !this.isOnNumbers(i)) return i;
    return undefined;
  }

  hasBackward(end: number): boolean {
    return this.kinds.some((kind, i) => i > end && kind === 'product');
  }

  /**
   * The calls between gradients and new values: each is elementwise, or a sum of everything (the
   * norm of the gradients), and so is every call from there to a new value.
   */
  optimizer(end: number): Uint8Array {
    const seen = new Uint8Array(this.graph.nodes.length);
    const stack = this.updated().filter((i) => i > end);
    for (let i = stack.pop(); i !== undefined; i = stack.pop()) {
      const kind = this.kinds[i];
      if (i <= end || seen[i] === 1 || this.graph.nodes[i].kind !== 'call') continue;
      if (kind !== 'elementwise' && kind !== 'sum') continue;
      seen[i] = 1;
      this.eachOperand(i, (from) => stack.push(from));
    }
    return seen;
  }

  /** Calls before the end that only what comes behind it reads. */
  savedOnly(end: number): Uint8Array {
    const { graph, index } = this;
    const results = graph.outputs.flatMap(({ role, value }) => {
      const at = value === null ? undefined : index.position.get(value);
      return at === undefined || (role !== 'output' && at > end) ? [] : [at];
    });
    const needed = this.neededBy(results.filter((at) => at <= end || isNumber(graph.nodes[at])));
    return Uint8Array.from(graph.nodes, (node, i) =>
      i <= end && node.kind === 'call' && needed[i] === 0 ? 1 : 0,
    );
  }

  /**
   * Positions of inputs without a stated role that the loss is made of and that the backward pass
   * replaces: parameters, also where their update keeps no state.
   */
  trained(loss: Uint8Array, phases: readonly Phase[]): ReadonlySet<number> {
    const { graph, index } = this;
    const isBehind = Uint8Array.from(phases, (phase) => (phase === 'backward' ? 1 : 0));
    graph.nodes.forEach((node, i) => {
      if (node.kind !== 'call') isBehind[i] = 0;
      else this.eachOperand(i, (from) => (isBehind[i] |= isBehind[from]));
    });
    const ownerOf = ownersOfOutputs(graph);
    return new Set(
      graph.outputs.flatMap((output) => {
        const owner = ownerOf(output);
        const at = output.value === null ? undefined : index.position.get(output.value);
        if (output.role !== 'mutation' || owner === undefined || at === undefined) return [];
        const { role, inferred } = graph.nodes[owner].meta;
        const isOpen = role === 'input' && inferred === true;
        return isOpen && loss[owner] === 1 && isBehind[at] === 1 ? [owner] : [];
      }),
    );
  }

  /** Positions of the values that replace inputs. */
  private updated(): number[] {
    return this.graph.outputs.flatMap(({ role, value }) => {
      const at = value === null ? undefined : this.index.position.get(value);
      return at === undefined || role === 'output' || role === 'grad' ? [] : [at];
    });
  }

  private neededBy(ends: readonly number[]): Uint8Array {
    const needed = new Uint8Array(this.graph.nodes.length);
    for (const end of ends) needed[end] = 1;
    for (let i = needed.length - 1; i >= 0; i--)
      if (needed[i] === 1) this.eachOperand(i, (from) => (needed[from] = 1));
    return needed;
  }

  private eachOperand(i: number, visit: (from: number) => void): void {
    const { operandStart, operands } = this.index;
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++) visit(operands[k]);
  }

  /** Tells whether a call makes a number of numbers. */
  private isOnNumbers(i: number): boolean {
    const { nodes } = this.graph;
    let isSmall = isNumber(nodes[i]);
    this.eachOperand(i, (from) => (isSmall &&= isNumber(nodes[from])));
    return isSmall;
  }

  private kindOf(node: Node, graph: Graph): Kind {
    if (node.kind !== 'call' || node.target === 'operator.getitem') return 'elementwise';
    const record = this.table.get(node.target);
    if (record?.cls === 'matmul' || record?.cls === 'attention') return 'product';
    if (record?.cls === 'reduction') return isSum(node) ? 'sum' : 'other';
    if (record !== undefined) return ELEMENTWISE_CLASSES.has(record.cls) ? 'elementwise' : 'other';
    const inside: Kind[] = [];
    eachGraphRef(node, (name) => {
      const body = getOwn(graph.subgraphs, name);
      for (const inner of body?.nodes ?? []) inside.push(this.kindOf(inner, body!));
    });
    if (inside.includes('product')) return 'product';
    const isLine = node.target === 'call' && !inside.includes('other');
    return isLine ? (inside.includes('sum') ? 'sum' : 'elementwise') : 'other';
  }
}

/** One floating number, or a tuple of one. */
function isNumber({ type }: Node): boolean {
  const own = type.kind === 'tuple' && type.items.length === 1 ? type.items[0] : type;
  return own.kind === 'tensor' && own.shape.length === 0 && isFloating(own.dtype);
}

function isSum(node: Node): boolean {
  const items = node.type.kind === 'tuple' ? node.type.items : [node.type];
  return items.every((item) => item.kind === 'tensor' && item.shape.length === 0);
}

/**
 * Sorts the values of a training program by what they are to a pipeline: which any stage can have
 * from the start, which flow from stage to stage, and which the backward pass makes.
 */

import { ShardwrightError } from '../../errors.ts';
import { type GraphIndex, indexGraph } from '../../graph/order.ts';
import { computePhases } from '../../graph/phases.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { isFloating } from '../../ops/record/dtypes.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/**
 * The part that a value has in a pipeline.
 *
 *  - `given`: an input of the program but a tangent, or an attribute; each stage reads its own.
 *  - `replicated`: made of weights alone, or of constants and integers alone (masks, positions):
 *    each stage that reads it makes it.
 *  - `forward`: made in one stage, and sent to the stages behind that read it.
 *  - `kept`: a forward value that only the backward pass reads.
 *  - `backward`: a tangent, and what is made of one.
 */
type Part = 'given' | 'replicated' | 'forward' | 'kept' | 'backward';

/** The values of a program by position in `graph.nodes`. */
export interface Dataflow {
  readonly graph: Graph;
  readonly index: GraphIndex;
  readonly parts: readonly Part[];
  /** 1 for parameters and what is made of them alone. */
  readonly isWeight: Uint8Array;
  /** Positions of the forward calls in order, without those that unpack the result of another. */
  readonly calls: readonly number[];
  /** Place of a forward value in `calls`, an unpacked one at its call; -1 for all others. */
  readonly place: Int32Array;
}

/** Bits of what a value is made of. */
const WEIGHTS = 1;
const INTEGERS = 2;
const FLOW = 4;

export const GETITEM = 'operator.getitem';

/**
 * The values of a forward graph or a joint one.
 *
 * @throws E_UNSUPPORTED for a program with the update of an optimizer, which has no microbatches
 */
export function dataflowOf(graph: Graph, table: OperatorTable): Dataflow {
  const updated = graph.outputs.find(({ role }) => role === 'newstate');
  const update = graph.nodes.find(({ meta }) => meta.phase === 'optimizer');
  if (updated !== undefined || update !== undefined)
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      'a program with the update of its parameters is not cut into pipeline stages: the update ' +
        'comes once, after all microbatches',
      {
        hint: 'give the forward and backward pass alone.',
        ...(update === undefined ? {} : { node: update.name }),
      },
    );
  const index = indexGraph(graph);
  const made = madeOf(graph, index, table);
  const needed = neededByResults(graph, index);
  const { backward } = computePhases(graph);
  const parts = graph.nodes.map((node, i): Part => {
    if (node.kind === 'placeholder') return node.meta.role === 'tangent' ? 'backward' : 'given';
    if (node.kind === 'get_attr') return 'given';
    if (backward[i] === 1 || node.meta.phase === 'backward') return 'backward';
    if ((made[i] & FLOW) === 0) return 'replicated';
    return needed[i] === 1 ? 'forward' : 'kept';
  });
  const calls: number[] = [];
  const place = new Int32Array(graph.nodes.length).fill(-1);
  graph.nodes.forEach((node, i) => {
    if (parts[i] !== 'forward') return;
    if (node.target === GETITEM) place[i] = place[index.operands[index.operandStart[i]]];
    else place[i] = calls.push(i) - 1;
  });
  const isWeight = made.map((bits, i) =>
    (bits & (FLOW | INTEGERS)) === 0 && (bits & WEIGHTS) !== 0 && parts[i] !== 'backward' ? 1 : 0,
  );
  return { graph, index, parts, isWeight, calls, place };
}

/**
 * The kinds of input that each value is made of. Weights with integers flow: an embedding is work
 * of the stage that has its table. So do random numbers, which must be the same wherever they are
 * read.
 */
function madeOf(graph: Graph, index: GraphIndex, table: OperatorTable): Uint8Array {
  const made = new Uint8Array(graph.nodes.length);
  graph.nodes.forEach((node, i) => {
    if (node.kind === 'placeholder') made[i] = madeOfInput(node);
    if (node.kind !== 'call') return;
    for (let k = index.operandStart[i]; k < index.operandStart[i + 1]; k++)
      made[i] |= made[index.operands[k]];
    const isMixed = (made[i] & WEIGHTS) !== 0 && (made[i] & INTEGERS) !== 0;
    if (isMixed || table.get(node.target)?.cls === 'random') made[i] |= FLOW;
  });
  return made;
}

function madeOfInput({ meta: { role }, type }: Node): number {
  if (role === 'parameter') return WEIGHTS;
  if (role === 'buffer' || role === 'constant') return 0;
  return type.kind === 'tensor' && !isFloating(type.dtype) ? INTEGERS : FLOW;
}

/** 1 for the values that a result other than a gradient is made of. */
function neededByResults({ nodes, outputs }: Graph, index: GraphIndex): Uint8Array {
  const needed = new Uint8Array(nodes.length);
  for (const { role, value } of outputs)
    if (role !== 'grad' && value !== null) needed[index.position.get(value) ?? 0] = 1;
  for (let i = nodes.length - 1; i >= 0; i--)
    if (needed[i] === 1)
      for (let k = index.operandStart[i]; k < index.operandStart[i + 1]; k++)
        needed[index.operands[k]] = 1;
  return needed;
}

/** Calls `visit` with the position of each operand of node `i`, with repetition. */
export function eachOperandOf(
  { operandStart, operands }: GraphIndex,
  i: number,
  visit: (operand: number) => void,
): void {
  for (let k = operandStart[i]; k < operandStart[i + 1]; k++) visit(operands[k]);
}

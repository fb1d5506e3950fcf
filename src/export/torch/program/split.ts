/**
 * Splits the lowered joint graph into the calls of a forward and a backward function, and the
 * values that the first keeps for the second. Source: the order of the program, from which the
 * plan's memory timeline was made: a value that only gradients need and that comes after the first
 * backward call is made in the backward function.
 */
import { indexGraph } from '../../../graph/order.ts';
import type { Graph, Node, Output } from '../../../graph/types.ts';

export interface SplitProgram {
  /** Placeholders that the forward function takes: parameters, buffers, inputs. */
  readonly inputs: readonly Node[];
  /**
   * Placeholders of the backward function in addition to the saved values: gradients of outputs.
   */
  readonly tangents: readonly Node[];
  readonly forward: readonly Node[];
  readonly backward: readonly Node[];
  /**
   * Names of inputs and of forward values that the backward function reads, in order of the
   * program.
   */
  readonly saved: readonly string[];
  /** User outputs, new buffers and states. */
  readonly outputs: readonly Output[];
  readonly gradients: readonly Output[];
  /**
   * Collectives that are one call, by the name of each member; they are neighbours in `forward` or
   * `backward`.
   */
  readonly buckets: ReadonlyMap<string, readonly Node[]>;
}

/** The calls of a function, those together that are one. */
export function callLines(
  nodes: readonly Node[],
  buckets: SplitProgram['buckets'],
): (readonly Node[])[] {
  return nodes.flatMap((node) => {
    const members = buckets.get(node.name);
    return members === undefined ? [[node]] : members[0] === node ? [members] : [];
  });
}

/**
 * Splits calls by their dependence on a tangent, and all others by phase and place. Linear.
 *
 * @param isOrdered calls are in the order in which they are to run, and values that the backward
 *   pass wants early are computed in the forward function
 */
export function splitProgram(graph: Graph, isOrdered = false): SplitProgram {
  const { nodes, outputs } = graph;
  const { position, operandStart, operands } = indexGraph(graph);
  const isGradient = (output: Output): boolean => output.role === 'grad';
  const inBackward = new Uint8Array(nodes.length);
  const reads = (i: number, of: Uint8Array): boolean => {
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++)
      if (of[operands[k]] === 1) return true;
    return false;
  };
  nodes.forEach(({ kind, meta }, i) => {
    const isTangent = kind === 'placeholder' && meta.role === 'tangent';
    if (isTangent || (kind === 'call' && meta.phase === 'backward') || reads(i, inBackward))
      inBackward[i] = 1;
  });
  const first = nodes.findIndex(({ kind }, i) => kind !== 'placeholder' && inBackward[i] === 1);
  // Wanted before the first backward call: what the user gets, and what the plan keeps. A forward
  // value that is moved for the backward pass has no phase, and is moved there.
  const wanted = new Uint8Array(nodes.length);
  for (const output of outputs)
    if (!isGradient(output) && output.value !== null) wanted[position.get(output.value) ?? -1] = 1;
  nodes.forEach(({ kind, meta }, i) => {
    if (
      kind === 'call' &&
      inBackward[i] === 0 &&
      (first < 0 || (i < first && (isOrdered || meta.phase === 'forward')))
    )
      wanted[i] = 1;
  });
  for (let i = nodes.length - 1; i >= 0; i--)
    if (wanted[i] === 1)
      for (let k = operandStart[i]; k < operandStart[i + 1]; k++) wanted[operands[k]] = 1;
  const isForward = (i: number): boolean => wanted[i] === 1;
  const calls = nodes.flatMap((node, i) => (node.kind === 'placeholder' ? [] : [{ node, i }]));
  const forward = calls.filter(({ i }) => isForward(i));
  const backward = calls.filter(({ i }) => !isForward(i));
  const kept = new Uint8Array(nodes.length);
  for (const { i } of backward)
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++) kept[operands[k]] = 1;
  const gradients = outputs.filter(isGradient);
  for (const { value } of gradients) if (value !== null) kept[position.get(value) ?? -1] = 1;
  const isMade = new Set(backward.map(({ node }) => node.name));
  const isTangent = (node: Node): boolean =>
    node.kind === 'placeholder' && node.meta.role === 'tangent';
  return {
    inputs: nodes.filter((node) => node.kind === 'placeholder' && !isTangent(node)),
    tangents: nodes.filter(isTangent),
    forward: forward.map(({ node }) => node),
    backward: backward.map(({ node }) => node),
    saved: nodes
      .filter((node, i) => kept[i] === 1 && !isMade.has(node.name) && !isTangent(node))
      .map(({ name }) => name),
    outputs: outputs.filter((output) => !isGradient(output)),
    gradients,
    buckets: new Map(),
  };
}

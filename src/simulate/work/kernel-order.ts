/**
 * Finds the order of a program's kernels, and for every use the stretch in which the move of its
 * value can run: the last kernel before the move and the first kernel that waits for it.
 */
import type { Model, Use } from '../../plan/model/model.ts';
import { kernelNeeds } from './kernel-needs.ts';

/**
 * The kernels of one step in program order: nodes that compute for some time under some strategy.
 */
export interface KernelOrder {
  readonly count: number;
  /** Position of each node's kernel; -1: it has none. */
  readonly ofNode: Int32Array;
  /** Largest seconds of each kernel over its strategies, by position. */
  readonly seconds: Float64Array;
  /** Last kernel that must have run before each value is there; -1: it is given. */
  readonly madeBy: Int32Array;
  /** First kernel that what each node gives is needed by; `count`: none, it is a result. */
  readonly neededBy: Int32Array;
}

/** A move runs after kernel `after` and before kernel `before`. */
export interface MoveWindow {
  readonly after: number;
  readonly before: number;
}

export function kernelOrder({ graph, flow, strategies, nodeSeconds }: Model): KernelOrder {
  const mostSeconds = graph.nodes.map((_, n) => {
    const entry = strategies.nodes[n];
    const seconds = entry === null ? undefined : nodeSeconds.get(entry.content);
    return seconds === undefined
      ? 0
      : seconds.compute.reduce((most, s) => (s < Infinity ? Math.max(most, s) : most), 0);
  });
  const kernels = graph.nodes.flatMap((node, n) =>
    node.kind === 'call' && flow.alias[n] < 0 && mostSeconds[n] > 0 ? [n] : [],
  );
  const ofNode = new Int32Array(graph.nodes.length).fill(-1);
  kernels.forEach((n, at) => (ofNode[n] = at));
  const { madeBy, before: neededBy } = kernelNeeds({
    kernelOf: ofNode,
    kernels: kernels.length,
    values: flow.values.length,
    reads: (n) => flow.inputs[n],
    writes: (n) => (flow.alias[n] < 0 ? flow.results[n].filter((value) => value >= 0) : []),
  });
  return {
    count: kernels.length,
    ofNode,
    seconds: Float64Array.from(kernels, (n) => mostSeconds[n]),
    madeBy,
    neededBy,
  };
}

/** The window of the move for a use. What a loop hands to its next trip may take until the end. */
export function windowOf(
  { count, madeBy, neededBy }: KernelOrder,
  { value, at }: Pick<Use, 'value' | 'at'>,
): MoveWindow {
  return { after: madeBy[value], before: at.kind === 'input' ? neededBy[at.node] : count };
}

/** Tells whether a move is on the way of every step: no kernel can run between its two ends. */
export function isBlocking({ after, before }: MoveWindow): boolean {
  return before === after + 1;
}

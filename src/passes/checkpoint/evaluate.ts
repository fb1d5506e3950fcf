/**
 * Computes the cost of a choice of kept values: the time to compute the rest again, and the memory,
 * at the end of the forward pass or with the values that the backward pass recomputes on the way.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { kneeOf } from './knee.ts';

/** Values of a forward graph that may be kept or recomputed, in program order. */
export interface RecomputeGraph {
  readonly values: readonly {
    readonly name: string;
    readonly bytes: number;
    readonly seconds: number;
    /**
     * Positions of the values among these that it is computed from, directly or through nodes that
     * are none of them.
     */
    readonly needs: readonly number[];
  }[];
}

/**
 * The cost of keeping a set of values: seconds of recomputation, bytes kept, and the peak of the
 * backward pass in bytes.
 */
export interface KeepEvaluation {
  readonly recomputeSeconds: number;
  /** Bytes kept at the end of the forward pass. */
  readonly keptBytes: number;
  /** The most that is alive in the backward pass, kept values included. */
  readonly backwardPeakBytes: number;
  /** Bytes alive after each event of the backward pass, from its start to nothing. */
  readonly trace: readonly { readonly bytes: number; readonly event: string }[];
}

/** Nodes of a whole program by name, in program order, with their inputs. */
export interface ProgramOrder {
  readonly nodes: readonly { readonly name: string; readonly inputs: readonly string[] }[];
}

/**
 * Reduces a program to its recomputable values: one needs another if a path leads there that passes
 * no third one.
 *
 * @throws E_USAGE when a listed value is not a node of the program
 */
export function recomputeGraph(
  program: ProgramOrder,
  values: readonly { readonly name: string; readonly bytes: number; readonly seconds: number }[],
): RecomputeGraph {
  checkKinds('recomputeGraph', { program: [program, ['nodes']], values: [values, 'list'] });
  const position = new Map(values.map((v, i) => [v.name, i]));
  const reach = new Map<string, ReadonlySet<number>>();
  const needs = new Map<number, ReadonlySet<number>>();
  for (const node of program.nodes) {
    checkKinds('recomputeGraph', { node: [node, ['name', 'inputs']] });
    const from = new Set<number>();
    for (const input of node.inputs) for (const i of reach.get(input) ?? []) from.add(i);
    const own = position.get(node.name);
    if (own !== undefined) needs.set(own, from);
    reach.set(node.name, own === undefined ? from : new Set([own]));
  }
  return {
    values: values.map((v, i) => {
      const found = needs.get(i);
      if (found === undefined)
        throw new ShardwrightError('E_USAGE', `'${v.name}' is not a node of the program`);
      return { ...v, needs: [...found].sort((a, b) => a - b) };
    }),
  };
}

/**
 * Walks the backward pass in reverse program order: a kept value is dropped when its turn comes;
 * another one is computed again, with what it needs and is not there, before it is dropped.
 *
 * @param kept positions of the values that are kept
 */
export function evaluateKept(graph: RecomputeGraph, kept: readonly number[]): KeepEvaluation {
  checkKinds('evaluateKept', { graph: [graph, 'recomputation'], kept: [kept, 'list'] });
  const { values } = graph;
  const present = new Set(kept);
  let bytes = 0;
  let recomputeSeconds = 0;
  values.forEach((v, i) => {
    if (present.has(i)) bytes += v.bytes;
    else recomputeSeconds += v.seconds;
  });
  const keptBytes = bytes;
  const trace = [{ bytes, event: 'start of the backward pass' }];
  const add = (change: number, event: string): void => {
    bytes += change;
    trace.push({ bytes, event });
  };
  for (let i = values.length - 1; i >= 0; i--) {
    const { name } = values[i];
    if (!present.has(i)) {
      present.add(i);
      add(values[i].bytes, `recompute ${name}`);
      const queue = [...values[i].needs];
      for (let q = 0; q < queue.length; q++) {
        const need = queue[q];
        if (present.has(need)) continue;
        present.add(need);
        add(values[need].bytes, `recompute ${values[need].name} for ${name}`);
        queue.push(...values[need].needs);
      }
    }
    add(-values[i].bytes, `drop ${name}`);
  }
  return {
    recomputeSeconds,
    keptBytes,
    backwardPeakBytes: Math.max(...trace.map((t) => t.bytes)),
    trace,
  };
}

/**
 * Budget at the knee: of evenly spaced budgets the one whose answer is nearest to no memory and no
 * recompute time, both scaled to the range that occurs. The largest budget when one of them does
 * not change.
 *
 * @param solve positions kept under a budget
 * @param steps number of budgets, at least two
 */
export function kneeBudget(
  graph: RecomputeGraph,
  solve: (budget: number) => readonly number[],
  smallest: number,
  largest: number,
  steps: number,
): number {
  checkKinds('kneeBudget', {
    solve: [solve, 'function'],
    smallest: [smallest, 'number'],
    largest: [largest, 'number'],
    steps: [steps, 'integer'],
  });
  const points = Array.from({ length: steps }, (_, i) => {
    const budget = i === steps - 1 ? largest : smallest + (i * (largest - smallest)) / (steps - 1);
    const { keptBytes, recomputeSeconds } = evaluateKept(graph, solve(budget));
    return { budget, keptBytes, recomputeSeconds };
  });
  const knee = kneeOf(points.map((p) => [p.keptBytes, p.recomputeSeconds]));
  return knee === undefined ? largest : points[knee].budget;
}

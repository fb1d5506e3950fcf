/**
 * Gives the results of a training program to its pipeline stages. The gradient of a tensor that
 * several stages read is a sum of gradients: each returns its own, and they are added after the
 * last microbatch, instead of a message from stage to stage for each.
 */

import { placeholdersByRoleName } from '../../graph/carried.ts';
import type { Graph, Output } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { Dataflow } from './dataflow.ts';
import { type Assignment, gradientStages } from './stage-of.ts';

/** A result of the whole program that a stage returns, whole or in part. */
export interface StageResult {
  /** Position among the results of the whole program. */
  readonly whole: number;
  readonly stage: number;
  /** Position of the value that is returned. */
  readonly at: number;
  /** Position of the input that it belongs to. */
  readonly owner?: number;
  readonly isPart: boolean;
}

/** Gradients in the order in which they are added. */
export type SumOf<T> = T | readonly [SumOf<T>, SumOf<T>];

interface Part {
  readonly at: number;
  readonly stage: number;
}

/** The results of the stages, and which of them are sums; none of a result that is `none`. */
export function stageResults(
  flow: Dataflow,
  assignment: Assignment,
): {
  readonly results: readonly StageResult[];
  readonly sums: readonly { readonly whole: number; readonly sum: SumOf<Part> }[];
} {
  const results: StageResult[] = [];
  const sums: { whole: number; sum: SumOf<Part> }[] = [];
  const stageOf = gradientStages(flow, assignment);
  const owners = new Owners(flow.graph, assignment);
  flow.graph.outputs.forEach((output, whole) => {
    const at = output.value === null ? undefined : flow.index.position.get(output.value);
    if (at === undefined) return;
    const sum = output.role === 'grad' ? sumOf(flow, at, (v) => stageOf(output.of, v)) : undefined;
    const parts = sum === undefined ? [] : leaves(sum);
    const isSum = parts.length > 1 && parts.every((part) => owners.has(output, part.stage));
    if (isSum && sum !== undefined) sums.push({ whole, sum });
    for (const part of isSum ? parts : [{ at, stage: stageOf(ofGradient(output), at) }]) {
      const owner = owners.of(output, part.stage);
      results.push({ whole, ...part, isPart: isSum, ...(owner === undefined ? {} : { owner }) });
    }
  });
  return { results, sums };
}

function ofGradient({ role, of }: Output): string | undefined {
  return role === 'grad' ? of : undefined;
}

/** Finds the input that a result belongs to, under the name that a stage has it by. */
class Owners {
  private readonly placeholders: ReadonlyMap<string, number>;
  private readonly ties: ReadonlyMap<string, readonly string[]>;

  constructor(
    graph: Graph,
    private readonly assignment: Assignment,
  ) {
    this.placeholders = placeholdersByRoleName(graph);
    this.ties = new Map((graph.ties ?? []).flatMap((group) => group.map((name) => [name, group])));
  }

  of(output: Output, stage: number): number | undefined {
    return this.present(output, stage) ?? this.placeholders.get(output.of ?? '');
  }

  has(output: Output, stage: number): boolean {
    return this.present(output, stage) !== undefined;
  }

  private present({ of }: Output, stage: number): number | undefined {
    const names = of === undefined ? [] : [of, ...(this.ties.get(of) ?? [])];
    return names
      .map((name) => this.placeholders.get(name))
      .find((at) => at !== undefined && this.assignment.present[at].includes(stage));
  }
}

const ADDITIONS: ReadonlySet<string> = new Set(['aten.add.Tensor', 'stablehlo.add']);

/** A gradient as the sum of those that different stages make. */
function sumOf(
  flow: Dataflow,
  at: number,
  stageOf: (at: number) => number,
  isResult = true,
): SumOf<Part> {
  const { graph, index, parts } = flow;
  const { name, target, args, kwargs } = graph.nodes[at];
  const whole = { at, stage: stageOf(at) };
  if (!ADDITIONS.has(target) || args.length !== 2 || Object.keys(kwargs).length > 0) return whole;
  // A sum that something else reads, too, is made in any case.
  const readers = index.userStart[at + 1] - index.userStart[at];
  const returns = graph.outputs.filter(({ value }) => value === name).length;
  if (readers + returns > 1 || (isResult ? returns : readers) !== 1) return whole;
  const [a, b] = args.map((arg) => (isRef(arg) ? (index.position.get(arg.name) ?? -1) : -1));
  if (parts[a] !== 'backward' || parts[b] !== 'backward') return whole;
  const sum: SumOf<Part> = [sumOf(flow, a, stageOf, false), sumOf(flow, b, stageOf, false)];
  const stages = leaves(sum).map(({ stage }) => stage);
  return new Set(stages).size === stages.length ? sum : whole;
}

function leaves<T extends object>(sum: SumOf<T>): T[] {
  return isPair(sum) ? [...leaves(sum[0]), ...leaves(sum[1])] : [sum];
}

function isPair<T>(sum: SumOf<T>): sum is readonly [SumOf<T>, SumOf<T>] {
  return Array.isArray(sum);
}

/** The sum with something else in the place of every part. */
export function mapSum<T extends object, U>(sum: SumOf<T>, of: (part: T) => U): SumOf<U> {
  return isPair(sum) ? [mapSum(sum[0], of), mapSum(sum[1], of)] : of(sum);
}

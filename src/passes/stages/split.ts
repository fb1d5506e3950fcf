/**
 * Cuts a training program into the programs of pipeline stages. Each is a graph of its own, forward
 * and backward pass in one, so that everything that reads a program reads a stage. Values keep
 * their names.
 */

import { checkKinds } from '../../arguments.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { type CutPoint, cutPoints } from './cut-points.ts';
import { type Dataflow, dataflowOf, eachOperandOf } from './dataflow.ts';
import { movedNearer } from './move-nearer.ts';
import { Needs, type StageNeeds } from './needs.ts';
import { mapSum, stageResults, type SumOf } from './results.ts';
import { assignStages } from './stage-of.ts';
import { type StageGraph, writeStage } from './write-stage.ts';

/** A program in stages. */
export interface StagedGraph {
  readonly stages: readonly StageGraph[];
  /**
   * Results of the whole program, by position, that are sums of gradients of several stages, with
   * the results of the stages in the order in which they are added.
   */
  readonly sums: readonly {
    readonly whole: number;
    readonly sum: SumOf<{ readonly stage: number; readonly output: number }>;
  }[];
  /** Parameters that several stages hold, under all their names, with those stages. */
  readonly shared: readonly {
    readonly names: readonly string[];
    readonly stages: readonly number[];
  }[];
  /** Values that stages send on without reading them: skip connections, with those stages. */
  readonly carried: readonly { readonly value: string; readonly stages: readonly number[] }[];
}

/** A program with its narrow points, and the stages that lie between some of them. */
export interface Cuttable {
  readonly points: readonly CutPoint[];
  /** @param points some of `points`, in their order */
  readonly cut: (points: readonly CutPoint[]) => StagedGraph;
}

/**
 * A forward graph or a joint one, ready to be cut.
 *
 * @throws E_UNSUPPORTED for a program with the update of an optimizer
 */
export function cuttable(graph: Graph, table: OperatorTable): Cuttable {
  checkKinds('cuttable', { graph: [graph, 'graph'], table: [table, 'operators'] });
  const flow = dataflowOf(graph, table);
  return { points: cutPoints(flow), cut: (points) => staged(flow, points) };
}

function staged(flow: Dataflow, points: readonly CutPoint[]): StagedGraph {
  const places = points.map(({ place }) => place);
  const assignment = assignStages(flow, places);
  const { results, sums } = stageResults(flow, assignment);
  const needs = new Needs(flow, movedNearer(flow, assignment, results), places.length + 1);
  for (const { at, stage, owner } of results) {
    needs.add(at, stage);
    if (owner !== undefined) needs.add(owner, stage);
  }
  const contents = { flow, needs: needs.stages, results };
  const stages = needs.stages.map((_, s) => writeStage(contents, s));
  const outputOf = (whole: number, stage: number): number =>
    results.filter((one) => one.stage === stage).findIndex((one) => one.whole === whole);
  return {
    stages,
    sums: sums.map(({ whole, sum }) => ({
      whole,
      sum: mapSum(sum, ({ stage }) => ({ stage, output: outputOf(whole, stage) })),
    })),
    shared: sharedParameters(flow.graph, needs.stages),
    carried: carriedValues(flow, needs.stages, results),
  };
}

function sharedParameters(graph: Graph, needs: readonly StageNeeds[]): StagedGraph['shared'] {
  const ties = new Map((graph.ties ?? []).flatMap((group) => group.map((name) => [name, group])));
  const holders = new Map<readonly string[], Set<number>>();
  const alone = new Map<string, readonly string[]>();
  graph.nodes.forEach(({ kind, name, meta }, i) => {
    if (kind !== 'placeholder' || meta.role !== 'parameter') return;
    const role = meta.roleName ?? name;
    const names = ties.get(role) ?? alone.get(role) ?? [role];
    alone.set(role, names);
    const stages = holders.get(names) ?? new Set<number>();
    needs.forEach(({ own }, s) => own.has(i) && stages.add(s));
    holders.set(names, stages);
  });
  return [...holders].flatMap(([names, stages]) =>
    stages.size > 1 ? [{ names, stages: [...stages].sort((a, b) => a - b) }] : [],
  );
}

/** Values that a stage receives, and neither reads nor returns. */
function carriedValues(
  { graph, index }: Dataflow,
  needs: readonly StageNeeds[],
  results: readonly { readonly at: number; readonly stage: number }[],
): StagedGraph['carried'] {
  const carried = new Map<number, number[]>();
  needs.forEach(({ own, receives, receivesBack }, s) => {
    const read = new Set(results.flatMap(({ at, stage }) => (stage === s ? [at] : [])));
    for (const v of own) eachOperandOf(index, v, (operand) => read.add(operand));
    for (const v of [...receives, ...receivesBack])
      if (!read.has(v)) carried.set(v, [...(carried.get(v) ?? []), s]);
  });
  return [...carried]
    .sort(([a], [b]) => a - b)
    .map(([v, stages]) => ({ value: graph.nodes[v].name, stages }));
}

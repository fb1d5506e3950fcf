/** Prices the best plans of a sweep again with more memory, faster links and a smaller batch. */

import { fitProbability } from '../cost/error-bands.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { RiskierPlan, WhatIf } from '../recipes/compare/comparison.ts';
import { recomputeText } from '../recipes/recompute-text.ts';
import { countedText } from '../units.ts';
import type { SweepQuestion } from './model/question.ts';
import { repriced } from './repriced.ts';
import { clusterWith, clusterWithMemory } from './step/faster-links.ts';
import type { LayoutRow } from './step/layouts.ts';
import type { PricedRow } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';

/** Plans nearest to the best that are priced again. */
const RUNNERS_UP = 48;

/**
 * The answer with a little more memory, faster links between hosts, or half the batch: the nearest
 * plans priced again.
 */
export async function whatIf(
  question: SweepQuestion,
  result: SweepResult,
  table: OperatorTable,
  deadline: Deadline,
): Promise<WhatIf[]> {
  const best = result.priced.find((p) => p.fits);
  if (best === undefined) return [];
  const near = nearest(result, best);
  const out: WhatIf[] = [];
  const ask = async (change: string, changed: SweepQuestion, fresh: boolean): Promise<void> => {
    if (deadline.isOver) return;
    const priced = await repriced(changed, result, near, table, fresh);
    const [first, second] = priced.filter((p) => p.fits);
    const same = first?.row === recipeRow(best);
    out.push({
      change,
      best: first?.row.name ?? null,
      ...(first === undefined ? {} : { mesh: first.row.mesh, seconds: first.figures.seconds }),
      same,
      ...(first === undefined || !same || settingsText(first) === settingsText(best)
        ? {}
        : { settings: settingsText(first) }),
      ...(second === undefined ? {} : { next: `${second.row.name} on ${second.row.mesh}` }),
    });
  };
  for (const [word, bytes] of [
    ['more', 2 ** 30],
    ['less', -(2 ** 30)],
  ] as const) {
    const changed = withMemory(question, bytes);
    if (changed !== undefined) await ask(`1 GiB ${word} memory per device`, changed, false);
  }
  // Measured times of collectives are of the links as they are: what they would be on others is not
  // known.
  if (loadCluster(question.cluster).collectiveTable === undefined) {
    await ask(
      'twice the bandwidth between hosts',
      { ...question, cluster: clusterWith(question.cluster, 2) },
      true,
    );
    await ask(
      'half the bandwidth between hosts',
      { ...question, cluster: clusterWith(question.cluster, 0.5) },
      true,
    );
  }
  if (question.globalBatch % 2 === 0)
    await ask('half the batch', { ...question, globalBatch: question.globalBatch / 2 }, false);
  await ask('twice the batch', { ...question, globalBatch: question.globalBatch * 2 }, false);
  return out;
}

/** The plans nearest to the best that are priced again, with those that fit less surely. */
function nearest({ priced }: SweepResult, best: PricedRow | undefined): readonly LayoutRow[] {
  const below = best?.figures.seconds ?? Infinity;
  const near = [
    ...priced.filter((p) => p.fits).slice(0, RUNNERS_UP),
    ...priced.filter((p) => !p.fits && p.figures.busySeconds < below).slice(0, RUNNERS_UP),
  ];
  return [...new Set(near.map(recipeRow))];
}

/** The question on devices of more or less memory; undefined where none would be left. */
function withMemory(question: SweepQuestion, bytes: number): SweepQuestion | undefined {
  const { cluster, memoryBytes } = question;
  const own = loadCluster(cluster);
  const changed = (memoryBytes ?? own.memoryBytes) + bytes;
  if (changed <= (memoryBytes === undefined ? own.reservedBytes : 0)) return undefined;
  return memoryBytes === undefined
    ? { ...question, cluster: clusterWithMemory(cluster, changed) }
    : { ...question, memoryBytes: changed };
}

/**
 * The fastest plan that fits the budget where the best fits with the probability that is asked for:
 * the nearest plans priced again with all of the memory.
 *
 * @returns undefined where it is not faster than the best
 */
export async function riskierPlan(
  question: SweepQuestion,
  result: SweepResult,
  table: OperatorTable,
): Promise<RiskierPlan | undefined> {
  const { budgetBytes, safeBytes, priced } = result;
  if (question.risk === undefined || safeBytes >= budgetBytes) return undefined;
  const best = priced.find((p) => p.fits);
  const { risk: _, ...unbounded } = question;
  const near = nearest(result, best);
  const first = (await repriced(unbounded, result, near, table, false)).find((p) => p.fits);
  if (first === undefined) return undefined;
  const { seconds, peakBytes } = first.figures;
  if (best !== undefined && seconds >= best.figures.seconds) return undefined;
  return {
    plan: first.row.name,
    mesh: first.row.mesh,
    settings: settingsText(first),
    seconds,
    peakBytes,
    fitProbability: fitProbability(
      peakBytes,
      question.memoryBytes ?? result.composer.cluster.memoryBytes,
    ),
    faster: best === undefined ? null : 1 - seconds / best.figures.seconds,
  };
}

/** The settings that are chosen for a plan in addition to its mesh. */
function settingsText({ tuning, figures }: PricedRow): string {
  const { microbatch, schedule, chunks, checkpoint } = tuning;
  const { microbatches, unitsAgain, place } = figures;
  const pipeline =
    place.bounds.length === 2 ? [] : [chunks > 1 ? `${schedule} by ${chunks}` : schedule];
  const run = `${countedText(microbatches, 'microbatch', 'microbatches')} of ${microbatch}`;
  return [run, ...pipeline, recomputeText({ checkpoint, unitsAgain })].join(', ');
}

/**
 * The row to price again for a plan: for an optimum with the placements of a recipe, that recipe.
 */
function recipeRow({ row, like }: PricedRow): LayoutRow {
  return like ?? row;
}

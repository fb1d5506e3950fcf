/** Prices the best plans of a sweep again with more memory, faster links and a smaller batch. */

import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { meshSize } from '../mesh/devices/mesh.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { WhatIf } from '../recipes/compare/comparison.ts';
import { recomputeText } from '../recipes/recompute-text.ts';
import { countedText } from '../units.ts';
import type { SweepQuestion } from './model/question.ts';
import { trainerLimits } from './model/trainer-limits.ts';
import { coreRequest } from './model/types.ts';
import { type CoreCost, coreKey } from './model/types.ts';
import { CoreSolver } from './rank/rank-price.ts';
import { Composer } from './step/compose.ts';
import { clusterWith } from './step/faster-links.ts';
import type { LayoutRow } from './step/layouts.ts';
import { order, type PricedRow, RowPricer } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';

const MICROBATCHES = [1, 2, 4] as const;
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
  const near = [
    ...result.priced.filter((p) => p.fits).slice(0, RUNNERS_UP),
    ...result.priced
      .filter((p) => !p.fits && p.figures.busySeconds < best.figures.seconds)
      .slice(0, RUNNERS_UP),
  ].map(recipeRow);
  const budget = result.budgetBytes;
  const out: WhatIf[] = [];
  const ask = async (change: string, changed: SweepQuestion, fresh: boolean): Promise<void> => {
    if (deadline.isOver) return;
    const priced = await repriced(changed, result, [...new Set(near)], table, fresh);
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
  await ask('1 GiB more memory per device', { ...question, memoryBytes: budget + 2 ** 30 }, false);
  await ask('1 GiB less memory per device', { ...question, memoryBytes: budget - 2 ** 30 }, false);
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

/**
 * Prices rows for another question. Programs of data ranks inside a host do not see the links
 * between hosts.
 */
async function repriced(
  question: SweepQuestion,
  result: SweepResult,
  rows: readonly LayoutRow[],
  table: OperatorTable,
  fresh: boolean,
): Promise<PricedRow[]> {
  const composer = new Composer(question, result.kinds);
  const pricer = new RowPricer(composer, result.kinds, trainerLimits(question));
  const solver = new CoreSolver(question, table, result.kinds);
  const cores = new Map<string, CoreCost>();
  for (const row of rows)
    for (const microbatch of MICROBATCHES) {
      if (composer.microbatches(row.sizes, microbatch) === 0) continue;
      const request = coreRequest(row.sizes, row.kind, microbatch);
      const key = coreKey(request);
      const known = result.cores.get(key);
      if (known === undefined) continue;
      const ways = meshSize(request.axes);
      let core =
        cores.get(key) ?? (fresh && ways > composer.cluster.devicesPerHost ? undefined : known);
      if (core === undefined) {
        const priced = await solver.price(request);
        if (priced.status === 'refused') continue;
        core = priced.core;
      }
      cores.set(key, core);
      pricer.price(row, core, result.routed.get(`${microbatch} ${ways}`));
    }
  return [...pricer.best.values()].sort(order);
}

/** Prices plans of a sweep again for another question: other memory, risk, links or batch. */

import { meshSize } from '../mesh/devices/mesh.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { microbatchSizes } from './model/microbatch-sizes.ts';
import type { SweepQuestion } from './model/question.ts';
import { trainerLimits } from './model/trainer-limits.ts';
import { type CoreCost, coreKey, coreRequest, routedKey } from './model/types.ts';
import { CoreSolver } from './rank/rank-price.ts';
import { Composer } from './step/compose.ts';
import type { LayoutRow } from './step/layouts.ts';
import { order, type PricedRow, RowPricer } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';

/**
 * Prices rows of a sweep for another question, on the programs of data ranks that it has priced.
 *
 * @param fresh true where links between hosts changed: programs that reach over several hosts are
 *   solved again; those inside a host do not see these links
 */
export async function repriced(
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
    for (const microbatch of microbatchSizes(question.sequence)) {
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
      pricer.price(row, core, result.routed.get(routedKey(request)));
    }
  return [...pricer.best.values()].sort(order);
}

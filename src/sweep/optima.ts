/** Takes the best plans of a sweep and gives the unrestricted optimum on the same model dims. */

import { meshSize } from '../mesh/devices/mesh.ts';
import { planName } from '../step/layout.ts';
import { coreRequest } from './model/types.ts';
import { type CoreCost, coreKey, type CoreRequest } from './model/types.ts';
import type { LayoutRow } from './step/layouts.ts';
import { better, order, type PricedRow, RowPricer } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';
import type { SweepPool } from './threads/pool.ts';

/** Model dims on which the free optimum is sought: those of the best plans. */
const PROGRAMS = 3;
/** Recipes whose model dims are set free. */
const ROWS = 64;

/**
 * The free optimum on the model dims of the best plans: every tensor of a data rank's program may
 * lie as it likes over them, and stages and data ranks are as the plan has them. It is solved for
 * the priced layers with the costs that the data ranks of the best of these plans add to each
 * parameter; memory, stages and overlap inside the program are not in that problem, so in all a
 * recipe on the same mesh with the same state sharding may be cheaper. Its placements are choices
 * of the same program: the optimum then has them, and is never more expensive than a recipe on it.
 */
export async function withOptima(
  result: SweepResult,
  pool: SweepPool,
  onProgress?: (line: string) => void,
): Promise<SweepResult> {
  const list = freePrograms(result.priced);
  if (list.length === 0) return result;
  onProgress?.(`solving the optimum of ${list.length} programs`);
  const answers = await pool.run(list.map(({ request }) => ({ kind: 'core', request })));
  const cores = new Map<string, CoreCost>(result.cores);
  const late = answers.filter((answer) => answer === undefined).length;
  const notAsked =
    late === 0
      ? result.notAsked
      : [...result.notAsked, `the optimum of ${late} of ${list.length} programs`];
  const pricer = new RowPricer(result.composer, result.kinds);
  answers.forEach((answer, i) => {
    if (answer?.kind !== 'core' || answer.result.status === 'refused') return;
    const { core } = answer.result;
    cores.set(coreKey(core.request), core);
    const ways = meshSize(core.request.axes);
    const routed = result.routed.get(`${core.request.microbatch} ${ways}`);
    for (const row of list[i].rows) pricer.price(row, core, routed);
  });
  const optima = neverWorse([...pricer.best.values()], result.priced);
  return { ...result, notAsked, cores, priced: [...result.priced, ...optima].sort(order) };
}

/** A program of a data rank whose placements are free, and the plans that take it. */
interface FreeProgram {
  readonly request: CoreRequest;
  readonly rows: LayoutRow[];
}

/** The programs of the best plans, with the data ranks of the best plan of each. */
function freePrograms(priced: readonly PricedRow[]): readonly FreeProgram[] {
  const wanted = new Map<string, FreeProgram>();
  const seen = new Set<string>();
  for (const { row, tuning, figures } of priced.slice(0, ROWS)) {
    const { sizes } = row;
    if (sizes.cp * sizes.tp === 1) continue;
    // Free placements gather keys and values; a ring is no placement.
    const context = row.kind.context === 'ring' ? 'cp' : row.kind.context;
    const kind = { ...row.kind, context, free: true };
    const free: LayoutRow = { ...row, kind, name: planName(sizes, kind) };
    const request = coreRequest(sizes, kind, tuning.microbatch);
    // Two sequence dims of one size are one question: the axis is only named otherwise.
    const key = coreKey(request).replace('sp=', 'cp=');
    const id = `${key} ${row.mesh.replace('sp=', 'cp=')} ${row.kind.mode}`;
    if (seen.has(id) || (!wanted.has(key) && wanted.size === PROGRAMS)) continue;
    seen.add(id);
    const known = wanted.get(key);
    // The placements are chosen for the data ranks of the best plan that wants them; other plans
    // then have them too.
    const { once } = tuning;
    const { microbatches, place } = figures;
    const data = { sizes, mode: kind.mode, context, once, microbatches, visible: place.visible };
    if (known === undefined) wanted.set(key, { request: { ...request, data }, rows: [free] });
    else known.rows.push({ ...free, kind: { ...kind, context: known.rows[0].kind.context } });
  }
  return [...wanted.values()];
}

/**
 * Optima; where a recipe on the same mesh with the same state sharding is better, its placements.
 */
function neverWorse(
  optima: readonly PricedRow[],
  recipes: readonly PricedRow[],
): readonly PricedRow[] {
  const best = new Map<string, PricedRow>();
  for (const priced of recipes) {
    const known = best.get(placeOf(priced));
    if (known === undefined || better(priced, known)) best.set(placeOf(priced), priced);
  }
  return optima.map((optimum) => {
    const sameAsRecipe = best.get(placeOf(optimum));
    return sameAsRecipe === undefined || !better(sameAsRecipe, optimum)
      ? optimum
      : { ...sameAsRecipe, row: optimum.row, like: sameAsRecipe.row };
  });
}

/** Mesh and state sharding. */
function placeOf({ row: { sizes, kind } }: PricedRow): string {
  const { pp, dp_replicate, dp_shard, cp, tp, ep, etp = 1 } = sizes;
  return `${kind.mode} ${[pp, dp_replicate, dp_shard, cp, tp, ep, etp].join()}`;
}

/** Takes the best plans of a sweep and gives the unrestricted optimum on the same model dims. */

import type { OperatorTable } from '../ops/record/table.ts';
import { DEFAULT_RISK } from '../recipes/compare/best-plan.ts';
import { planName } from '../step/layout.ts';
import { countedText } from '../units.ts';
import type { SweepQuestion } from './model/question.ts';
import { type CoreCost, coreKey, type CoreRequest, coreRequest, routedKey } from './model/types.ts';
import { repriced } from './repriced.ts';
import type { LayoutRow } from './step/layouts.ts';
import { better, order, type PricedRow, RowPricer } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';
import type { SweepPool } from './threads/pool.ts';

/** Model dims on which the free optimum is sought: those of the best plans of each ranking. */
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
  question: SweepQuestion,
  result: SweepResult,
  pool: SweepPool,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): Promise<SweepResult> {
  // Who takes a higher risk than usual is never worse off: the programs that are best at the usual
  // one are set free too.
  const rows = result.priced.map(({ row }) => row);
  const usual =
    (question.risk ?? DEFAULT_RISK) < DEFAULT_RISK
      ? [await repriced({ ...question, risk: DEFAULT_RISK }, result, rows, table, false)]
      : [];
  const list = freePrograms([...usual, result.priced]);
  if (list.length === 0) return result;
  onProgress?.(`solving the optimum of ${countedText(list.length, 'program')}`);
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
    const routed = result.routed.get(routedKey(core.request));
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

/**
 * The programs of the best plans of each ranking, with the data ranks of the best plan of the first
 * ranking that wants them.
 */
function freePrograms(rankings: readonly (readonly PricedRow[])[]): readonly FreeProgram[] {
  const wanted = new Map<string, FreeProgram>();
  const seen = new Set<string>();
  for (const priced of rankings) {
    const keys = new Set<string>();
    for (const one of priced.slice(0, ROWS)) {
      const { sizes } = one.row;
      if (sizes.cp * sizes.tp === 1) continue;
      // Free placements gather keys and values; a ring is not a placement.
      const context = one.row.kind.context === 'ring' ? 'cp' : one.row.kind.context;
      const kind = { ...one.row.kind, context, free: true };
      const request = coreRequest(sizes, kind, one.tuning.microbatch);
      // Two sequence dims of one size are one question: the axis is only named otherwise.
      const key = coreKey(request).replace('sp=', 'cp=');
      if (!keys.has(key) && keys.size === PROGRAMS) continue;
      keys.add(key);
      const id = `${key} ${one.row.mesh.replace('sp=', 'cp=')} ${kind.mode}`;
      if (seen.has(id)) continue;
      seen.add(id);
      const free: LayoutRow = { ...one.row, kind, name: planName(sizes, kind) };
      const known = wanted.get(key);
      if (known === undefined)
        wanted.set(key, { request: { ...request, data: dataOf(one, kind) }, rows: [free] });
      else known.rows.push({ ...free, kind: { ...kind, context: known.rows[0].kind.context } });
    }
  }
  return [...wanted.values()];
}

/**
 * The data ranks of a plan, whose costs are added to those of a program: the placements are chosen
 * for them, and other plans that want the program then have them too.
 */
function dataOf(
  { row: { sizes }, tuning: { once }, figures: { microbatches, place } }: PricedRow,
  { mode, context }: LayoutRow['kind'],
): NonNullable<CoreRequest['data']> {
  return { sizes, mode, context, once, microbatches, visible: place.visible };
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

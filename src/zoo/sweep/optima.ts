import { coreKey, type CoreCost, type CoreRequest } from './core-types.ts';
import { coreRequest, planName } from './layout.ts';
import type { LayoutRow } from './layouts.ts';
import type { SweepPool } from './pool.ts';
import { order, RowPricer } from './row-pricer.ts';
import type { SweepResult } from './sweep.ts';

/** Model dims on which the free optimum is sought: those of the best plans. */
const PROGRAMS = 3;
/** Plans of the zoo whose model dims are set free. */
const ROWS = 64;

/**
 * The free optimum on the model dims of the best plans: every tensor of a data rank's program may lie as it likes over them, and
 * stages and data ranks are as the plan has them. It is solved for the priced layers; of the whole model it is a plan, and its
 * bound is that of the priced layers.
 */
export async function withOptima(
  result: SweepResult,
  pool: SweepPool,
  onProgress?: (line: string) => void,
): Promise<SweepResult> {
  const wanted = new Map<string, { readonly request: CoreRequest; readonly rows: LayoutRow[] }>();
  const seen = new Set<string>();
  for (const { row, tuning } of result.priced.slice(0, ROWS)) {
    const { sizes } = row;
    if (sizes.cp * sizes.tp === 1) continue;
    const kind = { ...row.kind, free: true };
    const free: LayoutRow = { ...row, kind, name: planName(sizes, kind) };
    const request = coreRequest(sizes, kind, tuning.microbatch);
    // Two sequence dims of one size are one question: the axis is only named otherwise.
    const key = coreKey(request).replace('sp=', 'cp=');
    const id = `${key} ${row.mesh.replace('sp=', 'cp=')} ${row.kind.mode}`;
    if (seen.has(id) || (!wanted.has(key) && wanted.size === PROGRAMS)) continue;
    seen.add(id);
    const known = wanted.get(key);
    if (known === undefined) wanted.set(key, { request, rows: [free] });
    else known.rows.push({ ...free, kind: { ...kind, context: known.rows[0].kind.context } });
  }
  const list = [...wanted.values()];
  if (list.length === 0) return result;
  onProgress?.(`solving the optimum of ${list.length} programs`);
  const answers = await pool.run(list.map(({ request }) => ({ kind: 'core', request })));
  const cores = new Map<string, CoreCost>(result.cores);
  const pricer = new RowPricer(result.composer, result.kinds.layers);
  answers.forEach((answer, i) => {
    if (answer.kind !== 'core' || answer.result.status === 'refused') return;
    const { core } = answer.result;
    cores.set(coreKey(core.request), core);
    const ways = core.request.axes.reduce((n, a) => n * a.size, 1);
    const routed = result.routed.get(`${core.request.microbatch} ${ways}`);
    for (const row of list[i].rows) pricer.price(row, core, routed);
  });
  return { ...result, cores, priced: [...result.priced, ...pricer.best.values()].sort(order) };
}

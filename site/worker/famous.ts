/**
 * The gallery of published runs. In: rows of measured runs. Out: what was published of each, and
 * what `validate` and `compare --layout` predict of it.
 */
import famous from 'virtual:famous-runs';

import {
  type MeasuredRun,
  parseCsv,
  parseRuns,
  RunPredictor,
  ShardwrightError,
} from '../../src/entries/page.ts';
import { FAMOUS_RUNS } from '../famous-runs.ts';
import type { Answers, FamousRun } from '../protocol.ts';
import { table } from './model.ts';

/** Columns that the gallery shows. */
const COLUMNS = [
  'id',
  'model',
  'gpus',
  'gpu_type',
  'tp',
  'pp',
  'cp',
  'ep',
  'step_time_s',
  'tokens_s_gpu',
  'tflops_gpu',
  'mfu_pct',
  'source_ref',
] as const;
type Column = (typeof COLUMNS)[number];

let runs: ReadonlyMap<string, MeasuredRun> | undefined;

function measured(): ReadonlyMap<string, MeasuredRun> {
  return (runs ??= new Map(parseRuns(famous).runs.map((run) => [run.id, run])));
}

/** The runs as they were published, in the order of the gallery. */
export function famousRuns(): Answers['famous'] {
  const rows = new Map(
    parseCsv(famous, COLUMNS).rows.map(({ cells }) => {
      const of = (column: Column): string => cells.get(column) ?? '';
      return [of('id'), of] as const;
    }),
  );
  return Object.entries(FAMOUS_RUNS).map(([id, name]): FamousRun => {
    const of = rows.get(id);
    const run = measured().get(id);
    if (of === undefined || run?.stepSeconds === undefined)
      throw new ShardwrightError('E_INTERNAL', `internal: the gallery has no run ${id}`);
    return {
      id,
      name,
      devices: `${of('gpus')} × ${of('gpu_type')}`,
      layout: layoutOf(of),
      published: publishedText(of),
      seconds: run.stepSeconds,
      source: of('source_ref'),
    };
  });
}

/** The prediction of a run. @throws E_USAGE where the run has no price */
export async function predicted(id: string): Promise<Answers['predict']> {
  const run = measured().get(id);
  if (run === undefined) throw new ShardwrightError('E_USAGE', `there is no run ${id}`);
  const found = await new RunPredictor(table()).predict(run);
  if ('reason' in found) throw new ShardwrightError('E_USAGE', found.reason);
  return { seconds: found.seconds };
}

/** The cut of the model, and the copies that the rest of the devices hold. */
function layoutOf(of: (column: Column) => string): string {
  return (['tp', 'pp', 'cp', 'ep'] as const)
    .flatMap((dim) => (Number(of(dim)) > 1 ? [`${dim}=${of(dim)}`] : []))
    .join(', ');
}

/** The figure that the source prints. */
function publishedText(of: (column: Column) => string): string {
  if (of('step_time_s') !== '') return `${of('step_time_s')} s a step`;
  if (of('tokens_s_gpu') !== '') return `${of('tokens_s_gpu')} tokens/s a device`;
  if (of('tflops_gpu') !== '') return `${of('tflops_gpu')} TFLOP/s a device`;
  return `${of('mfu_pct')} % of peak`;
}

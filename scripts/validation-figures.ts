/**
 * Writes data/validation.json: how far the predictions of `shardwright validate` on the public runs (test/fixtures/runs) are off,
 * by accelerator and kind of model, which reports quote. Run: npx tsx scripts/validation-figures.ts
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { format } from 'prettier';
import { validateRuns, type RunPrediction } from '../src/cost/validation/validate.ts';
import type { MeasuredErrors } from '../src/report/analysis/measured.ts';

const FILE = fileURLToPath(new URL('../data/validation.json', import.meta.url));

/** The public runs of both fixtures as one table. */
export function publicRuns(): string {
  const [first, second] = ['measured', 'others'].map((name) =>
    gunzipSync(readFileSync(new URL(`../test/fixtures/runs/${name}.csv.gz`, import.meta.url))).toString(),
  );
  return first + second.slice(second.indexOf('\n') + 1);
}

/** The figures of a table of runs, with three digits. */
export function validationFigures(csv: string): { about: string; source: string; rows: MeasuredErrors[] } {
  const { predictions } = validateRuns(csv);
  const groups = new Map<string, RunPrediction[]>();
  for (const p of predictions) {
    const key = `${p.run.system.cluster.accelerator} ${isMixture(p) ? 'experts' : 'dense'}`;
    groups.set(key, [...(groups.get(key) ?? []), p]);
  }
  const rows = [...groups.values()].map((list): MeasuredErrors => {
    const seconds = list.flatMap(({ run, seconds: said }) => run.outOfMemory || run.stepSeconds === undefined ? [] : [Math.abs(said / run.stepSeconds - 1)]); // prettier-ignore
    const bytes = list.flatMap(({ run, peakBytes }) => run.outOfMemory || run.memoryBytes === undefined ? [] : [Math.abs(peakBytes / run.memoryBytes - 1)]); // prettier-ignore
    return {
      accelerator: list[0].run.system.cluster.accelerator,
      experts: isMixture(list[0]),
      runs: seconds.length,
      sources: [...new Set(list.map((p) => p.run.source))].sort(),
      mape: rounded(seconds.length === 0 ? undefined : seconds.reduce((a, b) => a + b, 0) / seconds.length),
      medianApe: rounded(median(seconds)),
      memoryRuns: bytes.length,
      memoryMedianApe: rounded(median(bytes)),
    };
  });
  return {
    about:
      'Errors of shardwright validate, which predicts a training run from its dimensions and its parallel plan with the same tables of hardware; a plan is priced node by node instead, so that these figures say how far such predictions carry, not how far this one does. In-sample: the model was developed on these runs.',
    source: `${predictions.length} published training runs; method, sources and the figures with a source held out: bench/validate.md`,
    rows: rows.sort((a, b) => b.runs - a.runs || (a.accelerator < b.accelerator ? -1 : 1)),
  };
}

function isMixture({ run }: RunPrediction): boolean {
  return run.shape.experts !== undefined && run.shape.experts.count > 1;
}

function median(values: readonly number[]): number | undefined {
  if (values.length === 0) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length % 2 === 1 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function rounded(value: number | undefined): number | null {
  return value === undefined ? null : Number(value.toPrecision(3));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = JSON.stringify(validationFigures(publicRuns()));
  writeFileSync(FILE, await format(text, { filepath: FILE, parser: 'json', printWidth: 120 }));
}

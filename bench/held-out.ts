import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { FITTED, type FittedConstants } from '../src/cost/kernels/fitted.ts';
import { mean, median, regret, spearman } from '../src/cost/validation/metrics.ts';
import { parseRuns, type MeasuredRun } from '../src/cost/validation/runs.ts';
import { predictRun, SMALLEST_GROUP } from '../src/cost/validation/validate.ts';

/**
 * Errors of the training-step model on sources that its constants were not fitted on: every family of sources is left out
 * once, the constants are fitted again on the others from the same start, and the family is predicted. Prints a table of
 * errors as shipped and held out. The structure of the model and the settings of each software were written with all rows in
 * view, and this cannot undo that.
 *
 *   npx tsx bench/held-out.ts runs.csv[.gz] [passes]
 */

/** Where the search starts: round values, none of them tuned. */
const START: FittedConstants = {
  eagerHostSeconds: 30e-6,
  compiledHostSeconds: 10e-6,
  kernelGapSeconds: 5e-6,
  hotMatmulTime: 1.1,
  tailShare: 0.5,
  tailMean: 1,
  unfusedTraffic: 2,
  pointwiseTraffic: 1,
  overlapSlowdown: 1.2,
  hopHostSeconds: 100e-6,
  stepHostSeconds: 10e-3,
};

const FAMILIES: readonly (readonly [string, RegExp])[] = [
  ['vTrain single-node', /single-node/],
  ['vTrain multi-node', /multi-node/],
  ['BLOOM', /BLOOM/],
  ['Korthikanti, SC21', /Korthikanti|SC21/],
  ['llm-foundry', /llm-foundry/],
  ['TorchTitan', /TorchTitan/],
  ['NeMo 24.12', /NeMo 24/],
  ['Megatron-Bridge', /Bridge/],
  ['Bekman, nanotron', /Bekman|nanotron/],
];
/** Of the largest family every fourth run is fitted on; all are predicted. */
const THINNED = /single-node/;

type Timed = MeasuredRun & { readonly stepSeconds: number };
type Name = keyof FittedConstants;

interface Errors {
  readonly rank?: number;
  readonly regret?: number;
  readonly mape: number;
  readonly median: number;
}

function errorsOf(runs: readonly Timed[], constants: FittedConstants): Errors {
  const predicted = runs.map((r) => predictRun(r, constants).seconds);
  const errors = runs.map((r, i) => Math.abs(predicted[i] / r.stepSeconds - 1));
  const groups = new Map<string, number[]>();
  runs.forEach((r, i) => {
    const key = `${r.source}\n${r.group}`;
    groups.set(key, [...(groups.get(key) ?? []), i]);
  });
  const ranked = [...groups.values()].filter((g) => g.length >= SMALLEST_GROUP);
  const of = (g: readonly number[]): readonly [number[], number[]] => [
    g.map((i) => predicted[i]),
    g.map((i) => runs[i].stepSeconds),
  ];
  const rank = mean(ranked.map((g) => spearman(...of(g)) ?? 0));
  const lost = mean(ranked.map((g) => regret(...of(g))));
  return {
    ...(rank !== undefined && { rank }),
    ...(lost !== undefined && { regret: lost }),
    mape: mean(errors) ?? 0,
    median: median(errors) ?? 0,
  };
}

/** What the search lowers: mean over families of the mean and the median error, and of half of the missing rank. */
function loss(families: readonly (readonly Timed[])[], constants: FittedConstants): number {
  const each = families.map((runs) => {
    const { mape, median: middle, rank } = errorsOf(runs, constants);
    return Math.min(mape, 1) + middle + (1 - (rank ?? 1)) / 2;
  });
  return each.reduce((a, b) => a + b, 0) / each.length;
}

/** Coordinate search: each constant in turn by a factor up or down, the factor halved (in its logarithm) every pass. */
function fit(families: readonly (readonly Timed[])[], passes: number): FittedConstants {
  let best = START;
  let least = loss(families, best);
  for (let pass = 0; pass < passes; pass++) {
    const factor = 1.5 ** (1 / 2 ** pass);
    for (const name of Object.keys(START) as Name[])
      for (const by of [factor, 1 / factor]) {
        // Times relative to 1 move by their excess over 1.
        const relative = name === 'hotMatmulTime' || name === 'tailMean' || name === 'overlapSlowdown';
        const value = relative ? 1 + (best[name] - 1 || 0.02) * by : best[name] * by;
        const next = { ...best, [name]: name === 'tailShare' ? Math.min(value, 1) : value };
        const now = loss(families, next);
        if (now < least) {
          least = now;
          best = next;
          break;
        }
      }
  }
  return best;
}

const [path, passesText] = process.argv.slice(2);
const bytes = readFileSync(path);
const table = (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
const timed = parseRuns(table).runs.filter((r): r is Timed => r.stepSeconds !== undefined);
const families = FAMILIES.map(([name, source]) => {
  const runs = timed.filter((r) => source.test(r.source));
  return { name, runs, thin: THINNED.test(runs[0]?.source ?? '') ? runs.filter((_, i) => i % 4 === 0) : runs };
}).filter((f) => f.runs.length > 0);

const show = (e: Errors): string =>
  [
    e.rank === undefined ? '–' : e.rank.toFixed(3),
    e.regret === undefined ? '–' : `${(100 * e.regret).toFixed(1)} %`,
    `${(100 * e.mape).toFixed(1)} %`,
    `${(100 * e.median).toFixed(1)} %`,
  ].join(' | ');
const passes = Number(passesText ?? 3);
const all = fit(
  families.map((f) => f.thin),
  passes,
);
const constantsText = (c: FittedConstants): string =>
  Object.entries(c)
    .map(([k, v]) => `${k} ${Number((v as number).toPrecision(3))}`)
    .join(', ');
console.log(`fitted on all: ${constantsText(all)}\n`);
console.log('| left out | rank, regret, MAPE, median: as shipped | fitted on all | held out |');
for (const left of families) {
  const held = fit(
    families.filter((f) => f !== left).map((f) => f.thin),
    passes,
  );
  console.log(
    `| ${left.name} (${left.runs.length}) | ${show(errorsOf(left.runs, FITTED))} | ${show(errorsOf(left.runs, all))} | ${show(errorsOf(left.runs, held))} |`,
  );
  console.error(`without ${left.name}: ${constantsText(held)}`);
}

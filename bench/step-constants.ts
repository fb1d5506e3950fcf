import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format } from 'prettier';

import { publicRuns } from '../scripts/validation-figures.ts';
import { FITTED, type FittedConstants } from '../src/cost/kernels/fitted.ts';
import { mean, median } from '../src/fidelity/metrics.ts';
import { parseRuns } from '../src/fidelity/runs.ts';
import { predictedSeconds, type RunInParts, runsInParts } from '../src/fidelity/runs-under.ts';
import { builtinOperators } from '../src/ops/builtin.ts';

/**
 * What each fitted constant of a step does for the predictions of `compare` on the public runs:
 * errors with it, and with the value at which it does nothing. Writes the table of
 * bench/compare.md. Compute is linear in products of constants, so that each program is placed once
 * and priced at five points.
 *
 *   npx tsx bench/step-constants.ts [every]
 */
const every = Number(process.argv[2] ?? 6);
const FILE = fileURLToPath(new URL('compare.md', import.meta.url));

/** Values at which a constant does nothing; the two of the last wave go together. */
const WITHOUT: readonly (readonly [string, Partial<FittedConstants>])[] = [
  ['eagerHostSeconds', { eagerHostSeconds: 0 }],
  ['compiledHostSeconds', { compiledHostSeconds: 0 }],
  ['kernelGapSeconds', { kernelGapSeconds: 0 }],
  ['hotMatmulTime', { hotMatmulTime: 1 }],
  ['tailShare, tailMean', { tailShare: 0, tailMean: 1 }],
  ['unfusedTraffic', { unfusedTraffic: 1 }],
  ['pointwiseTraffic', { pointwiseTraffic: 1 }],
  ['hopHostSeconds', { hopHostSeconds: 0 }],
  ['stepHostSeconds', { stepHostSeconds: 0 }],
];

const { runs } = parseRuns(publicRuns());
const groups = [...new Set(runs.filter((r) => /single-node/.test(r.source)).map((r) => r.group))];
const taken = runs.filter(
  (r) =>
    r.stepSeconds !== undefined &&
    (!/single-node/.test(r.source) || groups.indexOf(r.group) % every === 0),
);
const rows: RunInParts[] = [];
for await (const found of runsInParts(taken, builtinOperators()))
  if (!('reason' in found)) rows.push(found);
const errorsOf = (constants: FittedConstants): number[] =>
  rows.map((row) => predictedSeconds(row, constants) / (row.run.stepSeconds ?? NaN) - 1);
const percent = (x: number | undefined): string =>
  `${(100 * (x ?? NaN)).toFixed(1).replace('-', '−')} %`;
const figures = (errors: readonly number[], at: readonly number[]): string =>
  `${percent(median(at.map((i) => errors[i])))}, ` +
  `${percent(mean(at.map((i) => Math.abs(errors[i]))))}`;
const shipped = errorsOf(FITTED);
const all = rows.flatMap((_, i) => (Number.isFinite(shipped[i]) ? [i] : []));
const lines = WITHOUT.map(([name, change]) => {
  const errors = errorsOf({ ...FITTED, ...change });
  const touched = all.filter((i) => Math.abs(errors[i] - shipped[i]) > 0.005);
  const value = name
    .split(', ')
    .map((n) => String(FITTED[n as keyof FittedConstants]))
    .join(', ');
  return (
    `| \`${name}\` | ${value} | ${touched.length} | ${figures(shipped, touched)} | ` +
    `${figures(errors, touched)} |`
  );
});
const table = [
  '| constant | value | rows | with it: bias, MAPE | without it |',
  '| --- | --- | --- | --- | --- |',
  ...lines,
].join('\n');
const text = readFileSync(FILE, 'utf8');
const [before, rest] = text.split('<!-- constants -->');
writeFileSync(
  FILE,
  await format(
    `${before}<!-- constants -->\n\n${table}\n\n<!-- /constants ` +
      `-->${rest.split('<!-- /constants -->')[1]}`,
    {
      parser: 'markdown',
      printWidth: 120,
    },
  ),
);

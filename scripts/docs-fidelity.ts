/**
 * Writes what docs/fidelity.md says of the errors of the model that decides: tables between
 * markers, and docs/pictures/fidelity.svg. In: data/validation.json and bench/predictions.csv. Run
 * after scripts/validation-figures.ts: npx tsx scripts/docs-fidelity.ts
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { format } from 'prettier';

import { type ErrorFigures, type Fidelity, fidelity, poolText } from '../src/cost/error-bands.ts';
import {
  mean,
  median,
  SMALLEST_GROUP,
  spearman,
  weightedQuantile,
} from '../src/fidelity/metrics.ts';
import { fidelityFigure } from '../src/report/figures/fidelity.ts';
import { type Prediction, publicPredictions } from './validation-figures.ts';

const FILE = fileURLToPath(new URL('../docs/fidelity.md', import.meta.url));
const PICTURE = fileURLToPath(new URL('../docs/pictures/fidelity.svg', import.meta.url));

const percent = (x: number | null): string =>
  x === null
    ? '–'
    : `${(100 * x)
        .toFixed(1)
        .replace(/^-/, '−')
        .replace(/^−0\.0$/, '0.0')} %`;
const plain = (x: number | null): string => (x === null ? '–' : x.toFixed(2));

/** Colours of the picture: it stands alone, outside a report's page. */
const STYLE = `text{font:12px system-ui,sans-serif;fill:#333}.soft{fill:#666}.grid{stroke:#8884}.mark{stroke:#777;stroke-width:1.5}
.band{fill:#3b6fb633}.dot{fill:#2b5fa6;opacity:.55}@media(prefers-color-scheme:dark){text{fill:#ccc}.soft{fill:#999}.dot{fill:#7fb0f5}.band{fill:#7fb0f533}}`;

/** The tables by the names of their markers. */
export function fidelityTables({
  about,
  families,
  pools,
  pairs,
  memory,
}: Fidelity): Readonly<Record<string, string>> {
  const figures = ({ bias, mape, median }: ErrorFigures): string =>
    [percent(bias), percent(mape), percent(median)].join(' | ');
  return {
    about,
    families: [
      '| family | runs | as shipped: bias | MAPE | median | rank | regret | without the ' +
        'family: bias | MAPE | median | call by call: bias | MAPE | median |',
      '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
      ...families.map(
        (f) =>
          `| ${f.family} | ${f.runs} | ${figures(f.shipped)} | ${plain(f.shipped.rank)} | ` +
          `${percent(f.shipped.regret)} | ` +
          `${f.heldOut === undefined ? '– | – | –' : figures(f.heldOut)} | ` +
          `${figures(f.calls)} |`,
      ),
    ].join('\n'),
    pools: [
      '| runs of | runs | families | `compare MODEL`: measured over predicted | `plan`, ' +
        '`compare GRAPH` |',
      '| --- | --- | --- | --- | --- |',
      ...pools.map(
        (p) =>
          `| ${poolText(p)} | ${p.runs} | ${p.families.length} | ${plain(p.step.p10)} to ` +
          `${plain(p.step.p90)}, half below ${plain(p.step.p50)} | ${plain(p.calls.p10)} to ` +
          `${plain(p.calls.p90)}, half below ${plain(p.calls.p50)} |`,
      ),
    ].join('\n'),
    pairs:
      `In ${pairs.groups} groups of runs that differ in their plan alone, nine of ten times ` +
      `the plan is slower that is predicted to be slower by more than ${percent(pairs.step)} ` +
      `(\`compare MODEL\`), or ${percent(pairs.calls)} (call by call).`,
    memory:
      `${memory.readings} readings of ${memory.families.length} families: measured over ` +
      `predicted peak ${plain(memory.ratios[3])} (one of ten below), ` +
      `${plain(memory.ratios[19])} (half), ${plain(memory.ratios[35])} (nine of ten below).`,
  };
}

/** Families whose errors differ by layout, and what tells their layouts apart. */
const SPLITS: readonly {
  readonly families: readonly string[];
  readonly of: (p: Prediction) => string;
}[] = [
  {
    families: ['vTrain multi-node', 'BLOOM'],
    of: ({ run: { plan, system } }) =>
      plan.tensor === 1
        ? 'no tensor parallelism'
        : plan.tensor < system.cluster.devicesPerHost
          ? 'tensor parallel over a part of a host'
          : 'tensor parallel over whole hosts',
  },
  {
    families: ['TorchTitan'],
    of: ({ run: { plan, assumptions } }) =>
      assumptions.some((a) => a.startsWith('power-limited'))
        ? 'devices of limited power'
        : plan.context > 1
          ? 'the sequence cut'
          : 'the sequence whole',
  },
];

/** Errors of the shipped model on each kind of layout of a family. */
export function layoutErrors(): string {
  const rows: string[] = [];
  for (const { families, of } of SPLITS)
    for (const family of families) {
      const own = publicPredictions().filter(
        (p) => p.family === family && p.measured !== undefined,
      );
      for (const kind of [...new Set(own.map(of))].sort()) {
        const list = own.filter((p) => of(p) === kind);
        const errors = list.map((p) => p.seconds / (p.measured ?? NaN) - 1);
        const groups = [...new Set(list.map((p) => p.run.group))].map((name) =>
          list.filter((p) => p.run.group === name),
        );
        const ranks = groups
          .filter((g) => g.length >= SMALLEST_GROUP)
          .map(
            (g) =>
              spearman(
                g.map((p) => p.seconds),
                g.map((p) => p.measured ?? NaN),
              ) ?? 0,
          );
        rows.push(
          `| ${family} | ${kind} | ${list.length} | ${percent(median(errors) ?? null)} | ` +
            `${percent(mean(errors.map(Math.abs)) ?? null)} | ${plain(mean(ranks) ?? null)} |`,
        );
      }
    }
  return [
    '| family | layouts | runs | bias | MAPE | rank |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

/** Measured over predicted memory of each family. */
export function memoryReadings(): string {
  const readings = publicPredictions().flatMap(({ run, family, peakBytes }) =>
    run.outOfMemory || run.memoryBytes === undefined
      ? []
      : [{ family, value: run.memoryBytes / peakBytes, weight: 1 }],
  );
  const rows = [...new Set(readings.map((r) => r.family))].map((family) => {
    const own = readings.filter((r) => r.family === family);
    const at = (share: number): string => plain(weightedQuantile(own, share));
    return `| ${family} | ${own.length} | ${at(0.1)} | ${at(0.5)} | ${at(0.9)} |`;
  });
  return [
    '| family | readings | one of ten below | half below | nine of ten below |',
    '| --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

/** The picture of the runs, predicted without their family where that was fitted. */
export function fidelityPicture(): string {
  const timed = publicPredictions().filter((p) => p.measured !== undefined);
  const rows = fidelity().families.map(({ family }) => {
    const ratios = timed
      .filter((p) => p.family === family)
      .map((p) => (p.heldOut ?? p.seconds) / (p.measured ?? NaN));
    const list = ratios.map((value) => ({ value, weight: 1 }));
    return { family, ratios, p10: weightedQuantile(list, 0.1), p90: weightedQuantile(list, 0.9) };
  });
  const svg = fidelityFigure(rows).html.replace('<svg', '<svg xmlns="http://www.w3.org/2000/svg"');
  return `${svg.replace('<title', `<style>${STYLE}</style><title`)}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  let text = readFileSync(FILE, 'utf8');
  for (const [name, table] of Object.entries({
    ...fidelityTables(fidelity()),
    layouts: layoutErrors(),
    readings: memoryReadings(),
  })) {
    const [start, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
    text = `${text.split(start)[0]}${start}\n\n${table}\n\n${end}${text.split(end)[1]}`;
  }
  writeFileSync(FILE, await format(text, { filepath: FILE, parser: 'markdown', printWidth: 120 }));
  writeFileSync(PICTURE, fidelityPicture());
}

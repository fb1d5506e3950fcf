/**
 * `validate`: takes a table of measured training runs and prints, by source and family, what
 * `compare --layout` says of each run against what was measured.
 */

import { ShardwrightError } from '../../../errors.ts';
import { SMALLEST_GROUP } from '../../../fidelity/metrics.ts';
import {
  fitsDevice,
  SAFE,
  type Score,
  validateRuns,
  type Validation,
} from '../../../fidelity/validate.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { csvLines } from '../../../report/written/csv.ts';
import { countedText, tableText } from '../../../units.ts';
import { withRunsTable } from '../../input/runs-table.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { tryFile, writeText } from '../../output/write-file.ts';
import type { ValidateOptions } from './flags.ts';

/** `shardwright validate`: predicted against measured training runs. */
export async function validateCommand(
  path: string,
  options: ValidateOptions,
  io: CliIo,
): Promise<number> {
  if (options.rows !== undefined) tryFile(options.rows, 'table of rows');
  const validation = await withRunsTable(path, async (table) => {
    const found = await validateRuns(table, builtinOperators(), (line) => io.progress(line));
    if (found.sources.length > 0) return found;
    throw new ShardwrightError('E_CSV', 'the table has no rows below its header', {
      hint: 'a row is one measured run',
    });
  });
  answer(io, options, record(validation), () => text(validation, options.groups === true));
  if (options.rows !== undefined)
    writeText(options.rows, csvLines(rowsOf(validation)), 'table of rows');
  return EXIT.ok;
}

/** A row for each row of the table, in its order: what was predicted and measured, or why not. */
function rowsOf({ predictions, skipped }: Validation): (string | number)[][] {
  const rows = [
    ...predictions.map(({ run, seconds, peakBytes }) => ({
      line: run.line,
      cells: [
        run.id,
        run.source,
        seconds,
        run.stepSeconds ?? '',
        peakBytes,
        run.memoryBytes ?? '',
        run.outOfMemory ? 'out of memory' : '',
        '',
      ],
    })),
    ...skipped.map(({ id, source, line, reason }) => ({
      line,
      cells: [id, source, '', '', '', '', '', reason],
    })),
  ].sort((a, b) => a.line - b.line);
  return [
    [
      'id',
      'source',
      'predicted_seconds',
      'measured_seconds',
      'predicted_peak_bytes',
      'measured_peak_bytes',
      'status',
      'not_predicted',
    ],
    ...rows.map(({ cells }) => cells),
  ];
}

/**
 * The record that `--json` prints, with our figures next to the baselines; its keys are a contract,
 * and absent figures are null.
 */
function record(validation: Validation): object {
  const score = (s: Score): object => ({
    spearman: s.spearman ?? null,
    regretMean: s.regretMean ?? null,
    regretMax: s.regretMax ?? null,
    mape: s.mape ?? null,
    medianApe: s.medianApe ?? null,
  });
  return {
    sources: validation.sources.map((s) => ({
      source: s.source,
      rows: s.rows,
      groups: s.groups,
      ...score(s.ours),
      memoryMape: s.memoryMape ?? null,
      oomCorrect: s.oomCorrect ?? null,
      timedRows: s.timedRows,
      rankedGroups: s.rankedGroups,
      memoryRows: s.memoryRows,
      memoryMedianApe: s.memoryMedianApe ?? null,
      memoryBias: s.memoryBias ?? null,
      oomRows: s.oomRows,
      falseAlarms: s.falseAlarms,
      oomBeyondDevice: s.oomBeyondDevice ?? null,
      beyondDevice: s.beyondDevice,
      flopConvention: s.flopConvention,
      baselines: {
        calculon: score(s.calculon),
        constantUtilisation: score(s.constantUtilisation),
        constantUtilisationBubble: score(s.constantUtilisationBubble),
      },
    })),
    groups: validation.groups,
    outOfMemory: validation.predictions
      .filter((p) => p.run.outOfMemory)
      .map((p) => ({
        id: p.run.id,
        peakBytes: p.peakBytes,
        predictedInfeasible: !fitsDevice(p).safe,
        beyondDevice: !fitsDevice(p).fits,
      })),
    skipped: validation.skipped.map((s) => ({ id: s.id, source: s.source, reason: s.reason })),
    assumptions: validation.assumptions,
  };
}

/** How a prediction meets a run that ran out of memory. */
function foundOutOfMemory(prediction: Validation['predictions'][number]): string {
  const { safe, fits } = fitsDevice(prediction);
  if (safe) return 'safe (wrong)';
  return fits ? 'not safe (right, by the band only)' : 'beyond the device (right)';
}

/** Rows without a prediction, those with the same reason in one line. */
function skippedLines({ skipped }: Validation): string[] {
  const reasons = new Map<string, string[]>();
  for (const { id, source, reason } of skipped) {
    const key = `${reason} (${source})`;
    reasons.set(key, [...(reasons.get(key) ?? []), id]);
  }
  return [...reasons].map(
    ([reason, ids]) =>
      `not predicted: ${countedText(ids.length, 'row')}, ${ids.join(', ')}: ${reason}`,
  );
}

function percent(x: number | undefined): string {
  return x === undefined ? '-' : `${(100 * x).toFixed(1)} %`;
}

function plain(x: number | undefined): string {
  return x === undefined ? '-' : x.toFixed(3);
}

function text(validation: Validation, withGroups: boolean): string {
  const lines = [
    sourceTable(validation),
    '',
    ...CONVENTIONS,
    ...outOfMemoryLines(validation),
    ...validation.assumptions.map((a) => `assumed for ${a.rows} rows: ${a.text}`),
    ...skippedLines(validation),
    ...(withGroups ? ['', groupTable(validation)] : []),
  ];
  return lines.map((line) => line.trimEnd()).join('\n');
}

const CONVENTIONS = [
  `rank: mean Spearman over groups of at least ${SMALLEST_GROUP} runs; regret: measured ` +
    'time of our pick over the best, minus 1; memory: MAPE of the peak.',
  'Baselines show rank and MAPE: a layer model with the untouched A100 constants of ' +
    'Calculon, one utilisation per source, and that times the bubble.',
  'FLOPs: step time or tokens/s where a row states them; TFLOPS and MFU rows by the ' +
    'convention that the row names.',
  'Memory: a plan is safe when its peak fits the device with a probability of ' +
    `${100 * SAFE} % by the readings of the public runs.`,
  'Every run is priced as compare --layout prices its layout.',
];

function sourceTable({ sources }: Validation): string {
  const header = [
    'source',
    'rows',
    'groups',
    'rank',
    'regret',
    'worst',
    'MAPE',
    'median',
    'memory',
    'OOM',
    'Calculon-like',
    'constant MFU',
    'MFU x bubble',
  ];
  const pair = (s: Score): string =>
    s.mape === undefined ? '-' : `${plain(s.spearman)} ${percent(s.mape)}`;
  const rows = sources.map((s) => [
    s.source,
    String(s.rows),
    String(s.groups),
    plain(s.ours.spearman),
    percent(s.ours.regretMean),
    percent(s.ours.regretMax),
    percent(s.ours.mape),
    percent(s.ours.medianApe),
    percent(s.memoryMape),
    s.oomRows === 0 ? '-' : `${Math.round((s.oomCorrect ?? 0) * s.oomRows)} of ${s.oomRows}`,
    pair(s.calculon),
    pair(s.constantUtilisation),
    pair(s.constantUtilisationBubble),
  ]);
  return tableText([header, ...rows], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
}

/** The runs that ran out of memory, and false alarms of those that did not. */
function outOfMemoryLines({ predictions, sources }: Validation): string[] {
  const count = (key: 'falseAlarms' | 'beyondDevice'): number =>
    sources.reduce((n, s) => n + s[key], 0);
  return [
    ...predictions
      .filter((p) => p.run.outOfMemory)
      .map(
        (p) =>
          `${p.run.id} ran out of memory: predicted ${(p.peakBytes / 1e9).toFixed(1)} of ` +
          `${(p.run.system.cluster.memoryBytes / 1e9).toFixed(1)} GB, ` +
          foundOutOfMemory(p),
      ),
    `Of the runs that did run, ${count('falseAlarms')} are predicted not to be safe, ` +
      `${count('beyondDevice')} beyond the device.`,
  ];
}

function groupTable({ groups }: Validation): string {
  const rows = groups.map((g) => [
    g.group,
    g.source,
    String(g.rows),
    plain(g.spearman),
    percent(g.regret),
    percent(g.mape),
    g.pick,
    g.best,
  ]);
  const header = ['group', 'source', 'runs', 'rank', 'regret', 'MAPE', 'pick', 'best'];
  return tableText([header, ...rows], [2, 3, 4, 5]);
}

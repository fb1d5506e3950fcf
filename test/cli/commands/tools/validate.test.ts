import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import { publicPredictions } from '../../../../scripts/validation-figures.ts';
import { fitProbability } from '../../../../src/cost/error-bands.ts';
import { modelFlops } from '../../../../src/cost/training/shape.ts';
import { askedRun } from '../../../../src/fidelity/asked-run.ts';
import { parseCsv } from '../../../../src/fidelity/csv.ts';
import { median, ranks, regret, spearman } from '../../../../src/fidelity/metrics.ts';
import { RunPredictor } from '../../../../src/fidelity/predict-run.ts';
import {
  fitsDevice,
  SAFE,
  type SourceReport,
  validationOf,
} from '../../../../src/fidelity/validate.ts';
import { secondsWithoutTrainer } from '../../../../src/fidelity/without-trainer.ts';
import { builtinOperators } from '../../../../src/ops/builtin.ts';
import { csvLines } from '../../../../src/report/written/csv.ts';
import { LayoutPricer } from '../../../../src/sweep/layout/price-layout.ts';
import { FULL } from '../../../support/full.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { cli } from '../../support.ts';

const file = new URL('../../../fixtures/runs/measured.csv.gz', import.meta.url);
const csv = gunzipSync(readFileSync(file)).toString('utf8');
/** Predictions as bench/predictions.csv has them; below some are made again. */
const predictions = publicPredictions();
const validation = validationOf(predictions, []);
const source = (name: RegExp): SourceReport => {
  const found = validation.sources.find((s) => name.test(s.source));
  if (found === undefined) throw new Error(`no source ${String(name)}`);
  return found;
};
const run = (id: string) => {
  const found = validation.predictions.find((p) => p.run.id === id);
  if (found === undefined) throw new Error(`no run ${id}`);
  return found;
};

describe('measured runs: the deciding model', () => {
  const table = builtinOperators();

  test(
    'the file of predictions is what the model says now (else: npx tsx bench/held-out.ts)',
    { timeout: 60_000 },
    async () => {
      const predictor = new RunPredictor(table);
      for (const at of FULL ? [2, 300] : [300]) {
        const { run, seconds, peakBytes, assumed } = predictions[at % predictions.length];
        const found = await predictor.predict(run);
        if ('reason' in found) throw new Error(`${run.id}: ${found.reason}`);
        expect(found.seconds / seconds, run.id).toBeCloseTo(1, 3);
        expect(found.peakBytes / peakBytes, run.id).toBeCloseTo(1, 3);
        const without = await secondsWithoutTrainer([run], table);
        expect((without.get(run.id) ?? NaN) / (assumed ?? NaN), run.id).toBeCloseTo(1, 3);
      }
    },
  );

  test.runIf(FULL)('all of it', { timeout: 7_200_000 }, async () => {
    const predictor = new RunPredictor(table);
    for (const { run, seconds } of predictions) {
      const found = await predictor.predict(run);
      expect('reason' in found ? found.reason : found.seconds / seconds, run.id).toBeCloseTo(1, 3);
    }
  });

  /**
   * Rank, mean and largest regret, MAPE, median error of Calculon with its A100 file, as published
   * beside the table.
   */
  test.each([
    ['vTrain ground truth (multi-node)', 0.548, 0.0225, 0.0455, 0.138, 0.087],
    ['vTrain ground truth (single-node)', 0.572, 0.12, 0.535, 0.381, 0.35],
    ['BigScience BLOOM sweep', 0.073, 0.11, 0.203, 0.314, 0.307],
  ])(
    '%s: better than a published layer model',
    (name, rank, regretMean, regretMax, mape, medianApe) => {
      const { ours } = validation.sources.find((x) => x.source === name)!;
      expect(ours.spearman).toBeGreaterThan(rank);
      expect(ours.regretMean).toBeLessThan(regretMean);
      expect(ours.regretMax).toBeLessThan(regretMax);
      expect(ours.mape).toBeLessThan(mape);
      expect(ours.medianApe).toBeLessThan(medianApe);
    },
  );

  test('what was asked for and is reached: rank, regret and MAPE of three sets', () => {
    const [single, multi, bloom] = [/single/, /multi/, /BLOOM/].map((name) => source(name).ours);
    expect(single.spearman).toBeGreaterThan(0.9);
    expect(single.regretMean).toBeLessThan(0.03);
    expect(single.mape).toBeLessThan(0.1);
    expect(multi.mape).toBeLessThan(0.08);
    expect(multi.spearman).toBeGreaterThan(0.69);
    expect(bloom.spearman).toBeGreaterThan(0.545);
    expect(bloom.mape).toBeLessThan(0.12);
    expect(bloom.regretMean).toBeLessThan(0.02);
    expect(source(/Korthikanti/).ours.mape).toBeLessThan(0.05);
  });

  test('TorchTitan, NeMo, AutoModel, MosaicML and MaxText: the median run', () => {
    for (const [name, rows, most] of [
      [/TorchTitan/, 25, 0.1],
      [/NeMo 24/, 6, 0.1],
      [/AutoModel/, 4, 0.12],
      [/Bridge/, 108, 0.105],
      [/NeMo/, 118, 0.105],
      [/MosaicML/, 130, 0.06],
      [/MaxText/, 18, 0.08],
    ] as const) {
      const errors = predictions
        .filter((p) => name.test(p.run.source) && p.measured !== undefined)
        .map((p) => Math.abs(p.seconds / p.measured! - 1));
      expect(errors).toHaveLength(rows);
      expect(median(errors), String(name)).toBeLessThan(most);
    }
  });

  test('mean errors that missing physics had doubled: Megatron-Core over 48 hosts, MaxText', () => {
    expect(source(/Megatron-Core/).ours.mape).toBeLessThan(0.16);
    expect(source(/MaxText v5p/).ours.mape).toBeLessThan(0.13);
    expect(source(/MaxText v5e/).ours.mape).toBeLessThan(0.07);
  });

  test('Korthikanti: 8.87 % at most, selective recomputation cuts the step by a fifth to a quarter', () => {
    const seconds = (id: string): number => run(id).seconds;
    for (const id of ['r0081', 'r0082', 'r0083', 'r0084'])
      expect(Math.abs(seconds(id) / run(id).run.stepSeconds! - 1)).toBeLessThan(0.0887);
    for (const [full, selective, cut] of [
      ['r0081', 'r0082', 0.225],
      ['r0083', 'r0084', 0.242],
    ] as const)
      expect(Math.abs(1 - seconds(selective) / seconds(full) - cut)).toBeLessThan(0.05);
  });

  test('all families: bias, mean and median error', () => {
    const errors = predictions
      .filter((p) => p.measured !== undefined)
      .map((p) => p.seconds / p.measured! - 1);
    const sizes = errors.map(Math.abs);
    expect(Math.abs(median(errors)!)).toBeLessThan(0.05);
    expect(sizes.reduce((a, b) => a + b, 0) / sizes.length).toBeLessThan(0.11);
    expect(median(sizes)).toBeLessThan(0.09);
  });

  test('every timed run is predicted by constants that were fitted without its family, too', () => {
    const timed = predictions.filter((p) => p.measured !== undefined);
    expect(timed.filter((p) => p.heldOut === undefined)).toEqual([]);
    const errors = timed.map((p) => Math.abs(p.heldOut! / p.measured! - 1));
    expect(median(errors)).toBeGreaterThan(
      median(timed.map((p) => Math.abs(p.seconds / p.measured! - 1)))!,
    );
    expect(median(errors)).toBeLessThan(0.13);
  });

  test('most of the host, launches and clocks is in the whole step: it is nearer than call by call', () => {
    const timed = predictions.filter((p) => p.measured !== undefined);
    const of = (said: (p: (typeof timed)[number]) => number): number =>
      median(timed.map((p) => Math.abs(said(p) / p.measured! - 1)))!;
    expect(of((p) => p.seconds)).toBeLessThan(0.1);
    expect(of((p) => p.seconds)).toBeLessThan(0.5 * of((p) => p.calls));
  });

  test('the baselines have the figures that were published for them', () => {
    const multi = source(/multi/);
    expect(multi.constantUtilisationBubble.spearman).toBeCloseTo(0.718, 2);
    expect(multi.constantUtilisation.mape).toBeCloseTo(0.12, 2);
    expect(source(/BLOOM/).constantUtilisationBubble.spearman).toBeCloseTo(-0.373, 2);
  });
});

describe('runs that ran out of memory', () => {
  test.each(['r0041', 'r0572', 'r0579', 'r0580'])('%s is predicted beyond the device', (id) => {
    expect(fitsDevice(run(id))).toEqual({ fits: false, safe: false });
  });
  // Runs of the same plan with 16 % fewer parameters read 60 to 63 GB (53 GB said); no term of the
  // model scales them to 85.9 GB.
  test('r0630 is missed: nothing tells it from its neighbours', () => {
    expect(fitsDevice(run('r0630')).fits).toBe(true);
  });
  test('the same model and batch with full recomputation fits', () => {
    expect(fitsDevice(run('r0040'))).toEqual({ fits: true, safe: true });
  });
});

describe('memory', () => {
  const read = predictions.filter((p) => p.run.memoryBytes !== undefined && !p.run.outOfMemory);

  test('within 15 % on the median run with a reading', () => {
    expect(read.length).toBeGreaterThan(70);
    expect(median(read.map((p) => Math.abs(p.peakBytes / p.run.memoryBytes! - 1)))).toBeLessThan(
      0.15,
    );
  });

  test('the probability of fitting falls with the peak, and is never certain', () => {
    const of = (peak: number): number => fitProbability(peak, 80e9);
    expect([1e9, 40e9, 60e9, 70e9, 80e9, 100e9, 200e9].map(of)).toEqual(
      [1e9, 40e9, 60e9, 70e9, 80e9, 100e9, 200e9].map(of).sort((a, b) => b - a),
    );
    expect(of(0)).toBeLessThan(1);
    expect(of(1e12)).toBeGreaterThan(0);
  });

  test('of the readings at which a device were safe, nine of ten stay within it where families count the same, eight of ten of all', () => {
    // The least device on which the prediction is safe, run by run.
    const limit = (peak: number): number => {
      let bytes = peak / 2;
      while (fitProbability(peak, bytes) < SAFE) bytes *= 1.01;
      return bytes;
    };
    expect(read.length).toBeGreaterThan(60);
    const isWithin = (p: (typeof read)[number]): boolean =>
      p.run.memoryBytes! <= limit(p.peakBytes);
    const share = (rows: typeof read): number => rows.filter(isWithin).length / rows.length;
    const families = [...new Set(read.map((p) => p.family))].map((name) =>
      share(read.filter((p) => p.family === name)),
    );
    expect(families.reduce((a, b) => a + b, 0) / families.length).toBeCloseTo(0.9, 1);
    // BLOOM's readings are of the driver, with what the process holds besides: 31 of 42 stay
    // within.
    expect(share(read)).toBeGreaterThan(0.8);
  });

  test('nothing is predicted above 63 % of the dense peak', () => {
    for (const { run: r, seconds } of predictions) {
      const { peakFlopsPerSecond: peaks, accelerator } = r.system.cluster;
      if (accelerator.startsWith('TPU')) continue;
      const peak = peaks[r.system.matmulUnit] ?? peaks.bf16 ?? peaks.fp16 ?? 1;
      expect(
        modelFlops(r.shape, r.plan.globalBatch, true) / (seconds * r.devices * peak),
        r.id,
      ).toBeLessThan(0.63);
    }
  });
});

describe('monotone', () => {
  test('more sequence takes more memory and time', { timeout: 60_000 }, async () => {
    const pricer = new LayoutPricer(builtinOperators());
    const r = run('r0524').run;
    let [seconds, bytes] = [0, 0];
    for (const factor of FULL ? [1, 2, 4] : [1, 2]) {
      const longer = { ...r, shape: { ...r.shape, sequence: r.shape.sequence * factor } };
      const asked = askedRun(longer, r.plan, 'nccl');
      if ('reason' in asked) throw new Error(asked.reason);
      const figures = await pricer.price(asked.question, asked.layout);
      expect(figures.seconds).toBeGreaterThan(seconds);
      expect(figures.peakBytes).toBeGreaterThan(bytes);
      [seconds, bytes] = [figures.seconds, figures.peakBytes];
    }
  });

  test('context parallelism keeps r0007 to r0009 within the device', () => {
    for (const id of ['r0007', 'r0008', 'r0009']) expect(fitsDevice(run(id)).fits).toBe(true);
  });
});

describe('the command', () => {
  /**
   * A few rows of the fixture: one group of three runs, one without memory, one with an optimizer
   * on the host.
   */
  const few = (wanted = /^(r0524|r0525|r0526|r0041|r0662),/): string => {
    const dir = temporaryFolder();
    const path = join(dir, 'few.csv');
    const [header, ...lines] = csv.split('\n');
    writeFileSync(path, [header, ...lines.filter((line) => wanted.test(line))].join('\n'));
    return path;
  };

  test('prints one JSON value with every source', { timeout: 60_000 }, async () => {
    const { code, out } = await cli('validate', few(), '--json');
    expect(code).toBe(0);
    const { sources, outOfMemory, skipped } = JSON.parse(out) as {
      sources: Record<string, unknown>[];
      outOfMemory: { id: string; predictedInfeasible: boolean }[];
      skipped: { id: string; reason: string }[];
    };
    for (const s of sources)
      for (const key of [
        'source',
        'rows',
        'groups',
        'spearman',
        'regretMean',
        'mape',
        'memoryMape',
        'oomCorrect',
      ])
        expect(Object.keys(s)).toContain(key);
    expect(sources.reduce((sum, s) => sum + (s.rows as number), 0)).toBe(5);
    expect(outOfMemory).toMatchObject([{ id: 'r0041', predictedInfeasible: true }]);
    expect(skipped).toMatchObject([{ id: 'r0662', reason: 'an optimizer on the host' }]);
  });

  test(
    'prints a table, the convention of FLOPs, rows out of memory and rows without a price',
    { timeout: 60_000 },
    async () => {
      const { code, out } = await cli('validate', few(/^(r0524|r0041|r0662),/), '--groups');
      expect(code).toBe(0);
      expect(out).toContain('FLOPs: step time or tokens/s');
      expect(out).toContain('Every run is priced as compare --layout prices its layout.');
      expect(out).toContain('r0041 ran out of memory');
      expect(out).toContain(
        'not predicted: 1 row, r0662: an optimizer on the host (Bekman H200-vs-B200)',
      );
    },
  );

  test('rows that cannot be predicted are listed, never dropped', async () => {
    const dir = temporaryFolder();
    const lines = csv.split('\n');
    const columns = lines[0].split(',');
    const cells = lines[1].split(',');
    const change = (name: string, value: string) =>
      cells.map((c, i) => (columns[i] === name ? value : c)).join(',');
    const path = join(dir, 'runs.csv');
    writeFileSync(
      path,
      [
        lines[0],
        change('gpu_type', 'Cerebras'),
        change('tp', '3'),
        change('seq', ''),
        lines[1],
      ].join('\n'),
    );
    const { out } = await cli('validate', path, '--json');
    const { skipped, sources } = JSON.parse(out) as {
      skipped: { reason: string }[];
      sources: { rows: number }[];
    };
    expect(skipped.map((s) => s.reason)).toEqual([
      "no hardware figures for 'Cerebras'",
      expect.stringContaining('the degrees multiply to'),
      'no seq',
    ]);
    expect(sources[0].rows).toBe(4);
    // Malformed rows are left out by name, too.
    const odd = [
      [change('layers', 'many'), /E_CSV column 'layers' holds 'many', a number of 0 or more/],
      [change('seq', '-5'), /column 'seq' holds '-5'/],
      [`${lines[1]},1`, /row with \d+ cells; the header has \d+/],
      [change('dtype', 'int7'), /column 'dtype' holds 'int7', bf16, fp16, fp8 or fp4 is expected/],
      [change('status', 'okay'), /column 'status' holds 'okay', ok or OOM is expected/],
      [change('heads', '7'), /hidden \d+ is not a multiple of 7 heads/],
    ] as const;
    writeFileSync(path, [lines[0], ...odd.map(([row]) => row), lines[1]].join('\n'));
    const left = JSON.parse((await cli('validate', path, '--json')).out) as {
      skipped: { reason: string }[];
    };
    expect(left.skipped.map(({ reason }) => reason)).toEqual(
      odd.map(([, reason]) => expect.stringMatching(reason) as string),
    );
    expect((await cli('validate', join(dir, 'none.csv'))).code).toBe(2);
    writeFileSync(path, 'a,b\n1,2\n');
    expect((await cli('validate', path)).err).toContain("no column 'id'");
    // A header alone is not an answer, and every fault names its file.
    writeFileSync(path, `${lines[0]}\n`);
    const empty = await cli('validate', path);
    expect([empty.code, empty.err]).toEqual([
      2,
      expect.stringContaining(`${path}: E_CSV the table has no rows`),
    ]);
  });
});

describe('measures', () => {
  test('ranks with ties, Spearman, regret', () => {
    expect(ranks([3, 1, 3, 2])).toEqual([3.5, 1, 3.5, 2]);
    expect(spearman([1, 2, 3, 4], [10, 20, 30, 40])).toBe(1);
    expect(spearman([1, 2, 3, 4], [40, 30, 20, 10])).toBe(-1);
    expect(spearman([1, 2, 3], [1, 3, 2])).toBeCloseTo(0.5, 12);
    expect(spearman([1, 1, 1], [1, 2, 3])).toBeUndefined();
    expect(regret([5, 1, 9], [10, 12, 8])).toBeCloseTo(0.5, 12);
    expect(regret([1, 1, 9], [10, 12, 8])).toBeCloseTo(11 / 8 - 1, 12);
  });

  test('CSV: quotes, line breaks in cells, faults with their line', () => {
    const table = parseCsv('a,b\r\n"x, ""y""","two\nlines"\n1,2\n', ['a', 'b']);
    expect(table.rows.map((r) => [r.line, r.cells.get('a'), r.cells.get('b')])).toEqual([
      [2, 'x, "y"', 'two\nlines'],
      [4, '1', '2'],
    ]);
    expect(parseCsv('a,b\n1\n', ['a']).rows[0].oddCells).toBe(1);
    expect(() => parseCsv('a,a\n', ['a'])).toThrow(/appears twice/);
    expect(() => parseCsv('a,b\n"x,1\n', ['a'])).toThrow(/never closed/);
    expect(() => parseCsv('', ['a'])).toThrow(/empty/);
  });
});

test('a row whose model is refused is named and left out, and --rows writes the result of every row', async () => {
  const { columns, rows: runs } = parseCsv(csv, ['id', 'hidden', 'heads']);
  const good = columns.map((column) => runs[0].cells.get(column) ?? '');
  // 64 heads of 2880 have 45 channels, which do not turn in pairs; gpt-oss states heads of 64.
  const given: Readonly<Record<string, string>> = { id: 'odd', hidden: '2880', heads: '64' };
  const odd = columns.map((column, c) => given[column] ?? good[c]);
  const at = temporaryFolder();
  writeFileSync(join(at, 'runs.csv'), csvLines([[...columns], odd, good]));
  const rows = join(at, 'rows.csv');
  const { code, out, err } = await cli('validate', join(at, 'runs.csv'), '--rows', rows);
  expect(code, err).toBe(0);
  expect(out).toMatch(/^not predicted: 1 row, odd: E_\w+ .*45 channels/m);
  const written = parseCsv(readFileSync(rows, 'utf8'), ['id', 'not_predicted']).rows;
  expect(written.map(({ cells }) => cells.get('id'))).toEqual(['odd', 'r0001']);
  expect(written[0].cells.get('not_predicted')).toContain('45 channels');
  expect(Number(written[1].cells.get('predicted_seconds'))).toBeGreaterThan(0);
  expect(written[1].cells.get('not_predicted')).toBe('');
});

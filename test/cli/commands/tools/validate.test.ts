import { readFileSync, writeFileSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { beforeAll, describe, expect, test } from 'vitest';
import { median, ranks, regret, spearman } from '../../../../src/cost/validation/metrics.ts';
import { parseCsv } from '../../../../src/cost/validation/csv.ts';
import {
  MEMORY_BAND,
  validateRuns,
  type SourceReport,
  type Validation,
} from '../../../../src/cost/validation/validate.ts';
import { stepTime } from '../../../../src/cost/training/step.ts';
import { stepMemory } from '../../../../src/cost/training/memory.ts';
import { cli } from '../../support.ts';

const file = new URL('../../../fixtures/runs/measured.csv.gz', import.meta.url);
const csv = gunzipSync(readFileSync(file)).toString('utf8');
let validation: Validation;
beforeAll(() => {
  validation = validateRuns(csv);
});
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

describe('CM-60 measured runs (in-sample): not below the published layer model, and what was first to reach', () => {
  /** Rank, mean and largest regret, MAPE, median error of Calculon with its A100 file, as published beside the table. */
  test.each([
    ['vTrain ground truth (multi-node)', 62, 0.548, 0.0225, 0.0455, 0.138, 0.087],
    ['vTrain ground truth (single-node)', 860, 0.572, 0.12, 0.535, 0.381, 0.35],
    ['BigScience BLOOM sweep', 65, 0.073, 0.11, 0.203, 0.314, 0.307],
  ])('%s', (name, rows, rank, regretMean, regretMax, mape, medianApe) => {
    const s = validation.sources.find((x) => x.source === name)!;
    expect(s.rows).toBe(rows);
    expect(s.ours.spearman).toBeGreaterThan(rank);
    expect(s.ours.regretMean).toBeLessThan(regretMean);
    expect(s.ours.regretMax).toBeLessThan(regretMax);
    expect(s.ours.mape).toBeLessThan(mape);
    expect(s.ours.medianApe).toBeLessThan(medianApe);
  });

  test('single-node runs reach the first goal: rank .70, regret 8 %, MAPE 25 %', () => {
    const { ours } = source(/single/);
    expect(ours.spearman).toBeGreaterThan(0.7);
    expect(ours.regretMean).toBeLessThan(0.08);
    expect(ours.mape).toBeLessThan(0.25);
  });

  test('MAPE of the multi-node and BLOOM runs reaches the first goal', () => {
    expect(source(/multi/).ours.mape).toBeLessThan(0.12);
    expect(source(/BLOOM/).ours.mape).toBeLessThan(0.15);
    expect(source(/BLOOM/).ours.regretMean).toBeLessThan(0.08);
  });

  test('BLOOM reaches the first goal in rank', () => {
    expect(source(/BLOOM/).ours.spearman).toBeGreaterThan(0.55);
  });

  test('TorchTitan and NeMo within 12 % on the median run of the whole table', () => {
    const others = gunzipSync(readFileSync(new URL('../../../fixtures/runs/others.csv.gz', import.meta.url))).toString(
      'utf8',
    );
    const { predictions } = validateRuns(csv + others.slice(others.indexOf('\n') + 1));
    for (const [name, rows] of [
      [/TorchTitan/, 25],
      [/NeMo 24/, 7],
      [/Bridge/, 133],
      [/AutoModel/, 4],
      [/NeMo/, 144],
    ] as const) {
      const errors = predictions
        .filter((p) => name.test(p.run.source) && p.run.stepSeconds !== undefined)
        .map((p) => Math.abs(p.seconds / p.run.stepSeconds! - 1));
      expect(errors).toHaveLength(rows);
      expect(median(errors)).toBeLessThan(0.12);
    }
  });

  test('Korthikanti: step time within 3.65 % on average and 8.87 % at most, selective recomputation cuts it by a fifth to a quarter', () => {
    expect(source(/Korthikanti/).ours.mape).toBeLessThan(0.0365);
    for (const id of ['r0081', 'r0082', 'r0083', 'r0084'])
      expect(Math.abs(run(id).seconds / run(id).run.stepSeconds! - 1)).toBeLessThan(0.0887);
    for (const [full, selective, cut] of [
      ['r0081', 'r0082', 0.225],
      ['r0083', 'r0084', 0.242],
    ] as const)
      expect(Math.abs(1 - run(selective).seconds / run(full).seconds - cut)).toBeLessThan(0.05);
  });

  /** GiB on the fullest device, from the notes of the rows: 18 bytes a parameter, and what is saved for the backward pass. */
  test.each([
    ['r0082', 45.56, 9.56],
    ['r0084', 45.56, 12.35],
  ])(
    'Korthikanti %s: weights and optimizer within 8.49 %%, activations within 2.08 %%, as Calculon reports of itself',
    (id, states, activations) => {
      const { shape, plan, system } = run(id).run;
      const memory = stepMemory(shape, plan, system);
      const ours = memory.parameterBytes + memory.gradientBytes + memory.optimizerBytes;
      expect(Math.abs(ours / 2 ** 30 / states - 1)).toBeLessThan(0.0849);
      expect(Math.abs(memory.activationBytes / 2 ** 30 / activations - 1)).toBeLessThan(0.0208);
      // Term by term as bench/validate.md has it: the reading of the table is the sum of the two.
      expect(Math.abs(ours / 2 ** 30 / states - 1)).toBeLessThan(0.03);
      expect(Math.abs(memory.activationBytes / 2 ** 30 / activations - 1)).toBeLessThan(0.006);
      expect(Math.abs((ours + memory.activationBytes) / run(id).run.memoryBytes! - 1)).toBeLessThan(0.025);
    },
  );

  test('the baselines have the figures that were published for them', () => {
    const single = source(/single/).constantUtilisationBubble;
    expect(single.mape).toBeCloseTo(0.54, 2);
    expect(single.spearman).toBeCloseTo(-0.15, 2);
    expect(single.regretMean).toBeCloseTo(1.01, 2);
    const multi = source(/multi/);
    expect(multi.constantUtilisationBubble.spearman).toBeCloseTo(0.718, 2);
    expect(multi.constantUtilisation.mape).toBeCloseTo(0.12, 2);
    expect(source(/BLOOM/).constantUtilisationBubble.spearman).toBeCloseTo(-0.373, 2);
  });
});

describe('CM-61 runs that ran out of memory', () => {
  test.each(['r0041', 'r0572', 'r0579', 'r0580'])('ZO-42 %s is predicted beyond the device', (id) => {
    expect(run(id).fits).toBe(false);
    expect(run(id).safe).toBe(false);
  });
  // Runs of the same plan with 16 % fewer parameters read 60 to 63 GB; no term of the model scales them to 85.9 GB.
  test('r0630 only in part: infeasible by the error band of the prediction, not by the prediction itself', () => {
    const { fits, safe } = run('r0630');
    expect([fits, safe]).toEqual([true, false]);
  });
  test('ZO-42 the same model and batch with full recomputation fits', () => {
    expect(run('r0040').fits).toBe(true);
    expect(run('r0040').safe).toBe(true);
  });
  test('the band holds nine of ten readings, and what the process reserves is counted once', () => {
    const read = validation.predictions.filter((p) => p.run.memoryBytes !== undefined);
    const above = read.filter((p) => p.run.memoryBytes! > MEMORY_BAND * p.peakBytes).length / read.length;
    expect(above).toBeLessThan(0.1);
    for (const p of validation.predictions) expect(p.fits).toBe(p.peakBytes <= p.run.system.cluster.memoryBytes);
    // Rows whose recomputation is not published are as full as the device allows by construction; the others are evidence.
    const stated = validation.predictions.filter((p) => !p.run.outOfMemory && p.run.recomputeModes.length === 1);
    expect(stated.filter((p) => !p.fits).length).toBeLessThan(16);
  });
});

describe('CM-62 memory', () => {
  test('within 15 % on the median run with a reading', () => {
    const errors = validation.predictions
      .filter((p) => p.run.memoryBytes !== undefined)
      .map((p) => Math.abs(p.peakBytes / p.run.memoryBytes! - 1))
      .sort((a, b) => a - b);
    expect(errors.length).toBeGreaterThan(80);
    expect(errors[errors.length >> 1]).toBeLessThan(0.15);
  });

  test('ZO-42 nothing is predicted above 63 % of the dense peak', () => {
    const gpu = validation.predictions.filter((p) => !p.run.system.cluster.accelerator.startsWith('TPU'));
    expect(Math.max(...gpu.map((p) => p.utilisation))).toBeLessThan(0.63);
  });
});

describe('CM-63 monotone', () => {
  test('more sequence takes more memory and time', () => {
    for (const id of ['r0001', 'r0081', 'r0524', 'r0715']) {
      const { shape, plan, system } = run(id).run;
      let seconds = 0;
      let bytes = 0;
      for (const factor of [1, 2, 4, 8]) {
        const longer = { ...shape, sequence: shape.sequence * factor };
        const s = stepTime(longer, plan, system).seconds;
        const b = stepMemory(longer, plan, system).peakBytes;
        expect(s).toBeGreaterThan(seconds);
        expect(b).toBeGreaterThan(bytes);
        seconds = s;
        bytes = b;
      }
    }
  });

  test('context parallelism keeps r0007 to r0009 within the device; ZO-42 the sequence series rises', () => {
    for (const id of ['r0007', 'r0008', 'r0009']) expect(run(id).fits).toBe(true);
    const series = ['r0662', 'r0664', 'r0666', 'r0668', 'r0670', 'r0672'].map((id) => run(id).peakBytes);
    series.forEach((b, i) => i > 0 && expect(b).toBeGreaterThan(series[i - 1]));
  });
});

describe('ZO-40 the command', () => {
  test('prints one JSON value with every source', async () => {
    const { code, out } = await cli('validate', file.pathname, '--json');
    expect(code).toBe(0);
    const { sources, outOfMemory, skipped } = JSON.parse(out) as {
      sources: Record<string, unknown>[];
      outOfMemory: { id: string; predictedInfeasible: boolean }[];
      skipped: unknown[];
    };
    for (const s of sources)
      for (const key of ['source', 'rows', 'groups', 'spearman', 'regretMean', 'mape', 'memoryMape', 'oomCorrect'])
        expect(Object.keys(s)).toContain(key);
    expect(sources.reduce((sum, s) => sum + (s.rows as number), 0)).toBe(1176);
    expect(outOfMemory.map((o) => o.id).sort()).toEqual(['r0041', 'r0572', 'r0579', 'r0580', 'r0630']);
    expect(skipped).toEqual([]);
  });

  test('prints a table, the convention of FLOPs, and rows out of memory one by one', async () => {
    const { code, out } = await cli('validate', file.pathname, '--groups');
    expect(code).toBe(0);
    expect(out).toContain('FLOPs: step time or tokens/s');
    expect(out).toContain('r0630 ran out of memory');
    expect(out).toContain('GPT-40L-6144h/256/1024');
  });

  test('rows that cannot be predicted are listed, never dropped', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'shardwright-'));
    const lines = csv.split('\n');
    const columns = lines[0].split(',');
    const cells = lines[1].split(',');
    const change = (name: string, value: string) => cells.map((c, i) => (columns[i] === name ? value : c)).join(',');
    const path = join(dir, 'runs.csv');
    writeFileSync(
      path,
      [lines[0], change('gpu_type', 'Cerebras'), change('tp', '3'), change('seq', ''), lines[1]].join('\n'),
    );
    const { out } = await cli('validate', path, '--json');
    const { skipped, sources } = JSON.parse(out) as { skipped: { reason: string }[]; sources: { rows: number }[] };
    expect(skipped.map((s) => s.reason)).toEqual([
      "no hardware figures for 'Cerebras'",
      expect.stringContaining('the degrees multiply to'),
      'no seq',
    ]);
    expect(sources[0].rows).toBe(4);
    writeFileSync(path, [lines[0], change('layers', 'many')].join('\n'));
    const bad = await cli('validate', path);
    expect([bad.code, bad.err]).toEqual([2, expect.stringContaining("column 'layers' holds 'many'")]);
    expect((await cli('validate', join(dir, 'none.csv'))).code).toBe(2);
    writeFileSync(path, 'a,b\n1,2\n');
    expect((await cli('validate', path)).err).toContain("no column 'id'");
    // A header alone is no answer, and every fault names its file.
    writeFileSync(path, `${lines[0]}\n`);
    const empty = await cli('validate', path);
    expect([empty.code, empty.err]).toEqual([2, expect.stringContaining(`${path}: E_CSV the table has no rows`)]);
    writeFileSync(path, [lines[0], change('seq', '-5')].join('\n'));
    expect((await cli('validate', path)).err).toContain(
      `${path}:2:1: E_CSV column 'seq' holds '-5', a number of 0 or more`,
    );
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
    expect(() => parseCsv('a,b\n1\n', ['a'])).toThrow(/row with 1 cells/);
    expect(() => parseCsv('a,a\n', ['a'])).toThrow(/appears twice/);
    expect(() => parseCsv('a,b\n"x,1\n', ['a'])).toThrow(/never closed/);
    expect(() => parseCsv('', ['a'])).toThrow(/empty/);
  });
});

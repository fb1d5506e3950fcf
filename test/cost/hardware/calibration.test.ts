import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import { ATTENTION_SHARE, computeCost, matrixPeak } from '../../../src/cost/compute.ts';
import { fitMatmulCurve } from '../../../src/cost/hardware/calibrate.ts';
import { calibratedClusterText } from '../../../src/cost/hardware/calibrated-text.ts';
import { parseCalibration } from '../../../src/cost/hardware/calibration.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { matrixSeconds } from '../../../src/cost/kernels/matmul.ts';
import { presetComputeCost } from '../../../src/cost/presets/presets.ts';
import { bindCall, withOutputs } from '../../../src/ops/record/context.ts';
import { defineOp } from '../../../src/ops/record/record.ts';
import { cli, fixture } from '../../cli/support.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const PEAK = 989.4e12;
const shapes = [128, 512, 2048, 8192].flatMap((m) =>
  [1024, 4096].flatMap((k) => [1024, 8192].map((n) => ({ m, k, n }))),
);
/** Times that follow a known curve exactly. */
const synthetic = (plateau: number, half: number) =>
  shapes.map(({ m, k, n }) => {
    const flops = 2 * m * k * n;
    const intensity = flops / (2 * (m * k + k * n + m * n));
    return {
      m,
      k,
      n,
      itemBytes: 2,
      seconds: flops / (PEAK * ((plateau * intensity) / (intensity + half))),
    };
  });
const calibration = (plateau = 0.7, half = 90) => ({
  version: 1,
  device: 'NVIDIA H100 80GB HBM3',
  matmul: { bf16: synthetic(plateau, half) },
  memory: [12, 16, 20, 24, 28].map((k) => ({
    bytes: 2 ** k,
    seconds: 3e-6 + 2 ** k / (3350e9 * 0.9),
  })),
  launchSeconds: 2.5e-6,
  matmulLaunchSeconds: 5e-6,
});

describe('calibration', () => {
  test('the curve that made the points is found again', () => {
    const curve = fitMatmulCurve(synthetic(0.7, 90), PEAK, 'bf16');
    expect(curve.plateau).toBeCloseTo(0.7, 6);
    expect(curve.halfIntensity).toBe(90);
  });

  test('a calibrated cluster prices kernels as measured, says so, and keeps the rest', () => {
    const text = calibratedClusterText('dgx-h100', parseCalibration(JSON.stringify(calibration())));
    const c = loadCluster(text);
    const base = loadCluster('dgx-h100');
    expect(c.launchSeconds).toBe(2.5e-6);
    expect(c.memoryEfficiency).toBeCloseTo(0.9, 2);
    expect([c.memoryBytes, c.intra, c.devicesPerHost]).toEqual([
      base.memoryBytes,
      base.intra,
      base.devicesPerHost,
    ]);
    expect(c.sources.matmulCurves).toContain('NVIDIA H100');
    const { flopsPerSecond, unit } = matrixPeak(c, 'bf16');
    for (const { m, k, n, seconds } of synthetic(0.7, 90)) {
      const bytes = 2 * (m * k + k * n + m * n);
      expect(matrixSeconds(2 * m * k * n, bytes, flopsPerSecond, c, unit)).toBeCloseTo(seconds, 9);
    }
    let before = 0;
    for (let k = 0; k < 40; k++) {
      const seconds = matrixSeconds(2 ** k, 2 ** 20, flopsPerSecond, c, unit);
      expect(seconds).toBeGreaterThanOrEqual(before);
      before = seconds;
    }
  });

  test("a cluster file keeps the user's own fields", () => {
    const text = calibratedClusterText(
      '{"base": "dgx-h100", "devicesPerHost": 4}',
      parseCalibration(JSON.stringify(calibration())),
    );
    expect(loadCluster(text).devicesPerHost).toBe(4);
  });

  test.each([
    ['{oops', /not JSON/],
    ['{"version": 2, "device": "x"}', /does not fit.*version/s],
    [
      '{"version": 1, "device": "x", "matmul": {"bf16": [{"m": 1, "k": 1, "n": 1, "itemBytes": 2, "seconds": -1}]}}',
      /seconds/,
    ],
    ['{"version": 1, "device": "x", "speed": 3}', /speed/],
  ])('%s is refused', (text, message) => {
    expect(() => parseCalibration(text)).toThrow(message);
  });

  test('a calibration of another device is refused', () => {
    const of =
      (json: object, cluster = 'dgx-h100') =>
      () =>
        calibratedClusterText(cluster, parseCalibration(JSON.stringify(json)));
    expect(of(calibration(), 'dgx-v100')).toThrow(/has no bf16 units/);
    expect(of(calibration(0.9, 5), 'dgx-a100-80gb')).toThrow(/% of the bf16 peak/);
    expect(of({ ...calibration(), matmul: { bf16: synthetic(0.7, 90).slice(0, 2) } })).toThrow(
      /at least 3/,
    );
  });

  test('plan --calibration prices with it, and errors name the file', async () => {
    const dir = temporaryFolder();
    const path = join(dir, 'calibration.json');
    const plan = async (...more: string[]) => {
      const { code, out, err } = await cli(
        'plan',
        fixture('mlp'),
        '--mesh',
        'dp=2',
        '--cluster',
        'dgx-h100',
        '--json',
        '--quiet',
        ...more,
      );
      return {
        code,
        text: out + err,
        seconds:
          code === 0
            ? (JSON.parse(out) as { objective: { computeSeconds: number } }).objective
                .computeSeconds
            : NaN,
      };
    };
    // Launches of a tenth: a graph of small kernels takes a tenth of the time.
    writeFileSync(
      path,
      JSON.stringify({
        version: 1,
        device: 'test',
        launchSeconds: 4e-7,
        matmulLaunchSeconds: 9e-7,
      }),
    );
    const before = await plan();
    const after = await plan('--calibration', path);
    expect(after.seconds).toBeLessThan(0.5 * before.seconds);
    writeFileSync(path, '{');
    expect((await plan('--calibration', path)).text).toContain('E_CALIBRATION');
    expect((await plan('--calibration', join(dir, 'none.json'))).text).toContain(
      'cannot read the calibration file',
    );
    for (const command of [
      ['audit', fixture('mlp'), '--plan', 'zoo:dp', '--mesh', 'dp=2'],
      ['compare', fixture('mlp'), '--devices', '2'],
    ])
      expect((await cli(...command, '--cluster', 'dgx-h100', '--calibration', path)).err).toContain(
        'E_CALIBRATION',
      );
  });
});

describe('attention as a kernel', () => {
  const attention = defineOp('test.attention', {
    schema: 'Tensor q, Tensor k, Tensor v',
    cls: 'attention',
    infer: (ctx) => [ctx.inputs[0]],
    flops: (ctx) => {
      const [b, h, s, d] = ctx.inputs[0].shape;
      return { matrix: 4 * b * h * s * s * d, vector: 0 };
    },
  });
  const meta = { dtype: 'bf16', shape: [4, 32, 8192, 128] } as const;
  const args = ['q', 'k', 'v'].map((name) => ({ kind: 'value' as const, name }));
  const bound = bindCall(attention, args, {}, () => meta);
  const ctx = withOutputs(bound, attention.infer(bound));
  const cluster = loadCluster('dgx-h100');

  test('nccl prices it at what such kernels reach; other presets keep their price', () => {
    const flops = 4 * 4 * 32 * 8192 * 8192 * 128;
    expect(presetComputeCost('nccl', attention, ctx, cluster).seconds).toBeCloseTo(
      flops / (PEAK * ATTENTION_SHARE),
      9,
    );
    const plain = computeCost(attention, ctx, cluster);
    expect(presetComputeCost('alpha-beta', attention, ctx, cluster)).toEqual(plain);
    expect(plain.seconds).toBeLessThan(flops / (PEAK * ATTENTION_SHARE));
  });

  describe('measured', () => {
    const backwardOf = defineOp('test.attention_backward', {
      schema: 'Tensor q, Tensor k, Tensor v',
      cls: 'attention',
      infer: (c) => [c.inputs[0]],
      flops: (c) => {
        const [b, h, s, d] = c.inputs[0].shape;
        return { matrix: 10 * b * h * s * s * d, vector: 0 };
      },
    });
    /** Large kernels at the given shares of the peak, small ones at a tenth of them. */
    const points = (forward: number, backward: number) =>
      [256, 512, 1024, 2048, 4096, 8192].flatMap((rows) =>
        [false, true].map((isBackward) => {
          const flops = (isBackward ? 10 : 4) * 2 * 32 * rows * rows * 128;
          const share = (isBackward ? backward : forward) * (rows < 2048 ? 0.1 : 1);
          return {
            unit: 'bf16',
            batch: 2,
            heads: 32,
            rows,
            channels: 128,
            backward: isBackward,
            seconds: flops / (PEAK * share),
          };
        }),
      );
    const text = (attentionPoints: object[], name = 'dgx-h100') =>
      calibratedClusterText(
        name,
        parseCalibration(
          JSON.stringify({ version: 1, device: 'test', attention: attentionPoints }),
        ),
      );

    test('attention costs what large kernels reach, forward and backward, under every preset of ours', () => {
      const c = loadCluster(text(points(0.6, 0.45)));
      expect(c.attentionShares?.forwardShare).toBeCloseTo(0.6, 9);
      expect(c.attentionShares?.backwardShare).toBeCloseTo(0.45, 9);
      expect(c.sources.attentionShares).toContain('calibration on test');
      const whole = 4 * 32 * 8192 * 8192 * 128;
      for (const preset of ['alpha-beta', 'nccl', 'dtensor']) {
        const priced = presetComputeCost(preset, attention, ctx, c);
        expect(priced.seconds).toBeCloseTo((4 * whole) / (PEAK * 0.6), 9);
        expect(priced.source).toContain('calibrated');
        expect(presetComputeCost(preset, backwardOf, ctx, c).seconds).toBeCloseTo(
          (10 * whole) / (PEAK * 0.45),
          9,
        );
      }
      // The literal preset stays literal.
      expect(presetComputeCost('autoparallel', attention, ctx, c)).toEqual(
        presetComputeCost('autoparallel', attention, ctx, cluster),
      );
    });

    test('points of one direction change nothing; above the peak and without the unit they are refused', () => {
      expect(
        loadCluster(text(points(0.6, 0.45).filter((p) => !p.backward))).attentionShares,
      ).toBeUndefined();
      expect(() => text(points(1.1, 0.45))).toThrow(
        /attention of \d+ rows at 110 % of the bf16 peak/,
      );
      expect(() => text(points(0.6, 0.45), 'dgx-v100')).toThrow(/has no bf16 units/);
    });
  });
});

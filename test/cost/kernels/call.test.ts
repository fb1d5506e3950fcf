import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { matrixCall, memoryCall, type StepSystem } from '../../../src/cost/kernels/call.ts';
import { FITTED } from '../../../src/cost/kernels/fitted.ts';
import { matrixSeconds } from '../../../src/cost/kernels/matmul.ts';
import { DEFAULT_SOFTWARE, type StepSoftware } from '../../../src/cost/kernels/software.ts';
import { tailFactor } from '../../../src/cost/kernels/tiles.ts';
import type { Node, ValueType } from '../../../src/graph/types.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { bind } from '../../../src/ops/record/infer.ts';
import type { TypedContext } from '../../../src/ops/record/record.ts';

const table = builtinOperators();
const system = (cluster: string, software: Partial<StepSoftware> = {}): StepSystem => ({
  cluster: loadCluster(cluster),
  software: { ...DEFAULT_SOFTWARE, ...software },
  constants: FITTED,
});

function call(
  target: string,
  shapes: readonly (readonly number[])[],
  rest: Node['args'] = [],
  out?: ValueType,
): TypedContext {
  const types = new Map(
    shapes.map((shape, i): [string, ValueType] => [
      `x${i}`,
      { kind: 'tensor', dtype: 'bf16', shape },
    ]),
  );
  const args = [...shapes.map((_, i) => ({ kind: 'value' as const, name: `x${i}` })), ...rest];
  const made: ValueType = out ?? {
    kind: 'tensor',
    dtype: 'bf16',
    shape: [shapes[0][0], shapes[1][1]],
  };
  const node: Node = { kind: 'call', name: 'y', target, args, kwargs: {}, type: made, meta: {} };
  const context = bind(table, node, (name) => types.get(name) ?? made);
  if (context === undefined) throw new Error('not bound');
  return context;
}

const record = (name: string): NonNullable<ReturnType<typeof table.get>> => {
  const found = table.get(name);
  if (found === undefined) throw new Error(name);
  return found;
};

describe('seconds of calls in a step', () => {
  const mm = record('aten.mm.default');
  const gap = FITTED.kernelGapSeconds;

  it('a product that is thinner than a tile takes about as long as reading its operands', () => {
    const h100 = system('dgx-h100');
    const { memoryBytesPerSecond: rate } = h100.cluster;
    const [m, k] = [4096, 4096];
    // Adapters and routers of few experts have few columns; modulations, heads and single tokens
    // have few rows.
    const columns = (n: number): readonly [number, number, number] => [m, k, n];
    const rows = (n: number): readonly [number, number, number] => [n, k, m];
    for (const sizes of [columns, rows]) {
      const seconds = (n: number): number => {
        const [a, b, c] = sizes(n);
        const product = call('aten.mm.default', [
          [a, b],
          [b, c],
        ]);
        return matrixCall(mm, product, h100)!.seconds - gap;
      };
      for (const n of [1, 8, 16, 32, 63]) {
        expect(seconds(n)).toBeLessThanOrEqual(seconds(n + 1));
        const bytes = 2 * (m * k + k * n + m * n);
        // Memory is what it waits for: within half and twice of reading it at the full rate.
        expect(seconds(n) / (bytes / rate)).toBeGreaterThan(1);
        expect(seconds(n) / (bytes / rate)).toBeLessThan(2);
      }
    }
  });

  it('a product by its roofline, on whole waves of tiles, at the clocks of a long step', () => {
    const a100 = system('dgx-a100-80gb');
    const [m, k, n] = [2048, 4096, 7168];
    const alone = matrixSeconds(
      2 * m * k * n,
      2 * (m * k + k * n + m * n),
      312e12,
      a100.cluster,
      'bf16',
    );
    const waves = tailFactor(m, n, 1, a100.cluster.accelerator);
    expect(waves).toBeCloseTo(540 / 448, 12);
    const tail = (1 + FITTED.tailShare * (waves - 1)) / FITTED.tailMean;
    expect(
      matrixCall(
        mm,
        call('aten.mm.default', [
          [m, k],
          [k, n],
        ]),
        a100,
      )?.seconds,
    ).toBeCloseTo(alone * tail + gap, 12);
    const h100 = system('dgx-h100');
    const big = call('aten.mm.default', [
      [33 * 256, 8192],
      [8192, 8 * 128 * 4],
    ]);
    const flops = 2 * 33 * 256 * 8192 * 4096;
    const bytes = 2 * (33 * 256 * 8192 + 8192 * 4096 + 33 * 256 * 4096);
    const peak = h100.cluster.peakFlopsPerSecond.bf16;
    const cold = matrixSeconds(flops, bytes, peak, h100.cluster, 'bf16');
    // 33 x 32 tiles are 8 whole waves of 132.
    expect(matrixCall(mm, big, h100)?.seconds).toBeCloseTo(
      (cold * FITTED.hotMatmulTime) / FITTED.tailMean + gap,
      12,
    );
  });

  it('projections in one kernel cost together what one product of all columns costs', () => {
    const s = system('dgx-a100-80gb');
    const third = call('aten.mm.default', [
      [4096, 1024],
      [1024, 1024],
    ]);
    const whole = call('aten.mm.default', [
      [4096, 1024],
      [1024, 3072],
    ]);
    const shared = matrixCall(mm, third, s, { columns: 3072 });
    const one = matrixCall(mm, whole, s);
    expect(shared?.kernels).toBeCloseTo(1 / 3, 12);
    expect(3 * (shared?.seconds ?? 0)).toBeGreaterThan(one?.seconds ?? Infinity);
    expect(3 * (shared?.seconds ?? 0)).toBeLessThan(3 * (matrixCall(mm, third, s)?.seconds ?? 0));
  });

  it('a narrow unit has twice the peak and pays for its casts, weights only once a step', () => {
    const wide = system('dgx-h100');
    const narrow = system('dgx-h100', {
      narrowUnit: 'fp8',
      narrowCastBytes: 3,
      castWeightsKept: true,
    });
    const context = call('aten.mm.default', [
      [16384, 8192],
      [8192, 8192],
    ]);
    const seconds = (s: StepSystem, role = {}): number =>
      matrixCall(mm, context, s, role)?.seconds ?? NaN;
    expect(seconds(narrow)).toBe(seconds(wide));
    const kept = seconds(narrow, { narrow: true, weight: true });
    expect(kept).toBeLessThan(0.8 * seconds(wide));
    const cast = memoryCall(3 * 8192 * 8192, 1, narrow).seconds;
    expect(seconds(narrow, { narrow: true }) - kept).toBeCloseTo(cast, 12);
  });

  it('fused attention counts scores below the diagonal, stored scores are written and read', () => {
    const name = 'aten._scaled_dot_product_flash_attention_for_cpu.default';
    const attention = record(name);
    const [b, h, s, d] = [1, 16, 4096, 128];
    const at = (causal: boolean): TypedContext =>
      call(
        name,
        [
          [b, h, s, d],
          [b, h, s, d],
          [b, h, s, d],
        ],
        [{ kind: 'float', value: 0 }, causal],
      );
    const flash = system('dgx-a100-80gb', { attentionShare: 0.4 });
    const seconds = matrixCall(attention, at(true), flash)?.seconds ?? NaN;
    expect(seconds).toBeCloseTo((4 * b * h * s * s * d) / 2 / (0.4 * 312e12) + gap, 12);
    expect(matrixCall(attention, at(false), flash)?.seconds).toBeCloseTo(
      2 * (seconds - gap) + gap,
      12,
    );
    const stored = system('dgx-a100-80gb', { flashAttention: false });
    const traffic = memoryCall(b * h * s * s * 4, 0, stored).seconds;
    const kept = matrixCall(attention, at(true), stored);
    expect(kept?.seconds).toBeGreaterThan(seconds + traffic);
    expect(kept?.kernels).toBe(10);
    const dropped = matrixCall(
      attention,
      at(true),
      system('dgx-a100-80gb', { flashAttention: false, dropout: true }),
    );
    expect((dropped?.seconds ?? 0) - (kept?.seconds ?? 0)).toBeCloseTo(
      memoryCall(b * h * s * s * 5, 0, stored).seconds,
      12,
    );
  });
});

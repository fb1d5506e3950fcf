import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import {
  autoparallelCompute,
  autoparallelModel,
  autoparallelRedistributionSeconds,
} from '../../../src/cost/presets/autoparallel.ts';
import { collectiveModel, presetComputeCost } from '../../../src/cost/presets/presets.ts';
import type { DType } from '../../../src/graph/types.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';
import { bindCall, withOutputs } from '../../../src/ops/record/context.ts';
import {
  defineOp,
  type OperatorRecord,
  type TypedContext,
} from '../../../src/ops/record/record.ts';

const h100 = loadCluster('dgx-h100');
const mm = defineOp('test.mm', {
  schema: 'Tensor self, Tensor mat2',
  cls: 'matmul',
  infer: (ctx) => [
    { dtype: ctx.inputs[0].dtype, shape: [ctx.inputs[0].shape[0], ctx.inputs[1].shape[1]] },
  ],
  flops: (ctx) => ({
    matrix: 2 * ctx.inputs[0].shape[0] * ctx.inputs[0].shape[1] * ctx.inputs[1].shape[1],
    vector: 0,
  }),
});
const add = defineOp('test.add', {
  schema: 'Tensor self, Tensor other',
  cls: 'pointwise',
  infer: (ctx) => [ctx.inputs[0]],
});
const view = defineOp('test.view', {
  schema: 'Tensor self',
  cls: 'view',
  infer: (ctx) => [ctx.inputs[0]],
});

function call(
  record: OperatorRecord,
  ...inputs: { dtype: DType; shape: readonly number[] }[]
): TypedContext {
  const args = inputs.map((_, i) => ({ kind: 'value' as const, name: `x${i}` }));
  const ctx = bindCall(record, args, {}, (name) => inputs[Number(name.slice(1))]);
  return withOutputs(ctx, record.infer(ctx));
}
const product = (m: number, k: number, n: number, dtype: DType = 'bf16') =>
  call(mm, { dtype, shape: [m, k] }, { dtype, shape: [k, n] });
const micros = (record: OperatorRecord, ctx: TypedContext) =>
  autoparallelCompute(record, ctx, h100).seconds * 1e6;

describe('compute goldens of the preset autoparallel on H100', () => {
  test.each([
    ['mm 4096^3 bf16', mm, product(4096, 4096, 4096), 198.525],
    ['mm 4096^3 f32', mm, product(4096, 4096, 4096, 'f32'), 397.452],
    ['mm 2048x1024x4096 f32', mm, product(2048, 1024, 4096, 'f32'), 49.682],
    ['mm 16x8192x8192 bf16', mm, product(16, 8192, 8192), 52.259],
    [
      'add 8192^2 bf16',
      add,
      call(add, { dtype: 'bf16', shape: [8192, 8192] }, { dtype: 'bf16', shape: [8192, 8192] }),
      156.167,
    ],
    ['1 kB op', add, call(add, { dtype: 'f32', shape: [85] }, { dtype: 'f32', shape: [85] }), 7],
    ['view', view, call(view, { dtype: 'f32', shape: [8192, 8192] }), 0],
  ] as const)('%s', (_, record, ctx, expected) => {
    expect(Math.abs(micros(record, ctx) - expected)).toBeLessThan(0.001);
  });

  test('unknown devices and dtypes name the known ones', () => {
    const hint = (f: () => unknown): string => {
      try {
        f();
      } catch (error) {
        const e = error as { message: string; details: { hint?: string } };
        return `${e.message} ${e.details.hint ?? ''}`;
      }
      throw new Error('nothing was thrown');
    };
    expect(
      hint(() => autoparallelCompute(add, product(8, 8, 8), loadCluster('tpu-v4-pod'))),
    ).toMatch(/TPU-v4.*H100, B200/);
    expect(hint(() => autoparallelCompute(mm, product(8, 8, 8, 'f8e4m3fn'), h100))).toMatch(
      /no f8e4m3fn peak for H100.*bf16/,
    );
  });
});

describe('redistributions as AutoParallel prices them: H100, mesh (8,8), 32 MiB', () => {
  const mesh = parseMesh('a=8,b=8');
  const space = new ShardingSpace(mesh);
  const model = autoparallelModel(h100, mesh);
  const price = (from: string, to: string, contiguous = true): number => {
    const sharding = (text: string) =>
      space.get(space.parse(text.replace(/S(\d)/g, 'S($1)').replace(/P/g, 'P(sum)')));
    const move = { bytes: 32 * 2 ** 20, contiguous };
    return autoparallelRedistributionSeconds(model, h100, sharding(from), sharding(to), move) * 1e6;
  };
  test.each([
    ['S0S0', 'RR', 271.719],
    ['S0R', 'RR', 717.592],
    ['RS0', 'RR', 115.164],
    ['S1R', 'RR', 743.62],
    ['RS1', 'RR', 141.191],
    ['S0R', 'S1R', 152.984],
    ['RS0', 'RS1', 68.038],
    ['RS1', 'RS2', 75.038],
    ['PR', 'RR', 2183.335],
    ['RP', 'RR', 156.672],
    ['RP', 'RS0', 115.164],
    ['RP', 'RS1', 141.191],
    ['PP', 'S0S1', 297.747],
    ['PP', 'RR', 2340.007],
    ['PP', 'S0S0', 271.719],
    ['S0S1', 'S0R', 47.645],
    ['S0S1', 'S1S0', 137.774],
    ['RS0', 'S0S0', 0],
  ])('%s to %s', (from, to, expected) => {
    expect(Math.abs(price(from, to) - expected)).toBeLessThan(0.011);
  });
  test('a non-contiguous tensor is copied once', () => {
    expect(Math.abs(price('S0S0', 'RR', false) - 278.719)).toBeLessThan(0.011);
    expect(Math.abs(price('PR', 'RR', false) - 2209.363)).toBeLessThan(0.011);
  });
  test('nothing becomes pending; a replicated source is free', () => {
    expect(price('S0R', 'PR')).toBe(Infinity);
    expect(price('RR', 'PR')).toBe(Infinity);
    expect(price('RR', 'S0S1')).toBe(0);
  });
});

test('the literal presets give their goldens whatever was used before', () => {
  const golden = () => {
    const eight = parseMesh('a=8');
    return [
      collectiveModel('autoparallel', h100, eight).seconds('all_gather', 2 ** 20, [0]) * 1e6,
      collectiveModel('dtensor', h100, eight).seconds('all_gather', 2 ** 22, [0]) * 1e6,
      presetComputeCost('autoparallel', mm, product(4096, 4096, 4096), h100).seconds * 1e6,
      presetComputeCost('alpha-beta', mm, product(4096, 4096, 4096), h100).seconds * 1e6,
    ];
  };
  const first = golden();
  expect(first[0]).toBeCloseTo(32.66, 2);
  expect(first[1]).toBeCloseTo(49.7734, 4);
  expect(first[2]).toBeCloseTo(198.525, 3);
  for (const name of ['nccl', 'alpha-beta'])
    collectiveModel(name, h100, parseMesh('a=2,b=8')).seconds('all_gather', 2 ** 22, [0]);
  collectiveModel('autoparallel', loadCluster('dgx-a100-80gb'), parseMesh('a=8')).seconds(
    'all_gather',
    2 ** 20,
    [0],
  );
  collectiveModel('autoparallel', h100, parseMesh('a=8,b=8')).seconds('all_gather', 2 ** 20, [0]);
  expect(golden()).toEqual(first);
});

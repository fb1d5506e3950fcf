import { describe, expect, test } from 'vitest';

import type { GreedyPlanner } from '../../src/cost/redistribution/greedy.ts';
import { COMPAT, setup, spec } from './support.ts';

/**
 * The rows of the specification for four ranks, one by one: what comes out of given placements with
 * the rules of DTensor 2.13 alone, and which collectives that takes (AG all-gather, AR all-reduce,
 * RS reduce-scatter, A2A all-to-all).
 */
type Row = readonly [call: string, given: string, outputs: string, collectives?: string];

const SHORT: Readonly<Record<string, string>> = {
  all_gather: 'AG',
  all_reduce: 'AR',
  reduce_scatter: 'RS',
  all_to_all: 'A2A',
};

function outcome(
  call: string,
  given: string,
  compat = true,
): { outputs: string; collectives: string } {
  const four = setup([4], call);
  const placements = given.split(' ');
  const found = four.run(
    placements,
    compat ? { ...COMPAT, search: 'enumerate' } : { search: 'enumerate', fill: 'all' },
  );
  const prices = four.prices as GreedyPlanner;
  const kinds = four.ids(placements).flatMap((from, i) => {
    const plan = prices.plan(
      { shape: four.ctx.inputs[i].shape, itemBytes: 4 },
      from,
      found.inputs[i],
    );
    return (plan?.steps ?? []).flatMap((step) => SHORT[step.kind] ?? []);
  });
  const outputs = found.text.split('->')[1];
  return { outputs, collectives: kinds.sort().join(' ') };
}

const X = 'f32[8,8]';
const LN = 'native_layer_norm(f32[4,8,16], [16], f32[16], f32[16], 1e-5)';
const CE = `nll_loss_forward(${X}, i64[8], None, 1, -100)`;

describe('the rules of DTensor on four ranks', () => {
  const ROWS: readonly Row[] = [
    [`softmax.int(${X}, -1)`, 'S0', 'S0'],
    [`softmax.int(${X}, -1)`, 'S1', 'R', 'AG'],
    [`sum(${X})`, 'S0', 'Ps'],
    [`sum.dim_IntList(${X}, [0])`, 'S1', 'S0'],
    [`sum(${X})`, 'Pmax', 'R', 'AR'],
    [`mean(${X})`, 'S0', 'Pa'],
    ['mean(f32[6,8])', 'S0', 'R', 'AG'],
    [`amax(${X}, [0])`, 'S0', 'Pmax'],
    [`max.dim(${X}, 0)`, 'S0', 'R,R', 'AG'],
    [`var.correction(${X}, [0])`, 'S0', 'R', 'AG'],
    [`linalg_vector_norm(${X})`, 'Ps', 'R', 'AR'],
    [`argmax(${X}, 0)`, 'S0', 'R', 'AG'],
    [`cumsum(${X}, 0)`, 'S0', 'R', 'AG'],
    [`histc(${X}, 10, -2, 2)`, 'S0', 'Ps'],
    [`tril(${X})`, 'S0', 'R', 'AG'],
    [`t(${X})`, 'S0', 'S1'],
    [`unsqueeze(${X}, 0)`, 'S1', 'S2'],
    [`roll(${X}, [1], [0])`, 'S1', 'S1'],
    [`roll(${X}, [1], [0])`, 'S0', 'R', 'AG'],
    [`constant_pad_nd(${X}, [1, 1])`, 'S0', 'S0'],
    [`constant_pad_nd(${X}, [1, 1])`, 'S1', 'R', 'AG'],
    [`constant_pad_nd(${X}, [1, 1])`, 'Ps', 'Ps'],
    [`expand(${X}, [4, 8, 8])`, 'S0', 'S1'],
    [`repeat(${X}, [2, 1])`, 'S1', 'S1'],
    [`repeat(${X}, [2, 1])`, 'S0', 'R', 'AG'],
    [`cat([${X}, ${X}])`, 'S0 S0', 'R', 'AG AG'],
    [`cat([${X}, ${X}])`, 'S0 S1', 'S1', 'A2A'],
    [`cat([${X}, ${X}])`, 'Ps R', 'Ps'],
    [`stack([${X}, ${X}])`, 'S0 S0', 'S1'],
    [LN, 'S0 R R', 'S0,S0,S0'],
    [LN, 'S2 R R', 'R,R,R', 'AG'],
    ['embedding(f32[16,8], i64[4,8])', 'S1 R', 'S2'],
    ['embedding(f32[16,8], i64[4,8])', 'R S0', 'S0'],
    ['embedding(f32[16,8], i64[4,8])', 'S0 S0', 'S0', 'AG'],
    ['embedding(f32[16,8], i64[4,8])', 'S1 S0', 'S2', 'AG'],
    [`linear(${X}, ${X})`, 'S1 R', 'Ps'],
    [`linear(${X}, ${X})`, 'S1 S1', 'Ps'],
    [`linear(${X}, ${X})`, 'R S0', 'S1'],
    ['bmm(f32[4,8,8], f32[4,8,8])', 'S2 S1', 'Ps'],
    ['bmm(f32[4,8,8], f32[4,8,8])', 'S0 S2', 'S2', 'AG'],
    ['bmm(f32[4,8,8], f32[4,8,8])', 'S1 S1', 'S1', 'AG'],
    [`gather(${X}, 1, i64[8,8])`, 'S0 S0', 'S0'],
    [`index.Tensor(${X}, [i64[4]])`, 'S1 R', 'S1'],
    [`index.Tensor(${X}, [i64[4]])`, 'S0 R', 'R', 'AG'],
    ['linalg_cholesky(f32[4,8,8])', 'S0', 'S0'],
    ['conv2d(f32[4,3,8,8], f32[6,3,3,3])', 'S0 R', 'S0'],
    [`add.Tensor(${X}, ${X})`, 'S0 S1', 'S0', 'A2A'],
    [`add.Tensor(${X}, ${X})`, 'S0 R', 'S0'],
    [`add.Tensor(${X}, ${X})`, 'S0 Ps', 'S0', 'RS'],
    [`add.Tensor(${X}, ${X})`, 'S0 Pmax', 'S0', 'RS'],
    [`add.Tensor(${X}, ${X})`, 'R S1', 'S1'],
    [`add.Tensor(${X}, ${X})`, 'Ps R', 'Ps'],
    [`add.Tensor(${X}, ${X})`, 'Pa R', 'Pa'],
    [`add.Tensor(${X}, ${X})`, 'Pmax R', 'Pmax'],
    [`add.Tensor(${X}, ${X})`, 'Ps Pa', 'Pa', 'AR'],
    [`add.Tensor(${X}, ${X})`, 'Ps Pmax', 'R', 'AR AR'],
    [`mul.Tensor(${X}, ${X})`, 'Ps Ps', 'Ps', 'AR'],
    [`mul.Tensor(${X}, ${X})`, 'Pmax Pmax', 'R', 'AR AR'],
    [`div.Tensor(${X}, ${X})`, 'Ps Ps', 'Ps', 'AR'],
    ['add.Tensor(f32[5,8], f32[5,8])', 'S0 S0', 'S0'],
    ['add.Tensor(f32[3,8], f32[3,8])', 'S0 R', 'R', 'AG'],
    [`relu(${X})`, 'Ps', 'R', 'AR'],
    [`relu(${X})`, 'Pmax', 'Pmax'],
    [`neg(${X})`, 'Pmax', 'Pmin'],
    [`exp(${X})`, 'Pmax', 'Pmax'],
    [`abs(${X})`, 'Pmax', 'R', 'AR'],
    [`add.Scalar(${X}, 2)`, 'Ps', 'R', 'AR'],
    [`mul.Scalar(${X}, 2)`, 'Ps', 'Ps'],
    [`_to_copy(${X}, dtype=bf16)`, 'Ps', 'Ps'],
  ];
  test.each(ROWS.map(([call, given, outputs, how = '']) => [call, given, outputs, how] as const))(
    '%s from %s gives %s',
    (call, given, outputs, collectives) => {
      expect(outcome(call, given)).toEqual({ outputs: spec(outputs), collectives });
    },
  );
});

describe('where our rules go beyond those of DTensor', () => {
  test.each([
    ['embedding(f32[16,8], i64[4,8])', 'S0 R', 'Ps'],
    [`add.Tensor(${X}, ${X})`, 'R Pmax', 'Pmax'],
    ['searchsorted.Tensor(f32[8], f32[8,8])', 'S0 R', 'Ps'],
    ['upsample_nearest2d(f32[4,8,3,3], [6,6])', 'Pmax', 'Pmax'],
  ] as [string, string, string][])('%s from %s gives %s', (call, given, outputs) => {
    expect(outcome(call, given, false)).toEqual({ outputs: spec(outputs), collectives: '' });
  });

  // DTensor lists the cuts of topk one by one, and so has them without a shard among the inputs.
  test('topk of a pending sum scatters it where shards may be chosen', () => {
    expect(outcome(`topk(${X}, 2, -1)`, 'Ps', false)).toEqual({
      outputs: spec('S0,S0'),
      collectives: 'RS',
    });
  });

  test('a mean of losses without ignored targets is not an average of averages: what is pending is a sum', () => {
    expect(outcome(CE, 'S0 S0', false)).toEqual({ outputs: spec('Ps,R'), collectives: '' });
  });
});

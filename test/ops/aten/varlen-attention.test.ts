import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { build, flat, fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { slice, transpose } from '../../../src/ndarray/views.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { evaluateCall, type EvaluatedArg } from '../../../src/ops/kernels/evaluate.ts';
import { bindText, callOf } from '../../../src/ops/samples/call-text.ts';

const table = builtinOperators();
const FORWARD = 'torch_attn._varlen_attn.default';
const BACKWARD = 'torch_attn._varlen_attn_backward.default';
const [HEADS, WIDTH] = [4, 8];

interface Packed {
  readonly queries: readonly number[];
  readonly keys: readonly number[];
  readonly causal: boolean;
  readonly window: readonly [number, number];
}

const total = (lengths: readonly number[]): number => lengths.reduce((sum, n) => sum + n, 0);

/** Pairs that a head has scores of, counted one by one. */
function counted({ queries, keys, causal, window: [left, right] }: Packed): number {
  let count = 0;
  for (const [n, rows] of queries.entries())
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < keys[n]; j++) {
        // Both sequences end together.
        const ahead = j - i - (keys[n] - rows);
        if (left >= 0 && ahead < -left) continue;
        if ((causal || right >= 0) && ahead > (causal ? 0 : right)) continue;
        count++;
      }
  return count;
}

/** Work of a call and of its gradients, with the longest sequences stated. */
function work({ queries, keys, causal, window }: Packed) {
  const q = `x[${total(queries)},${HEADS},${WIDTH}]`;
  const k = `x[${total(keys)},${HEADS},${WIDTH}]`;
  const starts = `starts9[${queries.length + 1}]`;
  const longest = `${starts}, ${starts}, ${Math.max(...queries)}, ${Math.max(...keys)}`;
  const options = `${causal ? 'True' : 'False'}`;
  const flops = (target: string, args: string): number => {
    const { record, ctx } = bindText(table, callOf(target, args));
    return record.flops(ctx).matrix;
  };
  const list = `[${window.join(', ')}]`;
  return {
    forward: flops(FORWARD, `${q}, ${k}, ${k}, ${longest}, ${options}, None, ${list}`),
    backward: flops(
      BACKWARD,
      `${q}, ${q}, ${k}, ${k}, ${q}, x[${HEADS},${total(queries)}], ${longest}, ${options}, ` +
        `seven[2], None, ${list}`,
    ),
  };
}

const WHOLE = { causal: false, window: [-1, -1] } as const;
const lengths = fc.integer({ min: 1, max: 9 });
const packed: fc.Arbitrary<Packed> = fc
  .array(fc.tuple(lengths, lengths), { minLength: 1, maxLength: 5 })
  .chain((pairs) =>
    fc.record({
      queries: fc.constant(pairs.map(([q]) => q)),
      keys: fc.constant(pairs.map(([, k]) => k)),
      causal: fc.boolean(),
      window: fc.tuple(fc.integer({ min: -1, max: 4 }), fc.integer({ min: -1, max: 4 })),
    }),
  );

describe('attention of packed sequences', () => {
  test('is priced by no fewer pairs than its sequences have, and by no more than all rows make', () => {
    fc.assert(
      fc.property(packed, (call) => {
        const { forward, backward } = work(call);
        const of = (pairs: number): number => 2 * HEADS * pairs * 2 * WIDTH;
        expect(forward).toBeGreaterThanOrEqual(of(counted(call)));
        expect(forward).toBeLessThanOrEqual(of(total(call.queries) * total(call.keys)));
        // Five products where the forward call has two.
        expect(backward).toBe(2.5 * forward);
      }),
      { numRuns: 100 },
    );
  });

  test('is priced by exactly its pairs where all sequences are of the stated length', () => {
    for (const [q, k] of [
      [6, 6],
      [3, 7],
    ]) {
      const call = { queries: [q, q, q, q], keys: [k, k, k, k], ...WHOLE };
      expect(work(call).forward).toBe(4 * HEADS * WIDTH * counted(call));
    }
  });

  // torch.utils.flop_counter of PyTorch 2.13 counts 9216 and 23040 for two sequences of up to 6
  // rows, 12 rows in all, and the same for 10 rows, which have at most 10 x 6 pairs.
  test('has the work that the counter of PyTorch gives, or less where there are fewer rows', () => {
    const full = { queries: [6, 6], keys: [6, 6], ...WHOLE };
    expect(work(full)).toEqual({ forward: 9216, backward: 23040 });
    expect(work({ ...full, queries: [6, 4], keys: [6, 4] }).forward).toBe((9216 * 60) / 72);
  });

  const wave = (shape: readonly number[], by: number): NDArray =>
    build(shape, (i) => Math.sin(i * by));
  const starts = (lengths: readonly number[]): NDArray =>
    fromList(
      [lengths.length + 1],
      [0, ...lengths.map((_, i) => total(lengths.slice(0, i + 1)))],
      'i32',
    );

  test('gives each sequence the numbers that it has alone', () => {
    const [queries, keys] = [
      [3, 5],
      [4, 2],
    ];
    const [q, k, v] = [
      wave([8, HEADS, WIDTH], 0.7),
      wave([6, 2, WIDTH], 1.3),
      wave([6, 2, WIDTH], 2.1),
    ];
    const all = [q, k, v, starts(queries), starts(keys), 5, 4];
    const [out] = evaluateCall(table, FORWARD, all) as readonly NDArray[];
    const [ownStarts, otherStarts] = [starts(queries), starts(keys)].map(flat);
    for (const n of [0, 1]) {
      const piece = (x: NDArray, at: ArrayLike<number>): NDArray =>
        transpose(slice(x, 0, at[n], at[n + 1], 1), 0, 1);
      const alone: EvaluatedArg[] = [
        piece(q, ownStarts),
        piece(k, otherStarts),
        piece(v, otherStarts),
      ];
      const kwargs = { enable_gqa: true };
      const expected = evaluateCall(
        table,
        'aten.scaled_dot_product_attention.default',
        alone,
        kwargs,
      ) as NDArray;
      const found = piece(out, ownStarts).toArray();
      expected.toArray().forEach((value, i) => expect(found[i]).toBeCloseTo(value, 12));
    }
  });
});

import { describe, expect, test } from 'vitest';

import { build, flat, fromFlat, type NDArray, scalar } from '../../../src/ndarray/array.ts';
import { uniform } from '../../../src/ndarray/random.ts';
import { evaluateCall, type EvaluatedArg } from '../../../src/ops/kernels/evaluate.ts';
import { operators } from '../../engines/samples/all.ts';
import { difference } from '../support/kernel-record.ts';

/**
 * Fused attention of GPUs, which PyTorch does not run on a CPU: the forward against the CPU's
 * kernels (compared with PyTorch elsewhere), the gradients against central differences of the
 * forward, with dropout against differences under the same seed.
 */

const draw = (seed: number, shape: readonly number[]): NDArray =>
  build(shape, (i) => 4 * uniform({ seed, stream: 1 }, i) - 2);
const float = (value: number): EvaluatedArg => ({ kind: 'float', value });
const RANDOM = { seed: 2 ** 40 + 5, stream: 77 };
type Results = readonly (NDArray | null)[];

interface Form {
  readonly name: string;
  /** True if it takes a bias, and gives its gradient. */
  readonly bias: boolean;
  readonly biasGrad: boolean;
  readonly forward: (
    q: NDArray,
    k: NDArray,
    v: NDArray,
    bias: NDArray | null,
    p: number,
    causal: boolean,
  ) => EvaluatedArg[];
  readonly backward: (
    g: NDArray,
    q: NDArray,
    k: NDArray,
    v: NDArray,
    bias: NDArray | null,
    results: Results,
    p: number,
    causal: boolean,
  ) => EvaluatedArg[];
}

const state = (results: Results, at: number): NDArray => results[at] ?? scalar(0, 'i64');

const FORMS: readonly Form[] = [
  {
    name: '_scaled_dot_product_flash_attention',
    bias: false,
    biasGrad: false,
    forward: (q, k, v, _, p, causal) => [q, k, v, float(p), causal],
    backward: (g, q, k, v, _, r, p, causal) => [
      g,
      q,
      k,
      v,
      r[0],
      r[1],
      null,
      null,
      0,
      0,
      float(p),
      causal,
      state(r, 6),
      state(r, 7),
    ],
  },
  {
    name: '_scaled_dot_product_efficient_attention',
    bias: true,
    biasGrad: true,
    forward: (q, k, v, bias, p, causal) => [q, k, v, bias, true, float(p), causal],
    backward: (g, q, k, v, bias, r, p, causal) => [
      g,
      q,
      k,
      v,
      bias,
      r[0],
      r[1],
      state(r, 2),
      state(r, 3),
      float(p),
      [true, true, true, bias !== null],
      causal,
    ],
  },
  {
    name: '_scaled_dot_product_cudnn_attention',
    bias: true,
    biasGrad: false,
    forward: (q, k, v, bias, p, causal) => [q, k, v, bias, true, float(p), causal, false],
    backward: (g, q, k, v, bias, r, p, causal) => [
      g,
      q,
      k,
      v,
      r[0],
      r[1],
      state(r, 6),
      state(r, 7),
      bias,
      null,
      null,
      0,
      0,
      float(p),
      causal,
    ],
  },
];

function run(target: string, args: readonly EvaluatedArg[]): Results {
  return evaluateCall(operators, `aten.${target}.default`, args, {}, RANDOM) as Results;
}

const dot = (a: NDArray, b: NDArray): number =>
  flat(a).reduce((sum, v, i) => sum + v * flat(b)[i], 0);
const moved = (x: NDArray, by: NDArray, step: number): NDArray =>
  fromFlat(
    x.shape,
    flat(x).map((v, i) => v + step * flat(by)[i]),
  );

describe('fused attention', () => {
  const [q, k, v] = [draw(1, [2, 4, 5, 3]), draw(2, [2, 4, 7, 3]), draw(3, [2, 4, 7, 3])];
  const bias = draw(4, [2, 1, 5, 7]);

  test.each(FORMS)('$name is the attention of the CPU', (form) => {
    for (const causal of [false, true]) {
      const mask = form.bias && !causal ? bias : null;
      const got = run(form.name, form.forward(q, k, v, mask, 0, causal));
      const want = evaluateCall(
        operators,
        'aten._scaled_dot_product_flash_attention_for_cpu.default',
        [q, k, v, float(0), causal],
        { attn_mask: mask },
      ) as Results;
      expect(difference(got[0] as NDArray, want[0] as NDArray)).toBeUndefined();
      const rows = got[1] as NDArray;
      const lse = want[1] as NDArray;
      // Efficient attention pads its rows to 32 with infinity, cuDNN adds a dim of 1.
      const padded = rows.shape.at(-1) === 32 ? 32 : 5;
      expect(rows.size).toBe(2 * 4 * padded);
      flat(rows).forEach((value, i) => {
        const row = i % padded;
        if (row >= 5) expect(value).toBe(Infinity);
        else expect(value).toBeCloseTo(flat(lse)[Math.floor(i / padded) * 5 + row], 12);
      });
    }
  });

  const cases = FORMS.flatMap((form) =>
    [
      [0, false],
      [0, true],
      [0.3, false],
    ].map(([p, causal]) => ({ name: form.name, form, p: Number(p), causal: causal === true })),
  );
  test.each(cases)(
    'gradients of $name, dropout $p, causal $causal, are those of central differences',
    (c) => {
      const { form, p, causal } = c;
      const mask = form.bias ? bias : null;
      const results = run(form.name, form.forward(q, k, v, mask, p, causal));
      const g = draw(9, (results[0] as NDArray).shape);
      const grads = run(
        `${form.name}_backward`,
        form.backward(g, q, k, v, mask, results, p, causal),
      );
      const wrt = [q, k, v, ...(form.biasGrad ? [bias] : [])];
      wrt.forEach((x, i) => {
        const direction = draw(20 + i, x.shape);
        const at = (step: number): number => {
          const changed = wrt.map((other, j) => (j === i ? moved(other, direction, step) : other));
          return dot(
            g,
            run(
              form.name,
              form.forward(changed[0], changed[1], changed[2], changed[3] ?? mask, p, causal),
            )[0] as NDArray,
          );
        };
        const step = 1e-5;
        const numeric = (at(step) - at(-step)) / (2 * step);
        const exact = dot(grads[i] as NDArray, direction);
        expect(Math.abs(numeric - exact) / Math.max(1, Math.abs(exact))).toBeLessThan(1e-7);
      });
    },
  );

  test('dropout scales what it keeps, and another stream drops otherwise', () => {
    const form = FORMS[1];
    const [whole, dropped] = [0, 0.3].map(
      (p) => run(form.name, form.forward(q, k, v, null, p, false))[0] as NDArray,
    );
    expect(difference(dropped, whole)).toBeDefined();
    const again = evaluateCall(
      operators,
      `aten.${form.name}.default`,
      form.forward(q, k, v, null, 0.3, false),
      {},
      { seed: RANDOM.seed, stream: 78 },
    ) as Results;
    expect(difference(again[0] as NDArray, dropped)).toBeDefined();
    // Values of one make each result the sum of the kept probabilities: 1 on average.
    const ones = build([8, 8, 16, 3], () => 1);
    const [rows] = run(
      form.name,
      form.forward(draw(5, [8, 8, 16, 3]), draw(6, [8, 8, 16, 3]), ones, null, 0.3, false),
    );
    const mean = flat(rows as NDArray).reduce((a, b) => a + b, 0) / (rows as NDArray).size;
    expect(Math.abs(mean - 1)).toBeLessThan(0.05);
  });

  test('the CPU kernel refuses dropout, and key heads may be fewer', () => {
    const target = 'aten._scaled_dot_product_flash_attention_for_cpu.default';
    expect(() => evaluateCall(operators, target, [q, k, v, float(0.1)])).toThrow(
      /dropout_p must be 0/,
    );
    const [few, fewValues] = [draw(7, [2, 2, 7, 3]), draw(8, [2, 2, 7, 3])];
    const form = FORMS[0];
    const results = run(form.name, form.forward(q, few, fewValues, null, 0, false));
    const g = draw(9, q.shape);
    const grads = run(
      `${form.name}_backward`,
      form.backward(g, q, few, fewValues, null, results, 0, false),
    );
    const direction = draw(10, few.shape);
    const at = (step: number): number =>
      dot(
        g,
        run(
          form.name,
          form.forward(q, moved(few, direction, step), fewValues, null, 0, false),
        )[0] as NDArray,
      );
    const numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
    expect(grads[1]?.shape).toEqual([2, 2, 7, 3]);
    expect(Math.abs(numeric - dot(grads[1] as NDArray, direction))).toBeLessThan(1e-6);
  });
});

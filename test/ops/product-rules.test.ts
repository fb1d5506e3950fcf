import { describe, expect, test } from 'vitest';

import { expandRules, operatorCall } from '../../src/entries/ops.ts';
import { ruleText } from '../../src/ops/record/rule.ts';
import { build, get, type NDArray } from './support/arrays.ts';
import { bound, judgeCall } from './support/judge-call.ts';
import type { OracleArg } from './support/oracle.ts';
import type { Kernel, LocalCall } from './support/ranks.ts';

/**
 * Rules of grouped products, convolutions and factories by execution; kernels written from the
 * definitions.
 */

const texts = (rules: Parameters<typeof ruleText>[0][]): string[] => rules.map(ruleText);

// ---- grouped products
// -----------------------------------------------------------------------------

/** Ends of the token groups: experts of 0, 3, 1 and 2 tokens. */
const ENDS = [0, 3, 4, 6];
const GROUPS: OracleArg = { t: [4], dt: 'i64' };

/** Expert of every token that this rank holds: group bounds clipped to the rank's run of tokens. */
function expertOf(token: number): number {
  return ENDS.findIndex((end) => token < end);
}

describe('grouped products by execution', () => {
  test('grouped products with cut tokens or cut experts are right', () => {
    const kernel: Kernel = ({ inputs: [x, w], inputStarts: [[first], [own]] }) => [
      build([x.shape[0], w.shape[2]], ([i, n]) => {
        // The expert's place on the rank; tokens of experts that it does not hold give nothing.
        const expert = expertOf(i + first) - own;
        if (expert < 0 || expert >= w.shape[0]) return 0;
        let sum = 0;
        for (let k = 0; k < x.shape[1]; k++) sum += get(x, [i, k]) * get(w, [expert, k, n]);
        return sum;
      }),
    ];
    const { failed, judged } = judgeCall(
      'aten._grouped_mm.default',
      [{ t: [6, 48] }, { t: [4, 48, 48] }, GROUPS],
      {},
      () => kernel,
    );
    expect(failed).toEqual([]);
    expect(texts(judged)).toEqual([
      'R, S(2), R -> S(1)',
      'S(1), S(1), R -> P(sum)',
      'S(0), R, R -> S(0)',
      'R, S(0), R -> P(sum)',
      'P(sum), R, R -> P(sum)',
      'R, P(sum), R -> P(sum)',
      'P(avg), R, R -> P(avg)',
      'R, P(avg), R -> P(avg)',
    ]);
  });

  test('weight gradients: tokens are contracted, group by group', () => {
    const kernel: Kernel = ({
      ctx,
      inputs: [a, b],
      inputStarts: [[, first]],
      outputStarts: [[own]],
    }) => [
      build([ctx.outputs[0]?.shape[0] ?? 0, a.shape[0], b.shape[1]], ([g, m, n]) => {
        let sum = 0;
        for (let t = 0; t < a.shape[1]; t++)
          if (expertOf(t + first) === g + own) sum += get(a, [m, t]) * get(b, [t, n]);
        return sum;
      }),
    ];
    const { failed, judged } = judgeCall(
      'aten._grouped_mm.default',
      [{ t: [48, 6] }, { t: [6, 48] }, GROUPS],
      {},
      () => kernel,
    );
    expect(failed).toEqual([]);
    expect(texts(judged)).toEqual(
      expect.arrayContaining([
        'S(0), R, R -> S(1)',
        'R, S(1), R -> S(2)',
        'S(1), S(0), R -> P(sum)',
        'R, R, R -> S(0)',
      ]),
    );
  });

  test('cuts that break the 16-byte rows are not offered', () => {
    const { judged } = judgeCall(
      'aten._grouped_mm.default',
      [{ t: [6, 16] }, { t: [4, 16, 24] }, GROUPS],
      {},
      () =>
        ({ inputs: [x, w] }) => [build([x.shape[0], w.shape[2]], () => 0)],
    );
    // 24 columns are 3 units of 8, so on 3 ranks only; 16 inner rows are 2 units, so on 2 ranks
    // only.
    const { rules } = bound('aten._grouped_mm.default', [
      { t: [6, 16] },
      { t: [4, 16, 24] },
      GROUPS,
    ]);
    expect(
      rules
        .slice(0, 2)
        .flatMap((r) => r.inputs)
        .filter((s) => s?.kind === 'shard')
        .every((s) => s.unit === 8 && s.even),
    ).toBe(true);
    expect(judged.length).toBe(rules.length);
  });
});

// ---- convolution
// -----------------------------------------------------------------------------

/** Stride 1, padding 1, 3x3 kernel: walks over every (batch, out, in, y, x, ky, kx) that meets. */
function walk(
  x: readonly number[],
  w: readonly number[],
  groups: number,
  visit: (at: {
    n: number;
    o: number;
    c: number;
    ci: number;
    y: number;
    x: number;
    ky: number;
    kx: number;
    iy: number;
    ix: number;
  }) => void,
): void {
  const perGroupOut = w[0] / groups;
  for (let n = 0; n < x[0]; n++)
    for (let o = 0; o < w[0]; o++)
      for (let ci = 0; ci < w[1]; ci++)
        for (let y = 0; y < x[2]; y++)
          for (let xx = 0; xx < x[3]; xx++)
            for (let ky = 0; ky < 3; ky++)
              for (let kx = 0; kx < 3; kx++) {
                const iy = y + ky - 1;
                const ix = xx + kx - 1;
                if (iy < 0 || ix < 0 || iy >= x[2] || ix >= x[3]) continue;
                visit({
                  n,
                  o,
                  c: Math.floor(o / perGroupOut) * w[1] + ci,
                  ci,
                  y,
                  x: xx,
                  ky,
                  kx,
                  iy,
                  ix,
                });
              }
}

const index = (shape: readonly number[], ...at: number[]): number =>
  at.reduce((flat, i, d) => flat * shape[d] + i, 0);
const empty = (shape: readonly number[]): NDArray => build(shape, () => 0);
/** Groups of the local call: the local weight says how many channels a group has. */
const localGroups = (x: NDArray, w: NDArray): number => x.shape[1] / w.shape[1];

const convolution: Kernel = ({ inputs: [x, w, bias] }: LocalCall) => {
  const out = build([x.shape[0], w.shape[0], x.shape[2], x.shape[3]], ([, o]) => bias.data[o]);
  walk(x.shape, w.shape, localGroups(x, w), (p) => {
    out.data[index(out.shape, p.n, p.o, p.y, p.x)] +=
      x.data[index(x.shape, p.n, p.c, p.iy, p.ix)] * w.data[index(w.shape, p.o, p.ci, p.ky, p.kx)];
  });
  return [out];
};

const convolutionBackward: Kernel = ({ inputs: [g, x, w] }: LocalCall) => {
  const gx = empty(x.shape);
  const gw = empty(w.shape);
  const gb = empty([g.shape[1]]);
  walk(x.shape, w.shape, localGroups(x, w), (p) => {
    const grad = g.data[index(g.shape, p.n, p.o, p.y, p.x)];
    gx.data[index(x.shape, p.n, p.c, p.iy, p.ix)] +=
      grad * w.data[index(w.shape, p.o, p.ci, p.ky, p.kx)];
    gw.data[index(w.shape, p.o, p.ci, p.ky, p.kx)] +=
      grad * x.data[index(x.shape, p.n, p.c, p.iy, p.ix)];
  });
  g.data.forEach((v, flat) => {
    gb.data[Math.floor(flat / (g.shape[2] * g.shape[3])) % g.shape[1]] += v;
  });
  return [gx, gw, gb];
};

const TAIL = (groups: number): OracleArg[] => [[1, 1], [1, 1], [1, 1], false, [0, 0], groups];

test('no device is left without channels: kernels give the input or zeros for none of them', () => {
  const call = operatorCall(
    'aten.convolution.default(f64[3,4,4,2], f64[4,4,3,3], f64[4], [1,1], [1,1], [1,1], False, [0,0], 1)',
  );
  const cuts = (mesh: string): string[] =>
    expandRules(call, mesh)
      .filter(({ inputs }) => inputs.some((spec) => spec.text === 'S(1)' || spec.text === 'S(0)'))
      .map(({ inputs, outputs }) => [...inputs, '->', ...outputs].join(' '))
      .toSorted();
  // Three devices hold 2, 2 and 0 of 4 channels.
  expect(cuts('a=3')).toEqual(['S(0) R R -> S(0)']);
  expect(cuts('a=2')).toEqual([
    'R S(0) S(0) -> S(1)',
    'S(0) R R -> S(0)',
    'S(1) S(1) P(sum) -> P(sum)',
  ]);
});

describe('convolutions by execution', () => {
  test.each([
    [1, ['S(0), R, R -> S(0)', 'R, S(0), S(0) -> S(1)', 'S(1), S(1), P(sum) -> P(sum)']],
    [6, ['S(0), R, R -> S(0)', 'S(1), S(0), S(0) -> S(1)']],
  ])('forward with %i groups', (groups, expected) => {
    const args: OracleArg[] = [
      { t: [5, 6, 3, 4] },
      { t: [12, 6 / groups, 3, 3] },
      { t: [12] },
      ...TAIL(groups),
    ];
    const { failed, judged } = judgeCall('aten.convolution.default', args, {}, () => convolution);
    expect(failed).toEqual([]);
    expect(texts(judged)).toEqual([
      ...expected,
      'P(sum), R, P(sum) -> P(sum)',
      'R, P(sum), P(sum) -> P(sum)',
      'P(avg), R, P(avg) -> P(avg)',
      'R, P(avg), P(avg) -> P(avg)',
    ]);
  });

  test.each([
    [
      1,
      [
        'S(0), S(0), R -> S(0), P(sum), P(sum)',
        'S(1), R, S(0) -> P(sum), S(0), S(0)',
        'R, S(1), S(1) -> S(1), S(1), R',
      ],
    ],
    [6, ['S(0), S(0), R -> S(0), P(sum), P(sum)', 'S(1), S(1), S(0) -> S(1), S(0), S(0)']],
  ])('backward with %i groups', (groups, expected) => {
    const args: OracleArg[] = [
      { t: [5, 12, 3, 4] },
      { t: [5, 6, 3, 4] },
      { t: [12, 6 / groups, 3, 3] },
      [12],
      ...TAIL(groups),
      [true, true, true],
    ];
    const { failed, judged } = judgeCall(
      'aten.convolution_backward.default',
      args,
      {},
      () => convolutionBackward,
    );
    expect(failed).toEqual([]);
    expect(texts(judged)).toEqual(
      expect.arrayContaining([
        ...expected,
        'P(sum), R, R -> P(sum), P(sum), P(sum)',
        'R, P(avg), R -> R, P(avg), R',
      ]),
    );
  });

  test('a masked-off gradient has no placement', () => {
    const args: OracleArg[] = [
      { t: [4, 12, 3, 4] },
      { t: [4, 6, 3, 4] },
      { t: [12, 6, 3, 3] },
      [12],
      ...TAIL(1),
      [false, true, false],
    ];
    const { rules, ctx } = bound('aten.convolution_backward.default', args);
    expect(ctx.outputs.map((o) => o?.shape ?? null)).toEqual([null, [12, 6, 3, 3], null]);
    expect(texts([...rules])[0]).toBe('S(0), S(0), R -> -, P(sum), -');
  });
});

// ---- factories
// -----------------------------------------------------------------------------

describe('factories by execution', () => {
  test('a range starts at the offset of its shard, which must be contiguous', () => {
    const kernel: Kernel = ({ ctx, outputStarts: [[first]] }) => [
      build(ctx.outputs[0]?.shape ?? [], ([i]) => 3 + 2 * (i + first)),
    ];
    const { failed, judged, rules } = judgeCall(
      'aten.arange.start_step',
      [3, 17, 2],
      {},
      () => kernel,
    );
    expect(failed).toEqual([]);
    expect(texts(judged)).toEqual([' -> S(0)']);
    expect(rules[0].outputs[0]).toMatchObject({ kind: 'shard', slicing: 'contiguous' });
  });

  test('a constant takes any placement of the tensor whose dtype it copies', () => {
    const kernel: Kernel = ({ ctx }) => [build(ctx.outputs[0]?.shape ?? [], () => 7)];
    const { failed, judged } = judgeCall(
      'aten.new_full.default',
      [{ t: [6, 5] }, [3, 4], 7],
      {},
      () => kernel,
    );
    expect(failed).toEqual([]);
    expect(texts(judged)).toEqual(
      expect.arrayContaining([
        'R -> S(0)',
        'S(1) -> R',
        'S(0) -> S(1)',
        'P(sum) -> R',
        'P(max) -> S(0)',
      ]),
    );
    const like = judgeCall('aten.zeros_like.default', [{ t: [6, 5] }], {}, () => kernel);
    expect(like.failed).toEqual([]);
    // Each pair once: the plain rule that follows the input stands for the rewritten one.
    expect(new Set(texts([...like.rules])).size).toBe(like.rules.length);
  });

  test('a zero-dim or one-element constant is replicated only', () => {
    for (const [op, args] of [
      ['aten.scalar_tensor.default', [3]],
      ['aten.full.default', [[], 1]],
      ['aten.full.default', [[1, 1], 1]],
    ] as [string, OracleArg[]][]) {
      expect(bound(op, args).rules).toEqual([]);
    }
  });
});

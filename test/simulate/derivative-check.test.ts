import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import type { RulesReport } from '../../src/cli/commands/catalogue/rules.ts';
import { fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import type { Gradients, Vjp, VjpCall, VjpEntry } from '../../src/ops/vjp/vjp.ts';
import type { Validation } from '../../src/simulate/rule-check/check.ts';
import { checkRules } from '../../src/simulate/rule-check/check-rules.ts';
import { type CustomOp, customOp } from '../../src/trace/custom/custom-op.ts';
import { type CliRun, OwnProcess } from '../support/own-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const each = (x: NDArray, f: (value: number, at: number) => number): NDArray =>
  fromFlat(x.shape, Float64Array.from(x.toArray(), f), x.dtype);

/** `out[i, j] = x[i, j] * w[j]^2`. */
function scaled(vjp?: Vjp | VjpEntry): CustomOp {
  return customOp({
    name: 'my.scaled.default',
    schema: 'Tensor x, Tensor w',
    type: (ctx) => [ctx.inputs[0]],
    kernel: ({ inputs: [x, w] }) => [each(x, (v, e) => v * w.toArray()[e % w.size] ** 2)],
    samples: ['x[6,4], x[4]', 'x[5,2], pos[2]'],
    ...(vjp === undefined ? {} : { vjp }),
  });
}

/** Without a search for rules that are missing. */
const derivativesOf = (op: CustomOp): Validation => checkRules(op, { complete: false });

/** By hand: `g w^2` and, summed over rows by who asks, `2 g x w`. */
const right = (c: VjpCall): Gradients => ({
  x: () => c.b.mul(c.g(), c.b.mul(c.x('w'), c.x('w'))),
  w: () => c.b.mul(c.b.mul(c.g(), c.b.mul(c.x('x'), c.x('w'))), 2),
});

describe('the derivative of an operator of the user, compared with differences of its values', () => {
  it('passes where it is right, at every element of every input', () => {
    const found = checkRules(scaled(right));
    expect(found.wrongDerivatives).toEqual([]);
    expect(found.uncompared).toEqual([]);
    // With two draws each, and some elements of tensors of any numbers at three kinks.
    const kinks = 3 * (16 + 4 + 10);
    expect(found.derivativesChecked).toBe(2 * (6 * 4 + 4 + 5 * 2 + 2) + kinks);
  });

  it('is given with the record, too', () => {
    const { record, vjps } = scaled((c) => ({ ...right(c), x: () => c.g() }));
    expect(
      checkRules(record, { vjps, complete: false }).wrongDerivatives.map((f) => f.input),
    ).toEqual(['x', 'x']);
  });

  it('is wrong by a factor: operator, input, element and both numbers are named', () => {
    const { wrongDerivatives } = derivativesOf(
      scaled((c) => ({
        x: () => c.b.mul(c.g(), c.x('w')),
        w: () => c.b.mul(c.g(), c.b.mul(c.x('x'), c.x('w'))),
      })),
    );
    expect(wrongDerivatives.map((f) => [f.operator, f.call, f.input])).toEqual([
      ['my.scaled.default', 'my.scaled.default(x[6,4], x[4])', 'x'],
      ['my.scaled.default', 'my.scaled.default(x[6,4], x[4])', 'w'],
      ['my.scaled.default', 'my.scaled.default(x[5,2], pos[2])', 'x'],
      ['my.scaled.default', 'my.scaled.default(x[5,2], pos[2])', 'w'],
    ]);
    for (const { input, element, expected, found } of wrongDerivatives) {
      expect(element?.length).toBe(input === 'x' ? 2 : 1);
      if (input === 'w') expect(expected! / found!).toBeCloseTo(2, 5);
    }
  });

  it('is wrong in one input alone: that one is named', () => {
    const { wrongDerivatives } = derivativesOf(
      scaled((c) => ({ ...right(c), w: () => c.b.mul(c.g(), c.x('x')) })),
    );
    expect([...new Set(wrongDerivatives.map((f) => f.input))]).toEqual(['w']);
  });

  it('is zero where the values change', () => {
    const [{ input, found, expected }] = derivativesOf(
      scaled((c) => ({ ...right(c), w: () => null })),
    ).wrongDerivatives;
    expect([input, found]).toEqual(['w', 0]);
    expect(Math.abs(expected!)).toBeGreaterThan(1e-3);
  });

  it('has another shape than its input: the error is what is found', () => {
    const { wrongDerivatives } = derivativesOf(
      scaled((c) => ({ ...right(c), x: () => c.b.sum(c.g(), [0]) })),
    );
    expect(wrongDerivatives.map((f) => [f.input, f.element])).toEqual([
      ['x', undefined],
      ['x', undefined],
    ]);
    for (const { why } of wrongDerivatives) expect(why).toMatch(/view|reshape/);
  });

  it('is missing, whole or for an input: that is said, and nothing is wrong', () => {
    const none = derivativesOf(scaled());
    expect(none.wrongDerivatives).toEqual([]);
    expect(none.uncompared).toEqual(['my.scaled.default: it states no derivative']);
    const half = derivativesOf(scaled((c) => ({ x: right(c).x })));
    expect(half.wrongDerivatives).toEqual([]);
    expect(half.uncompared).toEqual(['my.scaled.default: w has no derivative']);
    expect(half.derivativesChecked).toBe(2 * (6 * 4 + 5 * 2) + 3 * (16 + 10));
  });

  it('is a surrogate on purpose: it is not compared', () => {
    const found = derivativesOf(scaled({ vjp: (c) => ({ x: () => c.g() }), surrogate: true }));
    expect(found.wrongDerivatives).toEqual([]);
    expect(found.uncompared).toEqual(['my.scaled.default: its derivative is a surrogate']);
  });
});

/** An operator of one input, with a derivative that multiplies the gradient by a step of the input. */
function ramp(factor: number, samples: readonly string[]): CustomOp {
  return customOp({
    name: 'my.ramp.default',
    schema: 'Tensor x',
    type: (ctx) => [ctx.inputs[0]],
    kernel: ({ inputs: [x] }) => [each(x, (v) => Math.max(v, 0))],
    samples,
    vjp: (c) => ({
      x: () => c.b.mul(c.b.where(c.b.compare('gt', c.x('x'), 0), c.g(), 0), factor),
    }),
  });
}

describe('derivatives at places where the values are not smooth', () => {
  it('any slope between those of both sides of a kink is right, and no other', () => {
    // `few` draws whole numbers, zero among them.
    expect(derivativesOf(ramp(1, ['few[6,4]'])).wrongDerivatives).toEqual([]);
    expect(derivativesOf(ramp(2, ['few[6,4]'])).wrongDerivatives).toHaveLength(1);
  });

  it('gradients that are not numbers, where values are none either, are not compared', () => {
    const root = (factor: number): CustomOp =>
      customOp({
        name: 'my.root.default',
        schema: 'Tensor x',
        type: (ctx) => [ctx.inputs[0]],
        kernel: ({ inputs: [x] }) => [each(x, (v) => Math.sqrt(v))],
        samples: ['x[6,4]'],
        vjp: (c) => ({ x: () => c.b.div(c.b.mul(c.g(), factor), c.y()) }),
      });
    const found = derivativesOf(root(0.5));
    expect(found.wrongDerivatives).toEqual([]);
    const compared = found.derivativesChecked;
    expect([compared > 0, compared < 3 * 24]).toEqual([true, true]);
    expect(derivativesOf(root(1)).wrongDerivatives[0].why).toMatch(/^(1?\d) of \1 elements/);
  });
});

/** An elementwise operator of one input and a derivative of it. */
function elementwise(
  f: (value: number) => number,
  slope: (c: VjpCall) => ReturnType<VjpCall['g']>,
): CustomOp {
  return customOp({
    name: 'my.each.default',
    schema: 'Tensor x',
    type: (ctx) => [ctx.inputs[0]],
    kernel: ({ inputs: [x] }) => [each(x, f)],
    samples: ['x[6,4]'],
    vjp: (c) => ({ x: () => c.b.mul(c.g(), slope(c)) }),
  });
}

/** `above` where the input is positive, `at` where it is zero, `below` elsewhere. */
const stepped =
  (above: number, at: number, below: number) =>
  (c: VjpCall): ReturnType<VjpCall['g']> =>
    c.b.where(
      c.b.compare('gt', c.x('x'), 0),
      above,
      c.b.where(c.b.compare('eq', c.x('x'), 0), at, below),
    );

const relu6 = (v: number): number => Math.min(Math.max(v, 0), 6);

describe('a derivative that is wrong where plain samples do not lie', () => {
  it.each<[string, CustomOp, string]>([
    ['at the kink of relu', elementwise((v) => Math.max(v, 0), stepped(1, 5, 0)), ', at 0'],
    ['at the kink of abs', elementwise(Math.abs, stepped(1, 7, -1)), ', at 0'],
    ['beyond what relu6 clips', elementwise(relu6, stepped(1, 0, 0)), 'numbers up to 8'],
    [
      'of tiny values',
      elementwise(
        (v) => 1e-8 * v,
        (c) => c.b.full([], 2e-8, 'f64'),
      ),
      'differences',
    ],
  ])('%s', (_, op, where) => {
    const { wrongDerivatives } = derivativesOf(op);
    expect(wrongDerivatives.map((f) => f.input)).toEqual(['x']);
    expect(wrongDerivatives[0].why).toMatch(new RegExp(`${where}$`));
  });

  it.each<[string, CustomOp]>([
    ['relu', elementwise((v) => Math.max(v, 0), stepped(1, 0.25, 0))],
    ['abs', elementwise(Math.abs, stepped(1, 0, -1))],
    ['exp', elementwise(Math.exp, (c) => c.y())],
    [
      'x^10',
      elementwise(
        (v) => v ** 10,
        (c) => c.b.div(c.b.mul(c.y(), 10), c.x('x')),
      ),
    ],
    [
      'a root, infinitely steep at 0',
      elementwise(Math.cbrt, (c) => c.b.div(c.b.div(c.y(), c.x('x')), 3)),
    ],
  ])('and a right one of %s passes at all of these', (_, op) => {
    const { wrongDerivatives, derivativesChecked } = derivativesOf(op);
    expect(wrongDerivatives).toEqual([]);
    expect(derivativesChecked).toBeGreaterThan(2 * 24);
  });

  it('with a broadcast input, and one of integers', () => {
    const op = (slope: (c: VjpCall) => Gradients): CustomOp =>
      customOp({
        name: 'my.rows.default',
        schema: 'Tensor x, Tensor y, Tensor i',
        type: (ctx) => [ctx.inputs[0]],
        kernel: ({ inputs: [x, y, i] }) => [
          each(x, (v, e) => v * y.toArray()[e % 4] * i.toArray()[e]),
        ],
        samples: ['x[6,4], x[1,4], index6[6,4]'],
        vjp: slope,
      });
    const right = op((c) => ({
      x: () => c.b.mul(c.g(), c.b.mul(c.x('y'), c.x('i'))),
      y: () => c.b.mul(c.g(), c.b.mul(c.x('x'), c.x('i'))),
    }));
    expect(derivativesOf(right).wrongDerivatives).toEqual([]);
    const wrong = op((c) => ({
      x: () => c.b.mul(c.g(), c.x('y')),
      y: () => c.b.mul(c.g(), c.b.mul(c.x('y'), c.x('i'))),
    }));
    const found = derivativesOf(wrong).wrongDerivatives;
    expect(found.map((f) => f.input)).toEqual(['x', 'y']);
  });

  it('that says a result is constant which is none is named', () => {
    const op = (f: (v: number) => number): CustomOp =>
      customOp({
        name: 'my.pair.default',
        schema: 'Tensor x',
        several: true,
        type: (ctx) => [ctx.inputs[0], ctx.inputs[0]],
        kernel: ({ inputs: [x] }) => [each(x, (v) => 2 * v), each(x, f)],
        samples: ['x[6,4]'],
        vjp: { results: [0], constant: [1], vjp: (c) => ({ x: () => c.b.mul(c.g(), 2) }) },
      });
    const told = (f: (v: number) => number): readonly string[] => derivativesOf(op(f)).uncompared;
    expect(told(() => 3)).toEqual([]);
    expect(told((v) => v * v)).toEqual([
      'my.pair.default: result 1 counts as constant, and changes with its inputs',
    ]);
  });

  it.each<[string, () => unknown, RegExp]>([
    ['a name that is no argument', () => ({ y: () => null }), /names 'y'/],
    ['a value for a function', () => ({ x: 5 }), /gradient of 'x' is a number/],
    ['nothing', () => undefined, /result is undefined/],
  ])('that gives %s is refused', (_, vjp, text) => {
    const op = customOp({
      name: 'my.odd.default',
      schema: 'Tensor x',
      type: (ctx) => [ctx.inputs[0]],
      kernel: ({ inputs: [x] }) => [x],
      samples: ['x[6,4]'],
      vjp: vjp as Vjp,
    });
    expect(derivativesOf(op).wrongDerivatives.map((f) => f.why)).toEqual([
      expect.stringMatching(text),
    ]);
  });
});

describe('derivatives of operators with several results and lists of inputs', () => {
  /** Sum and product of a list of two. */
  const both = (wrong: boolean): CustomOp =>
    customOp({
      name: 'my.both.default',
      schema: 'Tensor[] xs',
      type: (ctx) => [ctx.inputs[0], ctx.inputs[0]],
      several: true,
      kernel: ({ inputs: [x, y] }) => [
        each(x, (v, e) => v + y.toArray()[e]),
        each(x, (v, e) => v * y.toArray()[e]),
      ],
      samples: ['[x[6,4], x[6,4]]'],
      vjp: {
        results: 'all',
        vjp: (c) => {
          const [x, y] = c.list('xs');
          const part = (other: typeof x) => c.b.add(c.g(0), c.b.mul(c.g(1), other!));
          return { xs: () => [part(y), part(wrong ? y : x)] };
        },
      },
    });

  it('all results count, and members of a list are named by their place', () => {
    const right = derivativesOf(both(false));
    expect([right.wrongDerivatives, right.derivativesChecked]).toEqual([[], 2 * 48 + 3 * 2 * 16]);
    expect(derivativesOf(both(true)).wrongDerivatives.map((f) => f.input)).toEqual(['xs[1]']);
  });
});

describe('shardwright rules --ops FILE --check with a custom operator', () => {
  const folder = temporaryFolder(afterAll);
  const checked = (factor: number): Promise<CliRun> => {
    const from = (path: string): string => JSON.stringify(resolve('src', path));
    const path = join(folder, `square-${factor}.ts`);
    writeFileSync(
      path,
      `
import { customOp } from ${from('trace/custom/custom-op.ts')};
import { fromList } from ${from('ndarray/array.ts')};
import { S } from ${from('ops/record/rule.ts')};
export const operators = [customOp({
  name: 'my.square.default', schema: 'Tensor x', type: (ctx) => [ctx.inputs[0]],
  sharding: () => [0, 1].map((d) => ({ inputs: [S(d)], outputs: [S(d)], origin: 'base' })),
  kernel: ({ inputs: [x] }) => [fromList(x.shape, x.toArray().map((v) => v * v), x.dtype)],
  vjp: (c) => ({ x: () => c.b.mul(c.b.mul(c.g(), c.x('x')), ${factor}) }),
  samples: ['x[6,5]'],
})];`,
    );
    return OwnProcess.shared().cli('rules', '--ops', path, '--check', '--json');
  };

  it('compares its derivative, and exits 5 where it is wrong', async () => {
    const right = await checked(2);
    expect(right.code).toBe(0);
    expect(JSON.parse(right.out) as RulesReport).toMatchObject({
      derivativesChecked: 2 * 30 + 3 * 16,
      wrongDerivatives: [],
    });
    const wrong = await checked(1);
    expect(wrong.code).toBe(5);
    const [finding] = (JSON.parse(wrong.out) as RulesReport).wrongDerivatives;
    expect(finding).toMatchObject({ operator: 'my.square.default', input: 'x', element: [0, 0] });
    expect(finding.expected! / finding.found!).toBeCloseTo(2, 5);
  });
});

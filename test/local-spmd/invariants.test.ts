import { describe, expect, test } from 'vitest';

import { apply, cat } from '../../src/entries/trace.ts';
import { ShardwrightError } from '../../src/errors.ts';
import type { Arg, Graph } from '../../src/graph/types.ts';
import type { OperandType } from '../../src/local-spmd/operator-types.ts';
import { typeCall } from '../../src/local-spmd/type-call.ts';
import { erase } from '../../src/lower/typed/erased.ts';
import { flat, fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { offOnDifference } from '../../src/simulate/off-on.ts';
import { replicaFaults } from '../../src/simulate/ranks/replicas.ts';
import { check } from '../../src/simulate/strip.ts';
import { cond } from '../../src/trace/control/cond.ts';
import { scan, whileLoop } from '../../src/trace/control/loops.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import {
  allGather,
  allReduce,
  assertType,
  axisIndex,
  contract,
  convert,
  outPartial,
  reinterpret,
} from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { runErased } from './support/erased.ts';
import { collectivesOf, expectSame, inputsOf, table, textOf } from './support/simulated.ts';

const v = (name: string): Arg => ({ kind: 'value', name });
const f = (value: number): Arg => ({ kind: 'float', value });

describe('operators', () => {
  const typed = (
    target: string,
    args: readonly Arg[],
    types: Record<string, OperandType>,
  ): string => {
    try {
      return typeCall(
        table,
        { target, args, kwargs: {} },
        () => ({ kind: 'tensor', dtype: 'f32', shape: [4, 4] }),
        (name) => types[name],
        'manual',
      ).join();
    } catch (error) {
      if (error instanceof ShardwrightError && error.code === 'E_SPMD_TYPE') return 'error';
      throw error;
    }
  };
  const pair = (target: string, a: OperandType, b: OperandType): string =>
    typed(target, [v('a'), v('b')], { a, b });

  test('sums and products of two types have the types of the laws', () => {
    const add = (a: OperandType, b: OperandType): string => pair('aten.add.Tensor', a, b);
    const mul = (a: OperandType, b: OperandType): string => pair('aten.mul.Tensor', a, b);
    const all = ['R', 'I', 'V', 'P'] as const;
    const grid = (op: typeof add): string[] =>
      all.map((a) => all.map((b) => op(a, b).replace('error', '-')).join(' '));
    //                          R I V P
    expect(grid(add)).toEqual(['R - V -', '- I - -', 'V - V -', '- - - P']);
    expect(grid(mul)).toEqual(['R - V P', '- I - -', 'V - V -', 'P - - -']);
    expect(grid((a, b) => pair('aten.div.Tensor', a, b))).toEqual([
      'R - V -',
      '- I - -',
      'V - V -',
      'P - - -',
    ]);
    expect(grid((a, b) => pair('aten.sub.Tensor', a, b))).toEqual(grid(add));
    expect(grid((a, b) => pair('aten.mm.default', a, b))).toEqual(grid(mul));
  });

  test('one operand, numbers, three operands, in place', () => {
    const one = (target: string, ...rest: Arg[]): string[] =>
      (['R', 'I', 'V', 'P'] as const).map((x) => typed(target, [v('x'), ...rest], { x }));
    expect(one('aten.neg.default')).toEqual(['R', 'I', 'V', 'P']);
    expect(one('aten.relu.default')).toEqual(['R', 'I', 'V', 'error']);
    expect(one('aten.mul.Scalar', f(2))).toEqual(['R', 'I', 'V', 'P']);
    expect(one('aten.add.Scalar', f(2))).toEqual(['R', 'I', 'V', 'error']);
    for (const [target, ...rest] of [
      ['aten.sum.dim_IntList', [1]],
      ['aten.mean.dim', [1]],
      ['aten.t.default'],
      ['aten.view.default', [16]],
      ['aten.clone.default'],
    ] as [string, ...Arg[]][])
      expect([target, ...one(target, ...rest)]).toEqual([target, 'R', 'I', 'V', 'P']);
    const addmm = (bias: OperandType, a: OperandType, b: OperandType): string =>
      typed('aten.addmm.default', [v('bias'), v('a'), v('b')], { bias, a, b });
    expect(addmm('P', 'P', 'R')).toBe('P');
    expect(addmm('P', 'R', 'P')).toBe('P');
    expect(addmm('R', 'R', 'R')).toBe('R');
    expect(addmm('R', 'V', 'R')).toBe('V');
    for (const [bias, a, b] of ['PRR', 'RPR', 'RRP', 'RPP'])
      expect(addmm(bias as 'P', a as 'P', b as 'P')).toBe('error');
    const inPlace = (a: OperandType, b: OperandType): string => pair('aten.add_.Tensor', a, b);
    expect([inPlace('V', 'R'), inPlace('P', 'P'), inPlace('R', 'V')]).toEqual(['V', 'P', 'error']);
  });

  test('every accepted pair has the gradient of one device', () => {
    const specs = { R: { tp: 'R' }, I: { tp: 'I' }, V: 'P("tp")', P: { tp: 'P' } } as const;
    const ops = {
      add: (a: Tensor, b: Tensor) => a.add(b),
      sub: (a: Tensor, b: Tensor) => a.sub(b),
      mul: (a: Tensor, b: Tensor) => a.mul(b),
    };
    const accepted: Record<string, string[]> = {
      add: ['RR', 'RV', 'VR', 'VV', 'II', 'PP'],
      sub: ['RR', 'VR', 'RV', 'VV', 'PP'],
      mul: ['RR', 'RV', 'VR', 'VV', 'II', 'PR', 'RP'],
    };
    for (const [name, fn] of Object.entries(ops))
      for (const pair of accepted[name]) {
        const [a, b] = [...pair] as (keyof typeof specs)[];
        const out = pair.includes('V') ? 'V' : pair.includes('P') ? 'P' : a;
        // Pieces of four rows; what is equal everywhere has four rows on each of two ranks.
        const shape = (of: string): number[] => (of === 'V' ? [8, 3] : [4, 3]);
        const local = trace(
          (x, y) =>
            localMap((x: Tensor, y: Tensor) => fn(x, y), {
              inSpecs: [specs[a], specs[b]],
              outSpecs: specs[out],
            })(x, y),
          [input(shape(a), 'f64'), input(shape(b), 'f64')],
          { mesh: 'tp=2' },
        );
        const whole = trace(
          (x, y) => {
            const twice = (z: Tensor, of: string): Tensor =>
              out === 'V' && of !== 'V' ? z.repeat(2, 1) : z;
            return fn(twice(x, a), twice(y, b));
          },
          [input(shape(a), 'f64'), input(shape(b), 'f64')],
        );
        expectSame(
          jointGraph(local, { wrt: ['arg0', 'arg1'] }),
          jointGraph(whole, { wrt: ['arg0', 'arg1'] }),
        );
      }
  });
});

describe('the gradient of every accepted operator', () => {
  const specs = { R: { tp: 'R' }, I: { tp: 'I' }, V: 'P("tp")', P: { tp: 'P' } } as const;
  type Held = keyof typeof specs;
  /**
   * The operator on pieces of [4, 4], in a region over two ranks, and on the whole; both with all
   * gradients.
   */
  const agrees = (fn: (...x: Tensor[]) => Tensor, held: string): void => {
    const types = [...held] as Held[];
    const out = held.includes('V') ? 'V' : held.includes('P') ? 'P' : types[0];
    const inputs = types.map((type) => input(type === 'V' ? [8, 4] : [4, 4], 'f64'));
    const wrt = types.map((_, i) => `arg${i}`);
    const local = trace(
      (...x: Tensor[]) =>
        localMap((...own: Tensor[]) => fn(...own), {
          inSpecs: types.map((type) => specs[type]),
          outSpecs: specs[out],
        })(...x),
      inputs,
      { mesh: 'tp=2' },
    );
    // On the whole: for each rank its own piece, and what is equal on all ranks.
    const whole = trace((...x: Tensor[]) => {
      if (out !== 'V') return fn(...x);
      return cat(
        [0, 1].map((rank) =>
          fn(...x.map((value, i) => (types[i] === 'V' ? value.narrow(0, 4 * rank, 4) : value))),
        ),
        0,
      );
    }, inputs);
    expectSame(jointGraph(local, { wrt }), jointGraph(whole, { wrt }));
  };
  const ONE = ['R', 'I', 'V', 'P'];
  const EQUAL = ['R', 'I', 'V'];
  const PRODUCT = ['RR', 'RV', 'VR', 'VV', 'II', 'PR', 'RP'];
  const accepted: [string, (...x: Tensor[]) => Tensor, string[]][] = [
    ['neg', (x) => x.neg(), ONE],
    ['mul by a number', (x) => x.mul(3), ONE],
    ['sum', (x) => x.sum(1, true), ONE],
    ['mean', (x) => x.mean(1, true), ONE],
    ['t', (x) => x.transpose(0, 1), ONE],
    ['view', (x) => x.view(2, 8).view(4, 4), ONE],
    ['tanh', (x) => x.tanh(), EQUAL],
    ['add a number', (x) => x.add(2), EQUAL],
    ['div', (x, y) => x.div(y), ['RR', 'RV', 'VR', 'VV', 'II', 'PR']],
    ['mm', (x, y) => x.matmul(y), PRODUCT],
    ['cat', (x, y) => cat([x, y], 1), ['RR', 'RV', 'VV', 'II', 'PP']],
    [
      'addmm',
      (x, y, z) => apply('aten.addmm.default', [x, y, z]),
      ['PPR', 'PRP', 'RRR', 'III', 'RVR', 'VRR', 'RRV', 'VVV'],
    ],
  ];
  test.each(accepted)('%s is that of one device', (_name, fn, held) => {
    for (const types of held) agrees(fn, types);
  });
  test('a number that differs per rank has a type', () => {
    const region = (body: (x: Tensor, n: Tensor) => Tensor, held: Held, out: Held): Graph =>
      trace(
        (x) =>
          localMap((own: Tensor) => body(own, axisIndex('tp')), {
            inSpecs: [specs[held]],
            outSpecs: specs[out],
            autoCast: false,
          })(x),
        [input([4, 4], 'f64')],
        { mesh: 'tp=2' },
      );
    expect(() => region((x, n) => x.add(n), 'R', 'V')).not.toThrow();
    expect(() => region((x, n) => x.add(n), 'I', 'V')).toThrow(/I with V on tp/);
    expect(() => region((x, n) => x.mul(n), 'P', 'P')).toThrow(/P with V on tp/);
  });
});

describe('loops and branches', () => {
  /** m microbatches through one weight: cast before the loop, or in it. */
  const micro = (hoisted: boolean): Graph =>
    trace(
      (x, w) =>
        localMap(
          (x: Tensor, w: Tensor) => {
            const own = hoisted ? convert(w, 'dp', { src: 'I', dst: 'R' }) : w;
            const step = (sum: Tensor, row: Tensor): readonly [Tensor, Tensor] => {
              const y = contract(
                'bi,io->bo',
                row,
                hoisted ? own : convert(w, 'dp', { src: 'I', dst: 'R' }),
              ).tanh();
              return [sum.add(y.sum()), y];
            };
            const start = x.sum().mul(0);
            return outPartial(scan(step, start, x)[0], 'dp');
          },
          { inSpecs: ['P(None,"dp")', 'P(None)'], outSpecs: { dp: 'P' } },
        )(x, w),
      [input([3, 4, 5], 'f64'), input([5, 6], 'f64')],
      { mesh: 'dp=2' },
    );

  test('a weight that is R reduces its gradient once, whatever the number of microbatches', () => {
    const [forward, backward] = collectivesOf(jointGraph(micro(true), { wrt: ['arg1'] }));
    expect(forward).toEqual([]);
    expect(backward).toEqual(['AR dp']);
  });

  /** The microbatches written out: the weight is cast for each. */
  const writtenOut = (): Graph =>
    trace(
      (x, w) =>
        localMap(
          (x: Tensor, w: Tensor) => {
            const losses = [0, 1, 2].map((i) =>
              contract('bi,io->bo', x.select(0, i), convert(w, 'dp', { src: 'I', dst: 'R' }))
                .tanh()
                .sum(),
            );
            return outPartial(
              losses.reduce((a, b) => a.add(b)),
              'dp',
            );
          },
          { inSpecs: ['P(None,"dp")', 'P(None)'], outSpecs: { dp: 'P' } },
        )(x, w),
      [input([3, 4, 5], 'f64'), input([5, 6], 'f64')],
      { mesh: 'dp=2' },
    );

  test('a weight that is I is reduced in each microbatch, and check says to share its cast', () => {
    expect(collectivesOf(jointGraph(writtenOut(), { wrt: ['arg1'] }))).toEqual([
      [],
      ['AR dp', 'AR dp', 'AR dp'],
    ]);
    const [{ advice }] = check(writtenOut(), {
      mode: 'strict',
      types: { arg0: 'P(None,"dp")' },
    }).advice;
    expect(advice).toContain('runs 1 all_reduce in the gradient instead of 3');
    // In a scan too: a cast stands where the program has it, and there its gradient is reduced.
    expect(collectivesOf(jointGraph(micro(false), { wrt: ['arg1'] }))).toEqual([
      [],
      ['AR dp', 'AR dp', 'AR dp'],
    ]);
    const inLoop = check(micro(false), { mode: 'strict' }).advice;
    expect(inLoop.map(({ nodes, advice }) => [nodes, advice])).toEqual([
      [
        ['local_map_0/scan', 'local_map_0/scan_body_0/convert'],
        'convert(arg1, "dp", I→R) is in a loop of 3 trips: write it before the loop, which runs 1 all_reduce in the gradient instead of 3 all_reduce in the gradient',
      ],
    ]);
    expect(check(micro(true), { mode: 'strict' }).advice).toEqual([]);
    const reference = jointGraph(micro(true), { wrt: ['arg1'] });
    expectSame(jointGraph(writtenOut(), { wrt: ['arg1'] }), reference);
    expectSame(jointGraph(micro(false), { wrt: ['arg1'] }), reference);
  });

  test('the predicate of a branch is equal on all ranks, and branches agree', () => {
    const branch = (assumed: 'R' | 'P("dp")') =>
      trace(
        (x, y) =>
          cond(
            assertType(x, assumed === 'R' ? { dp: 'R' } : assumed)
              .sum()
              .gt(0),
            (a: Tensor) => a.mul(2),
            (a: Tensor) => a,
            [assertType(y, { dp: 'R' })],
          ),
        [input([4], 'f64'), input([4], 'f64')],
        { mesh: 'dp=2' },
      );
    expect(check(branch('R'), { mode: 'strict' }).violations).toEqual([]);
    expect(check(branch('P("dp")'), { mode: 'strict' }).violations.length).toBeGreaterThan(0);
  });
});

test('branches of a condition in a region end in the same types, and a loop ends by what is equal on all ranks', () => {
  const region = (body: (x: Tensor, t: Tensor) => Tensor): Graph =>
    trace(
      (x, t) =>
        localMap((x: Tensor, t: Tensor) => body(x, t), {
          inSpecs: ['P("dp")', 'P(None)'],
          outSpecs: 'P("dp")',
          autoCast: false,
        })(x, t),
      [input([4], 'f64'), input([2], 'f64')],
      { mesh: 'dp=2' },
    );
  const own = (t: Tensor): Tensor => reinterpret(t, 'dp', { src: 'I', dst: 'V' });
  expect(() =>
    region((_, t) => cond(t.sum().gt(0), own, (a: Tensor) => own(a).neg(), [t])),
  ).not.toThrow();
  expect(() => region((_, t) => cond(t.sum().gt(0), own, (a: Tensor) => a.neg(), [t]))).toThrow(
    /branches on dp: result 0 is V in one branch and I in another/,
  );
  const loop = (test: (x: Tensor, t: Tensor) => Tensor) =>
    region((x, t) =>
      whileLoop(
        (a: Tensor) => test(a, t).gt(1),
        (a: Tensor) => a.mul(0.5),
        x,
      ),
    );
  expect(() => loop((_, t) => t.sum())).not.toThrow();
  expect(() => loop((a) => a.sum())).toThrow(
    /predicate on dp: the predicate is V, so ranks would go different ways/,
  );
});

describe('off and on', () => {
  test('a local sum that was meant for all ranks shows when the axis has one rank and several', () => {
    const program = (mesh: string, right: boolean): Graph =>
      trace(
        (x) =>
          localMap(
            (x: Tensor) => {
              const sum = x.sum([0], true);
              const total = right ? allReduce(outPartial(sum, 'dp'), 'dp', { dst: 'R' }) : sum;
              return x.div(total);
            },
            { inSpecs: ['P("dp")'], outSpecs: 'P("dp")' },
          )(x),
        [input([4, 3], 'f64')],
        { mesh },
      );
    const run = (graph: Graph): number[] => [
      ...flat(evaluateGraph(table, graph, inputsOf(graph)).outputs[0] as NDArray),
    ];
    const near = (a: number[], b: number[]): boolean =>
      a.every((x, i) => Math.abs(x - b[i]) < 1e-9);
    expect(near(run(program('dp=1', true)), run(program('dp=2', true)))).toBe(true);
    expect(near(run(program('dp=1', false)), run(program('dp=2', false)))).toBe(false);
    const inputs = inputsOf(program('dp=1', false));
    expect(
      offOnDifference(table, program('dp=1', true), program('dp=2', true), inputs),
    ).toBeUndefined();
    // The sum that is over its own rows only is the first value that differs.
    expect(
      offOnDifference(table, program('dp=1', false), program('dp=2', false), inputs),
    ).toMatchObject({
      node: 'sum',
      region: 'local_map',
    });
    // Without running numbers the lint says so, and where.
    const [found] = check(program('dp=2', false), {
      mode: 'strict',
      types: { arg0: 'P("dp")' },
    }).localNotGlobal;
    expect(found).toMatchObject({ node: 'sum', meshDim: 'dp' });
  });
});

/**
 * What ranks make of their pieces, cut by `dp` in rows and by `tp` in columns; how the result is
 * cut by `tp`; and the first value that one rank and four differ in.
 */
const LOCAL_SUMS: readonly {
  readonly name: string;
  readonly device: (x: Tensor) => Tensor;
  readonly columns?: 'R';
  readonly differs?: string;
}[] = [
  {
    name: 'added up over the axis after it was doubled',
    device: (x) => allReduce(outPartial(x.sum([0], true).mul(2), 'dp'), 'dp', { dst: 'R' }).add(x),
  },
  {
    name: 'added up over another axis',
    device: (x) => allReduce(outPartial(x.sum([0], true), 'tp'), 'tp', { dst: 'R' }),
    columns: 'R',
    differs: 'sum',
  },
  {
    name: 'added up, and used as it is beside that',
    device: (x) => {
      const sum = x.sum([0], true);
      return x.div(sum).add(allReduce(outPartial(sum, 'dp'), 'dp', { dst: 'R' }));
    },
    differs: 'sum',
  },
  {
    name: 'gathered, and read as pieces again',
    device: (x) => {
      const all = allGather(x.sum([0], true), 'dp', { src: 'S(0)', dst: 'R' });
      return reinterpret(all, 'dp', { src: 'R', dst: 'V', expert: true });
    },
    differs: 'sum',
  },
];

test.each(LOCAL_SUMS)(
  'off and on, a local sum that is $name',
  ({ device, columns = 'S(1)' as const, differs }) => {
    const program = (mesh: string): Graph =>
      trace(
        (x) =>
          localMap(device, {
            inSpecs: [{ dp: 'S(0)', tp: 'S(1)' }],
            outSpecs: { dp: 'S(0)', tp: columns },
          })(x),
        [input([4, 4], 'f64')],
        { mesh },
      );
    const [off, on] = [program('dp=1,tp=1'), program('dp=2,tp=2')];
    expect(offOnDifference(table, off, on, inputsOf(off))?.node).toBe(differs);
  },
);

test('a value claimed I whose replicas differ on one rank is named with axis and rank', () => {
  const graph = trace(
    (x, w) =>
      contract(
        'bi,io->bo',
        assertType(x, 'P("dp")'),
        convert(assertType(w, {}), 'dp', { src: 'I', dst: 'R' }),
      ),
    [input([8, 4], 'f64'), input([4, 4], 'f64')],
    { mesh: 'dp=4' },
  );
  const program = erase(graph);
  const [x, w] = inputsOf(graph);
  const rows = Array.from({ length: 4 }, (_, r) =>
    fromFlat([2, 4], flat(x).slice(8 * r, 8 * r + 8), 'f64'),
  );
  const replicas = (bad: boolean): NDArray[] =>
    Array.from({ length: 4 }, (_, r) =>
      fromFlat(
        [4, 4],
        Float64Array.from(flat(w), (value, i) => value + (bad && r === 2 && i === 5 ? 1e-6 : 0)),
        'f64',
      ),
    );
  expect(replicaFaults(table, program, [rows, replicas(false)])).toEqual([]);
  expect(replicaFaults(table, program, [rows, replicas(true)])[0]).toEqual({
    value: 'arg1',
    axis: 'dp',
    rank: 2,
  });
});

test('the collectives of the erased program are those that the simulator runs, in their order', () => {
  const graph = trace(
    (x, w1, w2) => {
      const own = convert(assertType(x, 'P("dp")'), 'tp', { src: 'I', dst: 'R' });
      const weight = (w: Tensor, spec: string): Tensor =>
        convert(assertType(w, spec), 'dp', { src: 'I', dst: 'R' });
      const h = contract('bi,io->bo', own, weight(w1, 'P(None,"tp")')).silu();
      return allReduce(outPartial(contract('bo,oi->bi', h, weight(w2, 'P("tp")')), 'tp'), 'tp', {
        dst: 'I',
      });
    },
    [input([4, 8], 'f32'), input([8, 8], 'f32'), input([8, 8], 'f32')],
    { mesh: 'dp=2,tp=2' },
  );
  const joint = jointGraph(graph, { wrt: ['arg0', 'arg1', 'arg2'] });
  const program = erase(joint);
  const written = program.graph.nodes
    .filter(({ target }) => target.startsWith('_c10d_functional.'))
    .map(({ name }) => name);
  const run = runErased(program, joint);
  expect(run.collectives.map(({ node }) => node)).toEqual(written);
  expect(run.collectives.map((c) => textOf(c, ['dp', 'tp'])).sort()).toEqual([
    'AR dp',
    'AR dp',
    'AR tp',
    'AR tp',
  ]);
  const stated = joint.nodes.filter(
    ({ target, args }) => target.includes('redistribute') && args[3] === 'P',
  );
  expect(stated.length).toBe(written.length);
  for (const error of run.compare) expect(error).toBeLessThan(1e-9);
});

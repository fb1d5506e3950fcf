import { describe, expect, test } from 'vitest';

import type { Arg } from '../../src/graph/types.ts';
import { type Mode, typeInMode } from '../../src/local-spmd/modes.ts';
import type { OperandType } from '../../src/local-spmd/operator-types.ts';
import { tensorInputs } from '../../src/ops/record/context.ts';
import { bind } from '../../src/ops/record/infer.ts';
import { table } from './support/simulated.ts';

const v = (name: string): Arg => ({ kind: 'value', name });

/** `S(0): 1 all_reduce`, or `error: rule`. */
function under(
  mode: Mode,
  target: string,
  args: readonly Arg[],
  shapes: Record<string, number[]>,
  types: Record<string, OperandType>,
): string {
  const call = { target, args, kwargs: {} };
  const ctx = bind(table, call, (name) => ({ kind: 'tensor', dtype: 'f32', shape: shapes[name] }));
  const record = table.get(target);
  if (ctx === undefined || record === undefined) throw new Error(target);
  const operands = tensorInputs(record, args, {}).map((name) => types[name]);
  const local =
    mode === 'manual' ? operands.map((t): OperandType => (t.startsWith('S') ? 'V' : t)) : operands;
  const found = typeInMode(mode, record, ctx, local, 2);
  if ('conflict' in found) return `error: ${found.conflict.rule}`;
  const moves = found.implicit.map(({ kind }) => kind);
  return [found.results.join(' '), ...(moves.length === 0 ? [] : [moves.join(' ')])].join(': ');
}

const X = { x: [8, 8] };
const XY = { x: [8, 8], y: [8, 8] };
const S1 = { x: 'S(1)' } as const;
const rows: [
  string,
  string,
  Arg[],
  Record<string, number[]>,
  Record<string, OperandType>,
  Record<Mode, string>,
][] = [
  [
    'sum',
    'aten.sum.dim_IntList',
    [v('x'), [1]],
    X,
    S1,
    { manual: 'V', auto: 'P', explicit: 'R: all_reduce', strict: 'error: sum over S' },
  ],
  [
    'mean',
    'aten.mean.dim',
    [v('x'), [1]],
    X,
    S1,
    { manual: 'V', auto: 'P', explicit: 'R: all_reduce', strict: 'error: mean over S(1)' },
  ],
  [
    'mean of an uneven cut',
    'aten.mean.dim',
    [v('x'), [0]],
    { x: [7] },
    { x: 'S(0)' },
    {
      manual: 'V',
      auto: 'R: all_gather',
      explicit: 'R: all_reduce',
      strict: 'error: mean over S(0)',
    },
  ],
  [
    'softmax',
    'aten._softmax.default',
    [v('x'), 0, false],
    { x: [8] },
    { x: 'S(0)' },
    {
      manual: 'V',
      auto: 'R: all_gather',
      explicit: 'S(0): all_reduce all_reduce',
      strict: 'error: S(0) not passed on',
    },
  ],
  [
    'matmul',
    'aten.mm.default',
    [v('x'), v('y')],
    XY,
    { x: 'S(1)', y: 'S(0)' },
    { manual: 'V', auto: 'P', explicit: 'error: ambiguous', strict: 'error: sum over S' },
  ],
  [
    'layer norm',
    'aten.native_layer_norm.default',
    [v('x'), [8], null, null, { kind: 'float', value: 1e-5 }],
    X,
    { x: 'S(0)' },
    {
      manual: 'V V V',
      auto: 'S(0) S(0) S(0)',
      explicit: 'S(0) S(0) S(0)',
      strict: 'S(0) S(0) S(0)',
    },
  ],
  [
    'add of two cuts',
    'aten.add.Tensor',
    [v('x'), v('y')],
    XY,
    { x: 'S(0)', y: 'S(1)' },
    {
      manual: 'V',
      auto: 'S(0): all_to_all',
      explicit: 'error: S(0) with S(1)',
      strict: 'error: S(0) with S(1)',
    },
  ],
  [
    'relu of P',
    'aten.relu.default',
    [v('x')],
    X,
    { x: 'P' },
    {
      manual: 'error: nonlinear(P)',
      auto: 'R: all_reduce',
      explicit: 'error: nonlinear(P)',
      strict: 'error: nonlinear(P)',
    },
  ],
  [
    'cos of P',
    'aten.cos.default',
    [v('x')],
    X,
    { x: 'P' },
    {
      manual: 'error: nonlinear(P)',
      auto: 'R: all_reduce',
      explicit: 'error: nonlinear(P)',
      strict: 'error: nonlinear(P)',
    },
  ],
  [
    'P+P',
    'aten.add.Tensor',
    [v('x'), v('y')],
    XY,
    { x: 'P', y: 'P' },
    { manual: 'P', auto: 'P', explicit: 'P', strict: 'P' },
  ],
  [
    'P·P',
    'aten.mul.Tensor',
    [v('x'), v('y')],
    XY,
    { x: 'P', y: 'P' },
    {
      manual: 'error: P with P',
      auto: 'P: all_reduce',
      explicit: 'error: P with P',
      strict: 'error: P with P',
    },
  ],
  [
    'P+R',
    'aten.add.Tensor',
    [v('x'), v('y')],
    XY,
    { x: 'P', y: 'R' },
    {
      manual: 'error: P with R',
      auto: 'P: to_partial',
      explicit: 'error: P with R',
      strict: 'error: P with R',
    },
  ],
  [
    'P·R',
    'aten.mul.Tensor',
    [v('x'), v('y')],
    XY,
    { x: 'P', y: 'R' },
    { manual: 'P', auto: 'P', explicit: 'P', strict: 'P' },
  ],
  [
    'cumsum',
    'aten.cumsum.default',
    [v('x'), 0],
    { x: [8] },
    { x: 'S(0)' },
    {
      manual: 'V',
      auto: 'R: all_gather',
      explicit: 'error: S(0) not passed on',
      strict: 'error: S(0) not passed on',
    },
  ],
  [
    'reshape',
    'aten.view.default',
    [v('x'), [64]],
    X,
    S1,
    { manual: 'V', auto: '_S(0,8)', explicit: 'error: reshape', strict: '_S(0,8)' },
  ],
  [
    'mm (S0,R)',
    'aten.mm.default',
    [v('x'), v('y')],
    XY,
    { x: 'S(0)', y: 'R' },
    { manual: 'V', auto: 'S(0)', explicit: 'S(0)', strict: 'S(0)' },
  ],
  [
    'mm (S1,S0)',
    'aten.mm.default',
    [v('x'), v('y')],
    XY,
    { x: 'S(1)', y: 'S(0)' },
    { manual: 'V', auto: 'P', explicit: 'error: ambiguous', strict: 'error: sum over S' },
  ],
  [
    'mm (R,S0)',
    'aten.mm.default',
    [v('x'), v('y')],
    XY,
    { x: 'R', y: 'S(0)' },
    { manual: 'V', auto: 'P: slice', explicit: 'R: all_gather', strict: 'error: R with S(0)' },
  ],
  [
    'I·S broadcast',
    'aten.mul.Tensor',
    [v('x'), v('y')],
    { x: [8, 8], y: [8] },
    { x: 'S(0)', y: 'I' },
    { manual: 'error: I with V', auto: 'S(0)', explicit: 'S(0)', strict: 'error: I with S(0)' },
  ],
];

describe('the same operator under four modes', () => {
  test.each(rows)('%s', (_id, target, args, shapes, types, expected) => {
    const got = Object.fromEntries(
      (Object.keys(expected) as Mode[]).map((mode) => [
        mode,
        under(mode, target, args, shapes, types),
      ]),
    );
    expect(got).toEqual(expected);
  });

  test('pairs of a batched product without communication, with a slice, and with one collective', () => {
    const pairs = ['R', 'S(0)', 'S(1)', 'S(2)'] as const;
    const found: Record<string, string> = {};
    for (const x of pairs)
      for (const y of pairs)
        found[`${x},${y}`] = under(
          'auto',
          'aten.einsum.default',
          ['abi,aoi->abo', [v('x'), v('y')]],
          { x: [8, 8, 8], y: [8, 8, 8] },
          { x, y },
        );
    const free = Object.entries(found).filter(([, text]) => !text.includes(':'));
    expect(Object.fromEntries(free)).toEqual({
      'R,R': 'R',
      'R,S(1)': 'S(2)',
      'S(0),S(0)': 'S(0)',
      'S(1),R': 'S(1)',
      'S(2),S(2)': 'P',
    });
    const sliced = Object.entries(found).filter(([, text]) => text.endsWith(': slice'));
    expect(Object.fromEntries(sliced)).toEqual({
      'R,S(0)': 'S(0): slice',
      'R,S(2)': 'P: slice',
      'S(0),R': 'S(0): slice',
      'S(2),R': 'P: slice',
    });
    const rest = Object.entries(found).filter(
      ([, text]) => text.includes(':') && !text.endsWith(': slice'),
    );
    expect(rest.map(([pair]) => pair).sort()).toEqual([
      'S(0),S(1)',
      'S(0),S(2)',
      'S(1),S(0)',
      'S(1),S(1)',
      'S(1),S(2)',
      'S(2),S(0)',
      'S(2),S(1)',
    ]);
    for (const [, text] of rest)
      expect(
        text
          .split(': ')[1]
          .split(' ')
          .filter((k) => k !== 'slice').length,
      ).toBe(1);
  });

  test('an I beside a cut wants I→R in strict; auto passes it', () => {
    const linear = (mode: Mode): string =>
      under(
        mode,
        'aten.einsum.default',
        ['bh,ho->bo', [v('x'), v('y')]],
        { x: [8, 8], y: [8, 8] },
        { x: 'S(0)', y: 'I' },
      );
    expect(linear('auto')).toBe('S(0)');
    expect(linear('strict')).toBe('error: I with S(0)');
  });
});

import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import type { Graph } from '../../src/graph/types.ts';
import { check } from '../../src/simulate/strip.ts';
import { ppermute, psum } from '../../src/trace/spmd/jax-names.ts';
import { localMap, type LocalMapOptions } from '../../src/trace/spmd/local-map.ts';
import {
  allGather,
  allReduce,
  allToAll,
  assertType,
  axisIndex,
  convert,
  outPartial,
  permute,
  reinterpret,
} from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';

/**
 * Bad input gives one line with the place, what was found and what is wanted, and a fix beside it.
 */

const X = input([8, 6], 'f32');

/** A program of two [8, 6] tensors, x whole and w cut by columns unless told otherwise. */
const region =
  (
    body: (x: Tensor, w: Tensor) => Tensor,
    options: Partial<LocalMapOptions> = {},
    mesh = 'dp=2,tp=2',
  ) =>
  (): Graph =>
    trace(
      (x, w) =>
        localMap((x: Tensor, w: Tensor) => body(x, w), {
          inSpecs: ['P(None)', 'P(None,"tp")'],
          outSpecs: { tp: 'I' },
          ...options,
        })(x, w),
      [X, X],
      { mesh },
    );
const whole =
  (body: (x: Tensor) => Tensor, mesh = 'dp=2,tp=2') =>
  (): Graph =>
    trace((x) => body(x), [X], { mesh });
const first = (x: Tensor): Tensor => x;
const second = (_: Tensor, w: Tensor): Tensor => w;
const into = (...inSpecs: LocalMapOptions['inSpecs']): Partial<LocalMapOptions> => ({ inSpecs });

type Row = readonly [what: string, run: () => unknown, found: string, fix: string];

const rows: readonly Row[] = [
  [
    'an unknown axis in an in spec',
    region(first, into('P("tq")', 'P(None)')),
    `inSpecs[0]: P("tq"): the mesh dp=2,tp=2 has no axis 'tq'`,
    "did you mean 'tp'?",
  ],
  [
    'in an out spec',
    region(first, { outSpecs: { tq: 'I' } }),
    `outSpecs[0]: { tq: I }: the mesh dp=2,tp=2 has no axis 'tq'`,
    "did you mean 'tp'?",
  ],
  [
    'among the axes',
    region(first, { axes: ['pp'] }),
    `localMap: the mesh dp=2,tp=2 has no axis 'pp'`,
    'axes are dp, tp',
  ],
  [
    'of a collective',
    region((_, w) => psum(w, 'cp')),
    `psum(): the mesh dp=2,tp=2 has no axis 'cp'`,
    'did you mean',
  ],
  [
    'of a statement',
    whole((x) => assertType(x, 'P("tq")')),
    `assertType(%arg0): P("tq"): the mesh dp=2,tp=2 has no axis 'tq'`,
    "did you mean 'tp'?",
  ],
  [
    'of a rank',
    region((_, w) => w.add(axisIndex('zz'))),
    `axisIndex(): the mesh dp=2,tp=2 has no axis 'zz'`,
    'known axes: dp, tp',
  ],

  [
    'an axis twice on one dim',
    region(first, into('P(("tp","tp"))', 'P(None)')),
    `inSpecs[0]: P(("tp","tp")): mesh dim 'tp' is listed twice`,
    'a mesh dim cuts one tensor dim',
  ],
  [
    'on two dims',
    region(first, into('P("tp","tp")', 'P(None)')),
    `inSpecs[0]: P("tp","tp"): mesh dim 'tp' is listed twice`,
    'a mesh dim cuts one tensor dim',
  ],
  [
    'cut and unreduced',
    region(first, into('P("tp", unreduced={"tp"})', 'P(None)')),
    `inSpecs[0]: P("tp", unreduced={"tp"}): mesh dim 'tp' is listed twice`,
    'or is unreduced',
  ],
  [
    'in the list of axes',
    region(first, { axes: ['tp', 'tp'] }),
    `localMap lists the axis 'tp' twice`,
    'list each axis once',
  ],
  [
    'in a region inside a region',
    region((x) => localMap(first, { inSpecs: ['P("tp")'], outSpecs: 'P("tp")', axes: ['tp'] })(x)),
    `the axis 'tp' is per device already, in the region around`,
    "leave 'tp' out of axes",
  ],
  [
    'in another order than the mesh',
    region(first, into('P(("tp","dp"))', 'P(None)')),
    'the axes of dim 0 stand in another order than in the mesh dp=2,tp=2',
    'write ("dp", "tp")',
  ],

  [
    'sizes that do not divide, of an argument',
    region(first, into('P(None,"tp")', 'P(None)'), 'dp=2,tp=4'),
    'inSpecs[0]: P(None,"tp"): dim 1 has 6 rows, which do not divide by tp=4',
    'pad it to 8, or cut another dim',
  ],
  [
    'by two axes',
    region(first, into('P(None,("dp","tp"))', 'P(None)')),
    'dim 1 has 6 rows, which do not divide by dp=2 x tp=2',
    'pad it to 8',
  ],
  [
    'of a statement',
    whole((x) => assertType(x, 'P(None,"tp")'), 'tp=4'),
    'assertType(%arg0): P(None,"tp"): dim 1 has 6 rows',
    'pad it to 8',
  ],
  [
    'of a collective',
    region(
      (x) => allToAll(x, 'tp', { src: 'S(0)', dst: 'S(1)' }),
      { inSpecs: ['P("tp")', 'P(None)'], outSpecs: 'P(None,"tp")' },
      'tp=4',
    ),
    'all_to_all: dim 1 of size 6 does not divide by the 4 ranks of tp',
    'pad it to 8',
  ],
  [
    'of rows that V takes',
    region((x) => convert(x, 'tp', { src: 'I', dst: 'V' }), { outSpecs: 'P("tp")' }),
    'convert: V takes one row of dim 0 for each of 2 ranks, the shape is [8, 6]',
    'name the dim that is cut: S(0)',
  ],
  [
    'a dim that is not there, of an argument',
    region(first, into({ tp: 'S(4)' }, 'P(None)')),
    'inSpecs[0]: { tp: S(4) }: S(4) on tp cuts a dim that the value does not have: it has 2',
    'count dims from 0',
  ],
  [
    'of a result',
    region(second, { outSpecs: 'P(None,None,"tp")' }),
    'outSpecs[0]: P(None,None,"tp"): it cuts dim 2, the value has 2 dims',
    'write one entry for each dim',
  ],
  [
    'of a collective',
    region((_, w) => allGather(w, 'tp', { src: 'S(3)', dst: 'I' })),
    'all_gather: S(3) names a dim that [8, 3] does not have',
    'the last is S(1)',
  ],

  [
    'an out spec that claims replication',
    region(second, { outSpecs: 'P(None)' }),
    'result 0 of the region, %arg1: f32[8,3]{V:tp}: replication over tp is required by its out spec, which does not name that axis, but the value may vary over {tp}',
    'name tp in the out spec, add up addends with all_reduce(outPartial(arg1, "tp"), "tp", P→I), or join pieces with all_gather(arg1, "tp", V→I)',
  ],
  [
    'that claims a finished sum',
    region((_, w) => outPartial(w, 'tp')),
    '%reinterpret: f32[8,3]{U:tp}: its out spec says I on tp, it is P',
    'all_reduce(reinterpret, "tp", P→I)',
  ],
  [
    'that claims pieces of addends',
    region((_, w) => outPartial(w, 'tp'), { outSpecs: 'P("tp")' }),
    'its out spec says S(0) on tp, it is P',
    'reduce_scatter(reinterpret, "tp", P→S(0))',
  ],
  [
    'that claims addends',
    region(second, { outSpecs: { tp: 'P' } }),
    'its out spec says P on tp, it is V',
    'reinterpret(arg1, "tp", V→P)',
  ],
  [
    'that says nothing of the pieces',
    region(second, { outSpecs: { tp: 'V' } }),
    'outSpecs[0]: V on tp does not say how the pieces assemble',
    'tp: S(0)',
  ],

  [
    'a collective over an axis that is not manual',
    region((_, w) => psum(w, 'dp'), { axes: ['tp'] }),
    "psum(): the axis 'dp' is not per device in this region (those are: tp)",
    "add 'dp' to the axes of localMap",
  ],
  [
    'outside of any region',
    whole((x) => reinterpret(x, 'tp', { src: 'R', dst: 'V', expert: true })),
    'reinterpret(R→V) on tp: the meaning of a whole value',
    "write it in a localMap over 'tp'",
  ],
  [
    'of ranks outside of any region',
    whole((x) => permute(x, 'tp', [1, 0])),
    "permute(): 'tp' has a global meaning here",
    "write it in a localMap over 'tp'",
  ],
  [
    'of pieces outside of any region',
    whole((x) => allGather(x, 'tp', { src: 'V', dst: 'I' })),
    'all_gather(V→I) on tp: V has no meaning for a whole value',
    'name the dim: S(0)',
  ],
  [
    'of addends that are none',
    region((_, w) => allReduce(w, 'tp', { dst: 'I' })),
    'src must be P, got V; %arg1: f32[8,3]{V:tp}',
    'reinterpret(arg1, "tp", V→P)',
  ],
  [
    'to ranks that are not a permutation',
    region((_, w) => permute(w, 'tp', [0, 0])),
    'targets [0, 0] are not a permutation of the 2 ranks of tp',
    'name every rank once',
  ],
  [
    'in pairs that are none',
    region((_, w) => ppermute(w, 'tp', [[0, 1]])),
    "the pairs are not a permutation of the 2 ranks of 'tp'",
    'once as a source and once as a target',
  ],

  [
    'too few specs',
    region(first, into('P(None)')),
    'localMap has 1 inSpecs for 2 arguments',
    'give one spec for each argument',
  ],
  [
    'too many',
    region(first, { outSpecs: ['P(None)', 'P(None)'] }),
    'localMap has 2 outSpecs for 1 results',
    'give one spec for each result',
  ],
  [
    'a word that is not a type',
    region(first, into({ tp: 'Q' as 'R' }, 'P(None)')),
    "inSpecs[0]: 'Q' is not a type",
    'write V, R, I, P or S(0)',
  ],
  [
    'a text that is not a spec',
    region(first, into('tp', 'P(None)')),
    `inSpecs[0]: 'tp': expected 'P' at column 1`,
    'as in P(',
  ],
  [
    'no mesh',
    () => trace((x) => localMap(first, { inSpecs: ['P(None)'], outSpecs: 'P(None)' })(x), [X]),
    'localMap(): the trace has no mesh',
    "{ mesh: 'dp=2,tp=4' }",
  ],
];

function refusedBy(run: () => unknown): ShardwrightError {
  try {
    run();
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('bad input', () => {
  test.each(rows)('%s', (_what, run, found, fix) => {
    const { code, message, details } = refusedBy(run);
    expect(['E_SPMD_TYPE', 'E_SHAPE']).toContain(code);
    expect(message).toContain(found);
    expect(message).not.toContain('\n');
    expect(message).toMatch(/ at \S*bad-input\.test\.ts:\d+:\d+$/);
    expect(details.hint).toContain(fix);
  });

  test.each<Row>([
    [
      'an unknown axis',
      () => check(whole(first)(), { mode: 'strict', types: { arg0: 'P("zz")' } }),
      `type of arg0: P("zz"): the mesh dp=2,tp=2 has no axis 'zz'`,
      'known axes: dp, tp',
    ],
    [
      'sizes that do not divide',
      () => check(whole(first)(), { mode: 'strict', types: { arg0: 'P(None,("dp","tp"))' } }),
      'type of arg0: P(None,("dp","tp")): dim 1 has 6 rows',
      'pad it to 8',
    ],
    [
      'no such input',
      () => check(whole(first)(), { mode: 'strict', types: { y: 'P("dp")' } }),
      "has no input 'y'",
      'inputs are arg0',
    ],
    [
      'no such mode',
      () => check(whole(first)(), { mode: 'strikt' as 'strict' }),
      "there is no mode 'strikt'",
      'modes are auto, explicit, strict, manual',
    ],
  ])('types of inputs: %s', (_what, run, found, fix) => {
    const { message, details } = refusedBy(run);
    expect(message).toContain(found);
    expect(details.hint).toContain(fix);
  });
});

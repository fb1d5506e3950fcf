import { readdirSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { bestKept, chooseRegion, recomputeCurve, rotor } from '../../src/entries/checkpointing.ts';
import * as graphs from '../../src/entries/graph.ts';
import * as local from '../../src/entries/local-spmd.ts';
import { areOrthogonal, DeviceMesh, Sharding } from '../../src/entries/notations.ts';
import { OperatorTable } from '../../src/entries/ops.ts';
import { mergeComparisons } from '../../src/entries/recipes.ts';
import { IopddlError } from '../../src/entries/solver.ts';
import { ShardwrightError } from '../../src/errors.ts';
import * as main from '../../src/index.ts';
import { apply, applyTuple, type Tensor } from '../../src/trace/tensor/tensor.ts';
import { FULL } from '../support/full.ts';
import { refusal, refusalText } from '../support/thrown.ts';

/** What JavaScript lets through where a function takes something else. */
const ODD: readonly unknown[] = [
  ...[undefined, null, 5, -1, 'x', '', [], {}, true, Number.NaN, new Map()],
  // A mesh as JSON gives it.
  { names: ['d'], sizes: [2] },
];
const IN_PROGRAM: readonly unknown[] = [undefined, 'x', 5, []];

/** Groups of functions; `sourceHooks` is called by what the source-level front end writes. */
const GROUPS = ['functional', 'megatron'];
/** The page's entry serves the page alone; the package does not have it. */
const ENTRIES = readdirSync('src/entries').filter((name) => name !== 'page.ts');

type Call = (...args: readonly unknown[]) => unknown;

/** Every function and class that some entries of the package export. */
async function exported(paths: readonly string[]): Promise<[string, Call][]> {
  const modules = await Promise.all(
    paths.map(async (path) => (await import(`../../src/${path}`)) as object),
  );
  return modules
    .flatMap((entry) => Object.entries(entry))
    .flatMap(([name, value]: [string, unknown]) =>
      GROUPS.includes(name) ? Object.entries(value as object) : [[name, value] as const],
    )
    .flatMap(([name, value]): [string, Call][] => {
      if (typeof value !== 'function') return [];
      const isClass = Function.prototype.toString.call(value).startsWith('class');
      const make = value as new (...args: readonly unknown[]) => unknown;
      return [[name, isClass ? (...args) => new make(...args) : (value as Call)]];
    });
}

const EXPORTED = await exported(['index.ts', ...ENTRIES.map((name) => `entries/${name}`)]);
const TRACED = await exported(['entries/trace.ts', 'entries/local-spmd.ts']);

/** Throws what is not an error of Shardwright; of a list that is made bit by bit, the first. */
async function only(run: () => unknown): Promise<void> {
  try {
    const made = await run();
    if (made !== null && typeof made === 'object' && 'next' in made) (made as Generator).next();
  } catch (error) {
    if (error instanceof IopddlError) return;
    if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
  }
}

const graph = main.trace(({ x, w }) => x.matmul(w), {
  x: main.input([4, 4]),
  w: main.parameter([4, 4]),
});

describe('a wrong call from JavaScript is refused by a code', () => {
  test('every entry is called', () => {
    expect(EXPORTED.length).toBeGreaterThan(400);
    for (const name of ['shard', 'rotor', 'allGather', 'splitKey', 'localShape', 'scan'])
      expect(EXPORTED.map(([one]) => one)).toContain(name);
  });

  test.each(EXPORTED)('%s', async (_, call) => {
    await only(() => call());
    for (const odd of ODD) {
      const fewer = FULL
        ? [
            [odd, odd],
            [graph, odd],
          ]
        : [];
      for (const args of [[odd], [odd, odd, odd], [graph, odd, odd], ...fewer])
        await only(() => call(...args));
    }
  });

  test.each(TRACED)('%s, in a program that is traced', async (_, call) => {
    // The input itself, a value of another kind, and what a misspelt name gives.
    const X = Symbol('the input');
    const lists = IN_PROGRAM.flatMap((odd) => [[odd], [X, odd], [X, odd, odd], [X, X, odd]]);
    for (const args of lists)
      await only(() =>
        main.trace(
          (x) => {
            call(...args.map((arg) => (arg === X ? x : arg)));
            return x;
          },
          [main.input([4, 4])],
          { mesh: 'sp=2' },
        ),
      );
  });
});

test('an operator of several results, called as one of a single result, names the call for them', () => {
  const call = (): unknown =>
    main.trace((x) => apply('aten.kthvalue.default', [x, 2, 0]), [main.input([4, 4])]);
  expect(refusalText(call)).toMatch(
    /^E_TRACE_INPUT: aten\.kthvalue\.default gives several results at \S*:\d+:\d+$/,
  );
});

test('a result that a call masks off is refused', () => {
  const backward = (): unknown =>
    main.trace(
      (g, x, mean, rstd) =>
        applyTuple('aten.native_layer_norm_backward.default', [
          ...[g, x, [4], mean, rstd, null, null],
          [true, false, false],
        ])[0],
      [main.input([4, 4]), main.input([4, 4]), main.input([4, 1]), main.input([4, 1])],
    );
  expect(refusalText(backward)).toMatch(/^E_TRACE_INPUT: aten\.\S+ masks off its result 1 at/);
});

test('an operand that is undefined is named with its place', () => {
  const text = refusalText(() =>
    main.trace(({ x, v }: Readonly<Record<string, Tensor>>) => x.matmul(v), {
      x: main.input([4, 4]),
    }),
  );
  expect(text).toMatch(
    /^E_TRACE_INPUT: the second operand of matmul is undefined at \S*wrong-calls\.test\.ts:\d+:\d+$/,
  );
});

test.each<[string, () => unknown, string]>([
  [
    'a mesh',
    () => new DeviceMesh([{ name: 'd', size: 2 }, null as never]),
    'item 1 of dims is null',
  ],
  [
    'device ids',
    () => new DeviceMesh([{ name: 'd', size: 1 }], [10n as never]),
    'item 0 of devices is',
  ],
  ['a sharding', () => new Sharding([null as never]), 'item 0 of placements is null'],
  ['axes', () => areOrthogonal([undefined as never]), 'item 0 of axes is undefined'],
  ['operators', () => new OperatorTable([null as never]), 'item 0 of records is null'],
  ['comparisons', () => mergeComparisons([null as never]), 'item 0 of pieces is null'],
  ['values to keep', () => bestKept([null as never], 1), 'item 0 of items is null'],
  ['a region', () => chooseRegion([null as never], 1), 'item 0 of ops is null'],
  ['a curve', () => recomputeCurve([null as never]), 'item 0 of ops is null'],
  ['a chain', () => rotor([null as never], 1), 'item 0 of stages is null'],
])('%s: an item that is none is named by its place', (_, call, found) => {
  const { code, message } = refusal(call);
  expect([code, message]).toEqual(['E_USAGE', expect.stringContaining(found)]);
});

test.each<[string, Call, unknown, string]>([
  ['jointGraph', graphs.jointGraph as Call, { wtr: ['w'] }, 'wrt'],
  [
    'trainStep',
    (g, o) => graphs.trainStep(g as never, graphs.sgd({ lr: 1 }), o as never),
    { keepGradient: true },
    'keepGradients',
  ],
  ['printGraph', graphs.printGraph as Call, { sources: false }, 'source'],
  ['checkTypes', local.checkTypes as Call, { mehs: 'tp=2' }, 'mesh'],
  ['erase', local.erase as Call, { type: {} }, 'types'],
  ['check', local.check as Call, { mode: 'strict', messh: 'tp=2' }, 'mesh'],
  ['adamw', (_, o) => graphs.adamw(o as never), { lr: 1, weigthDecay: 1 }, 'weightDecay'],
])(
  '%s names the option that is nearest to one that it does not have',
  (name, call, given, near) => {
    const { code, message, details } = refusal(() => call(graph, given));
    expect([code, message]).toEqual(['E_USAGE', expect.stringContaining(`${name} has no option`)]);
    expect(details.hint).toBe(`did you mean '${near}'?`);
  },
);

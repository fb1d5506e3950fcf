import { describe, expect, test } from 'vitest';

import * as solver from '../../src/entries/solver.ts';
import { ShardwrightError } from '../../src/errors.ts';
import { FULL } from '../support/full.ts';
import { refusal } from '../support/thrown.ts';

/** What JavaScript lets through where a part of a problem belongs. */
const ODD: readonly unknown[] = [
  undefined,
  null,
  -1,
  0.5,
  Number.NaN,
  Infinity,
  2 ** 53,
  'x',
  true,
  [],
  [[]],
  {},
  Int32Array.of(7),
  Float64Array.of(Number.NaN),
  Float64Array.of(-1, 0.5),
  BigInt(1),
];

/** Every part that a problem can have. */
function whole(): solver.Problem {
  const builder = new solver.ProblemBuilder();
  builder.name = 'whole';
  builder.constant = 3;
  for (let i = 0; i < 3; i++) builder.addVariable(Float64Array.of(2, 1 + i));
  builder.addEdge(0, 1, Float64Array.of(0, 5, 5, 0));
  const of = Int32Array.of(0, 0);
  builder.addEdge(1, 2, Float64Array.of(1, 2), { classes: 1, of });
  const amounts = [Float64Array.of(1, 4), Float64Array.of(1, 4)];
  builder.addRow({ name: 'row', variables: Int32Array.of(0, 2), amounts, bound: 6 });
  builder.addUsage({ variable: 1, lo: 0, hi: 4, amounts: Float64Array.of(3, 1) });
  builder.setLimit(5);
  const none = Int32Array.of(-1, -1, -1);
  return { ...builder.build(), tolerance: 0, minPairs: { first: none, second: none } };
}

type Path = readonly (string | number)[];

/**
 * The paths of all parts of a problem, and of the cells of its arrays: of the first cell of each,
 * of all with SHARDWRIGHT_FULL.
 */
function paths(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path];
  const parts = Object.entries(value);
  const some = ArrayBuffer.isView(value) && !FULL ? parts.slice(0, 1) : parts;
  return [path, ...some.flatMap(([key, item]) => paths(item, [...path, key]))];
}

/** A copy with another value at a path. */
function put(value: unknown, [key, ...rest]: Path, odd: unknown): unknown {
  if (key === undefined) return odd;
  const inner = put((value as Readonly<Record<string, unknown>>)[key], rest, odd);
  if (Array.isArray(value))
    return value.map((item: unknown, k) => (String(k) === key ? inner : item));
  if (!ArrayBuffer.isView(value)) return { ...(value as object), [key]: inner };
  const copy = (value as Float64Array).slice();
  copy[Number(key)] = Number(typeof inner === 'bigint' ? 1 : inner);
  return copy;
}

const SOLVED = solver.solveNow(whole());
const CALLS: Readonly<Record<string, (problem: solver.Problem) => unknown>> = {
  solve: (problem) => solver.solve(problem, { workLimit: 1e6 }),
  solveNow: (problem) => solver.solveNow(problem, { workLimit: 1e6 }),
  // Without the finisher, which loads a library for every problem that is sound.
  solveAnytime: (problem) =>
    solver.solveAnytime(problem, { threads: 1, rounds: 1, timeLimitSeconds: 0, close: false }),
  evaluateChoice: (problem) => solver.evaluateChoice(problem, [0, 0, 0]),
  hashProblem: solver.hashProblem,
  verifyCertificate: (problem) => solver.verifyCertificate(problem, SOLVED),
};

/** How deep the odd parts lie; the anytime solver takes its time for every problem that is sound. */
const most: Readonly<Record<string, number>> = { solveAnytime: 1 };

describe('the entry of the solver', () => {
  test.each(Object.entries(CALLS))('%s takes a problem with every part', async (_, call) => {
    await expect(Promise.resolve(call(whole()))).resolves.toBeDefined();
  });

  test.each(Object.entries(CALLS))(
    '%s refuses a problem with any odd part by a code',
    async (name, call) => {
      const problem = whole();
      let refused = 0;
      for (const path of paths(problem).filter(({ length }) => length <= (most[name] ?? Infinity)))
        for (const odd of name === 'solveAnytime' ? ODD.slice(0, 3) : ODD) {
          const changed = put(problem, path, odd) as solver.Problem;
          try {
            await call(changed);
          } catch (error) {
            if (!(error instanceof ShardwrightError))
              throw new Error(path.join('.'), { cause: error });
            expect(['E_USAGE', 'E_LIMIT']).toContain(error.code);
            refused++;
          }
        }
      expect(refused).toBeGreaterThan(20);
    },
  );
});

describe('wrong options', () => {
  test.each<[string, (problem: solver.Problem) => unknown, string]>([
    ['a misspelt one', (p) => solver.solve(p, { timeLimit: 1 } as never), 'timeLimitSeconds'],
    ['another kind', (p) => solver.solve(p, { gap: '1%' } as never), 'a number'],
    ['an unknown engine', (p) => solver.solve(p, { engine: 'higs' as 'highs' }), 'highs'],
    [
      'an unknown order of ties',
      (p) => solver.solve(p, { ties: 'x' as 'engine' }),
      'lexicographic',
    ],
    ['no whole thread', (p) => solver.solveAnytime(p, { threads: 0.5 }), 'from 1'],
    ['a start of other size', (p) => solver.solve(p, { starts: [Int32Array.of(0)] }), '3 values'],
  ])('%s', async (_, call, hint) => {
    const error = await Promise.resolve(call(whole())).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code: 'E_USAGE' });
    expect((error as ShardwrightError).details.hint).toContain(hint);
  });
});

test('costs whose sums are not exact are no problem of the solver', () => {
  const builder = new solver.ProblemBuilder();
  for (let i = 0; i < 3; i++) builder.addVariable(Float64Array.of(2 ** 51, 1));
  const { code, message } = refusal(() => solver.solveNow(builder.build()));
  expect([code, message]).toEqual([
    'E_LIMIT',
    'solveNow: the largest costs of all variables and edges add up to 6755399441055744, more than ' +
      '2^52: sums would not be exact',
  ]);
});

test('a library refuses what it cannot take by a code', async () => {
  const builder = new solver.ProblemBuilder();
  for (let i = 0; i < 400; i++) builder.addVariable(new Float64Array(20).fill(1));
  await expect(
    solver.solve(builder.build(), { engine: 'javascript-lp-solver' }),
  ).rejects.toMatchObject({
    code: 'E_LIMIT',
    message: expect.stringContaining('cannot take') as string,
  });
});

test('a problem that is malformed is refused with the part that is', () => {
  const builder = new solver.ProblemBuilder();
  builder.addVariable(Float64Array.of(1, 2));
  builder.addEdge(4, 0, Float64Array.of(1, 2), { classes: 1, of: Int32Array.of(0, 0) });
  expect(refusal(() => builder.build()).message).toBe(
    'build: the problem is malformed: edge 0 ends at variable 4 of 1',
  );
});

test('a problem with a part that is no record is refused by the name of the part', async () => {
  const builder = new solver.ProblemBuilder();
  builder.addVariable(Float64Array.of(1, 2));
  const problem = builder.build();
  for (const [field, value, place] of [
    ['edges', null, 'edges'],
    ['edges', 'none', 'edges'],
    ['usage', null, 'usage'],
    ['minPairs', null, 'minPairs'],
    ['rows', [null], 'rows[0]'],
    ['tables', [7], 'tables[0]'],
  ] as const)
    await expect(
      (async () => solver.solve({ ...problem, [field]: value }))(),
    ).rejects.toMatchObject({
      code: 'E_USAGE',
      message: expect.stringContaining(`${place}: expected a record, got`) as string,
    });
});

test('lpText refuses a program whose lists do not fit each other', () => {
  const lp: solver.LinearProgram = {
    name: 'p',
    constant: 0,
    columns: 1,
    rows: 1,
    cost: Float64Array.of(1),
    lower: Float64Array.of(0),
    upper: Float64Array.of(1),
    integer: Uint8Array.of(1),
    starts: Int32Array.of(0, 1),
    indices: Int32Array.of(0),
    values: Float64Array.of(1),
    rowLower: Float64Array.of(0),
    rowUpper: Float64Array.of(1),
    columnName: () => 'x',
    rowName: () => 'r',
  };
  expect(solver.lpText(lp)).toContain('r_low: x >= 0');
  for (const field of Object.keys(lp))
    expect(refusal(() => solver.lpText({ ...lp, [field]: undefined })).code).toBe('E_USAGE');
  for (const [field, value] of [
    ['starts', Int32Array.of(0, 2)],
    ['starts', Int32Array.of(1, 1)],
    ['indices', Int32Array.of(1)],
    ['values', Float64Array.of(1, 2)],
    ['cost', Float64Array.of()],
  ] as const)
    expect(refusal(() => solver.lpText({ ...lp, [field]: value })).code).toBe('E_USAGE');
});

import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { flat } from '../../src/ndarray/array.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { type Verification, verify } from '../../src/simulate/verify.ts';
import { table } from '../local-spmd/support/simulated.ts';
import { FULL } from '../support/full.ts';

const program = (lines: string): Graph => parseGraph(`swgraph 1\ngraph @main {\n${lines}\n}\n`);

/** What runs of random plans say. */
function verified(graph: Graph, plans: number): Verification[] {
  const request = {
    ...DEFAULT_REQUEST,
    mesh: 'd=2',
    cluster: 'dgx-h100',
    optimizer: 'none',
  } as const;
  const prepared = prepare(graph, request, table);
  return Array.from({ length: plans }, (_, seed) =>
    verify(graph, randomPlan(prepared, seed + 1), { table }),
  );
}

/** First mismatch of each random plan. */
function mismatches(graph: Graph, plans = FULL ? 12 : 6): string[] {
  return verified(graph, plans).flatMap((run) =>
    run.mismatches.slice(0, 1).map(({ message }) => message),
  );
}

const SEARCH = `  in %s: f32[4, 8] input "s"
  in %v: f32[4, 6] input "v"
  %searchsorted = aten.searchsorted.Tensor(%s, %v): i64[4, 6]
  out %searchsorted output 0`;
const UNPOOL = `  in %x: f32[4, 2, 5] input "x"
  in %i: i64[4, 2, 5] input "i"
  %u = aten.unsqueeze.default(%x, 2): f32[4, 2, 1, 5]
  %j = aten.unsqueeze.default(%i, 2): i64[4, 2, 1, 5]
  %max_unpool2d = aten.max_unpool2d.default(%u, %j, [1, 10]): f32[4, 2, 1, 10]
  out %max_unpool2d output 0`;

const PROGRAMS: Readonly<Record<string, string>> = {
  searchsorted: SEARCH,
  bucketize: `  in %v: f32[4, 6] input "v"
  in %s: f32[8] input "s"
  %bucketize = aten.bucketize.Tensor(%v, %s): i64[4, 6]
  out %bucketize output 0`,
  Cholesky: `  in %a: f32[4, 3, 3] input "a"
  %cholesky = aten.linalg_cholesky.default(%a): f32[4, 3, 3]
  out %cholesky output 0`,
  'Cholesky of the symmetric part, as JAX takes it': `  in %a: f32[4, 3, 3] input "a"
  %t = aten.transpose.int(%a, 1, 2): f32[4, 3, 3]
  %s = aten.add.Tensor(%a, %t): f32[4, 3, 3]
  %h = aten.div.Scalar(%s, 2): f32[4, 3, 3]
  %cholesky = aten.linalg_cholesky.default(%h): f32[4, 3, 3]
  out %cholesky output 0`,
  'max_unpool1d, as PyTorch writes it': UNPOOL,
  index_reduce: `  in %x: f32[3, 6] input "x"
  in %i: i64[9] input "i"
  in %y: f32[9, 6] input "y"
  %index_reduce = aten.index_reduce.default(%x, 0, %i, %y, "amax"): f32[3, 6]
  out %index_reduce output 0`,
  'searchsorted of rows that lie the other way': `  in %p: f32[8, 4] input "p"
  in %v: f32[4, 6] input "v"
  %t = aten.t.default(%p): f32[4, 8]
  %searchsorted = aten.searchsorted.Tensor(%t, %v): i64[4, 6]
  out %searchsorted output 0`,
  'searchsorted of what is made of inputs': `  in %p: f32[4, 8] input "p"
  in %v: f32[4, 6] input "v"
  %neg = aten.neg.default(%p): f32[4, 8]
  %searchsorted = aten.searchsorted.Tensor(%neg, %v, right=true): i64[4, 6]
  out %searchsorted output 0`,
  scatter_reduce: `  in %x: f32[3, 6] input "x"
  in %i: i64[9, 6] input "i"
  in %y: f32[9, 6] input "y"
  %scatter_reduce = aten.scatter_reduce.two(%x, 0, %i, %y, "mean"): f32[3, 6]
  out %scatter_reduce output 0`,
  'scatter by a product': `  in %x: f32[3, 6] input "x"
  in %i: i64[9, 6] input "i"
  in %y: f32[9, 6] input "y"
  %scatter = aten.scatter.reduce(%x, 0, %i, %y, reduce="multiply"): f32[3, 6]
  out %scatter output 0`,
  index_fill: `  in %x: f32[3, 6] input "x"
  in %i: i64[2] input "i"
  in %v: f32[] input "v"
  %index_fill = aten.index_fill.int_Tensor(%x, 0, %i, %v): f32[3, 6]
  out %index_fill output 0`,
  embedding_bag: `  in %w: f32[3, 6] input "w"
  in %i: i64[9] input "i"
  in %o: i64[4] input "o"
  %b = aten._embedding_bag.default(%w, %i, %o): (f32[4, 6], i64[9], i64[4], i64[4])
  %sums = operator.getitem(%b, 0): f32[4, 6]
  out %sums output 0`,
  multinomial: `  in %p: f32[4, 6] input "p"
  %multinomial = aten.multinomial.default(%p, 3): i64[4, 3]
  out %multinomial output 0`,
};

describe('inputs are drawn from what the operators that read them are defined on', () => {
  test.each(Object.entries(PROGRAMS))('plans of %s run as one device does', (_name, lines) => {
    expect(mismatches(program(lines))).toEqual([]);
  });

  test('a sequence that is searched rises along its last dim', () => {
    const [s] = drawInputs(table, program(SEARCH), 3);
    const values = [...flat(s)];
    values.forEach((v, i) => i % 8 === 0 || expect(v).toBeGreaterThanOrEqual(values[i - 1]));
    expect(new Set(values).size).toBe(32);
  });

  test('places of an unpooling are inside of its window and differ in it', () => {
    const places = [...flat(drawInputs(table, program(UNPOOL), 3)[1])];
    for (let at = 0; at < places.length; at += 5)
      expect(new Set(places.slice(at, at + 5)).size).toBe(5);
    expect(Math.min(...places)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...places)).toBeLessThan(10);
  });
});

describe('a pending sum that is divided by 0', () => {
  const divided = (last: string): Graph =>
    program(`  in %x: f32[4, 6] input "x"
  %sum = aten.sum.dim_IntList(%x, [0]): f32[6]
  %div = aten.div.Scalar(%sum, 0.0): f32[6]
${last}`);

  test('addends of both signs make no number where the sum is infinite: no plan is wrong', () => {
    expect(mismatches(divided('  out %div output 0'), 24)).toEqual([]);
  });

  test('what was not compared for it is named, and nothing is where no sum is pending', () => {
    const named = verified(divided('  out %div output 0'), 24).map((run) => run.notCompared);
    expect(named).toContainEqual(['div']);
    expect(named).toContainEqual([]);
  });

  test('what reads it may not be a number where one device has a finite one', () => {
    const graph = divided('  %tanh = aten.tanh.default(%div): f32[6]\n  out %tanh output 0');
    expect(mismatches(graph, 24)).toEqual([]);
  });

  test('a zero of the other sign makes an infinity of the other sign: no plan is wrong', () => {
    const graph = program(`  in %x: f32[4, 6] input "x"
  %sum = aten.sum.dim_IntList(%x, [0]): f32[6]
  %zero = aten.mul.Scalar(%sum, 0.0): f32[6]
  %div = aten.div.Tensor(%sum, %zero): f32[6]
  out %div output 0`);
    expect(mismatches(graph, 24)).toEqual([]);
    // Of some plans alone: mostly the zeros have their own signs, and all is compared.
    const named = verified(graph, 24).map((run) => run.notCompared.length);
    expect([Math.min(...named), Math.max(...named)]).toEqual([0, 1]);
  });
});

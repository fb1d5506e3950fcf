import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request, TABLE } from '../plan/support.ts';

/**
 * Small programs around operators whose rules rewrite the call, under plans drawn at random, on
 * simulated devices.
 */
const PROGRAMS: Readonly<Record<string, string>> = {
  'a unit matrix is counted from the first row and column of the rank': `
  in %x: f32[6, 8] input "x"
  %e = aten.eye.default(8): f32[8, 8]
  %w = aten.eye.m(8, 5): f32[8, 5]
  %y = aten.mm.default(%x, %e): f32[6, 8]
  %z = aten.mm.default(%y, %w): f32[6, 5]
  out %z output 0
  out %e output 1`,
  'draws are those of the place in the whole': `
  in %x: f32[6, 8] input "x"
  %p = aten.abs.default(%x): f32[6, 8]
  %m = aten.multinomial.default(%p, 3): i64[6, 3]
  %l = aten.log_normal_.default(%x): f32[6, 8]
  %g = aten.geometric_.default(%x, 0.25): f32[6, 8]
  %s = aten.add.Tensor(%l, %g): f32[6, 8]
  out %m output 0
  out %s output 1`,
  'images are read at points, pooled and put back': `
  in %x: f32[4, 6, 8, 8] input "x"
  in %at: f32[4, 8, 4, 2] input "at"
  %y = aten.grid_sampler_2d.default(%x, %at, 0, 0, false): f32[4, 6, 8, 4]
  %p = aten.max_pool2d_with_indices.default(%y, [2, 2]): (f32[4, 6, 4, 2], i64[4, 6, 4, 2])
  %v = operator.getitem(%p, 0): f32[4, 6, 4, 2]
  %i = operator.getitem(%p, 1): i64[4, 6, 4, 2]
  %u = aten.max_unpool2d.default(%v, %i, [8, 4]): f32[4, 6, 8, 4]
  out %u output 0`,
  'matrices of a batch are taken apart and put together': `
  in %x: f32[6, 4, 4] input "x"
  in %b: f32[6, 4, 8] input "b"
  %f = aten.linalg_lu.default(%x): (f32[6, 4, 4], f32[6, 4, 4], f32[6, 4, 4])
  %l = operator.getitem(%f, 1): f32[6, 4, 4]
  %u = operator.getitem(%f, 2): f32[6, 4, 4]
  %y = aten.linalg_solve_triangular.default(%l, %b, upper=false, unitriangular=true): f32[6, 4, 8]
  %z = aten.bmm.default(%u, %y): f32[6, 4, 8]
  out %z output 0`,
};

describe('operators with rewritten calls on simulated devices', () => {
  test.each(Object.entries(PROGRAMS))('%s', (_, body) => {
    const graph = parseGraph(`swgraph 1\ngraph @g {${body}\n}\n`);
    for (const mesh of ['d=2', 'd=2,e=2', 'd=3']) {
      const prepared = prepare(graph, request(mesh), TABLE);
      for (const seed of [1, 2, 3]) {
        const found = verify(graph, randomPlan(prepared, seed), { table: TABLE, seed });
        expect(found.mismatches).toEqual([]);
        expect(found.nodesCompared).toBeGreaterThan(3);
      }
    }
  });
});

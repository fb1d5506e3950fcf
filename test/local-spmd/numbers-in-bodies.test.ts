import { expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { erase } from '../../src/lower/typed/erased.ts';
import { cond } from '../../src/trace/control/cond.ts';
import { foriLoop, scan, whileLoop } from '../../src/trace/control/loops.ts';
import { assertType, outPartial } from '../../src/trace/spmd/verbs.ts';
import { ones, zeros } from '../../src/trace/tensor/functional.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { runErased } from './support/erased.ts';

/**
 * Tensors of plain numbers are whole on every rank. Where a body starts from one or a branch
 * returns one, it becomes what it meets: a piece, or an addend that one rank keeps.
 */
type Run = (pieces: Tensor, addends: Tensor, flag: Tensor) => Tensor;

const branch = (flag: Tensor, first: boolean, a: () => Tensor, b: () => Tensor): Tensor =>
  cond(first ? flag.gt(-10) : flag.lt(-10), a, b);

const PROGRAMS: Readonly<Record<string, Run>> = {
  'a scan starts from zeros and carries pieces': (x) =>
    scan((c) => [c.add(x), null], zeros([4, 6], 'f64'), [], { length: 3 })[0],
  'a scan starts from zeros and carries addends': (_, sum) =>
    scan((c) => [c.add(sum), null], zeros([6], 'f64'), [], { length: 3 })[0],
  'a scan starts from ones and carries pieces of its rows': (x) =>
    scan((c, row) => [c.mul(row), null], ones([4], 'f64'), x.transpose(0, 1))[0],
  'a while loop starts from ones and carries pieces': (x) =>
    whileLoop(
      ([i]) => i.lt(3),
      ([i, c]) => [i.add(1), c.mul(x)] as const,
      [zeros([], 'f64'), ones([4, 6], 'f64')] as const,
    )[1],
  'a loop of a stated number of trips starts from ones': (x) =>
    foriLoop(0, 3, (_, c) => c.add(x), ones([4, 6], 'f64')),
  'the branch that runs returns ones where the other returns pieces': (x, _, flag) =>
    branch(
      flag,
      true,
      () => ones([4, 6], 'f64'),
      () => x.mul(2),
    ),
  'the branch that does not run returns ones where the other returns pieces': (x, _, flag) =>
    branch(
      flag,
      false,
      () => ones([4, 6], 'f64'),
      () => x.mul(2),
    ),
  'the branch that runs returns ones where the other returns addends': (_, sum, flag) =>
    branch(
      flag,
      true,
      () => ones([6], 'f64'),
      () => sum.mul(2),
    ),
  'the branch that does not run returns ones where the other returns addends': (_, sum, flag) =>
    branch(
      flag,
      false,
      () => ones([6], 'f64'),
      () => sum.mul(2),
    ),
};

test.each(Object.entries(PROGRAMS))('%s: as on one device', (_title, run) => {
  const graph: Graph = trace(
    ({ x, flag }) => {
      const pieces = assertType(x, 'P("tp")');
      return run(pieces, outPartial(pieces.sum(0), 'tp'), flag);
    },
    { x: input([4, 6], 'f64'), flag: input([], 'f64') },
    { mesh: 'tp=2' },
  );
  const { compare } = runErased(erase(graph), graph);
  expect(compare.length).toBeGreaterThan(1);
  expect(Math.max(...compare)).toBeLessThan(1e-12);
});

import { describe, expect, test } from 'vitest';

import { lintGraph } from '../../../src/graph/lint.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { importGraph } from '../../../src/import/import.ts';
import { programFlops } from '../../../src/ops/program-flops.ts';
import { withScalarTrips } from '../../../src/passes/control/loops/scalar-loops.ts';
import { isCheck, withoutChecks } from '../../../src/passes/plannable/checks.ts';
import { plannable, regionsAsCalls } from '../../../src/passes/plannable/plannable.ts';
import { packed } from '../../import/fixtures.ts';
import { infer, table } from '../../import/twins.ts';

describe('export graphs are made ready for a plan', () => {
  test.each(['export.readable.txt', 'export.pt2'])(
    'llama-tiny/%s: no checks, no regions, same work',
    (file) => {
      const graph = importGraph(packed(`llama-tiny/${file}.gz`), { infer });
      expect(graph.nodes.filter(isCheck)).toHaveLength(13);
      const ready = plannable(graph, table);
      lintGraph(ready, infer);
      const targets = new Set(ready.nodes.map((node) => node.target));
      expect([...targets].filter((target) => /_assert|wrap_with|^call$/.test(target))).toEqual([]);
      expect(ready.nodes.some((node) => node.kind === 'get_attr')).toBe(false);
      // 213 nodes with the output; 13 checks, the wrapper, its attribute and two reads go; the
      // body's 19 calls less 4 checks come. A mask that nobody reads goes, with what makes it.
      expect(ready.nodes).toHaveLength(212 - 13 - 1 - 1 - 2 + 15 - 4);
      expect(programFlops(ready, table).total).toBe(programFlops(graph, table).total);
      expect(programFlops(graph, table).total).toBe(14_680_576); // 512 of them in the region
      expect(ready.notes?.join(' ')).toContain('left out: 17.');
      expect(ready.notes?.join(' ')).toContain('4 calls that nothing returned needs are left out.');
    },
  );

  test('a graph without any of it is returned as it is', () => {
    const graph = importGraph(packed('mlp/export.readable.txt.gz'));
    expect(plannable(graph, table)).toBe(graph);
    expect(withoutChecks(graph)).toBe(graph);
    expect(regionsAsCalls(graph)).toBe(graph);
  });
});

const loop = (condition: string, step: string): string => `swgraph 1
graph @loop {
  in %x: f32[4] input "x"
  %start = aten.full.default([], 2, dtype=dtype:i64): i64[]
  %loop = while_loop(@test, @step, [%start, %x], []): (i64[], f32[4])
  %out = operator.getitem(%loop, 1): f32[4]
  out %out output 0
  graph @test {
    in %i: i64[] arg 0
    in %v: f32[4] arg 1
    %go = ${condition}: b8[]
    out %go output 0
  }
  graph @step {
    in %i: i64[] arg 0
    in %v: f32[4] arg 1
    %next = ${step}: i64[]
    %w = aten.relu.default(%v): f32[4]
    out %next output 0
    out %w output 1
  }
}
`;

describe('trips of loops over scalars', () => {
  const trips = (condition: string, step: string): unknown =>
    withScalarTrips(parseGraph(loop(condition, step))).nodes.find((n) => n.target === 'while_loop')
      ?.kwargs.trips;

  test.each([
    ['aten.lt.Scalar(%i, 7)', 'aten.add.Tensor(%i, 1)', 5],
    ['aten.le.Scalar(%i, 7)', 'aten.add.Tensor(%i, 2)', 3],
    ['aten.ne.Scalar(%i, 0)', 'aten.sub.Tensor(%i, 1)', 2],
    ['aten.lt.Scalar(%i, 100)', 'aten.mul.Tensor(%i, 2)', 6],
    ['aten.gt.Scalar(%i, 7)', 'aten.add.Tensor(%i, 1)', 0],
    ['aten.lt.Scalar(%i, 7)', 'aten.add.Tensor(%i, 1, alpha=5)', 1],
    // Never ends, and depends on something that is not computed here: no count.
    ['aten.gt.Scalar(%i, 0)', 'aten.add.Tensor(%i, 1)', undefined],
    ['aten.lt.Scalar(%i, 7)', 'aten.bitwise_or.Tensor(%i, 1)', undefined],
  ])('while %s step %s: %s', (condition, step, wanted) => {
    expect(trips(condition, step)).toBe(wanted);
  });
});

import { expect, test } from 'vitest';

import { exportSource } from '../../src/backend/target.ts';
import { shardyTarget } from '../../src/export/shardy/target.ts';
import { importGraph } from '../../src/import/import.ts';
import { build, flat, type NDArray } from '../../src/ndarray/array.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { DEFAULT_REQUEST } from '../../src/plan/request/request.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { TABLE } from '../plan/support.ts';

/** Rows of dims 0, 1 and 2, by numbers that repeat. */
test.each([
  [0, '[3, 5, 6]'],
  [1, '[4, 3, 6]'],
  [2, '[4, 5, 3]'],
])('rows along dim %i are the same in the StableHLO text', async (dim, shape) => {
  const graph = importGraph(`swgraph 1
graph @main {
  in %x: f32[4, 5, 6] input "x"
  in %i: i64[3] input "i"
  %y = aten.index_select.default(%x, ${dim}, %i): f32${shape}
  out %y output 0
}
`);
  const asked = { ...DEFAULT_REQUEST, mesh: 'dp=2', cluster: 'dgx-h100' };
  const planned = await leastCostPlan(graph, asked, { table: TABLE });
  if (planned.status !== 'planned') throw new Error('there is no plan');
  const source = exportSource({ plan: planned.plan, program: planned.graph }, TABLE);
  const [{ text }] = shardyTarget.write(source).files;
  const given = [
    build([4, 5, 6], (i) => Math.sin(i), 'f32'),
    build([3], (i) => [3, 0, 3][i], 'i64'),
  ];
  const values = (program: typeof graph): unknown =>
    evaluateGraph(TABLE, program, given).outputs.map((v) => flat(v as NDArray));
  expect(values(importGraph(text, { ignoreShardings: true }))).toEqual(values(graph));
});

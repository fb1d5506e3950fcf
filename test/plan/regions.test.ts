import { expect, test } from 'vitest';

import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../src/plan/request/request.ts';
import { verify } from '../../src/simulate/verify.ts';
import { psum } from '../../src/trace/spmd/jax-names.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { table } from '../local-spmd/support/simulated.ts';
import { FULL } from '../support/full.ts';
import { type RegionProgram, REGIONS } from './region-programs.ts';

/**
 * Programs with a region of per-device code, and with their gradients, as the planner places them:
 * the optimal plan and random ones run on virtual devices, and every tensor is that of one device.
 */
const RANDOM = FULL ? 60 : 1;
const MESHES = FULL
  ? ['tp=2,sp=2', 'sp=2,tp=2', 'sp=2,tp=3', 'a=2,sp=2,b=2', 'a=2,b=2,sp=2', 'sp=4,tp=2']
  : ['tp=2,sp=2', 'sp=2,tp=3'];

async function faultsOf(
  { program, wrt }: RegionProgram,
  mesh: string,
  more: Partial<PlanRequest> = {},
): Promise<string[]> {
  const forward = program(mesh);
  const faults: string[] = [];
  for (const graph of wrt.length === 0 ? [forward] : [forward, jointGraph(forward, { wrt })]) {
    const request: PlanRequest = {
      ...DEFAULT_REQUEST,
      mesh,
      cluster: 'dgx-h100',
      optimizer: 'none',
      ...more,
    };
    const prepared = prepare(graph, request, table);
    const result = await leastCostPlanOf(prepared);
    if (result.status !== 'planned') throw new Error(`no plan: ${result.conflict.join(', ')}`);
    const plans = Array.from({ length: RANDOM }, (_, seed) => randomPlan(prepared, seed + 1));
    for (const [at, plan] of [result.plan, ...plans].entries()) {
      // Users hold the graph that the result names.
      const run = verify(at === 0 ? result.graph : graph, plan, { table });
      const [first] = run.mismatches;
      expect(run.collectives).toEqual(run.promised);
      if (first !== undefined)
        faults.push(`${at === 0 ? 'optimal' : `random ${at}`}: ${first.where}: ${first.message}`);
    }
  }
  return faults;
}

/** Programs of a row for each of two ranks: they are of no mesh with another number along sp. */
const OF_TWO = new Set(['rows of a stack scattered']);

/** Without SHARDWRIGHT_FULL each program on one mesh, by turns. */
const CASES = Object.entries(REGIONS).flatMap(([name, program], at) =>
  (FULL ? MESHES : [MESHES[at % MESHES.length]])
    .filter((mesh) => !OF_TWO.has(name) || /sp=2/.test(mesh))
    .map((mesh): [string, string, RegionProgram] => [name, mesh, program]),
);

test.each(CASES)('%s on %s: plans compute what one device does', async (_name, mesh, program) => {
  expect(await faultsOf(program, mesh)).toEqual([]);
});

/** A region over `tp` inside of one over `sp`. */
const nested = (
  inner: (z: Tensor) => Tensor,
  ...[cut, out]: readonly [string, string]
): RegionProgram => ({
  wrt: ['x'],
  program: (mesh) =>
    trace(
      ({ x }) =>
        localMap(
          (rows: Tensor) =>
            localMap(inner, { axes: ['tp'], inSpecs: [cut], outSpecs: out })(rows.mul(2)).add(1),
          { axes: ['sp'], inSpecs: ['P("sp", None)'], outSpecs: 'P("sp", None)' },
        )(x.sin())
          .square()
          .sum(),
      { x: input([12, 8]) },
      { mesh },
    ),
});

const WHOLE = 'P(None, None)';
test.each<[string, RegionProgram]>([
  ['whole in and out', nested((z) => z.tanh(), WHOLE, WHOLE)],
  ['cut in and summed', nested((z) => psum(z.sin(), 'tp'), 'P(None, "tp")', WHOLE)],
  ['cut in and out', nested((z) => z.square(), 'P(None, "tp")', 'P(None, "tp")')],
])('a region inside of another, %s: plans compute what one device does', async (_name, program) => {
  expect(await faultsOf(program, 'sp=2,tp=2')).toEqual([]);
});

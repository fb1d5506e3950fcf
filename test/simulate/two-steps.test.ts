import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import type { Graph } from '../../src/graph/types.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { shrinkGraph } from '../../src/passes/sizes/shrink.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { randomProgram } from './random/program.ts';
import { PROGRAMS } from './steps/programs.ts';
import { runTwoSteps } from './steps/run-steps.ts';

/**
 * A plan is run twice, the second time on what the first left on each device: nothing that the
 * planner says about its outputs is believed. A sample here, all programs on all meshes in
 * `test:full`.
 */

const MESHES = ['d=4', 'a=2,b=2', 'd=3', 'a=2,b=2,c=2'] as const;
const ALL = [...PROGRAMS.keys()].flatMap((name, i) =>
  MESHES.map((mesh, k) => ({ name, mesh, turn: i + k })),
);
/** Of every program one mesh, of every mesh a quarter of the programs. */
const QUARTER = ALL.filter(({ turn }) => turn % MESHES.length === 0);
const RANDOM: readonly { name: string; mesh: string }[] = [
  { name: 'torch/convnet with adamw', mesh: 'd=3' },
  { name: 'torch/hop-scan-joint', mesh: 'd=4' },
  { name: 'torch/hop-cond-joint with momentum', mesh: 'a=2,b=2,c=2' },
];
const SOLVED: readonly { name: string; mesh: string }[] = [
  { name: 'torch/mlp-loss with adamw', mesh: 'd=3' },
  { name: 'torch/convnet with momentum', mesh: 'd=4' },
  { name: 'torch/hop-map-joint with adamw', mesh: 'a=2,b=2' },
];
const PROGRAMS_OF_CHANCE = FULL ? 600 : 8;

function small(name: string, mesh: string): Graph {
  return shrinkGraph(PROGRAMS.get(name)!(), TABLE, { meshSizes: [...parseMesh(mesh).sizes] }).graph;
}

describe('two steps of training on virtual devices', () => {
  test.each(FULL ? ALL : RANDOM)(
    '$name on ($mesh): random plans, the second step on what the first left',
    ({ name, mesh }) => {
      const graph = small(name, mesh);
      const prepared = prepare(graph, request(mesh), TABLE);
      const { faults, carried, compared } = runTwoSteps(graph, randomPlan(prepared, 1), 1);
      expect(faults).toEqual([]);
      expect(carried).toBeGreaterThan(0);
      expect(compared).toBeGreaterThanOrEqual(2 * carried);
    },
  );

  test.each(FULL ? QUARTER : SOLVED)(
    '$name on ($mesh): the optimum with least memory',
    async ({ name, mesh }) => {
      const asked = request(mesh, { objective: 'parameter-memory', timeLimitSeconds: 20 });
      const graph = small(name, mesh);
      const solved = await leastCostPlanOf(prepare(graph, asked, TABLE));
      if (solved.status !== 'planned') throw new Error('infeasible');
      const { faults, carried } = runTwoSteps(graph, solved.plan);
      expect(faults).toEqual([]);
      expect(carried).toBeGreaterThan(0);
    },
  );

  test('random programs with their backward passes, random plans and meshes', () => {
    const faults: string[] = [];
    let carried = 0;
    for (let seed = 0; seed < PROGRAMS_OF_CHANCE; seed++) {
      const graph = trained(randomProgram(seed, 'joint'));
      const mesh = MESHES[seed % MESHES.length];
      const prepared = prepare(graph, request(mesh), TABLE);
      try {
        const steps = runTwoSteps(graph, randomPlan(prepared, seed), seed);
        faults.push(...steps.faults.map((fault) => `seed ${seed} on (${mesh}): ${fault}`));
        carried += steps.carried;
      } catch (error) {
        // One device cannot run it either: it makes row numbers that some table does not have.
        if (!(error instanceof ShardwrightError && error.code === 'E_VALUE')) throw error;
      }
    }
    expect(faults).toEqual([]);
    expect(carried).toBeGreaterThan(PROGRAMS_OF_CHANCE / 2);
  });
});

/** Inputs with a gradient are the parameters, which a step of SGD changes. */
function trained(graph: Graph): Graph {
  const wanted = new Set(
    graph.outputs.flatMap(({ role, of, value }) => (role === 'grad' && value !== null ? [of] : [])),
  );
  const nodes = graph.nodes.map((node) =>
    node.kind === 'placeholder' && wanted.has(node.meta.roleName)
      ? { ...node, meta: { ...node.meta, role: 'parameter' as const } }
      : node,
  );
  return { ...graph, nodes };
}

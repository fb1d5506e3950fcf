import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { shrinkGraph } from '../../src/passes/sizes/shrink.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { transferPlan } from '../../src/plan/choice/transfer.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { type Verification, verify } from '../../src/simulate/verify.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

/**
 * Training graphs of real models on virtual devices, at reduced sizes; the whole table in
 * `test:full`, a row here.
 */

const MESHES = ['d=4', 'a=2,b=2', 'a=2,b=2,c=2', 'd=3'] as const;
const MODELS = {
  mlp: 'torch/mlp/joint.readable',
  'llama-tiny': 'torch/llama-tiny/joint.readable',
  'gpt2-2l': 'torch/gpt2-2l/joint.readable',
  'mixtral-tiny': 'joint/mixtral-tiny/joint',
  'mixtral-tiny-grouped': 'joint/mixtral-tiny-grouped/joint',
  'bert-base': 'torch/bert-base/joint.readable',
  resnet18: 'joint/resnet18/joint',
  'vit-tiny': 'joint/vit-tiny/joint',
} as const;
type Model = keyof typeof MODELS;

const all = (Object.keys(MODELS) as Model[]).flatMap((model) =>
  MESHES.map((mesh) => [model, mesh] as const),
);

function reduced(graph: Graph, mesh: string): Graph {
  return shrinkGraph(graph, TABLE, { meshSizes: [...parseMesh(mesh).sizes] }).graph;
}

function expectRight(v: Verification): void {
  expect(v.mismatches).toEqual([]);
  expect(v.maxRelativeError).toBeLessThan(1e-9);
  expect(v.collectives).toEqual(v.promised);
  // Not vacuous.
  expect(Object.values(v.collectives).reduce((a, b) => a + b, 0)).toBeGreaterThan(0);
}

describe('random feasible plans', () => {
  const sample: readonly (readonly [Model, string])[] = [
    ['mixtral-tiny', 'd=4'],
    ['mlp', 'a=2,b=2'],
  ];
  test.each(FULL ? all : sample)(
    '%s on (%s): sharded equals unsharded, collectives as planned',
    (model, mesh) => {
      const graph = reduced(load(MODELS[model]), mesh);
      const prepared = prepare(graph, request(mesh), TABLE);
      const v = verify(graph, randomPlan(prepared, 1), { table: TABLE, seed: 1 });
      expectRight(v);
      expect(v.nodesCompared).toBeGreaterThan(
        0.8 * graph.nodes.filter((n) => n.target !== 'operator.getitem').length,
      );
    },
    300_000,
  );
});

describe('plans of the solver at full size', () => {
  // Small models are fastest whole; with least parameter memory first, their plans are cut and
  // communicate.
  const cut = (mesh: string): PlanRequest =>
    request(mesh, { objective: 'parameter-memory', timeLimitSeconds: 10 });
  // Grouped products take pieces of 16-byte rows alone, at reduced sizes too.
  const sample: readonly (readonly [Model, string])[] = [
    ['mlp', 'a=2,b=2'],
    ['mixtral-tiny-grouped', 'd=3'],
  ];
  test.each(FULL ? all : sample)(
    '%s on (%s), run at reduced sizes',
    async (model, mesh) => {
      const original = load(MODELS[model]);
      const full = prepare(original, cut(mesh), TABLE);
      const solved = await leastCostPlanOf(full);
      if (solved.status !== 'planned') throw new Error('infeasible');
      const graph = reduced(original, mesh);
      const plan = transferPlan(solved.plan, prepare(graph, cut(mesh), TABLE));
      expect(plan.nodes.map((n) => n.outputs)).toEqual(solved.plan.nodes.map((n) => n.outputs));
      expectRight(verify(graph, plan, { table: TABLE }));
    },
    600_000,
  );
});

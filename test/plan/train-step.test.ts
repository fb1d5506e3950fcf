import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { eachOperand } from '../../src/graph/value.ts';
import { lower } from '../../src/lower/lower.ts';
import type { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { adamw, type Optimizer, sgd } from '../../src/passes/training/optimizer.ts';
import { trainStep } from '../../src/passes/training/train-step.ts';
import { decode, type Decoded } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { recost } from '../../src/plan/choice/recost.ts';
import { planMemoryTimeline } from '../../src/plan/choice/timeline.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import { verify } from '../../src/simulate/verify.ts';
import { drawOf } from '../simulate/random/builder.ts';
import { FULL } from '../support/full.ts';
import { placed, planFor, request, TABLE } from './support.ts';

/**
 * A whole train step comes back as it went in: parameters, optimizer states and updated buffers.
 */

const MLP = `swgraph 1
graph @main {
  in %w1: bf16[256, 64] parameter "w1"
  in %b1: bf16[256] parameter "b1"
  in %w2: bf16[64, 256] parameter "w2"
  in %seen: f32[] buffer "seen"
  in %x: bf16[128, 64] input "x"
  %w1t = aten.t.default(%w1): bf16[64, 256]
  %h = aten.addmm.default(%b1, %x, %w1t): bf16[128, 256]
  %r = aten.relu.default(%h): bf16[128, 256]
  %w2t = aten.t.default(%w2): bf16[256, 64]
  %y = aten.mm.default(%r, %w2t): bf16[128, 64]
  %loss = aten.mean.default(%y): bf16[]
  %more = aten.add.Scalar(%seen, 1.0): f32[]
  out %more mutation "seen"
  out %loss output 0
}
`;

function step(optimizer: Optimizer): Graph {
  return trainStep(jointGraph(parseGraph(MLP), { table: TABLE, seed: 1 }), optimizer, {
    table: TABLE,
  });
}

const OPTIMIZERS = [sgd({ lr: 0.1, momentum: 0.9 }), adamw({ lr: 1e-3, weightDecay: 0.01 })];
const MESHES = ['d=4', 'd=2,t=2', ...(FULL ? ['a=2,b=2,c=2'] : [])];

const SEEDS = FULL ? 25 : 6;

/** The placement in which each input enters, by what the graph text calls it. */
function entering(graph: Graph, nodes: Decoded['nodes']): Map<string, string> {
  return new Map(
    graph.nodes.flatMap(({ kind, meta }, n) =>
      kind === 'placeholder'
        ? [[`${meta.roleName} ${meta.stateName ?? ''}`, nodes[n].outputs[0]] as const]
        : [],
    ),
  );
}

describe('plans of whole train steps', () => {
  // With w2 whole and its states cut, the new value is gathered; with states cut and the parameter
  // whole, nothing else fits.
  test.each(MESHES)(
    'on (%s): every returned parameter, state and buffer is placed as it enters',
    async (mesh) => {
      for (const [o, optimizer] of OPTIMIZERS.entries()) {
        const graph = step(optimizer);
        for (const objective of ['time', 'parameter-memory'] as const) {
          // Each optimizer with one objective, the other way round on the next mesh.
          if (!FULL && (objective === 'time') !== (o === MESHES.indexOf(mesh))) continue;
          const plan = await planFor(graph, mesh, { objective });
          const enters = entering(graph, plan.nodes);
          const returned = graph.outputs.filter(({ role }) => role !== 'output');
          expect(returned.length).toBe(4 + (optimizer.counts ? 10 : 6));
          graph.outputs.forEach(({ role, of, stateName }, k) => {
            if (role !== 'output')
              expect(plan.outputs[k].placement, `${role} ${of} ${stateName}`).toBe(
                enters.get(`${of} ${stateName ?? ''}`),
              );
          });
          expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
        }
      }
    },
  );

  test('a parameter that is whole beside states that are cut is gathered when it is updated', async () => {
    const graph = step(adamw({ lr: 1e-3 }));
    const states = ['w2_master', 'w2_exp_avg', 'w2_exp_avg_sq'].map((node) => ({
      node,
      spec: 'S(0)',
    }));
    const plan = await planFor(graph, 'd=4', { pins: [{ node: 'w2', spec: 'R' }, ...states] });
    expect(placed(plan, 'w2')).toBe('R');
    const k = graph.outputs.findIndex(({ role, of }) => role === 'mutation' && of === 'w2');
    expect(plan.outputs[k].placement).toBe('R');
    const moves = plan.outputs[k].redistributions.flatMap((r) =>
      r.collectives.map((c) => [c.kind, c.bytes]),
    );
    // 64 x 256 elements of two bytes, rounded before they are gathered.
    expect(moves).toEqual([['all_gather', 64 * 256 * 2]]);
    const average = graph.outputs.findIndex(
      ({ of, stateName }) => of === 'w2' && stateName === 'exp_avg',
    );
    expect(plan.outputs[average].placement).toBe('S(0)');
    expect(verify(graph, plan, { table: TABLE }).mismatches).toEqual([]);
  });

  test('a pin by the name of a parameter is a pin of the parameter, not of a state of it', async () => {
    const plan = await planFor(step(adamw({ lr: 1e-3 })), 'd=4', {
      pins: [{ node: 'w1', spec: 'S(1)' }],
    });
    expect(placed(plan, 'w1')).toBe('S(1)');
  });

  test('states of the program are optimizer bytes, and no others are added', async () => {
    const elements = 256 * 64 + 256 + 64 * 256;
    const replicated = { inputs: 'R', outputs: 'R', pins: [] } as const;
    const adam = await planFor(step(adamw({ lr: 1e-3 })), 'd=1', replicated);
    // Weights of two bytes, master and both moments of four bytes each, one step counter; the
    // buffer is a parameter byte.
    expect(adam.memory.parameterBytes).toBe(elements * 2 + 4);
    expect(adam.memory.optimizerBytes).toBe(elements * 12 + 4);
    expect(adam.memory.gradientBytes).toBe(0);
    const kept = trainStep(
      jointGraph(parseGraph(MLP), { table: TABLE, seed: 1 }),
      adamw({ lr: 1e-3 }),
      { table: TABLE, keepGradients: true },
    );
    const returned = await planFor(kept, 'd=1', replicated);
    expect(returned.memory.gradientBytes).toBe(elements * 2);
    expect(returned.memory.optimizerBytes).toBe(elements * 12 + 4);
  });

  test('new parameters and states are written over the old ones: nothing of them is left at the end of the step', () => {
    const graph = step(adamw({ lr: 1e-3 }));
    const prepared = prepare(graph, request('d=1'), TABLE);
    const { intervals, nodeOfPoint } = planMemoryTimeline(
      prepared.model,
      randomChoice(prepared.model, 0),
    );
    const last = nodeOfPoint.length - 1;
    const kept = intervals
      .filter(({ kind, end }) => end === last && kind === 'activation')
      .map(({ name }) => name);
    const final = graph.nodes.at(-1)!;
    const read: string[] = [];
    eachOperand(final, (name) => read.push(name));
    // The loss, the inputs of the caller, and what the last node makes a new parameter of.
    expect(new Set(kept)).toEqual(new Set(['loss', 'x', ...read, final.name]));
    const states = intervals
      .filter(({ kind }) => kind === 'optimizer')
      .reduce((sum, { bytes }) => sum + bytes, 0);
    expect(states).toBe((256 * 64 + 256 + 64 * 256) * 12 + 4);
  });
});

/**
 * A returned value that belongs to an input, moved to another placement; undefined where it has
 * only one.
 */
function misplaced(
  { graph }: Prepared['model'],
  space: ShardingSpace,
  plan: Decoded,
  seed: number,
): Decoded | undefined {
  const draw = drawOf(seed);
  const owned = graph.outputs.flatMap(({ role, value }, k) =>
    role !== 'output' && value !== null ? [k] : [],
  );
  const k = draw.pick(owned);
  const of = plan.outputs[k];
  const type = graph.nodes.find((node) => node.name === graph.outputs[k].value)?.type;
  const rank = type?.kind === 'tensor' ? type.shape.length : 0;
  const others = space
    .enumerate(rank)
    .map((id) => space.text(id))
    .filter((text) => text !== of.placement);
  if (others.length === 0) return undefined;
  // What brings it there ends there, so that nothing else is wrong.
  const placement = of.redistributions.length === 0 ? of.placement : of.redistributions[0].from;
  const to = placement === of.placement ? draw.pick(others) : placement;
  const move = { input: 0, from: of.placement, to, collectives: [], seconds: 0 };
  const redistributions =
    to === placement && of.redistributions.length > 0 ? [] : [...of.redistributions, move];
  return {
    ...plan,
    outputs: plan.outputs.map((o, i) => (i === k ? { ...o, placement: to, redistributions } : o)),
  };
}

describe('what judges a plan finds outputs that are not placed as inputs', () => {
  test.each(FULL ? MESHES : MESHES.slice(1))(
    'on (%s): the re-cost and the lowering, for random plans',
    (mesh) => {
      let found = 0;
      for (const optimizer of OPTIMIZERS) {
        const graph = step(optimizer);
        const {
          model,
          question: { request: asked },
        } = prepare(graph, request(mesh), TABLE);
        const again = (plan: Decoded): number => recost(plan, model);
        for (let seed = 0; seed < SEEDS; seed++) {
          const plan = decode(model, randomChoice(model, seed));
          expect(again(plan)).toBeGreaterThan(0);
          const wrong = misplaced(model, model.space, plan, seed);
          if (wrong === undefined) continue;
          found++;
          expect(() => again(wrong), `seed ${seed}`).toThrow(/enters as/);
          expect(
            () => lower(model.graph, { ...wrong, request: asked }, { table: TABLE }),
            `seed ${seed}`,
          ).toThrow(expect.objectContaining({ code: 'E_PLAN' }));
        }
      }
      expect(found).toBeGreaterThan(1.2 * SEEDS);
    },
  );
});

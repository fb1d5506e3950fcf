import { describe, expect, it } from 'vitest';

import { RedistributionCharges } from '../../src/cost/redistribution/charges.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import type { Graph } from '../../src/graph/types.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { recost } from '../../src/plan/choice/recost.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import type { ComparedPlan } from '../../src/recipes/compare/comparison.ts';
import { type Priced, priceRestriction } from '../../src/recipes/compare/price.ts';
import { modelFacts } from '../../src/recipes/inputs/model-facts.ts';
import { lintPlan } from '../../src/recipes/lint.ts';
import { cutsExperts, cutsInsideExperts, inputCut } from '../../src/recipes/parts.ts';
import { applyRecipe } from '../../src/recipes/recipes.ts';
import { NAMED_RECIPES, type NamedRecipe, recipeOf } from '../../src/recipes/registry.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { type LayoutKind } from '../../src/step/layout.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { lossProgram, withBackward } from '../../src/sweep/model/representative-layers.ts';
import { coreRequest } from '../../src/sweep/model/types.ts';
import { CoreSolver } from '../../src/sweep/rank/rank-price.ts';
import { request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

/**
 * Every recipe is a feasible point of the problem whose optimum is sought, and the optimum is never
 * more expensive: models of 8 to 671 billion parameters on meshes of 8 to 4,096 devices. The whole
 * grid takes the better part of an hour; its figures are annotations (`SHARDWRIGHT_FULL=1 npx
 * vitest run test/recipes/optimum-never-worse.test.ts --reporter=verbose`).
 */

const MODELS = [
  'llama-3.1-8b',
  'llama-3.1-70b',
  'llama-3.1-405b',
  'mixtral-8x7b',
  'deepseek-v3',
] as const;
type ModelName = (typeof MODELS)[number];
const SEQUENCE = 4096;

interface Asked {
  readonly model: ModelName;
  readonly sizes: readonly number[];
  /** Plans that are choices of the problem. */
  readonly plans: number;
  /**
   * Bytes of states must fit the devices, which some of the plans then do not; else every plan
   * fits.
   */
  readonly fitting?: true;
}

const text = ({ model, sizes, fitting }: Asked): string =>
  `${model} on ${sizes.join(' x ')}${fitting ? ', in the memory of the devices' : ''}`;

/**
 * Two layers at the sizes of the model, forward and backward, one sequence a device, so that every
 * mesh dim can cut the batch. Attention is fused as comparisons by name take it: the products and
 * softmax of DeepSeek-V3 have no recipe along the sequence. Routed models sort the tokens of all
 * devices at once here, which no placement keeps within a data rank: their plans are points of this
 * problem, but expensive ones. Comparisons by name let each rank sort its own.
 */
function twoLayers(model: ModelName, devices: number): Graph {
  const { config } = modelEntry(model);
  // One of its three dense layers is left, so that the second layer has experts.
  const own = model === 'deepseek-v3' ? { ...config, first_k_dense_replace: 1 } : config;
  const sizes = { batch: devices, sequence: SEQUENCE };
  const graph = withBackward(
    lossProgram(parseModelConfig(JSON.stringify(own)), sizes, 2, TABLE),
    TABLE,
  );
  const names = graph.nodes.map((n) => n.meta.roleName ?? '');
  expect(names.some((n) => n.includes('layers.1.') && n.includes('experts'))).toBe(
    /mixtral|deepseek/.test(model),
  );
  expect(names.some((n) => n.includes('layers.0.mlp.down_proj'))).toBe(model !== 'mixtral-8x7b');
  return graph;
}

interface Point {
  readonly zoo: NamedRecipe;
  readonly priced: Priced;
  /** Tells whether the recipe leaves a variable this value. */
  readonly allows: (variable: number, value: number) => boolean;
}

/** The plans of the mesh that the linter lets through and the model has parts for. */
async function pointsOf(prepared: Prepared): Promise<Point[]> {
  const { model } = prepared;
  const { sizes } = model.space.mesh;
  const facts = modelFacts(model.graph);
  const points: Point[] = [];
  for (const zoo of NAMED_RECIPES) {
    const recipe = recipeOf(zoo);
    if (zoo.axes.length !== sizes.length || recipe === undefined) continue;
    if (
      lintPlan(zoo, sizes, facts, model.cluster.devicesPerHost).some((f) => f.severity === 'error')
    )
      continue;
    if (
      facts.experts === undefined &&
      recipe.parts.some((part) => cutsExperts(part) || cutsInsideExperts(part))
    )
      continue;
    const applied = applyRecipe(model, recipe);
    const priced =
      'refused' in applied ? applied : await priceRestriction(prepared, applied.restriction);
    // What lints is a choice of the problem: a refusal here is a fault of the rules or of the
    // recipe.
    if ('refused' in applied || 'refused' in priced)
      throw new Error(`${zoo.name}: ${'refused' in priced ? priced.refused : ''}`);
    points.push({ zoo, priced, allows: (v, a) => applied.restriction.allows(v, a) });
  }
  return points;
}

/**
 * That a plan is the choice which its recipe says, and costs what its placements cost; returns
 * seconds without the tables.
 */
function checkPoint({ model }: Prepared, { zoo, priced, allows }: Point): number {
  const { cost, violations } = evaluate(model.problem, priced.choice);
  expect(violations.map((v) => v.code)).toEqual(priced.fits ? [] : ['row']);
  expect(priced.choice.findIndex((value, v) => !allows(v, value))).toBe(-1);
  const { collectives, space } = model;
  const plan = decode(model, priced.choice);
  const charges = new RedistributionCharges(new Redistributor(space, collectives));
  const walked = recost(plan, { ...model, charges });
  // The terms of the tables before each is rounded to a quantum of the problem, and after.
  expect(Math.abs((plan.computeSeconds + plan.communicationSeconds) / walked - 1)).toBeLessThan(
    1e-9,
  );
  const rounding =
    ((model.problem.domains.length + model.problem.edges.first.length) * model.quantum) /
    2 /
    model.unitsPerSecond;
  const seconds = Number(cost) / model.unitsPerSecond;
  expect(Math.abs(seconds - priced.seconds)).toBeLessThanOrEqual(rounding);
  expect(Math.abs(seconds - walked)).toBeLessThanOrEqual(rounding);
  expect(Math.abs(seconds / walked - 1)).toBeLessThan(1e-7);
  // The tokens lie as the parts of the plan say: read off the placements, not off the restriction.
  const parts = zoo.parts ?? [];
  // Every input is [batch, sequence].
  const dimOf = { batch: 'S(0)', sequence: 'S(1)' } as const;
  const cut = parts.map((part) => dimOf[inputCut(part) as 'batch'] ?? 'R').join('');
  const inputs = plan.nodes.filter((_, n) => model.graph.nodes[n].meta.role === 'input');
  expect(new Set(inputs.flatMap((n) => n.outputs))).toEqual(new Set([cut]));
  return walked;
}

describe('as one problem: two layers of each model', () => {
  const meshes: readonly (readonly number[])[] = [
    [8],
    [2, 4],
    [2, 2, 2],
    [64],
    [8, 8],
    [4, 2, 8],
    [64, 8],
    [8, 8, 8],
    [512, 8],
    [64, 8, 8],
  ];
  const sampled: readonly Asked[] = [
    { model: 'llama-3.1-8b', sizes: [8, 8], plans: 9 },
    { model: 'deepseek-v3', sizes: [8], plans: 5, fitting: true },
  ];
  /**
   * Of 5, 11 and 4 plans by mesh rank: dense models have no expert plans, and not every size
   * divides.
   */
  const fewer: Readonly<Record<string, number>> = {
    'llama-3.1-8b on 64': 2,
    'mixtral-8x7b on 64': 2,
    'mixtral-8x7b on 64 x 8': 10,
    'mixtral-8x7b on 512 x 8': 10,
    'deepseek-v3 on 512 x 8': 10,
  };
  const plansOf = (model: ModelName, sizes: readonly number[]): number => {
    const dense = model.startsWith('llama');
    return (
      fewer[text({ model, sizes, plans: 0 })] ??
      [dense ? 4 : 5, dense ? 9 : 11, 4][sizes.length - 1]
    );
  };
  const grid = meshes.flatMap((sizes) =>
    MODELS.map((model): Asked => ({ model, sizes, plans: plansOf(model, sizes) })),
  );
  const rest: readonly Asked[] = [
    ...grid.filter((a) => !sampled.some((s) => text(s) === text(a))),
    { model: 'llama-3.1-405b', sizes: [8], plans: 4, fitting: true },
    { model: 'llama-3.1-405b', sizes: [2, 4], plans: 9, fitting: true },
    // Expert groups of 64.
    { model: 'deepseek-v3', sizes: [8, 64], plans: 11 },
  ];

  it.for(FULL ? [...sampled, ...rest] : sampled)(
    '$model on $sizes',
    { timeout: FULL ? 1_800_000 : 60_000 },
    async (asked, { annotate }) => {
      const { model, sizes, plans, fitting = false } = asked;
      const graph = twoLayers(
        model,
        sizes.reduce((a, b) => a * b, 1),
      );
      const mesh = sizes.map((n, d) => `d${d}=${n}`).join();
      const more = {
        ...(fitting ? {} : { memoryBytes: 2 ** 50 }),
        ...(FULL ? { timeLimitSeconds: 900 } : {}),
      };
      const prepared = prepare(graph, request(mesh, { activations: 'off', ...more }), TABLE);
      // Recipes may need prices that are left out where a whole plan costs less.
      const full = { ...prepared, ...prepared.allPrices };
      const points = await pointsOf(full);
      expect(points.map((p) => p.zoo.name)).toHaveLength(plans);
      const walked = points.map((point) => checkPoint(full, point));
      const best = await leastCostPlanOf(prepared, { starts: points.map((p) => p.priced.choice) });
      if (best.status !== 'planned') throw new Error(best.conflict.join());
      const { objective, proof } = best.plan;
      expect(evaluate(prepared.left.problem, best.choice).violations).toEqual([]);
      expect(proof.status).toBe('optimal');
      expect(proof.bound).toBeLessThanOrEqual(objective.seconds);
      const fit = points.filter((p) => p.priced.fits);
      expect(fit.length < points.length).toBe(fitting);
      points.forEach(({ priced }, i) => {
        if (!priced.fits) return;
        expect(objective.seconds).toBeLessThanOrEqual(priced.seconds * (1 + 1e-12));
        // Both priced from their placements alone.
        expect(proof.recheckedSeconds).toBeLessThanOrEqual(walked[i] * (1 + 1e-9));
      });
      const nearest = Math.min(...fit.map((p) => p.priced.seconds));
      await annotate(
        `${text(asked)}: ${points.length} plans, ${fit.length} fit; the optimum takes ${(objective.seconds / nearest).toFixed(4)} of the best, gap ${proof.gap}`,
      );
    },
  );
});

it('a program that writes attention as products and a softmax has no plan along the sequence, and is told why', () => {
  const { config } = modelEntry('deepseek-v3');
  const small = { ...config, num_hidden_layers: 1, first_k_dense_replace: 1, vocab_size: 512 };
  const graph = buildModel(parseModelConfig(JSON.stringify(small)), {
    training: true,
    batch: 2,
    seq: 256,
    table: TABLE,
  });
  const { model } = prepare(graph, request('cp=2', { activations: 'off' }), TABLE);
  for (const part of ['context', 'ulysses'] as const)
    expect(applyRecipe(model, { name: part, parts: [part] })).toEqual({
      refused:
        'the model has no fused attention, whose queries and keys the plan cuts along the sequence',
    });
});

/** A model by name, as `compare` asks: one sequence a device. */
function ask(model: ModelName, devices: number): SweepQuestion {
  const config = JSON.stringify(modelEntry(model).config);
  return {
    model,
    config,
    devices,
    cluster: 'dgx-h100',
    sequence: SEQUENCE,
    globalBatch: devices,
    cost: 'alpha-beta',
  };
}

// test/sweep/sweep.test.ts says so of a small model in every run.
describe.runIf(FULL)(
  'programs of data ranks: free placements against those of the recipes, in the same prices',
  () => {
    const all = MODELS.flatMap((model) =>
      (
        [
          [1, 8],
          [8, 1],
          [2, 4],
        ] as const
      ).map(([cp, tp]) => ({ model, cp, tp })),
    );
    it.for(all)(
      '$model, cp $cp, tp $tp',
      { timeout: 600_000 },
      async ({ model, cp, tp }, { annotate }) => {
        const solver = new CoreSolver(ask(model, 512), TABLE);
        const sizes = { pp: 1, dp_replicate: 1, dp_shard: 64, cp, tp, ep: 1 };
        const kind = { mode: 'fsdp', context: 'cp', sequenceParallel: true } as const;
        const data = {
          sizes,
          mode: 'fsdp',
          context: 'cp',
          once: false,
          microbatches: 8,
          visible: { microbatch: 1, step: 1 },
        } as const;
        const seconds = async (own: LayoutKind): Promise<number> => {
          const priced = await solver.price({ ...coreRequest(sizes, own, 1), data });
          if (priced.status === 'refused') throw new Error(priced.reason);
          if (own.free === true)
            expect(priced.core.proof).toMatchObject({ status: 'optimal', gap: 0 });
          return priced.core.shallowSeconds;
        };
        const free = await seconds({ ...kind, free: true });
        const zoo: number[] = [];
        for (const context of cp > 1 ? (['cp', 'ulysses'] as const) : (['cp'] as const))
          for (const sequenceParallel of tp > 1 ? [true, false] : [true])
            zoo.push(await seconds({ ...kind, context, sequenceParallel }));
        for (const each of zoo) expect(free).toBeLessThanOrEqual(each * (1 + 1e-9));
        await annotate(
          `${model} cp ${cp} tp ${tp}: ${zoo.length} plans, free ${(free / Math.min(...zoo)).toFixed(4)} of the best`,
        );
      },
    );
  },
);

// test/sweep/sweep.test.ts says so of a small model in every run.
describe.runIf(FULL)(
  'compare by name: no optimum is more expensive than a recipe on its mesh with its state sharding',
  () => {
    interface Named {
      readonly model: ModelName;
      readonly devices: number;
    }
    const all = [8, 64, 512, 4096].flatMap((devices) =>
      MODELS.map((model): Named => ({ model, devices })),
    );
    /** Mesh and state sharding; the latter has no name where there is one data rank. */
    const place = ({ plan, layout }: ComparedPlan): string => {
      const { pp, dp_replicate, dp_shard, cp, tp, ep, etp = 1 } = layout!.sizes;
      const mode =
        dp_replicate * dp_shard * cp === 1 ? '' : plan.replace(/^pp\+/, '').split('+')[0];
      return `${[pp, dp_replicate, dp_shard, cp, tp, ep, etp].join()} ${mode}`;
    };
    it.for(all)(
      '$model on $devices devices',
      { timeout: 1_800_000 },
      async ({ model, devices }, { annotate }) => {
        const options = { table: TABLE, threads: 1, whatIf: false };
        const found = await compareModel(ask(model, devices), options);
        const optima = found.plans.filter((p) => p.origin === 'ilp');
        expect(optima.length).toBeGreaterThan(0);
        expect(new Set(optima.map(place)).size).toBe(optima.length);
        let [compared, better, least] = [0, 0, 1];
        for (const optimum of optima) {
          const beside = found.plans.filter(
            (p) => p.origin === 'zoo' && place(p) === place(optimum),
          );
          expect(beside.length).toBeGreaterThan(0);
          compared += beside.length;
          for (const p of beside) {
            expect(Number(optimum.fits)).toBeGreaterThanOrEqual(Number(p.fits));
            if (p.fits) expect(optimum.seconds).toBeLessThanOrEqual(p.seconds);
            else if (!optimum.fits) expect(optimum.peakBytes).toBeLessThanOrEqual(p.peakBytes);
          }
          // Its placements are proven cheapest for the priced layers, or are those of a plan that is
          // cheaper in all, by name.
          const { shallowProof, placements } = optimum.layout!;
          if (placements === undefined)
            expect(shallowProof).toMatchObject({ status: 'optimal', gap: 0 });
          else expect(beside.map((p) => `${p.plan} on ${p.mesh}`)).toContain(placements);
          const nearest = Math.min(...beside.filter((p) => p.fits).map((p) => p.seconds));
          if (optimum.seconds < nearest && nearest < Infinity) better++;
          if (nearest < Infinity) least = Math.min(least, optimum.seconds / nearest);
        }
        await annotate(
          `${model} on ${devices}: ${optima.length} optima beside ${compared} plans, ${better} strictly better, least ratio ${least.toFixed(4)}`,
        );
      },
    );
  },
);

import { describe, expect, it } from 'vitest';

import { peakOf } from '../../src/cost/memory/peak.ts';
import { RedistributionCharges } from '../../src/cost/redistribution/charges.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import { buildModel } from '../../src/models/build.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { decode, type Decoded } from '../../src/plan/choice/decode.ts';
import { recost } from '../../src/plan/choice/recost.ts';
import { planMemoryTimeline } from '../../src/plan/choice/timeline.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import { type Priced, priceRestriction, trafficOf } from '../../src/recipes/compare/price.ts';
import { applyRecipe } from '../../src/recipes/recipes.ts';
import { NAMED_RECIPES, namedRecipe, recipeOf } from '../../src/recipes/registry.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { dataBytes, fsdpBytes } from '../support/parallelism-bytes.ts';
import { memoryFront } from './memory-front.ts';

async function priceZoo(
  prepared: Prepared,
  name: string,
): Promise<Priced | { readonly refused: string }> {
  const recipe = recipeOf(namedRecipe(name));
  if (recipe === undefined) return { refused: 'outside' };
  const applied = applyRecipe(prepared.model, recipe);
  return 'refused' in applied ? applied : priceRestriction(prepared, applied.restriction);
}

async function zooPlanned(
  prepared: Prepared,
  name: string,
): Promise<Decoded & { readonly priced: Priced }> {
  const priced = await priceZoo(prepared, name);
  if ('refused' in priced) throw new Error(priced.refused);
  return { ...decode(prepared.model, priced.choice), priced };
}

describe('every recipe is a choice of the problem, and the optimum is never more expensive', () => {
  /** Graph, mesh, and the plans that at least are a choice. */
  const asked: readonly (readonly [string, string, number])[] = [
    ['torch/mlp-loss/joint.expanded', 'a=8', 3],
    ['torch/mlp-loss/joint.expanded', 'a=2,b=4', 3],
    ['torch/llama-tiny/joint.expanded', 'a=2,b=2', 8],
    ['torch/gpt2-2l/joint.expanded', 'a=8', 4],
    ['torch/mixtral-tiny/export.readable', 'a=2', 5],
  ];
  const small = [
    'mlp/joint.expanded',
    'mlp-loss/joint.expanded',
    'llama-tiny/joint.expanded',
    'gpt2-2l/joint.expanded',
    'mixtral-tiny/export.readable',
  ];
  const meshes = ['a=2', 'a=4', 'a=8', 'a=2,b=2', 'a=2,b=4', 'a=4,b=2', 'a=2,b=2,c=2'];
  const rest = small.flatMap((graph) => meshes.map((mesh) => [`torch/${graph}`, mesh, 0] as const));
  const more = rest.filter(([graph, mesh]) => !asked.some(([g, m]) => g === graph && m === mesh));
  // Every small graph on every mesh of at most 8 devices takes minutes.
  for (const [model, mesh, least] of FULL ? [...asked, ...more] : asked) {
    it(`${model} on ${mesh}`, async () => {
      const prepared = prepare(load(model), request(mesh), TABLE);
      const {
        model: m,
        model: { collectives },
      } = prepared;
      const plans = NAMED_RECIPES.filter((z) => z.axes.length === m.space.meshRank);
      const priced: Priced[] = [];
      for (const { name } of plans) {
        const found = await priceZoo(prepared, name);
        if (!('refused' in found)) priced.push(found);
      }
      expect(priced.length).toBeGreaterThanOrEqual(least);
      for (const p of priced) {
        const { cost, violations } = evaluate(m.problem, p.choice);
        expect(violations).toEqual([]);
        // Prices of the problem are rounded to a quantum each; those of the walk below are not.
        const terms = m.problem.domains.length + m.problem.edges.first.length;
        const rounding = (terms * m.quantum) / 2 / m.unitsPerSecond;
        expect(rounding).toBeLessThan(1e-6 * p.seconds);
        expect(Math.abs(Number(cost) / m.unitsPerSecond - p.seconds)).toBeLessThanOrEqual(rounding);
        // Priced again from the placements alone, without the tables of the problem.
        const decoded = decode(m, p.choice);
        const walked = recost(decoded, {
          ...m,
          charges: new RedistributionCharges(new Redistributor(m.space, collectives)),
        });
        expect(Math.abs(walked - p.seconds)).toBeLessThanOrEqual(rounding);
        // Before rounding: the terms that the tables were made from.
        expect(
          Math.abs((decoded.computeSeconds + decoded.communicationSeconds) / walked - 1),
        ).toBeLessThan(1e-9);
      }
      const best = await leastCostPlanOf(prepared, { starts: priced.map((p) => p.choice) });
      if (best.status !== 'planned') throw new Error(best.conflict.join());
      expect(best.plan.proof.status).toBe('optimal');
      for (const p of priced)
        expect(p.seconds).toBeGreaterThanOrEqual(best.plan.objective.seconds * (1 - 1e-12));
    }, 30_000);
  }
});

describe('more budget never takes more seconds', () => {
  it('the front of an MLP falls strictly, and is what every budget between its points gives', async () => {
    // The front trades states, which are one row; peak memory is none.
    const STATES = { activations: 'report' } as const;
    const graph = load('torch/mlp/joint.expanded');
    const mesh = FULL ? 'a=2,b=2' : 'a=4';
    const {
      model,
      left: { compact },
    } = prepare(graph, request(mesh), TABLE);
    const [{ name }] = compact.problem.rows!;
    const points = memoryFront(compact.problem, name);
    expect(points.length).toBeGreaterThan(3);
    const leastAmount = points.at(-1)!.amount;
    points.slice(1).forEach((p, k) => {
      expect(p.amount).toBeLessThan(points[k].amount);
      expect(p.cost).toBeGreaterThan(points[k].cost);
    });
    for (const p of points)
      expect([p.gap, evaluate(compact.problem, p.choice).cost]).toEqual([0, BigInt(p.cost)]);
    let before = Infinity;
    // The ends of the front, and every second point between them.
    const asked = points.length - 1;
    for (let k = asked; k >= 0; k -= !FULL && k > 1 && k < asked ? 2 : 1) {
      const widest = k === 0 ? 2 * points[0].amount : points[k - 1].amount - 1;
      for (const memoryBytes of new Set([points[k].amount, widest])) {
        const result = await leastCostPlanOf(
          prepare(graph, request(mesh, { memoryBytes, ...STATES }), TABLE),
        );
        if (result.status !== 'planned') throw new Error(`nothing fits ${memoryBytes}`);
        const { seconds } = result.plan.objective;
        expect(seconds * model.unitsPerSecond).toBeCloseTo(points[k].cost, 6);
        expect(seconds).toBeLessThanOrEqual(before);
        before = seconds;
      }
    }
    const none = await leastCostPlanOf(
      prepare(graph, request(mesh, { memoryBytes: leastAmount - 1, ...STATES }), TABLE),
    );
    expect(none).toMatchObject({ status: 'infeasible', smallestBudgetBytes: leastAmount });
  });
});

describe('what a plan sends is what its closed form says', () => {
  it('dp all-reduces every gradient, fsdp scatters it and gathers the weights', async () => {
    const prepared = prepare(load('torch/mlp-loss/joint.expanded'), request('a=8'), TABLE);
    const dp = await zooPlanned(prepared, 'dp');
    const weights = dp.parameters.reduce(
      (sum, p) => sum + 4 * p.shape.reduce((a, b) => a * b, 1),
      0,
    );
    const sent = (plan: Decoded, kind: string): number =>
      trafficOf(prepared.model, plan).find((t) => t.kind === kind)?.sentBytes ?? 0;
    // The loss, one number, is reduced too.
    expect(sent(dp, 'all_reduce')).toBeCloseTo(dataBytes(8, weights + 4), 6);
    expect(dp.memory.peakBytes).toBe(4 * weights);
    const fsdp = await zooPlanned(prepared, 'fsdp');
    expect(fsdp.memory.peakBytes).toBe(dp.memory.peakBytes / 8);
    expect(sent(fsdp, 'reduce_scatter')).toBeCloseTo((7 / 8) * weights, 6);
    // The first weight is not needed in the backward pass, and biases never are: less than the
    // closed form.
    const whole = fsdpBytes(8, weights, weights);
    expect(sent(fsdp, 'all_gather') + sent(fsdp, 'reduce_scatter')).toBeLessThan(whole);
    expect(sent(fsdp, 'all_gather')).toBeGreaterThan((7 / 8) * weights);
  });

  it('large collectives of a Llama of two layers over tp', async () => {
    const prepared = prepare(
      load('torch/llama3-8b-2l-b16/joint.expanded'),
      request('dp=8,tp=8'),
      TABLE,
    );
    const { flow } = prepared.model;
    // b s h of a data rank, 16 bits.
    const stream = 2 * 8192 * 4096 * 2;
    const large = (plan: Decoded, kind: string): [number, number] => {
      const count: [number, number] = [0, 0];
      plan.nodes.forEach((node, n) => {
        for (const { collectives } of node.redistributions)
          for (const c of collectives)
            if (c.kind === kind && c.meshDims.join() === 'tp' && c.bytes >= stream)
              count[flow.phases[n] === 'forward' ? 0 : 1]++;
      });
      return count;
    };
    const tp = await zooPlanned(prepared, 'dp+tp');
    expect(large(tp, 'all_reduce')).toEqual([5, 5]);
    expect(large(tp, 'reduce_scatter')).toEqual([0, 0]);
    const sp = await zooPlanned(prepared, 'dp+tp+sp');
    expect(large(sp, 'all_gather')).toEqual([5, 5]);
    expect(large(sp, 'reduce_scatter')).toEqual([5, 5]);
    expect(large(sp, 'all_reduce')).toEqual([0, 0]);
    // What of the stream is kept whole with tp is cut with sp.
    const peak = ({ priced }: { readonly priced: Priced }): number =>
      peakOf(planMemoryTimeline(prepared.model, priced.choice).intervals).peakBytes;
    expect(peak(sp)).toBeLessThan(peak(tp));
    // Same parameters, same bytes of states.
    expect(sp.memory.peakBytes).toBe(tp.memory.peakBytes);
    const placed = Object.fromEntries(
      sp.parameters.map((p) => [p.name.replace('model.model.', ''), p.placement]),
    );
    expect(placed['layers.0.self_attn.q_proj.weight']).toBe('RS(0)');
    expect(placed['layers.0.mlp.down_proj.weight']).toBe('RS(1)');
    expect(placed['norm.weight']).toBe('RR');
  });

  // 32 layers, 65 collectives, take some seconds.
  const layers = FULL ? 32 : 7;
  it(`large collectives over tp of a Llama of ${layers} layers: 2 L + 1 each way`, async () => {
    const counts = async (
      name: string,
      h: number,
      seq: number,
    ): Promise<Record<string, [number, number]>> => {
      const text = JSON.stringify({
        model_type: 'llama',
        hidden_size: h,
        intermediate_size: 2 * h,
        num_attention_heads: h / 64,
        num_hidden_layers: layers,
        vocab_size: 128256,
        torch_dtype: 'bfloat16',
      });
      const graph = buildModel(parseModelConfig(text), {
        training: true,
        batch: 2,
        seq,
        table: TABLE,
      });
      // Megatron's parallel cross entropy is one kernel between its collectives.
      const prepared = prepare(
        graph,
        request('dp=2,tp=4', { activations: 'off', joinedBodies: true }),
        TABLE,
      );
      const plan = await zooPlanned(prepared, name);
      const found: Record<string, [number, number]> = {};
      plan.nodes.forEach((node, n) => {
        for (const { collectives } of node.redistributions)
          for (const c of collectives)
            if (c.meshDims.join() === 'tp' && c.bytes >= seq * h * 2)
              (found[c.kind] ??= [0, 0])[prepared.model.flow.phases[n] === 'forward' ? 0 : 1]++;
      });
      return found;
    };
    const each = [2 * layers + 1, 2 * layers + 1];
    // Each where its usual form is the cheapest: the norms of large streams are worth a gather,
    // small ones an all-reduce.
    expect(await counts('dp+tp', 256, 1024)).toEqual({ all_reduce: each });
    expect(await counts('dp+tp+sp', 4096, 8192)).toEqual({
      all_gather: each,
      reduce_scatter: each,
    });
  }, 30_000);

  it('a collective per parameter: dp one sum, fsdp one scatter and two gathers, of the embedding one', async () => {
    const prepared = prepare(load('torch/llama3-8b-2l-b16/joint.expanded'), request('dp=8'), TABLE);
    const count = (plan: Decoded, kind: string): number =>
      trafficOf(prepared.model, plan)
        .filter((t) => t.kind === kind)
        .reduce((n, t) => n + t.count, 0);
    const dp = await zooPlanned(prepared, 'dp');
    const parameters = dp.parameters.filter((p) => p.shape.length > 0).length;
    expect(parameters).toBe(2 * 9 + 3);
    expect(count(dp, 'all_reduce')).toBe(parameters);
    const fsdp = await zooPlanned(prepared, 'fsdp');
    expect(count(fsdp, 'reduce_scatter')).toBe(parameters);
    expect(count(fsdp, 'all_gather')).toBe(2 * parameters - 1);
  });

  it('sequences are cut everywhere: attention takes its queries so with cp, its heads with Ulysses', async () => {
    const prepared = prepare(load('torch/gpt2-2l/joint.expanded'), request('dp=2,cp=4'), TABLE);
    const queries = async (name: string): Promise<string[]> =>
      (await zooPlanned(prepared, name)).nodes
        .filter((n) => /scaled_dot_product\w*(?<!backward)\.default/.test(n.target))
        .map((n) => n.inputs[0]);
    expect(await queries('dp+cp')).toEqual(['S(0)S(2)', 'S(0)S(2)']);
    expect(await queries('dp+ulysses')).toEqual(['S(0)S(1)', 'S(0)S(1)']);
  });

  it('experts are stored and used cut; a model without them, or without a residual stream, is refused by name', async () => {
    const moe = prepare(load('torch/mixtral-tiny/export.readable'), request('ep=2'), TABLE);
    const plan = await zooPlanned(moe, 'ep');
    const experts = plan.parameters.filter((p) => /experts/.test(p.name));
    expect(experts.length).toBeGreaterThan(0);
    for (const p of experts) expect(p.placement).toBe('S(0)');
    for (const p of plan.parameters) if (!/experts/.test(p.name)) expect(p.placement).toBe('R');
    const mlp = prepare(load('torch/mlp-loss/joint.expanded'), request('tp=2'), TABLE);
    expect(await priceZoo(mlp, 'ep')).toEqual({
      refused: 'no weight has the name of routed experts',
    });
    expect(await priceZoo(mlp, 'tp+sp')).toEqual({
      refused: 'the model has no residual stream of [batch, sequence, hidden]',
    });
  });
});

describe('the registry', () => {
  it('a name that is nearly one is told', () => {
    expect(() => namedRecipe('fspd')).toThrow(
      expect.objectContaining({ details: { hint: "did you mean 'fsdp'?" } }),
    );
    expect(namedRecipe('zero3')).toBe(namedRecipe('fsdp'));
  });

  it('names are unique, and every plan has a part for every axis or a reason', () => {
    expect(new Set(NAMED_RECIPES.map((z) => z.name)).size).toBe(NAMED_RECIPES.length);
    for (const z of NAMED_RECIPES) {
      if (z.parts === undefined) expect(z.outside).toMatch(/\w/);
      else expect(z.parts).toHaveLength(z.axes.length);
    }
  });
});

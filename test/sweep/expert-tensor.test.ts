import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { parseModelConfig } from '../../src/models/families.ts';
import { modelEntry } from '../../src/models/registry.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { expertFold } from '../../src/recipes/expert-mesh.ts';
import { lint, lintPlan } from '../../src/recipes/lint.ts';
import { applyRecipe } from '../../src/recipes/recipes.ts';
import { namedRecipe, recipeOf } from '../../src/recipes/registry.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { tokenExchange } from '../../src/step/costs/token-exchange.ts';
import { GroupMaker } from '../../src/step/data-groups.ts';
import { type LayoutSizes } from '../../src/step/layout.ts';
import { routedUnits } from '../../src/step/read/moe.ts';
import { parameterCost } from '../../src/step/states.ts';
import { compareModel } from '../../src/sweep/compare-model.ts';
import type { SweepQuestion } from '../../src/sweep/model/question.ts';
import { coreRequest } from '../../src/sweep/model/types.ts';
import { parsePlans } from '../../src/sweep/plan-names.ts';
import { CoreSolver } from '../../src/sweep/rank/rank-price.ts';
import { Composer } from '../../src/sweep/step/compose.ts';
import { meshRows } from '../../src/sweep/step/layouts.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { expertBytes, expertTensorBytes } from '../support/parallelism-bytes.ts';

const MIXTRAL = {
  model_type: 'mixtral',
  hidden_size: 512,
  intermediate_size: 1536,
  num_attention_heads: 8,
  num_key_value_heads: 8,
  num_hidden_layers: 2,
  vocab_size: 4096,
  num_local_experts: 8,
  num_experts_per_tok: 2,
  torch_dtype: 'bfloat16',
};

const ask = (more: Partial<SweepQuestion> = {}): SweepQuestion => ({
  model: 'small',
  config: JSON.stringify(MIXTRAL),
  devices: 8,
  cluster: 'dgx-h100',
  sequence: 256,
  globalBatch: 8,
  cost: 'alpha-beta',
  ...more,
});

const maker = (devices = 'dgx-h100'): GroupMaker =>
  new GroupMaker('alpha-beta', loadCluster(devices));
const one: LayoutSizes = { pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1 };

describe('experts that several devices cut between them: groups, rules, states', () => {
  it('the groups of a sweep are those of the fold', () => {
    const sizes = { ...one, dp_shard: 4, cp: 2, tp: 2, ep: 4 };
    for (const etp of [1, 2]) {
      const { mesh } = maker().groups({ ...sizes, etp }, 'cp').expert;
      const { expert } = expertFold(16, { dp_shard: 4, cp: 2, tp: 2, ep: 4, etp });
      for (const axis of etp > 1 ? ['efsdp', 'ep', 'etp'] : ['efsdp', 'ep'])
        expect(mesh.groups([axis])).toEqual(expert.groups([axis]));
    }
    const { mesh } = maker().groups({ ...sizes, etp: 2 }, 'cp').expert;
    expect([mesh.groups(['ep'])[0], mesh.groups(['etp'])[0], mesh.groups(['efsdp'])[0]]).toEqual([
      [0, 2, 4, 6],
      [0, 1],
      [0, 8],
    ]);
  });

  it('ZL08 says which number does not divide: the width of an expert, the devices, the fold at fixed tp', () => {
    const found = (
      sizes: Parameters<typeof lint>[0]['sizes'],
      ep: number,
      etp: number,
      expertWidth = 1408,
    ): string[] =>
      lint({ sizes, ep, etp, facts: { experts: 64, expertWidth }, devicesPerHost: 8 }).flatMap(
        (f) => (f.code === 'ZL08' ? [`${f.message} (${f.nearest.join()})`] : []),
      );
    expect(found({ dp_shard: 8, tp: 8 }, 8, 8)).toEqual([]);
    expect(found({ dp_shard: 8, tp: 8 }, 8, 8, 1020)).toEqual([
      'expert width 1020 mod etp 8 is 4 (6,10)',
    ]);
    expect(found({ dp_shard: 2, tp: 4 }, 4, 4)[0]).toMatch(
      /^expert groups of ep 4 with etp 4 do not fold: dp_shard 2 x cp 1 x tp 4 = 8, and 8 mod 16 \(ep x etp\) is 8/,
    );
    const ofZoo = (expertWidth: number): string[] =>
      lintPlan(namedRecipe('tp+ep+etp'), [2, 4], { experts: 4, expertWidth }, 8).flatMap((f) =>
        f.severity === 'error' ? [f.code] : [],
      );
    expect(ofZoo(1408)).toEqual([]);
    expect(ofZoo(1410)).toEqual(['ZL08']);
    expect(found({ dp_shard: 8, cp: 4, tp: 2 }, 2, 2)[0]).toMatch(
      /with etp = tp, ep 2 mod cp 4 is 2/,
    );
    // Valid values are values that fold: ep 8 divides 8 devices, but not with etp 4.
    expect(found({ dp_shard: 2, tp: 4 }, 4, 4)[0]).toMatch(/; valid values of ep: 1, 2 \(2\)$/);
    // Where no ep folds, the nearest etp: 6 does not divide 16 devices.
    expect(found({ dp_shard: 4, tp: 4 }, 2, 6, 1536)[0]).toMatch(
      /; no ep fits, valid values of etp: 1, 2, 4, 8, 16 \(4,8\)$/,
    );
    expect(found({ dp_shard: 4, tp: 4 }, 0, 2)).toEqual([
      `'ep' has size 0, expected an integer of at least 1 (1)`,
    ]);
    // Ranks of Ulysses are devices of the fold, as those of cp are.
    const ulysses = {
      sizes: { dp_shard: 2, tp: 2 },
      ulysses: 2,
      ep: 8,
      facts: { experts: 64 },
      devicesPerHost: 8,
    };
    expect(lint(ulysses).flatMap((f) => (f.code === 'ZL08' ? [f.message] : []))).toEqual([]);
    expect(lint({ ...ulysses, ep: 16 })[0].message).toContain('8 mod 16');
    // A group is as long as its devices and those that cut their experts: 4 x 4 of them are on two
    // hosts.
    const hosts = (etp: number): string[] =>
      lint({ sizes: { dp_shard: 4, tp: 4 }, ep: 4, etp, facts: {}, devicesPerHost: 8 }).map(
        (f) => f.code,
      );
    expect([1, 2, 4].map(hosts)).toEqual([[], [], ['ZL16']]);
  });

  it('states of the routed experts of Mixtral 8x7B on 64 devices: 10.5 GiB with etp 1 and with etp 2', () => {
    const config = JSON.stringify(modelEntry('mixtral-8x7b').config);
    const solver = new CoreSolver(ask({ config, sequence: 1024 }), TABLE);
    const routed = solver.routed(1, 2, [8], [2])!;
    const [first] = new Set(routed.parameters.map((p) => p.unit));
    const layer = routed.parameters.filter((p) => p.kind === 'expert' && p.unit === first);
    for (const etp of [1, 2]) {
      const groups = maker().groups({ ...one, dp_shard: 32, tp: 2, ep: 8, etp }, 'cp');
      const bytes = layer
        .map((p) => parameterCost(p, 'fsdp', groups))
        .reduce((sum, c) => sum + c.parameterBytes + c.gradientBytes + c.optimizerBytes, 0);
      expect((32 * bytes) / 2 ** 30).toBe(10.5);
      // Sharded over efsdp, which is half as large; what is gathered is half as much too.
      expect(groups.expert.mesh.sizes[2]).toBe(8 / etp);
    }
  });
});

describe('what they move and compute', () => {
  it('tokens there and back, and gathered and scattered over etp: the closed forms of both ways, whichever is cheaper', () => {
    const [tokens, copies, row] = [4096, 8, 7168 * 2];
    const routed = { experts: 256, active: copies };
    const exchange = (sizes: Partial<LayoutSizes>): ReturnType<typeof tokenExchange> =>
      tokenExchange(
        maker().groups({ ...one, tp: 2, ...sizes }, 'cp'),
        tokens * copies * row,
        routed,
      );
    // In a host: gathered before they are copied for their experts, and sent by both devices.
    const early = exchange({ dp_shard: 4, ep: 4, etp: 2 });
    expect(early.moves.map((m) => [m.kind, m.axes, m.count, m.sentBytes])).toEqual([
      ['all_to_all', 'ep', 2, 2 * expertBytes(4, 2 * tokens, copies, row)],
      ['all_gather', 'etp', 1, expertTensorBytes(2, tokens, 1, row)],
      ['reduce_scatter', 'etp', 1, expertTensorBytes(2, tokens, 1, row)],
    ]);
    expect(2 * early.seconds).toBeCloseTo(
      early.moves.reduce((sum, m) => sum + m.seconds, 0),
      12,
    );
    // Over hosts what is sent is expensive: each device sends its own, and rows are gathered when
    // they have arrived.
    const late = exchange({ dp_shard: 32, ep: 32, etp: 2 });
    expect(late.moves.slice(1).map((m) => [m.kind, m.sentBytes])).toEqual([
      ['all_gather', expertTensorBytes(2, tokens, copies, row)],
      ['reduce_scatter', expertTensorBytes(2, tokens, copies, row)],
    ]);
    // Without expert groups nothing is sent but what the devices that cut the experts need: one
    // copy of each token.
    expect(exchange({ dp_shard: 4, etp: 2 }).moves.map((m) => [m.kind, m.sentBytes])).toEqual([
      ['all_gather', expertTensorBytes(2, tokens, 1, row)],
      ['reduce_scatter', expertTensorBytes(2, tokens, 1, row)],
    ]);
    expect(exchange({ dp_shard: 4 }).moves).toEqual([]);
  });

  it('their products are those of experts half as wide on twice the tokens, their other calls as before', () => {
    const products = (config: object, sequence: number, etp: number): number[] => {
      const solver = new CoreSolver(ask({ config: JSON.stringify(config), sequence }), TABLE);
      const costs = solver.routed(1, 1, [4], etp === 1 ? [] : [etp])!;
      const { forwardSeconds, recomputeSeconds, inputSeconds, weightSeconds } = routedUnits(costs, {
        ep: 4,
        etp,
      })![1];
      return [
        forwardSeconds - recomputeSeconds.selective,
        recomputeSeconds.selective,
        inputSeconds + weightSeconds,
      ];
    };
    const [cut, whole] = [products(MIXTRAL, 1024, 2), products(MIXTRAL, 1024, 1)];
    const [half] = products({ ...MIXTRAL, intermediate_size: 768 }, 2048, 1);
    expect(cut[0]).toBeCloseTo(half, 12);
    expect(cut[1]).toBe(whole[1]);
    expect(cut[2]).not.toBe(whole[2]);
  });

  it('a step of a sweep sends the closed form over etp, and keeps the rows that it gathers', async () => {
    const question = ask();
    const solver = new CoreSolver(question, TABLE);
    const composer = new Composer(question, solver.kinds);
    const kind = { mode: 'fsdp', context: 'cp', sequenceParallel: true } as const;
    const tuning = {
      microbatch: 1,
      schedule: '1f1b',
      chunks: 1,
      checkpoint: 'none',
      once: false,
    } as const;
    const costs = solver.routed(1, 2, [2], [2])!;
    const kept: number[] = [];
    for (const etp of [1, 2]) {
      const sizes = { ...one, dp_shard: 4, tp: 2, ep: 2, etp };
      const core = await solver.price(coreRequest(sizes, kind, 1));
      if (core.status === 'refused') throw new Error(core.reason);
      const figures = composer.compose({ core: core.core, routed: costs, sizes, kind, tuning })!;
      const traffic = composer.traffic(core.core, costs, { sizes, kind }, tuning, figures);
      const sent = (what: string): number =>
        traffic.find((t) => `${t.kind} ${t.axes}` === what)?.sentBytes ?? 0;
      // 2 layers, 2 microbatches, both passes; 128 tokens of 512 elements on a device.
      const each = 2 * 2 * 2 * expertTensorBytes(etp, 128, 2, 1024);
      expect([sent('all_gather etp'), sent('reduce_scatter etp')]).toEqual([each, each]);
      expect(sent('all_to_all ep')).toBe(2 * 2 * 4 * expertBytes(2, 128, 2, 1024));
      kept.push(figures.memory.activationBytes);
    }
    expect(kept[1] - kept[0]).toBe(2 * 128 * 2 * 1024);
  });
});

describe('among the plans', () => {
  it('they are priced where they are named, alone or with others', async () => {
    const plans = ['fsdp+tp+sp+ep+etp', 'fsdp+tp+sp+ep'];
    const small = ask({ config: JSON.stringify(MIXTRAL), devices: 4, globalBatch: 4 });
    const { plans: found } = await compareModel(small, {
      table: TABLE,
      threads: 1,
      whatIf: false,
      plans,
    });
    const names = found.map((p) => `${p.plan} ${p.mesh}`);
    expect(names).toContain('fsdp+tp+sp+ep+etp dp=2,tp=2 ep=2,etp=2');
    expect(names).toContain('fsdp+tp+sp+ep dp=2,tp=2 ep=2');
  }, 60_000);

  it('every divisor of tp is among the folds of a mesh, by default; `etp` alone asks for all that are cut', () => {
    const rows = (plans?: readonly string[]): string[] => {
      const wants = parsePlans(plans);
      const meshes = meshRows(
        parseModelConfig(JSON.stringify(MIXTRAL)),
        ask({ devices: 16, globalBatch: 16 }),
        { devicesPerHost: 8 },
        false,
        wants,
      );
      return meshes.flatMap((m) => m.rows.filter(wants.row).map((r) => `${r.name} ${r.mesh}`));
    };
    const folds = (mesh: string): string[] =>
      rows().flatMap((row) =>
        row.startsWith('fsdp+') && row.includes(` ${mesh}`) ? [row.split(mesh)[1].trim()] : [],
      );
    expect(folds('dp=4,tp=4')).toEqual([
      ...['', 'ep=2', 'ep=4', 'ep=8'],
      ...['etp=2', 'ep=2,etp=2', 'ep=4,etp=2', 'ep=8,etp=2'],
      ...['etp=4', 'ep=2,etp=4', 'ep=4,etp=4'],
    ]);
    // With etp = tp a group lies across cp at fixed tp, so that ep is a multiple of cp.
    const both = rows().flatMap((row) =>
      row.startsWith('fsdp+cp+') ? [row.split(' dp=2,cp=4,tp=2')[1]] : [],
    );
    expect(both.flatMap((fold) => (fold?.includes('etp') === true ? [fold.trim()] : []))).toEqual([
      'etp=2',
      'ep=4,etp=2',
      'ep=8,etp=2',
    ]);
    expect(rows(['etp']).length).toBeGreaterThan(50);
    expect(rows(['etp'])).toEqual(rows().filter((name) => name.includes('etp=')));
    expect(rows(['fsdp+tp+sp+ep4+etp2', 'dp'])).toEqual(
      [
        'fsdp+tp+sp+ep+etp dp=2,tp=8 ep=4,etp=2',
        'fsdp+tp+sp+ep+etp dp=4,tp=4 ep=4,etp=2',
        'dp dp=16',
        'fsdp+tp+sp+ep+etp dp=8,tp=2 ep=4,etp=2',
      ].sort((a, b) => rows().indexOf(a) - rows().indexOf(b)),
    );
    expect(() => parsePlans(['fsdp+tp4+etp2'])).toThrow(/no recipe 'fsdp\+tp4\+etp2'/);
  });

  it('ZL08 of a fold that is named by its sizes says which equation fails, on the meshes that cannot fold it', () => {
    const refusals = (plan: string, mesh: string): string[] => {
      const asked = parsePlans([plan]);
      const rows = meshRows(
        parseModelConfig(JSON.stringify(MIXTRAL)),
        ask({ devices: 16, globalBatch: 16 }),
        { devicesPerHost: 8 },
        false,
        asked,
      );
      return rows.flatMap(({ refused }) =>
        refused.flatMap((r) =>
          r.mesh.startsWith(`${mesh} `) && r.finding.code === 'ZL08'
            ? [`${r.name}: ${r.finding.message} (${r.finding.nearest.join()})`]
            : [],
        ),
      );
    };
    expect(refusals('fsdp+tp+sp+ep8+etp4', 'dp=4,tp=4')).toEqual([
      'fsdp+tp+sp+ep+etp: expert groups of ep 8 with etp 4 do not fold: dp_shard 4 x cp 1 x tp 4 = 16, and 16 mod 32 (ep x etp) is 16; with etp = tp, ep / cp = 8 does not divide dp_shard 4; valid values of ep: 1, 2, 4 (4)',
    ]);
    expect(refusals('fsdp+tp+sp+ep3+etp2', 'dp=4,tp=4')[0]).toMatch(
      /experts 8 mod ep 3 is 2 \(2,4\)$/,
    );
    expect(refusals('fsdp+tp+sp+ep4+etp2', 'dp=4,tp=4')).toEqual([]);
  });

  it('on one graph: experts stored and used cut on both dims, a choice of the problem, the optimum not more expensive', async () => {
    const prepared = prepare(
      load('torch/mixtral-tiny/export.readable'),
      request('ep=2,tp=2'),
      TABLE,
    );
    const applied = applyRecipe(prepared.model, recipeOf(namedRecipe('tp+ep+etp'))!);
    if ('refused' in applied) throw new Error(applied.refused);
    const priced = await priceRestriction(prepared, applied.restriction);
    if ('refused' in priced) throw new Error(priced.refused);
    const { parameters } = decode(prepared.model, priced.choice);
    const placed = (end: RegExp): string[] =>
      parameters.filter((p) => end.test(p.name)).map((p) => p.placement);
    expect(placed(/experts.gate_up_proj$/)).toEqual(['S(0)S(1)', 'S(0)S(1)']);
    expect(placed(/experts.down_proj$/)).toEqual(['S(0)S(2)', 'S(0)S(2)']);
    expect(placed(/q_proj.weight$/)).toEqual(['RS(0)', 'RS(0)']);
    expect(evaluate(prepared.model.problem, priced.choice).violations).toEqual([]);
    const best = await leastCostPlanOf(prepared, { starts: [priced.choice] });
    if (best.status !== 'planned') throw new Error(best.conflict.join());
    expect(best.plan.objective.seconds).toBeLessThanOrEqual(priced.seconds * (1 + 1e-12));
  }, 60_000);

  it('a model without routed experts is refused by name', () => {
    const { model } = prepare(load('torch/mlp-loss/joint.expanded'), request('ep=2,tp=2'), TABLE);
    expect(applyRecipe(model, recipeOf(namedRecipe('tp+ep+etp'))!)).toHaveProperty('refused');
  });
});

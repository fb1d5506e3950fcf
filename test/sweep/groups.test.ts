import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { modelFlops, type TransformerShape } from '../../src/cost/training/shape.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { DeviceMesh, parseMesh } from '../../src/mesh/devices/mesh.ts';
import { buildModel } from '../../src/models/build.ts';
import { knownModelConfig } from '../../src/models/registry.ts';
import { paddedVocabulary } from '../../src/models/vocabulary.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { nextBest, rankedChoices } from '../../src/recipes/compare/next-best.ts';
import { denseMesh, DERIVED_AXES, expertFold } from '../../src/recipes/expert-mesh.ts';
import { priceSteps } from '../../src/report/analysis/alternatives/what-if.ts';
import { verify } from '../../src/simulate/verify.ts';
import { encode } from '../../src/solver/milp/encode.ts';
import { askLibrary } from '../../src/solver/milp/library.ts';
import { solveNow } from '../../src/solver/solve.ts';
import { ringBytes } from '../../src/step/traffic.ts';
import { megatronMeshes } from '../../src/trainers/megatron/mesh-order.ts';
import { request, TABLE } from '../plan/support.ts';
import { memoryFront } from '../recipes/memory-front.ts';
import { build, costOf, type PlainProblem } from '../solver/support.ts';
import { foldedStateBytes } from '../support/parallelism-bytes.ts';

const GIB = 2 ** 30;
const text = (groups: readonly (readonly number[])[]): string =>
  groups.map((g) => `{${g.join()}}`).join('');
/** `{0..3}` is written out by hand nowhere: ids from, to, step. */
const run = (from: number, count: number, step: number): number[] =>
  Array.from({ length: count }, (_, i) => from + i * step);

describe('process groups', () => {
  it('sizes (2,2,2): every axis and every pair', () => {
    const mesh = parseMesh('a=2,b=2,c=2');
    expect(text(mesh.groups([0]))).toBe('{0,4}{1,5}{2,6}{3,7}');
    expect(text(mesh.groups([1]))).toBe('{0,2}{1,3}{4,6}{5,7}');
    expect(text(mesh.groups([2]))).toBe('{0,1}{2,3}{4,5}{6,7}');
    expect(text(mesh.groups([0, 1]))).toBe('{0,2,4,6}{1,3,5,7}');
    expect(text(mesh.groups([0, 2]))).toBe('{0,1,4,5}{2,3,6,7}');
    expect(text(mesh.groups([1, 2]))).toBe('{0,1,2,3}{4,5,6,7}');
    expect(mesh.groups([0, 1, 2])).toEqual([run(0, 8, 1)]);
  });

  it('an axis of size 1 is legal: groups of one device', () => {
    expect(text(parseMesh('a=1,b=3').groups([0]))).toBe('{0}{1}{2}');
  });

  it('sizes (2,3,4): the groups of device 17 = (1,1,1); hsdp on (2,4)', () => {
    const mesh = parseMesh('a=2,b=3,c=4');
    expect(mesh.coordinates(17)).toEqual([1, 1, 1]);
    const of17 = (dims: number[]): readonly number[] | undefined =>
      mesh.groups(dims).find((g) => g.includes(17));
    expect(of17([0])).toEqual([5, 17]);
    expect(of17([1])).toEqual([13, 17, 21]);
    expect(of17([2])).toEqual([16, 17, 18, 19]);
    expect(of17([0, 2])).toEqual([4, 5, 6, 7, 16, 17, 18, 19]);
    const hsdp = denseMesh(8, { dp_replicate: 2, dp_shard: 4 });
    expect(text(hsdp.groups(['dp_shard']))).toBe('{0,1,2,3}{4,5,6,7}');
    expect(text(hsdp.groups(['dp_replicate']))).toBe('{0,4}{1,5}{2,6}{3,7}');
  });

  it('the same dense mesh with whole experts: ep 8, ep 4, and ep 4 with expert-tp 2', () => {
    const dense = { dp_shard: 4, cp: 2, tp: 2 };
    const of0 = (
      fold: ReturnType<typeof expertFold>,
      axis: string,
    ): readonly number[] | undefined => fold.expert.groups([axis]).find((g) => g.includes(0));
    const eight = expertFold(16, { ...dense, ep: 8 });
    expect([eight.inEp, eight.modEp]).toEqual([2, 2]);
    expect(text(eight.expert.groups(['ep']))).toBe('{0,1,2,3,4,5,6,7}{8,9,10,11,12,13,14,15}');
    expect(of0(eight, 'efsdp')).toEqual([0, 8]);
    const four = expertFold(16, { ...dense, ep: 4 });
    expect(four.expert.groups(['ep'])[0]).toEqual([0, 1, 2, 3]);
    expect(of0(four, 'efsdp')).toEqual([0, 4, 8, 12]);
    const both = expertFold(16, { ...dense, ep: 4, etp: 2 });
    expect([of0(both, 'ep'), of0(both, 'etp'), of0(both, 'efsdp')]).toEqual([
      [0, 2, 4, 6],
      [0, 1],
      [0, 8],
    ]);
    expect(() => expertFold(16, { ...dense, ep: 3 })).toThrow(/16 mod 3/);
  });

  it('pipeline groups of the orders', () => {
    const dims = (...names: string[]): DeviceMesh =>
      new DeviceMesh(names.map((name) => ({ name, size: 2 })));
    expect(text(dims('pp', 'dp', 'tp').groups(['pp']))).toBe('{0,4}{1,5}{2,6}{3,7}');
    expect(text(dims('dp', 'pp', 'tp').groups(['pp']))).toBe('{0,2}{1,3}{4,6}{5,7}');
    const sizes = { tp: 2, pp: 4, dp: 2 };
    const { dense: inner } = megatronMeshes('megatron', sizes, 16);
    expect(inner.groups(['tp'])).toEqual(run(0, 8, 2).map((i) => [i, i + 1]));
    expect(text(inner.groups(['dp']))).toBe('{0,2}{1,3}{4,6}{5,7}{8,10}{9,11}{12,14}{13,15}');
    expect(text(inner.groups(['pp']))).toBe('{0,4,8,12}{1,5,9,13}{2,6,10,14}{3,7,11,15}');
    const { dense: outer } = megatronMeshes('megatron-dp-outer', sizes, 16);
    expect(text(outer.groups(['pp']))).toBe('{0,2,4,6}{1,3,5,7}{8,10,12,14}{9,11,13,15}');
    expect(outer.groups(['dp'])).toEqual(run(0, 8, 1).map((i) => [i, i + 8]));
  });

  it('dp_shard 4, cp 2, tp 2 with ep 4 and expert-tp = tp', () => {
    const fold = expertFold(16, { dp_shard: 4, cp: 2, tp: 2, ep: 4, etp: 2 });
    expect([fold.modEp, fold.inEp]).toEqual([2, 2]);
    const of0 = (groups: readonly (readonly number[])[]): readonly number[] =>
      groups.find((g) => g.includes(0)) ?? [];
    expect(of0(fold.expert.groups(['ep']))).toEqual([0, 2, 4, 6]);
    expect(of0(fold.expert.groups(['efsdp']))).toEqual([0, 8]);
    expect(of0(fold.dense.groups(['dp_shard']))).toEqual([0, 4, 8, 12]);
    expect(of0(fold.dense.groups(DERIVED_AXES.fsdp))).toEqual(run(0, 8, 2));
    expect(of0(fold.dense.groups(['tp']))).toEqual([0, 1]);
    expect(text(fold.expert.groups(['ep']))).toBe('{0,2,4,6}{1,3,5,7}{8,10,12,14}{9,11,13,15}');
  });

  it('groups of any axes: a partition whose members agree in every other coordinate', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(sizes, fc.nat(15), (list, mask) => {
        const mesh = new DeviceMesh(list.map((size, i) => ({ name: `d${i}`, size })));
        const dims = list.flatMap((_, d) => ((mask >> d) & 1 ? [d] : []));
        const groups = mesh.groups(dims);
        expect(groups.flat().sort((a, b) => a - b)).toEqual(run(0, mesh.size, 1));
        for (const group of groups)
          for (const id of group) {
            expect(group).toHaveLength(mesh.sizeOf(dims));
            mesh.coordinates(id).forEach((c, d) => {
              if (!dims.includes(d)) expect(c).toBe(mesh.coordinates(group[0])[d]);
            });
          }
      }),
    );
  });
});

describe('states and sizes', () => {
  it('Mixtral 8x7B with experts folded out of the data-parallel devices', () => {
    const total = 46_702_792_704;
    const routed = 32 * 8 * 3 * 4096 * 14336;
    const parts = { split: total - routed, rest: 0, routed };
    const gib = (bytes: number): number => Number((bytes / GIB).toFixed(3));
    const sharded = expertFold(16, { dp_shard: 16, ep: 8 });
    expect(sharded.expert.sizes[sharded.expert.indexOf('efsdp')]).toBe(2);
    expect(gib(foldedStateBytes(parts, sharded))).toBe(43.495);
    const replicated = expertFold(16, { dp_replicate: 2, dp_shard: 8, ep: 8 });
    expect(replicated.modEp).toBe(1);
    expect(gib(foldedStateBytes(parts, replicated))).toBe(86.991);
    const experts = { split: 0, rest: 0, routed };
    const one = expertFold(64, { dp_shard: 32, tp: 2, ep: 8 });
    const two = expertFold(64, { dp_shard: 32, tp: 2, ep: 8, etp: 2 });
    expect([one.modEp, two.modEp]).toEqual([8, 4]);
    expect(foldedStateBytes(experts, one)).toBe(10.5 * GIB);
    expect(foldedStateBytes(experts, two)).toBe(10.5 * GIB);
  });

  it('Llama-3.1-8B over tp 8: norms are whole on every rank', () => {
    const rest = 65 * 4096;
    const fold = expertFold(8, { tp: 8 });
    expect(foldedStateBytes({ split: 8_030_261_248 - rest, rest }, fold)).toBe(16_064_249_856);
  });

  it('vocabulary padded to 128 x tp', () => {
    expect(paddedVocabulary(50257, 1)).toBe(50304);
    expect(paddedVocabulary(50257, 8)).toBe(51200);
    expect(paddedVocabulary(32000, 8)).toBe(32768);
    expect(paddedVocabulary(128256, 8)).toBe(129024);
    expect(paddedVocabulary(50257, 1, 1)).toBe(50257);
    // Off where a model is built: as many rows as the config says.
    const table = buildModel(knownModelConfig('gpt2'), { batch: 1, seq: 8, layers: 1 }).nodes.find(
      (n) => n.meta.roleName === 'transformer.wte.weight',
    );
    expect(table?.type).toMatchObject({ shape: [50257, 768] });
    expect(() => paddedVocabulary(0, 1)).toThrow(/vocabulary of 0 rows/);
  });

  it('MFU of a published run, by both conventions, which are printed', () => {
    const shape: TransformerShape = {
      layers: 32,
      hidden: 4096,
      heads: 32,
      kvHeads: 8,
      headDim: 128,
      ffn: 14336,
      gated: true,
      vocab: 128256,
      sequence: 8192,
    };
    const flopsPerToken = (causal: boolean): number =>
      modelFlops(shape, 1, causal) / shape.sequence;
    const percent = (causal: boolean): string =>
      ((100 * 5762 * flopsPerToken(causal)) / 989.4e12).toFixed(2);
    expect(percent(true)).toBe('29.97');
    expect(percent(false)).toBe('33.73');
    // Three times the forward matmuls of Llama-3.1-8B and its attention.
    expect(flopsPerToken(false)).toBe(3 * (15_009_316_864 + 4 * 8192 * 4096 * 32));
  });

  it('a size of -1 fills its axis', () => {
    expect(denseMesh(32, { dp_replicate: 2, dp_shard: -1, cp: 2, tp: 2 }).sizes).toEqual([
      1, 2, 4, 2, 2,
    ]);
  });

  it('flattened names: groups of the batch, of fsdp and of the loss', () => {
    const mesh = denseMesh(32, { dp_replicate: 2, dp_shard: 4, cp: 2, tp: 2 });
    const size = (axes: readonly string[]): number => mesh.sizeOf(mesh.resolve([...axes]));
    expect([size(DERIVED_AXES.batch), size(DERIVED_AXES.fsdp), size(DERIVED_AXES.loss)]).toEqual([
      8, 8, 16,
    ]);
    expect(() => denseMesh(32, { dp_replicate: 2, dp_shard: -1, cp: 2, tp: 3 })).toThrow(/32/);
  });
});

/** Three nodes in a chain, values as (cost, memory). */
const TOY: Omit<PlainProblem, 'rows'> & { readonly memory: readonly (readonly number[])[] } = {
  unary: [
    [10, 14],
    [16, 18, 22],
    [5, 9],
  ],
  edges: [
    [0, 1, [0, 4, 6, 8, 0, 6]],
    [1, 2, [0, 7, 6, 0, 2, 1]],
  ],
  memory: [
    [40, 20],
    [60, 30, 20],
    [30, 10],
  ],
};
const toy = (limit: number): PlainProblem => ({
  ...TOY,
  rows: [{ name: 'memory', variables: [0, 1, 2], amounts: TOY.memory, bound: limit }],
});

/** The continuous relaxation of the integer program, by HiGHS. */
async function relaxed(limit: number): Promise<number> {
  const lp = encode(build(toy(limit)));
  const word = await askLibrary('highs', { ...lp, integer: new Uint8Array(lp.columns) });
  if (word.values === undefined) throw new Error(word.word);
  return word.values.reduce((sum, x, j) => sum + x * lp.cost[j], lp.constant);
}

describe('the toy problem of comparisons', () => {
  it('optimum and choice by memory limit', () => {
    const at = (limit: number): [number, string] => {
      const { objective, choice } = solveNow(build(toy(limit)), { ties: 'lexicographic' });
      return [objective, choice.join('')];
    };
    expect(at(1000)).toEqual([31, '000']);
    expect(at(130)).toEqual([31, '000']);
    expect(at(129)[0]).toBe(41);
    expect(at(60)).toEqual([41, '111']);
    expect(at(59)).toEqual([52, '121']);
    expect(at(50)).toEqual([52, '121']);
    const none = solveNow(build(toy(49)));
    expect([none.status, none.smallestBudget]).toEqual(['infeasible', 50]);
  });

  it('the front: every limit has its choice, ties go to the least memory, and what a unit of it is worth', () => {
    const points = memoryFront(build(toy(0)), 'memory');
    expect(points.map((p) => [p.amount, p.cost, p.choice.join('')])).toEqual([
      [130, 31, '000'],
      [60, 41, '111'],
      [50, 52, '121'],
    ]);
    for (const p of points) expect([p.bound, p.gap]).toEqual([p.cost, 0]);
    // By brute force over the 12 choices: the cheapest within each limit, of equal ones the
    // leanest.
    const all = [0, 1].flatMap((a) => [0, 1, 2].flatMap((b) => [0, 1].map((c) => [a, b, c])));
    const amount = (x: readonly number[]): number =>
      x.reduce((sum, value, i) => sum + TOY.memory[i][value], 0);
    for (let limit = 50; limit <= 140; limit++) {
      const [best] = all
        .filter((x) => amount(x) <= limit)
        .sort((x, y) => costOf(TOY, x) - costOf(TOY, y) || amount(x) - amount(y));
      const point = points.find((p) => p.amount <= limit)!;
      expect([point.cost, point.choice.join('')]).toEqual([costOf(TOY, best), best.join('')]);
    }
    const steps = priceSteps(
      points.map((p) => ({ name: p.choice.join(''), seconds: p.cost, peakBytes: p.amount })),
    );
    expect(steps.map((s) => s.deltaSeconds / (s.fromBytes - s.toBytes))).toEqual([1 / 7, 1.1]);
  });

  it('bound and price of the relaxation at limit 100', async () => {
    const bound = await relaxed(100);
    expect(bound).toBeCloseTo(247 / 7, 9);
    // The relaxed optimum is piecewise linear in the limit, so that its slope is the dual of the
    // row.
    expect(bound - (await relaxed(101))).toBeCloseTo(1 / 7, 9);
    expect((await relaxed(99)) - bound).toBeCloseTo(1 / 7, 9);
    const { objective } = solveNow(build(toy(100)));
    expect((100 * (objective - bound)) / objective).toBeCloseTo(13.94, 2);
  });

  it('next best without a limit: 41, ten more, and two of them', () => {
    const found = nextBest(build(toy(1000)));
    expect([found?.cost, found?.delta]).toEqual([41, 10]);
    expect(found?.choices.map((c) => c.join('')).sort()).toEqual(['011', '111']);
  });

  it('at limit 70: the optimum, the next best, and what forcing a value costs here and in all', () => {
    const limit = 70;
    const found = solveNow(build(toy(limit)), { ties: 'lexicographic' });
    expect([found.objective, found.choice.join('')]).toEqual([41, '111']);
    const next = nextBest(build(toy(limit)));
    expect([next?.cost, next?.choices.map((c) => c.join(''))]).toEqual([48, ['021']]);
    const base = [1, 1, 1];
    const memory = (x: readonly number[]): number =>
      x.reduce((sum, value, i) => sum + TOY.memory[i][value], 0);
    /** Terms of a choice: A, B, C, A to B, B to C. */
    const terms = (x: readonly number[]): number[] => [
      ...TOY.unary.map((u, i) => u[x[i]]),
      ...TOY.edges.map(([i, j, table]) => table[x[i] * TOY.unary[j].length + x[j]]),
    ];
    /**
     * Neighbours fixed: seconds more, memory over the limit. Solved again: seconds more, and the
     * terms that changed.
     */
    const force = (variable: number, value: number): unknown[] => {
      const here = base.with(variable, value);
      const local = [costOf(TOY, here) - 41, Math.max(0, memory(here) - limit)];
      const unary = TOY.unary.map((u, i) =>
        i === variable ? u.map((c, v) => (v === value ? c : Infinity)) : u,
      );
      const again = solveNow(build({ ...toy(limit), unary }));
      if (again.status === 'infeasible') return [...local, 'needs', again.smallestBudget];
      const changed = terms([...again.choice]).map((t, i) => t - terms(base)[i]);
      expect(changed.reduce((a, b) => a + b, 0)).toBe(again.objective - 41);
      return [...local, again.objective - 41, changed];
    };
    expect(force(1, 2)).toEqual([11, 0, 7, [-4, 4, 0, 6, 1]]);
    expect(force(0, 0).slice(0, 3)).toEqual([0, 10, 7]);
    expect(force(2, 0).slice(0, 3)).toEqual([2, 10, 8]);
    expect(force(1, 0).slice(2)).toEqual(['needs', 90]);
    expect(force(1, 1)).toEqual([0, 0, 0, [0, 0, 0, 0, 0]]);
  });

  it('choices come ranked: all of them, by cost, as enumeration has them', () => {
    const table = (k: number, l: number): fc.Arbitrary<number[]> =>
      fc.array(fc.integer({ min: 0, max: 9 }), { minLength: k * l, maxLength: k * l });
    const vector = (k: number): fc.Arbitrary<number[]> => table(k, 1);
    const problem = fc.tuple(
      vector(2),
      vector(3),
      vector(2),
      table(2, 3),
      table(3, 2),
      table(2, 2),
    );
    fc.assert(
      fc.property(problem, ([a, b, c, ab, bc, ac]) => {
        const plain: PlainProblem = {
          unary: [a, b, c],
          edges: [
            [0, 1, ab],
            [1, 2, bc],
            [0, 2, ac],
          ],
        };
        const all: number[] = [];
        for (let x = 0; x < 2; x++)
          for (let y = 0; y < 3; y++)
            for (let z = 0; z < 2; z++) all.push(costOf(plain, [x, y, z]));
        const ranked = [...rankedChoices(build(plain))];
        expect(ranked.map((r) => r.cost)).toEqual(all.sort((p, q) => p - q));
        expect(new Set(ranked.map((r) => r.choice.join())).size).toBe(12);
      }),
      { numRuns: 40 },
    );
  });
});

describe('a two-layer perceptron of JAX', () => {
  const fixture = (file: string): Buffer =>
    readFileSync(join(import.meta.dirname, '..', 'fixtures', 'jax', `${file}.gz`));
  const fromJax = importGraph(fixture('einshard-mlp-batch/shardy.mlir'), {
    infer: (node, typeOf) => inferCall(TABLE, node, typeOf),
  });
  const ours = parseGraph(
    'swgraph 1\ngraph @mlp {\n  in %arg0: f32[128, 256] input "arg0"\n  in %arg1: f32[256, 64] input "arg1"\n' +
      '  in %arg2: f32[8, 128] input "arg2"\n  %h = aten.mm.default(%arg2, %arg0): f32[8, 256]\n' +
      '  %a = aten.relu.default(%h): f32[8, 256]\n  %y = aten.mm.default(%a, %arg1): f32[8, 64]\n  out %y output 0\n}\n',
  );

  /**
   * Collectives of the plan with these placements: kind, bytes of the tensor, bytes that each
   * device sends, groups.
   */
  async function planned(
    graph: Graph,
    mesh: string,
    pins: Readonly<Record<string, string>>,
    outputs: string,
  ): Promise<string[]> {
    const asked = request(mesh, {
      optimizer: 'none',
      // The file states the shardings of one of the three variants.
      shardings: 'ignore',
      outputs,
      pins: Object.entries(pins).map(([node, spec]) => ({ node, spec })),
    });
    const result = await leastCostPlan(graph, asked, { table: TABLE });
    if (result.status !== 'planned') throw new Error('infeasible');
    const { plan } = result;
    if (graph === ours) {
      const checked = verify(graph, plan, { table: TABLE });
      expect(checked.mismatches).toEqual([]);
      expect(checked.collectives).toEqual(checked.promised);
    }
    const m = parseMesh(mesh);
    return [...plan.nodes, ...plan.outputs]
      .flatMap((n) => n.redistributions.flatMap((r) => r.collectives))
      .map(({ kind, meshDims, bytes }) => {
        const dims = m.resolve([...meshDims]);
        return `${kind} ${bytes} sent ${ringBytes(kind, bytes, m.sizeOf(dims))} ${text(m.groups(dims))}`;
      });
  }

  /** What XLA made of the same placements: shapes of its all-reduces. */
  const xla = (variant: string): string[] => {
    const hlo = gunzipSync(fixture(`einshard-mlp-${variant}/shardy.partitioned.hlo`)).toString(
      'utf8',
    );
    expect(hlo).not.toMatch(/ (all-gather|reduce-scatter|all-to-all|collective-permute)\(/);
    return [...hlo.matchAll(/ = (\S+)\{[\d,]*\} all-reduce\(/g)].map((m) => m[1]);
  };

  it('collectives of dp, of tp, and of both', async () => {
    for (const graph of [fromJax, ours]) {
      expect(await planned(graph, 'dp=8', { arg0: 'R', arg1: 'R', arg2: 'S(0)' }, 'S(0)')).toEqual(
        [],
      );
      expect(await planned(graph, 'tp=8', { arg0: 'S(1)', arg1: 'S(0)', arg2: 'R' }, 'R')).toEqual([
        'all_reduce 2048 sent 3584 {0,1,2,3,4,5,6,7}',
      ]);
      expect(
        await planned(graph, 'dp=2,tp=4', { arg0: 'RS(1)', arg1: 'RS(0)', arg2: 'S(0)R' }, 'S(0)R'),
      ).toEqual(['all_reduce 1024 sent 1536 {0,1,2,3}{4,5,6,7}']);
    }
    expect(['batch', 'tutorial-y', 'batch2-y4'].map(xla)).toEqual([
      [],
      ['f32[8,64]'],
      ['f32[4,64]'],
    ]);
  });
});

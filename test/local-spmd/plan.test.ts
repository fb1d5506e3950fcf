import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import type { Graph } from '../../src/graph/types.ts';
import { lower } from '../../src/lower/lower.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { explainNode, reopen } from '../../src/plan/questions/explain.ts';
import { checkPlannedModes } from '../../src/plan/questions/spmd-check.ts';
import { plannedProgram } from '../../src/plan/record/planned.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../src/plan/request/request.ts';
import { annotatedProgram } from '../../src/report/analysis/program.ts';
import { explanationText } from '../../src/report/text/explain.ts';
import { simulate } from '../../src/simulate/timeline/simulate.ts';
import { verify } from '../../src/simulate/verify.ts';
import { cond } from '../../src/trace/control/cond.ts';
import { scan } from '../../src/trace/control/loops.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { allReduce, contract, convert, outPartial } from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { runErased } from './support/erased.ts';
import { table } from './support/simulated.ts';

/** A global program with one region that is per device over tp; dp keeps its global meaning. */
const program = (rows = 16): Graph =>
  trace(
    (x, w1, w2) =>
      localMap(
        (x: Tensor, w1: Tensor, w2: Tensor) => {
          const h = contract('bi,io->bo', convert(x, 'tp', { src: 'I', dst: 'R' }), w1).silu();
          return allReduce(outPartial(contract('bo,oi->bi', h, w2), 'tp'), 'tp', { dst: 'I' });
        },
        { axes: ['tp'], inSpecs: ['P(None)', 'P(None,"tp")', 'P("tp")'], outSpecs: { tp: 'I' } },
      )(x.relu(), w1, w2).mul(2),
    [input([rows, 8], 'f32'), input([8, 12], 'f32'), input([12, 8], 'f32')],
    { mesh: 'dp=2,tp=2' },
  );

const request = (more: Partial<PlanRequest> = {}): PlanRequest => ({
  ...DEFAULT_REQUEST,
  mesh: 'dp=2,tp=2',
  cluster: 'dgx-h100',
  optimizer: 'none',
  ...more,
});

async function planned(graph: Graph, wanted: PlanRequest): Promise<Plan> {
  const result = await leastCostPlan(graph, wanted, { table });
  if (result.status !== 'planned') throw new Error(`not planned: ${result.status}`);
  return result.plan;
}

describe('a region of per-device code in a planned program', () => {
  test('its specs are pins on its axes, its collectives are priced, run and counted', async () => {
    for (const [graph, reductions] of [
      [program(), 1],
      [jointGraph(program(), { wrt: ['arg0', 'arg1', 'arg2'] }), 2],
    ] as const) {
      const plan = await planned(graph, request());
      const regions = plan.nodes.filter(({ target }) => target.startsWith('local_map'));
      expect(regions.length).toBe(reductions);
      expect(regions[0].inputs.map((spec) => /(R|S\(\d\))$/.exec(spec)?.[1])).toEqual([
        'R',
        'S(1)',
        'S(0)',
      ]);
      for (const { internalSeconds } of regions) expect(internalSeconds).toBeGreaterThan(0);
      const found = verify(graph, plan, { table });
      expect(found.mismatches).toEqual([]);
      expect(found.maxRelativeError).toBeLessThan(1e-9);
      expect(found.collectives.all_reduce).toBeGreaterThanOrEqual(reductions);
      expect(found.collectives).toEqual(found.promised);
    }
  });

  test('the other axes stay free: rows are cut on dp through the region', async () => {
    const plan = await planned(program(), request({ pins: [{ node: 'arg0', spec: 'S(0)R' }] }));
    const region = plan.nodes.find(({ target }) => target.startsWith('local_map'));
    expect(region?.inputs).toEqual(['S(0)R', 'RS(1)', 'RS(0)']);
    expect(region?.outputs).toEqual(['S(0)R']);
    expect(verify(program(), plan, { table }).mismatches).toEqual([]);
  });

  const WRT = ['arg0', 'arg1', 'arg2'];
  const rowsOnDp = [{ node: 'arg0', spec: 'S(0)R' }];
  const cases: [string, () => Graph, Partial<PlanRequest>][] = [
    ['forward', program, {}],
    ['forward, rows on dp', program, { pins: rowsOnDp }],
    ['with its gradient', () => jointGraph(program(), { wrt: WRT }), {}],
    [
      'with its gradient, rows on dp',
      () => jointGraph(program(), { wrt: WRT }),
      { pins: rowsOnDp },
    ],
    [
      'solved by propagation',
      () => jointGraph(program(), { wrt: WRT }),
      { pins: rowsOnDp, solver: 'propagate' },
    ],
  ];
  test.each(cases)(
    'check lists what runs, in its order, with its bytes: %s',
    async (_name, made, more) => {
      const graph = made();
      const plan = await planned(graph, request(more));
      const listed = checkPlannedModes(graph, plan, table, 'auto').collectives;
      const { collectives: run } = runErased(lower(graph, plan, { table }));
      expect(run.length).toBeGreaterThan(0);
      expect(listed.map(({ kind, meshDims, bytes }) => [kind, meshDims.join(), bytes])).toEqual(
        run.map(({ kind, meshDims, bytes }) => [
          kind,
          meshDims.map((m) => ['dp', 'tp'][m]).join(),
          bytes,
        ]),
      );
      for (const { why, seconds, from, to } of listed) {
        expect(why).not.toBe('');
        expect(seconds).toBeGreaterThan(0);
        expect([from, to].every((text) => text !== '')).toBe(true);
      }
      const told = plan.nodes.flatMap(({ inside = [], internalSeconds = 0 }) => [
        inside.reduce((sum, c) => sum + c.seconds, 0) - internalSeconds,
      ]);
      for (const difference of told) expect(Math.abs(difference)).toBeLessThan(1e-15);
    },
  );

  test('a gradient whose rows are cut on dp leaves the region pending, and is reduced once for each weight', async () => {
    const graph = jointGraph(program(2 ** 20), { wrt: WRT });
    const plan = await planned(graph, request({ pins: rowsOnDp }));
    const backward = plan.nodes.filter(({ target }) => target.startsWith('local_map')).at(-1);
    expect(backward?.outputs).toEqual(['S(0)R', 'P(sum)S(1)', 'P(sum)S(0)']);
    const { collectives } = checkPlannedModes(graph, plan, table, 'auto');
    expect(collectives.map(({ kind, meshDims }) => `${kind} ${meshDims.join()}`).sort()).toEqual([
      'all_reduce dp',
      'all_reduce dp',
      'all_reduce tp',
      'all_reduce tp',
    ]);
  });

  test('a cut on an axis of the program makes the work and the collectives of the region smaller', async () => {
    const graph = program(2 ** 20);
    const plan = await planned(graph, request());
    const { strategies } = explainNode(reopen(plan, graph, plan.request, table), 'local_map');
    const [whole, cut] = ['RR, RS(1), RS(0) -> RR', 'S(0)R, RS(1), RS(0) -> S(0)R'].map((wanted) =>
      strategies.find(({ spec }) => spec === wanted),
    );
    expect(whole?.inside.map(({ bytes }) => bytes)).toEqual([2 ** 20 * 8 * 4]);
    expect(cut?.inside.map(({ bytes }) => bytes)).toEqual([2 ** 19 * 8 * 4]);
    expect(cut?.computeSeconds).toBeLessThan(0.7 * (whole?.computeSeconds ?? 0));
  });

  test('report, explain and simulate show the collectives of the body, with prices and types', async () => {
    const graph = program();
    const plan = await planned(graph, request());
    const { listed } = plannedProgram(graph, plan, table);
    const [inside] = plan.nodes.flatMap((node) => node.inside ?? []);
    expect(inside).toMatchObject({
      node: 'all_reduce',
      kind: 'all_reduce',
      meshDims: ['tp'],
      from: 'P',
      to: 'I',
      type: 'f32[16,8]',
    });
    expect(annotatedProgram(listed, plan)).toMatch(
      /# inside %all_reduce: P -> I {2}all_reduce\(tp\) \d+ B [\d.]+ µs {2}f32\[16,8\]/,
    );
    const explained = explanationText(
      explainNode(reopen(plan, graph, plan.request, table), 'local_map'),
      5,
    );
    expect(explained).toMatch(
      /%all_reduce +all_reduce\(tp\) +P -> I +f32\[16,8\] +\d+ B +[\d.]+ µs/,
    );
    const { timeline } = simulate(graph, plan, { table });
    expect(timeline.communicationSeconds).toBeGreaterThanOrEqual(inside.seconds);
  });

  /**
   * A reduction in one branch and one of another size in the other; `heavy`: whether the branch
   * with the product is taken.
   */
  const branching = (heavy: boolean, mesh = 'dp=2,tp=2', prob?: number): Graph =>
    trace(
      (x, t, w) =>
        localMap(
          (x: Tensor, t: Tensor, w: Tensor) => {
            const total = (a: Tensor): Tensor => allReduce(outPartial(a, 'tp'), 'tp', { dst: 'I' });
            const large = (a: Tensor, b: Tensor): Tensor => total(a.matmul(b));
            const small = (a: Tensor): Tensor => total(a.sum(1, true)).expand([8, 8]).add(0);
            const test = heavy ? t.sum().lt(1e9) : t.sum().gt(1e9);
            return cond(test, large, small, [x, w], prob === undefined ? {} : { prob });
          },
          { axes: ['tp'], inSpecs: ['P(None,"tp")', 'P(None)', 'P("tp")'], outSpecs: { tp: 'I' } },
        )(x, t, w),
      [input([8, 16], 'f32'), input([4], 'f32'), input([16, 8], 'f32')],
      { mesh },
    );

  test('of the branches in a region all collectives are listed and the heaviest is priced; a run has those of the one taken', async () => {
    for (const [heavy, bytes] of [
      [true, 8 * 8 * 4],
      [false, 8 * 4],
    ] as const)
      for (const graph of [
        branching(heavy),
        jointGraph(branching(heavy), { wrt: ['arg0', 'arg2'] }),
      ]) {
        const plan = await planned(graph, request());
        const { collectives } = checkPlannedModes(graph, plan, table, 'auto');
        const listed = collectives.filter(({ node }) => node.startsWith('local_map/'));
        expect(listed.map((c) => [c.kind, c.bytes, c.times])).toEqual([
          ['all_reduce', 8 * 8 * 4, 1],
          ['all_reduce', 8 * 4, 0.001],
        ]);
        expect(listed[0].why).toBe(
          'as written in the region, in one branch of a condition (its price weighs 1)',
        );
        const [region] = plan.nodes.filter(({ inside }) => inside !== undefined);
        expect(region.internalSeconds).toBeCloseTo(
          listed[0].seconds + listed[1].seconds / 1000,
          15,
        );
        const found = verify(graph, plan, { table });
        expect(found.mismatches).toEqual([]);
        expect(found.collectives).toEqual(found.promised);
        const ran = runErased(lower(graph, plan, { table })).collectives.filter(({ meshDims }) =>
          meshDims.includes(1),
        );
        expect(ran.map((c) => c.bytes)).toEqual([bytes]);
      }
    const stated = await planned(branching(true, 'dp=2,tp=2', 0.25), request());
    expect(stated.nodes.flatMap(({ inside = [] }) => inside.map(({ times }) => times))).toEqual([
      0.25, 0.75,
    ]);
    const single = branching(true, 'dp=1,tp=1');
    expect(
      checkPlannedModes(
        single,
        await planned(single, request({ mesh: 'dp=1,tp=1' })),
        table,
        'auto',
      ).collectives,
    ).toEqual([]);
  });

  test('a loop in a region costs its trips', async () => {
    const looped = (trips: number): Graph =>
      trace(
        (x) =>
          localMap(
            (x: Tensor) => {
              const total = (a: Tensor): Tensor =>
                allReduce(outPartial(a, 'tp'), 'tp', { dst: 'I' });
              return scan(
                (sum: Tensor, row: Tensor) => [sum.add(total(row)), row] as const,
                total(x.select(0, 0)),
                x,
              )[0];
            },
            { axes: ['tp'], inSpecs: ['P(None,"tp")'], outSpecs: { tp: 'I' } },
          )(x),
        [input([trips, 32], 'f32')],
        { mesh: 'dp=2,tp=2' },
      );
    const inside = async (trips: number): Promise<number> =>
      (await planned(looped(trips), request())).nodes.reduce(
        (sum, { internalSeconds = 0 }) => sum + internalSeconds,
        0,
      );
    const [two, five] = [await inside(2), await inside(5)];
    expect(five / two).toBeCloseTo(6 / 3, 9);
  });

  test('a plan on another size of the region’s axis is refused with the sizes', async () => {
    const refused = async (): Promise<string> => {
      try {
        const plan = await planned(program(), request({ mesh: 'dp=2,tp=4' }));
        verify(program(), plan, { table });
      } catch (error) {
        if (error instanceof ShardwrightError) return error.message;
        throw error;
      }
      return 'accepted';
    };
    expect(await refused()).toContain('per device over tp=2');
  });
});

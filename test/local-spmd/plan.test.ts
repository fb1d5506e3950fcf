import { describe, expect, test } from 'vitest';
import { ShardwrightError } from '../../src/errors.ts';
import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../src/plan/request/request.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { shard } from '../../src/plan/shard.ts';
import { verify } from '../../src/simulate/verify.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { allReduce, contract, convert, outPartial } from '../../src/trace/spmd/verbs.ts';
import { input, trace, type Tensor } from '../../src/trace/trace.ts';
import { table } from './support/simulated.ts';

/** A global program with one region that is per device over tp; dp keeps its global meaning. */
const program = (): Graph =>
  trace(
    (x, w1, w2) =>
      localMap(
        (x: Tensor, w1: Tensor, w2: Tensor) => {
          const h = contract('bi,io->bo', convert(x, 'tp', { src: 'I', dst: 'R' }), w1).silu();
          return allReduce(outPartial(contract('bo,oi->bi', h, w2), 'tp'), 'tp', { dst: 'I' });
        },
        { axes: ['tp'], inSpecs: ['P(None)', 'P(None,"tp")', 'P("tp")'], outSpecs: { tp: 'I' } },
      )(x.relu(), w1, w2).mul(2),
    [input([16, 8], 'f32'), input([8, 12], 'f32'), input([12, 8], 'f32')],
    { mesh: 'dp=2,tp=2' },
  ); // prettier-ignore

const request = (more: Partial<PlanRequest> = {}): PlanRequest => ({
  ...DEFAULT_REQUEST,
  mesh: 'dp=2,tp=2',
  cluster: 'dgx-h100',
  optimizer: 'none',
  ...more,
});

async function planned(graph: Graph, wanted: PlanRequest): Promise<Plan> {
  const result = await shard(graph, wanted, { table });
  if (result.status !== 'planned') throw new Error(`not planned: ${result.status}`);
  return result.plan;
}

describe('a region of per-device code in a planned program', () => {
  test('LS-80 its specs are pins on its axes, its collectives are priced, run and counted', async () => {
    for (const [graph, reductions] of [[program(), 1], [jointGraph(program(), { wrt: ['arg0', 'arg1', 'arg2'] }), 2]] as const) {
      const plan = await planned(graph, request());
      const regions = plan.nodes.filter(({ target }) => target.startsWith('local_map'));
      expect(regions.length).toBe(reductions);
      expect(regions[0].inputs.map((spec) => /(R|S\(\d\))$/.exec(spec)?.[1])).toEqual(['R', 'S(1)', 'S(0)']);
      for (const { internalSeconds } of regions) expect(internalSeconds).toBeGreaterThan(0);
      const found = verify(graph, plan, table);
      expect(found.mismatches).toEqual([]);
      expect(found.maxRelativeError).toBeLessThan(1e-9);
      expect(found.collectives.all_reduce).toBeGreaterThanOrEqual(reductions);
      expect(found.collectives).toEqual(found.promised);
    }
  }); // prettier-ignore

  test('the other axes stay free: rows are cut on dp through the region', async () => {
    const plan = await planned(program(), request({ pins: [{ node: 'arg0', spec: 'S(0)R' }] }));
    const region = plan.nodes.find(({ target }) => target.startsWith('local_map'));
    expect(region?.inputs).toEqual(['S(0)R', 'RS(1)', 'RS(0)']);
    expect(region?.outputs).toEqual(['S(0)R']);
    expect(verify(program(), plan, table).mismatches).toEqual([]);
  });

  test('a plan on another size of the region’s axis is refused with the sizes', async () => {
    const refused = async (): Promise<string> => {
      try {
        const plan = await planned(program(), request({ mesh: 'dp=2,tp=4' }));
        verify(program(), plan, table);
      } catch (error) {
        if (error instanceof ShardwrightError) return error.message;
        throw error;
      }
      return 'accepted';
    };
    expect(await refused()).toContain('per device over tp=2');
  });
});

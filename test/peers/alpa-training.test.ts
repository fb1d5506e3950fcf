import { describe, expect, it } from 'vitest';

import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { solve } from '../../src/solver/solve.ts';
import { AlpaCosts, type AlpaMesh, flattened } from './alpa-costs.ts';
import { type AlpaOptions, alpaProblem, UNITS } from './alpa-problem.ts';
import { mlpWithAdam } from './alpa-programs.ts';
import { Hlo } from './hlo.ts';

/**
 * Alpa's training problems by the rules of its Python solver. The files alpa-zero and alpa-models
 * use the rules of its compiler pass and of the steps that follow it.
 */
const mesh = (a: number, b: number, beta: readonly [number, number] = [1, 1]): AlpaMesh => ({
  sizes: [a, b],
  alpha: [1, 1],
  beta,
  replicated: 'all-reduce',
});

interface Planned {
  readonly cost: number;
  /** Specs of the weights, as `RS0`. */
  readonly weights: readonly string[];
  /** All-reduces of dots by axis: those of gradients alone become one, as Alpa combines them. */
  readonly ofGradients: readonly number[];
  readonly ofActivations: readonly number[];
}

async function planned(
  batch: number,
  width: number,
  on: AlpaMesh,
  options: AlpaOptions = {},
): Promise<Planned> {
  const program = mlpWithAdam(6, batch, width);
  const { problem, valuesOf } = alpaProblem(program, on, options);
  const solution = await solve(problem);
  expect(solution.status).toBe('optimal');
  const { accepted, bound } = verifyCertificate(problem, solution);
  expect(accepted).toBe(true);
  expect(bound).toBe(BigInt(solution.objective));
  const values = valuesOf(solution.choice);
  const spec = (axes: readonly number[]): string =>
    axes.map((a) => (a < 0 ? 'R' : `S${a}`)).join('');
  const ofGradients: number[] = [];
  const ofActivations: number[] = [];
  for (const ins of program.instructions) {
    const { reduced } = values[ins.id];
    if (ins.op.kind !== 'dot' || reduced === undefined) continue;
    (ins.shape[0] === width ? ofGradients : ofActivations).push(reduced);
  }
  return {
    cost: solution.objective / UNITS,
    weights: program.weights.map((w) => spec(values[w.id].spec)),
    ofGradients,
    ofActivations,
  };
}

const alternate = (a: string, b: string): string[] => [a, b, a, b, a, b];
/**
 * The tolerance of the tests that state these costs: they leave out scalars and small replicated
 * parameters.
 */
const near = (cost: number, stated: number): void => {
  expect(Math.abs(cost - stated) / stated).toBeLessThanOrEqual(0.01);
};

describe('a training step of six layers with Adam under the costs of Alpa', () => {
  it('data parallel: every parameter whole, one combined all-reduce', async () => {
    for (const on of [mesh(4, 1), mesh(1, 4)]) {
      const axis = on.sizes[0] === 4 ? 0 : 1;
      const { cost, weights, ofGradients, ofActivations } = await planned(256, 32, on);
      expect(cost).toBe(38139.12);
      expect(weights).toEqual(alternate('RR', 'RR'));
      expect(ofGradients).toEqual([axis, axis, axis, axis, axis, axis]);
      expect(ofActivations).toEqual([]);
    }
  });

  it('tensor parallel: weights cut by columns and rows in turn, five all-reduces', async () => {
    for (const on of [mesh(4, 1), mesh(1, 4)]) {
      const axis = on.sizes[0] === 4 ? 0 : 1;
      const { cost, weights, ofGradients, ofActivations } = await planned(32, 256, on);
      near(cost, 245765.05);
      // What is stated, and 3 for each of: the biases of row layers and their moments, the counter,
      // input and target.
      expect(cost).toBe(245765.05 + 3 * (3 * 3 + 3));
      expect(weights).toEqual(alternate(`RS${axis}`, `S${axis}R`));
      expect([ofGradients.length, ofActivations.length]).toEqual([0, 5]);
    }
  });

  it('both on 2x2: gradients over the first axis, activations over the second', async () => {
    const { cost, weights, ofGradients, ofActivations } = await planned(
      256,
      32,
      mesh(2, 2, [1, 0.1]),
    );
    near(cost, 21265.17);
    expect(weights).toEqual(alternate('RS1', 'S1R'));
    expect(new Set(ofGradients)).toEqual(new Set([0]));
    expect(ofActivations).toEqual([1, 1, 1, 1, 1]);
  });

  it('data parallelism forced: all-gathers barred, the mesh flattened', async () => {
    for (const on of [mesh(4, 1), flattened(mesh(2, 2))])
      expect((await planned(32, 256, { ...on, allGather: 1e10 }, { batchAxis: 0 })).cost).toBe(
        2368635.12,
      );
  });

  it('the batch forced to an axis of one device forces nothing', async () => {
    near((await planned(32, 256, mesh(1, 4), { batchAxis: 0 })).cost, 245765.05);
  });
});

describe('single calls', () => {
  it('a matrix times a vector on four devices: each holds 64 columns', async () => {
    const h = new Hlo();
    const w = h.parameter(128, 256);
    h.dot(h.parameter(1, 128), w);
    const on = mesh(1, 4);
    const { problem, valuesOf } = alpaProblem(h, on);
    const solution = await solve(problem);
    expect(verifyCertificate(problem, solution).accepted).toBe(true);
    const { spec } = valuesOf(solution.choice)[w.id];
    expect(w.shape.map((size, d) => (spec[d] < 0 ? size : size / on.sizes[spec[d]]))).toEqual([
      128, 64,
    ]);
  });

  it('a reduction over dim 0 keeps dim 1 cut and costs nothing', async () => {
    const h = new Hlo();
    const x = h.parameter(144, 144);
    h.reduce(x, 0);
    const { problem, valuesOf } = alpaProblem(h, mesh(1, 4));
    const solution = await solve(problem);
    expect(verifyCertificate(problem, solution).accepted).toBe(true);
    expect(solution.objective).toBe(0);
    expect(valuesOf(solution.choice)[x.id].spec).toEqual([-1, 1]);
  });

  it('local shapes of a 6x4 tensor placed by hand on (data, model) = 2x2', () => {
    const space = new ShardingSpace(parseMesh('data=2,model=2'));
    const local = (text: string): readonly number[] => space.localShape(space.parse(text), [6, 4]);
    expect(local('RS(1)')).toEqual([6, 2]);
    expect(local('S(0)R')).toEqual([3, 4]);
    expect(local('S(0)S(1)')).toEqual([3, 2]);
  });

  it('a parameter kept whole costs an all-reduce of one byte over each axis', () => {
    expect(new AlpaCosts(mesh(4, 1)).replicatedParameter).toBe(3);
  });
});

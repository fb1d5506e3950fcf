import { expect } from 'vitest';

import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { solve } from '../../src/solver/solve.ts';
import { type Collective, collectivesOf, countsOf, type Kind } from './alpa-collectives.ts';
import { ALL, AlpaCosts, type AlpaMesh } from './alpa-costs.ts';
import type { Net } from './alpa-nets.ts';
import { type AlpaOptions, alpaProblem, UNITS } from './alpa-problem.ts';
import { scattered } from './alpa-scatter.ts';

/** A mesh under the rules of Alpa's compiler pass. */
export function compilerMesh(a: number, b: number, more: Partial<AlpaMesh> = {}): AlpaMesh {
  return {
    sizes: [a, b],
    alpha: [1, 1],
    beta: [1, 1],
    replicated: 'all-reduce',
    compiler: true,
    ...more,
  };
}
export const LINES = [compilerMesh(4, 1), compilerMesh(1, 4)];
/** On two axes Alpa forces the batch to the first, and bars all but all-reduces there. */
export const GRID = { batchAxis: 0, forced: 0 } as const;

type Counts = Record<Kind, number>;

export interface Trained {
  /** In Alpa's units. */
  readonly cost: number;
  /** Spec of a weight, as `RS0`; all devices as one axis are `S*`. */
  readonly spec: (weight: string) => string;
  readonly specs: readonly string[];
  readonly collectives: readonly Collective[];
  readonly counts: Counts;
  /** After the pass that prefers reduce-scatters, and after its aggressive form. */
  readonly stage2: () => Counts;
  readonly stage3: (threshold: number) => Counts;
  /** State and weights of more than one dim that stay whole under the aggressive form. */
  readonly wholeInStage3: () => number;
  readonly stage2Collectives: () => readonly Collective[];
}

/** Solves a network's problem with proof and reads its collectives off the plan. */
export async function trained(net: Net, on: AlpaMesh, options: AlpaOptions = {}): Promise<Trained> {
  const { problem, valuesOf } = alpaProblem(net.hlo, on, { batched: net.batched, ...options });
  const solution = await solve(problem);
  expect(solution.status).toBe('optimal');
  const { accepted, bound } = verifyCertificate(problem, solution);
  expect(accepted).toBe(true);
  expect(bound).toBe(BigInt(solution.objective));
  const values = valuesOf(solution.choice);
  const costs = new AlpaCosts(on);
  const text = (id: number): string =>
    values[id].spec.map((axis) => (axis < 0 ? 'R' : axis === ALL ? 'S*' : `S${axis}`)).join('');
  const collectives = collectivesOf(net.hlo, values, costs);
  const split = (aggressive: boolean): readonly Collective[] =>
    collectivesOf(net.hlo, values, costs, scattered(net.hlo, values, costs, aggressive));
  return {
    cost: solution.objective / UNITS,
    spec: (weight) => {
      const found = net.named.get(weight);
      if (found === undefined) throw new Error(`no weight ${weight}`);
      return text(found.id);
    },
    specs: net.parameters.map((p) => text(p.id)),
    collectives,
    counts: countsOf(collectives),
    stage2: () => countsOf(split(false)),
    stage2Collectives: () => split(false),
    stage3: (threshold) => countsOf(split(true), threshold),
    wholeInStage3: () => {
      const { cut } = scattered(net.hlo, values, costs, true);
      return [...net.parameters, ...net.state].filter((p) => p.shape.length > 1 && !cut.has(p.id))
        .length;
    },
  };
}

/**
 * The tolerance of the tests that state these costs: they leave out scalars and small replicated
 * parameters.
 */
export function near(cost: number, stated: number, tolerance = 0.01): void {
  expect(Math.abs(cost - stated) / stated).toBeLessThanOrEqual(tolerance);
}

export function counts(allReduce: number, reduceScatter = 0, allGather = 0, allToAll = 0): Counts {
  return {
    'all-reduce': allReduce,
    'reduce-scatter': reduceScatter,
    'all-gather': allGather,
    'all-to-all': allToAll,
  };
}

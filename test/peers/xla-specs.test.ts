import { describe, expect, it } from 'vitest';

import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { solve } from '../../src/solver/solve.ts';
import type { AlpaMesh, Spec } from './alpa-costs.ts';
import { alpaProblem } from './alpa-problem.ts';
import { Hlo } from './hlo.ts';

const MESH: AlpaMesh = { sizes: [2, 2], alpha: [1, 1], beta: [0.01, 1] };

/** XLA's text of a spec on devices 0 1 / 2 3: axis 1 first walks 0 2, axis 0 first walks 0 1. */
function xla(spec: Spec): string {
  const cut = spec.filter((axis) => axis >= 0);
  if (cut.length === 0) return 'replicated';
  const tiles = spec.map((axis) => (axis >= 0 ? 2 : 1));
  return `[${(cut.length === 1 ? [...tiles, 2] : tiles).join()}]${cut[0] === 0 ? '0,1,2,3' : '0,2,1,3'}`;
}

async function specs(hlo: Hlo): Promise<string[]> {
  const { problem, valuesOf } = alpaProblem(hlo, MESH);
  const solution = await solve(problem);
  expect(solution.status).toBe('optimal');
  const { accepted, bound } = verifyCertificate(problem, solution);
  expect(accepted).toBe(true);
  expect(bound).toBe(BigInt(solution.objective));
  return valuesOf(solution.choice).map(({ spec }) => xla(spec));
}

describe('the specs of XLA on a 2x2 mesh with one cheap axis', () => {
  it('two products in a row: the contraction between them goes over the cheap axis', async () => {
    const h = new Hlo();
    const [p1, p2] = [h.parameter(64, 64), h.parameter(64, 128)];
    const dot4 = h.dot(p1, p2);
    h.dot(dot4, h.parameter(128, 64));
    // Parameters 1 and 2, the first product, parameter 3, the second product. Parameter 3 as XLA's
    // own test has it: its rows are cut as the columns of the first product are, so that nothing
    // moves.
    expect(await specs(h)).toEqual([
      '[2,1,2]0,2,1,3',
      '[1,2,2]0,1,2,3',
      '[2,2]0,2,1,3',
      '[2,1,2]0,1,2,3',
      '[2,1,2]0,2,1,3',
    ]);
  });

  it.each([
    ['two free dims', [4, 256, 64], [64, 32], [[2, 0]]],
    [
      'two contracted dims',
      [64, 4, 256],
      [4, 256, 32],
      [
        [1, 0],
        [2, 1],
      ],
    ],
  ] as const)('a product with %s uses both axes', async (_, a, b, contract) => {
    const h = new Hlo();
    h.dot(h.parameter(...a), h.parameter(...b), contract);
    const [, , out] = await specs(h);
    const tiles = out.slice(1, out.indexOf(']')).split(',');
    expect(tiles.filter((n) => n === '2')).toHaveLength(2);
    expect(tiles.every((n) => n === '1' || n === '2')).toBe(true);
  });
});

/**
 * Tables whose slices are pairs of alternatives: taken apart only where that is exact, and messages
 * through them are the same.
 */
import { describe, expect, it } from 'vitest';

import { Trws } from '../../../src/solver/dual/trws.ts';
import { networkOf } from '../../../src/solver/network/from-problem.ts';
import { ProblemBuilder } from '../../../src/solver/problem/builder.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import { MinPairsMemo } from '../../../src/solver/store/min-pairs.ts';
import { Pool } from '../../../src/solver/store/pool.ts';
import type { Problem } from '../../../src/solver/types.ts';
import { dice } from '../check-support.ts';

/**
 * All pairs of `owned` and `copies` alternatives as the values of a hub with several neighbours, as
 * shared copies are.
 */
function hub(seed: number, owned: number, copies: number): Problem {
  const roll = dice(seed);
  const costs = (n: number): Float64Array => Float64Array.from({ length: n }, () => roll(1000));
  const b = new ProblemBuilder();
  const pairs = Array.from(
    { length: owned * copies },
    (_, v) => [Math.floor(v / copies), v % copies] as const,
  );
  const center = b.addVariable(costs(pairs.length));
  let last = -1;
  for (let n = 0; n < 4; n++) {
    const size = 6 + roll(5);
    const leaf = b.addVariable(costs(size));
    const atoms = [owned, copies].map((count) =>
      Array.from({ length: count }, () =>
        Array.from({ length: size }, () => (roll(9) === 0 ? Infinity : roll(1000))),
      ),
    );
    const cells = pairs.flatMap(([o, c]) => atoms[0][o].map((x, y) => Math.min(x, atoms[1][c][y])));
    // Both orders of the ends: the hub is the rows of some tables and the columns of others.
    if (n % 2 === 0) b.addEdge(center, leaf, Float64Array.from(cells));
    else {
      const turned = Array.from({ length: size * pairs.length }, (_, p) => {
        const [y, v] = [Math.floor(p / pairs.length), p % pairs.length];
        return cells[v * size + y];
      });
      b.addEdge(leaf, center, Float64Array.from(turned));
    }
    if (last >= 0) b.addEdge(last, leaf, costs(b.build().domains[last] * size));
    last = leaf;
  }
  const problem = b.build();
  const maps = [
    ...problem.maps,
    Int32Array.from(pairs, ([o]) => o),
    Int32Array.from(pairs, ([, c]) => c),
  ];
  const none = new Int32Array(problem.domains.length).fill(-1);
  const first = none.slice();
  const second = none.slice();
  first[center] = maps.length - 2;
  second[center] = maps.length - 1;
  return { ...problem, maps, minPairs: { first, second } };
}

function withoutHint({ minPairs: _, ...problem }: Problem): Problem {
  return problem;
}

describe('min-decomposition of tables', () => {
  it('messages and bounds are the same with the hint and without it', () => {
    for (let seed = 1; seed <= 40; seed++) {
      const problem = hub(seed, 7, 6);
      const [plain, pairs] = [withoutHint(problem), problem].map(
        (p) => new Trws(networkOf(p, new Pool())),
      );
      for (let sweep = 0; sweep < 6; sweep++)
        expect(pairs.sweep(), `seed ${seed}`).toBe(plain.sweep());
      expect(pairs.to, `seed ${seed}`).toEqual(plain.to);
      expect(pairs.shifts, `seed ${seed}`).toEqual(plain.shifts);
    }
  });

  it('the hub of a problem is really taken apart', () => {
    const net = networkOf(hub(3, 7, 6), new Pool());
    const seen = net.incident[0].map((id) => {
      const f = net.factors[id]!;
      const axis = f.vars[0] === 0 ? 0 : 1;
      return net.pool.minPairsMemo.find(
        f.table,
        axis,
        f.maps[axis],
        net.minPairs[0],
        net.minPairs[1],
      )?.count;
    });
    expect(seen).toEqual([13, 13, 13, 13]);
  });

  it('a wrong hint is found out and changes nothing', () => {
    const pool = new Pool();
    const roll = dice(5);
    const pairs = Int32Array.from({ length: 42 }, (_, v) => v);
    const map = pool.map(pairs);
    const first = pool.map(pairs.map((v) => Math.floor(v / 6)));
    const second = pool.map(pairs.map((v) => v % 6));
    const noise = pool.table(
      [42, 10],
      Float64Array.from({ length: 420 }, () => roll(1000)),
    );
    expect(new MinPairsMemo((id) => pool.mapOf(id)).find(noise, 0, map, first, second)).toBeNull();

    const problem = hub(8, 7, 6);
    const turned = {
      ...problem,
      maps: problem.maps.map((m, k) =>
        k < problem.maps.length - 2 ? m : m.map((_, v) => m[(v + 1) % m.length]),
      ),
    };
    const tooShort = {
      ...problem,
      maps: problem.maps.map((m, k) => (k < problem.maps.length - 2 ? m : m.slice(1))),
    };
    const { objective, choice } = solveNow(withoutHint(problem));
    for (const given of [problem, turned, tooShort]) {
      const solution = solveNow(given);
      expect(solution).toMatchObject({ status: 'optimal', objective });
      expect(solution.choice).toEqual(choice);
    }
  });
});

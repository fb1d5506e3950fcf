/** Sweeps of networks whose equal parts advance in lock step, against sweeps of each part alone. */
import { describe, expect, it } from 'vitest';

import { Trws } from '../../../src/solver/dual/trws.ts';
import { networkOf } from '../../../src/solver/network/from-problem.ts';
import { Pool } from '../../../src/solver/store/pool.ts';
import { layered } from '../layered.ts';
import { build, type PlainProblem } from '../support.ts';

/**
 * So many copies of a problem that nothing joins; the last one has other costs of its first
 * variable.
 */
function copiesOf({ unary, edges }: PlainProblem, count: number): PlainProblem {
  const n = unary.length;
  const copies = [...Array(count).keys()];
  const all = copies.flatMap((c) =>
    unary.map((u, i) => (c === count - 1 && i === 0 ? u.map((x) => x + 7) : u)),
  );
  return {
    unary: all,
    edges: copies.flatMap((c) =>
      edges.map(([i, j, t]): [number, number, readonly number[]] => [c * n + i, c * n + j, t]),
    ),
  };
}

function swept(plain: PlainProblem, period: number): Trws {
  const net = networkOf(build({ ...plain, rows: [] }), new Pool());
  const messages = new Trws(
    net,
    net.place.map((_, i) => i % period),
  );
  for (let sweep = 0; sweep < 6; sweep++) messages.sweep();
  return messages;
}

describe('sweeps in lock step', () => {
  it('leave every copy the messages, shifts and positions that it has alone', () => {
    for (let seed = 0; seed < 20; seed++) {
      const { plain } = layered(seed, 4);
      const n = plain.unary.length;
      const [most, odd] = [swept(plain, n), swept(copiesOf(plain, 1), n)];
      const together = swept(copiesOf(plain, 5), n);
      const part = (list: ArrayLike<number>, c: number): number[] => {
        const length = list.length / 5;
        return Array.from(list).slice(c * length, (c + 1) * length);
      };
      for (let c = 0; c < 5; c++) {
        const alone = c === 4 ? odd : most;
        expect(part(together.to, c), `seed ${seed}, copy ${c}`).toEqual([...alone.to]);
        expect(part(together.shifts, c)).toEqual([...alone.shifts]);
        expect(part(together.least, c)).toEqual([...alone.least]);
        expect(part(together.decode(), c)).toEqual([...alone.decode()]);
      }
    }
  });
});

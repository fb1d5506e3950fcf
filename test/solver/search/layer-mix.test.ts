/** Mixtures of two choices whose values do not go together, against enumeration. */
import { expect, test } from 'vitest';

import { evaluatePositions } from '../../../src/solver/dual/rounding.ts';
import { amountsAt, installRows, plainRows } from '../../../src/solver/network/rows.ts';
import { PreparedProblem } from '../../../src/solver/search/prepared.ts';
import { mixLayers } from '../../../src/solver/search/primal/layer-mix.ts';
import { relink } from '../../../src/solver/search/primal/path-relinking.ts';
import { makeWorkspace } from '../../../src/solver/search/workspace.ts';
import { build } from '../support.ts';

const LAYERS = 8;
const VALUES = 3;
/**
 * A layer that holds much, one that holds nothing, and one that stands beside either, at a cost.
 */
const [FAST, LEAN, EITHER] = [0, 1, 2];
const COSTS = [0, 7, 12];
const BYTES = [10, 0, 4];
const forbidden = (a: number, b: number): boolean => a !== b && a !== EITHER && b !== EITHER;
const TABLE = [FAST, LEAN, EITHER].flatMap((a) =>
  [FAST, LEAN, EITHER].map((b) => (forbidden(a, b) ? Infinity : 0)),
);

function chainUnder(bound: number): PreparedProblem['net'] {
  const layers = Array.from({ length: LAYERS }, (_, i) => i);
  const problem = build({
    unary: layers.map(() => COSTS),
    edges: layers.slice(1).map((i) => [i - 1, i, TABLE]),
    rows: [{ name: 'bytes', variables: layers, amounts: layers.map(() => BYTES), bound }],
  });
  const net = new PreparedProblem(problem).net.clone();
  installRows(net, plainRows(problem));
  return net;
}

/** Cost of the best choice within the bound, of all choices. */
function leastCost(net: PreparedProblem['net']): number {
  let least = Infinity;
  for (let code = 0; code < VALUES ** LAYERS; code++) {
    const at = Int32Array.from(
      { length: LAYERS },
      (_, i) => Math.floor(code / VALUES ** i) % VALUES,
    );
    if (amountsAt(net, at)[0] <= net.rows[0].bound)
      least = Math.min(least, evaluatePositions(net, at));
  }
  return least;
}

test('layers of two kinds meet in a layer that stands beside either, where a path from one choice to the other has none', () => {
  const cheap = new Int32Array(LAYERS).fill(FAST);
  const small = new Int32Array(LAYERS).fill(LEAN);
  const layer = Int32Array.from({ length: LAYERS }, (_, i) => i);
  for (const bound of [25, 34, 44, 64]) {
    const net = chainUnder(bound);
    const onThePath = relink(net, cheap, small, layer);
    expect(onThePath && evaluatePositions(net, onThePath), `bound ${bound}`).toBe(
      LAYERS * COSTS[LEAN],
    );
    const found: number[] = [];
    mixLayers(net, { cheap, small }, layer, 1n << 20n, {
      workspace: makeWorkspace(net),
      stopped: () => false,
      propose: (at) => {
        if (amountsAt(net, at)[0] <= bound) found.push(evaluatePositions(net, at));
      },
      spent: () => undefined,
    });
    // One layer that could stay fast may be given up at the seam, and no more.
    expect(Math.min(...found), `bound ${bound}`).toBeLessThanOrEqual(leastCost(net) + COSTS[LEAN]);
    expect(Math.min(...found), `bound ${bound}`).toBeLessThan(LAYERS * COSTS[LEAN]);
  }
});

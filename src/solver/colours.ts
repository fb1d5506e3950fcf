/**
 * Colours of variables by content: two variables share a colour when their costs, their tables and, to some depth, their
 * neighbourhoods are equal. Names and positions play no part, so a layer is recognised wherever it stands.
 */
import { KeyTable } from './keys.ts';
import type { Network } from './network.ts';

/** Colour per variable after `rounds` rounds of refinement; -1 for variables that are gone. */
export function colours(net: Network, rounds: number): Int32Array {
  let colour = new Int32Array(net.count).fill(-1);
  const first = new KeyTable();
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1) continue;
    first.begin().add(net.unary[i]).add(net.priced[i]);
    for (const row of net.rows) first.add(row.amounts[i]);
    colour[i] = first.end();
  }
  let classes = first.count;
  for (let round = 0; round < rounds; round++) {
    const keys = new KeyTable();
    const next = new Int32Array(net.count).fill(-1);
    const sides = new KeyTable();
    const seen: number[] = [];
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1) continue;
      seen.length = 0;
      for (const id of net.incident[i]) {
        const f = net.factors[id];
        if (f === undefined) continue;
        const side = f.vars[0] === i ? 0 : 1;
        const key = sides.begin().add(f.table.id).add(side).add(f.maps[0]).add(f.maps[1]);
        seen.push(key.add(colour[f.vars[1 - side]]).end());
      }
      seen.sort((a, b) => a - b);
      keys.begin().add(colour[i]);
      for (const s of seen) keys.add(s);
      next[i] = keys.end();
    }
    colour = next;
    if (keys.count === classes) break;
    classes = keys.count;
  }
  return colour;
}

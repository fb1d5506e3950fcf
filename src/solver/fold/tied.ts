/**
 * Makes the quotient network of tied blocks, in which the variables of all middle blocks are one,
 * over the variables of `fold.short`. Every edge and unary counts as often as it occurs in the long
 * network, so a choice of the quotient costs what its spread costs.
 */
import { type Factor, Network } from '../network/network.ts';
import { KeyTable } from '../store/keys.ts';
import type { Pool, Table } from '../store/pool.ts';
import type { Fold } from './fold.ts';

/** A tied network, and where the edges of the long one are in it. */
export interface Tied {
  /** Over the variables of `fold.short`. */
  readonly net: Network;
  /**
   * Edge of the long network -> edge of this one, -1 where it joins a block to its like; and the
   * number of edges that it represents.
   */
  readonly edge: Int32Array;
  readonly copies: Int32Array;
}

export function tieBlocks(net: Network, { variable, origin }: Fold): Tied {
  const { pool } = net;
  const short = new Network(
    pool,
    Int32Array.from(origin, (i) => net.size[i]),
  );
  short.constant = net.constant;
  short.quantum = net.quantum;
  short.tolerance = net.tolerance;
  const members = new Int32Array(origin.length);
  for (const v of variable) if (v >= 0) members[v]++;
  origin.forEach((i, k) => {
    short.unary[k] = times(pool, net.unary[i], members[k]);
    short.rank[k] = net.rank[i];
    short.place[k] = net.place[i];
    short.minPairs[2 * k] = net.minPairs[2 * i];
    short.minPairs[2 * k + 1] = net.minPairs[2 * i + 1];
  });
  for (const { bound, amounts } of net.rows)
    short.rows.push({
      bound,
      amounts: Int32Array.from(origin, (i, k) =>
        amounts[i] < 0 ? -1 : times(pool, amounts[i], members[k]),
      ),
    });
  const { groups, groupOf } = groupEdges(net, variable);
  const scaled = new Map<string, Table>();
  const copies: number[] = [];
  const edgeOf = groups.map(({ factor, count }) => {
    const { vars, maps } = factor;
    const key = `${factor.table.id}x${count}`;
    const table = scaled.get(key) ?? manyTimes(pool, factor.table, count);
    scaled.set(key, table);
    if (vars[0] === vars[1]) {
      short.unary[vars[0]] = pool.sum(
        short.unary[vars[0]],
        pool.vector(diagonal(pool, table, maps)),
      );
      return -1;
    }
    copies.push(count);
    return short.addFactor({ vars, maps, table });
  });
  const edge = groupOf.map((id) => (id < 0 ? -1 : edgeOf[id]));
  return { net: short, edge, copies: Int32Array.from(copies) };
}

/** Edges that are equal once their blocks are tied, and how many there are of each. */
interface EdgeGroups {
  readonly groups: readonly { readonly factor: Factor; readonly count: number }[];
  /** By edge of the long network; -1 where there is none. */
  readonly groupOf: Int32Array;
}

function groupEdges({ factors }: Network, variable: Int32Array): EdgeGroups {
  const keys = new KeyTable();
  const groups: { readonly factor: Factor; count: number }[] = [];
  const groupOf = new Int32Array(factors.length).fill(-1);
  factors.forEach((f, e) => {
    if (f === undefined) return;
    const vars = f.vars.map((v) => variable[v]);
    const id = keys
      .begin()
      .add(vars[0])
      .add(vars[1])
      .add(f.table.id)
      .add(f.maps[0])
      .add(f.maps[1])
      .end();
    const group = (groups[id] ??= { factor: { ...f, vars }, count: 0 });
    group.count++;
    groupOf[e] = id;
  });
  return { groups, groupOf };
}

function times(pool: Pool, vector: number, count: number): number {
  return count === 1 ? vector : pool.vector(pool.vectorOf(vector).map((c) => c * count));
}

function manyTimes(pool: Pool, table: Table, count: number): Table {
  return count === 1
    ? table
    : pool.table(
        table.dims,
        table.cells.map((c) => c * count),
      );
}

/** Costs of a variable that meets itself in the next block. */
function diagonal(pool: Pool, { dims, cells }: Table, maps: readonly number[]): Float64Array {
  const [rows, columns] = maps.map((m) => pool.mapOf(m));
  return Float64Array.from(rows, (row, a) =>
    row < 0 || columns[a] < 0 ? Infinity : cells[row * dims[1] + columns[a]],
  );
}

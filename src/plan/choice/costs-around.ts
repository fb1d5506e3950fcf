/** Computes what each value of a variable costs with what is decided around it. */
import type { Problem } from '../../solver/types.ts';

/** By value of `v`: its unary cost plus edges to decided neighbours; those of -1 are left out. */
export function costsAround(
  problem: Problem,
  edges: Int32Array,
  choice: Int32Array,
  v: number,
): Float64Array {
  const size = problem.domains[v];
  const total = new Float64Array(problem.vectors[problem.unary[v]]);
  const { first, second, table, firstMap, secondMap } = problem.edges;
  for (const e of edges) {
    const isFirst = first[e] === v;
    const decided = choice[isFirst ? second[e] : first[e]];
    if (decided < 0) continue;
    const { columns, costs } = problem.tables[table[e]];
    const rowOf = firstMap[e] < 0 ? undefined : problem.maps[firstMap[e]];
    const columnOf = secondMap[e] < 0 ? undefined : problem.maps[secondMap[e]];
    if (isFirst) {
      const column = columnOf === undefined ? decided : columnOf[decided];
      for (let a = 0; a < size; a++)
        total[a] += costs[(rowOf === undefined ? a : rowOf[a]) * columns + column];
    } else {
      const row = columns * (rowOf === undefined ? decided : rowOf[decided]);
      for (let a = 0; a < size; a++)
        total[a] += costs[row + (columnOf === undefined ? a : columnOf[a])];
    }
  }
  return total;
}

/** By variable: the edges that it is an end of. */
export function incidentEdges(problem: Problem): Int32Array[] {
  const lists: number[][] = Array.from(problem.domains, () => []);
  const { first, second } = problem.edges;
  for (let e = 0; e < first.length; e++) {
    lists[first[e]].push(e);
    if (second[e] !== first[e]) lists[second[e]].push(e);
  }
  return lists.map((list) => Int32Array.from(list));
}

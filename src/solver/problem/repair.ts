/**
 * Repairs a cheap choice that breaks rows: it moves single variables, each time the one that costs
 * least for each unit that it takes off the first broken row, until the choice keeps the rows. It
 * says nothing about the optimum.
 */
import type { LinearRow, Problem } from '../types.ts';

/**
 * A value of a variable that takes less of a row, and what that costs for each unit that it takes
 * less.
 */
interface Move {
  readonly value: number;
  readonly rate: number;
}

/**
 * @param choice that is not forbidden
 * @returns the choice itself where it keeps all rows; undefined where such moves lead to no choice
 *   that does
 */
export function repairRows(problem: Problem, choice: Int32Array): Int32Array | undefined {
  const { rows = [] } = problem;
  const broken = rows.find((row) => usedOf(row, choice) > row.bound);
  if (broken === undefined) return choice;
  const at = choice.slice();
  const { variables, amounts, bound } = broken;
  const costs = new MoveCosts(problem, variables);
  const moveOf = (k: number): Move | undefined => {
    let best: Move | undefined;
    const own = amounts[k];
    own.forEach((amount, value) => {
      const less = own[at[variables[k]]] - amount;
      if (less <= 0) return;
      const rate = costs.of(at, variables[k], value) / less;
      if (rate < (best?.rate ?? Infinity)) best = { value, rate };
    });
    return best;
  };
  const moves = Array.from(variables, (_, k) => moveOf(k));
  const placeOf = new Map(Array.from(variables, (v, k) => [v, k]));
  for (let over = usedOf(broken, at) - bound; over > 0;) {
    const least = moves.reduce((a, move) => Math.min(a, move?.rate ?? Infinity), Infinity);
    const k = moves.findIndex((move) => move?.rate === least);
    const move = moves[k];
    if (move === undefined) return undefined;
    over += amounts[k][move.value] - amounts[k][at[variables[k]]];
    at[variables[k]] = move.value;
    for (const v of [variables[k], ...costs.neighbours(variables[k])]) {
      const other = placeOf.get(v);
      if (other !== undefined) moves[other] = moveOf(other);
    }
  }
  return rows.every((row) => usedOf(row, at) <= row.bound) ? at : undefined;
}

function usedOf({ variables, amounts }: LinearRow, choice: Int32Array): number {
  return amounts.reduce((sum, own, k) => sum + own[choice[variables[k]]], 0);
}

/** The cost of moves of some variables where all others stay. */
class MoveCosts {
  /** By variable: the edges that it is an end of. */
  private readonly edgesOf: ReadonlyMap<number, readonly number[]>;

  constructor(
    private readonly problem: Problem,
    variables: Int32Array,
  ) {
    const edgesOf = new Map(Array.from(variables, (v): [number, number[]] => [v, []]));
    const { first, second } = problem.edges;
    for (let e = 0; e < first.length; e++) {
      edgesOf.get(first[e])?.push(e);
      if (second[e] !== first[e]) edgesOf.get(second[e])?.push(e);
    }
    this.edgesOf = edgesOf;
  }

  /** Infinity for a value that is forbidden there. */
  of(at: Int32Array, variable: number, value: number): number {
    const { unary, vectors } = this.problem;
    const before = at[variable];
    let sum = vectors[unary[variable]][value] - vectors[unary[variable]][before];
    for (const e of this.edgesOf.get(variable) ?? []) {
      sum -= this.edge(at, e);
      at[variable] = value;
      sum += this.edge(at, e);
      at[variable] = before;
    }
    return sum;
  }

  neighbours(variable: number): number[] {
    const { first, second } = this.problem.edges;
    return (this.edgesOf.get(variable) ?? []).map((e) =>
      first[e] === variable ? second[e] : first[e],
    );
  }

  private edge(at: Int32Array, e: number): number {
    const { edges, tables, maps } = this.problem;
    const { columns, costs } = tables[edges.table[e]];
    const placed = (map: number, value: number): number => (map < 0 ? value : maps[map][value]);
    return costs[
      placed(edges.firstMap[e], at[edges.first[e]]) * columns +
        placed(edges.secondMap[e], at[edges.second[e]])
    ];
  }
}

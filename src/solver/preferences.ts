/**
 * Breaks ties by preference: among all choices of least cost, finds the one that further costs
 * prefer, level by level. Messages whose bound is near the optimum leave few values that any
 * optimum can take; over those the levels are minimised exactly. Where too many values are left,
 * the optimum stays as it is.
 */
import { ascend } from './dual/ascent.ts';
import { type Shifts, shiftsOf } from './dual/lift.ts';
import { Trws } from './dual/trws.ts';
import { ProblemBuilder } from './problem/builder.ts';
import { solveNow } from './prove.ts';
import { Reducer } from './reduce/presolve.ts';
import { ASCENT } from './search/limits.ts';
import { PreparedProblem } from './search/prepared.ts';
import type { LinearRow, Problem } from './types.ts';

/**
 * Further costs on the variables and edges of a problem: non-negative integers. An earlier level
 * outweighs all later ones.
 */
export interface Preference {
  readonly value?: (variable: number, value: number) => number;
  readonly pair?: (edge: number, first: number, second: number) => number;
  /** Pairs of variables that are to take the same value; each pair that does not costs 1. */
  readonly equal?: readonly (readonly [number, number])[];
}

/** Most pairs of values on edges that are compared. */
const MOST_PAIRS = 1_000_000;
/** Work of the search over them, see `SolveOptions.workLimit`. */
const WORK = 20_000_000;
/** Weighted sums up to here are exact. */
const LARGEST = 2 ** 51;

/**
 * The preferred choice among those that cost no more than the optimum.
 *
 * @returns undefined where the choices near the optimum are too many to be compared, or messages do
 *   not tell them apart
 */
export function preferredOptimum(
  problem: Problem,
  optimum: Int32Array,
  objective: number,
  levels: readonly Preference[],
): Int32Array | undefined {
  const { shifts, bound } = messagesOf(problem, objective);
  const slack = objective - bound;
  const left = leftBy(problem, slack, shifts);
  if (!left.values.every((list, i) => list.includes(optimum[i]))) return undefined;
  const free = Array.from(left.values.keys()).filter((i) => left.values[i].length > 1);
  if (free.length === 0) return optimum;
  const ties = tieProblem({ problem, optimum, slack, left, free, levels });
  if (ties === undefined) return undefined;
  const start = Int32Array.from(free, (i) => left.values[i].indexOf(optimum[i]));
  const found = solveNow(ties, { certify: false, workLimit: WORK, starts: [start] });
  if (found.status === 'infeasible')
    throw new Error('internal: an optimum is none of the choices that cost no more');
  const choice = optimum.slice();
  free.forEach((i, k) => (choice[i] = left.values[i][found.choice[k]]));
  return choice;
}

/**
 * Messages by edge (those of edges between the same two variables are with the first), and the
 * bound that they prove.
 */
function messagesOf(
  problem: Problem,
  objective: number,
): { readonly shifts: readonly (Shifts | undefined)[]; readonly bound: number } {
  const { net } = new PreparedProblem(problem);
  new Reducer().sumParallel(net);
  const messages = new Trws(net);
  ascend(messages, {
    ...ASCENT.ties,
    propose: () => undefined,
    target: () => objective,
    stopped: () => false,
  });
  // The shifts prove the bound of the last sweep, which is not always the best one.
  const bound = messages.sweep();
  return { shifts: shiftsOf(net, messages, Infinity), bound };
}

/**
 * Edges between the same two variables, taken as one: the first of them has the messages of all.
 */
interface Joint {
  readonly variables: readonly [number, number];
  readonly edges: number[];
  readonly shifts: Shifts | undefined;
}

/**
 * The values that an optimum can take, with what the messages leave of their cost above the least.
 */
interface Left {
  readonly values: readonly Int32Array[];
  readonly costs: readonly Float64Array[];
  readonly joints: readonly Joint[];
}

function leftBy(problem: Problem, slack: number, shifts: readonly (Shifts | undefined)[]): Left {
  const { domains, unary, vectors, edges } = problem;
  const joints: Joint[] = [];
  const byPair = new Map<number, Joint>();
  const costs = Array.from(unary, (u) => vectors[u].slice());
  const cell = cellOf(problem);
  for (let e = 0; e < edges.first.length; e++) {
    const [i, j] = [edges.first[e], edges.second[e]];
    if (i === j) {
      for (let a = 0; a < domains[i]; a++) costs[i][a] += cell(e, a, a);
      continue;
    }
    const key = Math.min(i, j) * domains.length + Math.max(i, j);
    const joint = byPair.get(key);
    if (joint !== undefined) {
      joint.edges.push(e);
      continue;
    }
    const made: Joint = { variables: [i, j], edges: [e], shifts: shifts[e] };
    byPair.set(key, made);
    joints.push(made);
    made.shifts?.forEach((shift, side) => {
      const own = costs[made.variables[side]];
      for (let a = 0; a < own.length; a++) own[a] += shift[a];
    });
  }
  forbidUnsupported(problem, costs, joints);
  const values: Int32Array[] = [];
  for (const own of costs) {
    let least = Infinity;
    for (const c of own) if (c < least) least = c;
    const kept: number[] = [];
    for (let a = 0; a < own.length; a++) if ((own[a] -= least) <= slack) kept.push(a);
    values.push(Int32Array.from(kept));
  }
  return { values, costs, joints };
}

/**
 * Forbids the values that some edge leaves no partner (arc consistency). The bound of the messages
 * knows them; the shifts do not, where a value has no partner but one that another edge forbids.
 */
function forbidUnsupported(
  problem: Problem,
  costs: readonly Float64Array[],
  joints: readonly Joint[],
): void {
  const cell = cellOf(problem);
  const { first } = problem.edges;
  for (let changed = true; changed;) {
    changed = false;
    for (const { variables, edges } of joints)
      for (const side of [0, 1] as const) {
        const [own, other] = [costs[variables[side]], costs[variables[1 - side]]];
        const allows = (e: number, a: number, b: number): boolean =>
          (first[e] === variables[side] ? cell(e, a, b) : cell(e, b, a)) < Infinity;
        for (let a = 0; a < own.length; a++) {
          if (
            own[a] === Infinity ||
            other.some((c, b) => c < Infinity && edges.every((e) => allows(e, a, b)))
          )
            continue;
          own[a] = Infinity;
          changed = true;
        }
      }
  }
}

/** The choice among values that are left, in the terms of the problem that asks. */
interface TieQuestion {
  readonly problem: Problem;
  readonly optimum: Int32Array;
  readonly slack: number;
  readonly left: Left;
  readonly free: readonly number[];
  readonly levels: readonly Preference[];
}

/** The free variables as a problem: what is above the least cost first, then level by level. */
function tieProblem(asked: TieQuestion): Problem | undefined {
  const { problem, optimum, left, free, levels } = asked;
  const { values } = left;
  const name = new Int32Array(problem.domains.length).fill(-1);
  free.forEach((i, k) => (name[i] = k));
  const joints = left.joints.filter(({ variables: [i, j] }) => name[i] >= 0 || name[j] >= 0);
  const count = joints.reduce(
    (sum, { variables: [i, j] }) => sum + values[i].length * values[j].length,
    0,
  );
  if (count > MOST_PAIRS) return undefined;
  const pairs = [
    ...joints.flatMap((joint) => jointPairs(asked, joint)),
    ...equalPairs(asked, name),
  ];
  const weights = weightsOf(levels.length, (l) => {
    let most = 0;
    for (const i of free) most += largest(ownCosts(asked, i, l));
    for (const pair of pairs) if (pair.level === l) most += largest(pair.costs);
    return most;
  });
  if (weights === undefined) return undefined;
  const builder = new ProblemBuilder();
  addCosts(builder, asked, { pairs, name, weights });
  for (const row of problem.rows ?? []) addRow(builder, row, optimum, values, name);
  return builder.build();
}

/** The costs of the edges between two variables: above their least, then of each level. */
function jointPairs(
  { problem, optimum, slack, left: { values }, levels }: TieQuestion,
  { variables, edges, shifts }: Joint,
): Pair[] {
  const [i, j] = variables;
  const cell = cellOf(problem);
  /** A function of the values of an edge's ends, at values of the joint's variables. */
  const along = (
    e: number,
    of: (e: number, first: number, second: number) => number,
    a: number,
    b: number,
  ): number => (problem.edges.first[e] === i ? of(e, a, b) : of(e, b, a));
  const rest = (a: number, b: number): number => {
    let sum = -(shifts?.[0][a] ?? 0) - (shifts?.[1][b] ?? 0);
    for (const e of edges) sum += along(e, cell, a, b);
    return sum;
  };
  // The least of the edge is at most `slack` below what the optimum leaves of it.
  const least = rest(optimum[i], optimum[j]) - slack;
  const above = grid(values[i], values[j], (a, b) => within(rest(a, b) - least, 2 * slack));
  return [
    { variables, level: -1, costs: above },
    ...levels.flatMap(({ pair }, level): Pair[] => {
      if (pair === undefined) return [];
      const costs = grid(values[i], values[j], (a, b) =>
        edges.reduce((sum, e) => sum + along(e, pair, a, b), 0),
      );
      return [{ variables, level, costs }];
    }),
  ];
}

/** The pairs of variables that a level wants equal. */
function equalPairs({ left: { values }, levels }: TieQuestion, name: Int32Array): Pair[] {
  return levels.flatMap(({ equal = [] }, level) =>
    equal
      .filter(([i, j]) => name[i] >= 0 || name[j] >= 0)
      .map(([i, j]) => ({
        variables: [i, j] as const,
        level,
        costs: grid(values[i], values[j], (a, b) => (a === b ? 0 : 1)),
      })),
  );
}

/** Costs of a variable alone: above its least (level -1), or of a level. */
function ownCosts(
  { slack, left: { values, costs }, levels }: TieQuestion,
  variable: number,
  level: number,
): Float64Array {
  return Float64Array.from(values[variable], (a) =>
    level < 0 ? within(costs[variable][a], slack) : (levels[level].value?.(variable, a) ?? 0),
  );
}

/** Adds the free variables and their edges with the weighted sums of all levels. */
function addCosts(
  builder: ProblemBuilder,
  asked: TieQuestion,
  {
    pairs,
    name,
    weights,
  }: {
    readonly pairs: readonly Pair[];
    readonly name: Int32Array;
    readonly weights: readonly number[];
  },
): void {
  const unary = asked.free.map((i) => {
    const sum = new Float64Array(asked.left.values[i].length);
    for (let l = -1; l < asked.levels.length; l++)
      if (weights[l + 1] > 0)
        ownCosts(asked, i, l).forEach((c, a) => (sum[a] += c * weights[l + 1]));
    return sum;
  });
  const tables: (readonly [first: number, second: number, costs: Float64Array])[] = [];
  for (const { variables, level, costs } of pairs) {
    const weight = weights[level + 1];
    if (weight === 0) continue;
    const [first, second] = [name[variables[0]], name[variables[1]]];
    const weighted = costs.map((c) => c * weight);
    if (first >= 0 && second >= 0) tables.push([first, second, weighted]);
    else weighted.forEach((c, a) => (unary[Math.max(first, second)][a] += c));
  }
  for (const sum of unary) builder.addVariable(sum);
  for (const table of tables) builder.addEdge(...table);
}

/** Costs of one level on two variables, over the values that are left of them, row by row. */
interface Pair {
  readonly variables: readonly [number, number];
  /** -1: what is above the least cost. */
  readonly level: number;
  readonly costs: Float64Array;
}

function grid(
  rows: Int32Array,
  columns: Int32Array,
  at: (a: number, b: number) => number,
): Float64Array {
  const out = new Float64Array(rows.length * columns.length);
  let p = 0;
  for (const a of rows) for (const b of columns) out[p++] = at(a, b);
  return out;
}

function within(cost: number, most: number): number {
  return cost > most ? Infinity : cost;
}

function largest(costs: Float64Array): number {
  let most = 0;
  for (const c of costs) if (c !== Infinity && c > most) most = c;
  return most;
}

/**
 * Weight of the cost (first) and of each level, so that one unit of a level outweighs all of the
 * later ones. The last levels have none where exact sums cannot hold them; undefined where not even
 * the first has one.
 */
function weightsOf(
  levels: number,
  mostOf: (level: number) => number,
): readonly number[] | undefined {
  const most = Array.from({ length: levels + 1 }, (_, k) => mostOf(k - 1));
  for (let used = levels; used > 0; used--) {
    const weights = new Array<number>(levels + 1).fill(0);
    let below = 0;
    for (let k = used; k >= 0; k--) {
      weights[k] = below + 1;
      below += weights[k] * most[k];
    }
    if (below < LARGEST) return weights;
  }
  return undefined;
}

/** A row over the free variables, where they can break it. */
function addRow(
  builder: ProblemBuilder,
  { name, variables, amounts, bound }: LinearRow,
  optimum: Int32Array,
  values: readonly Int32Array[],
  names: Int32Array,
): void {
  const own: { readonly variable: number; readonly amounts: Float64Array }[] = [];
  let fixed = 0;
  let most = 0;
  variables.forEach((i, k) => {
    if (names[i] < 0) fixed += amounts[k][optimum[i]];
    else
      own.push({ variable: names[i], amounts: Float64Array.from(values[i], (a) => amounts[k][a]) });
  });
  for (const { amounts: list } of own) most += largest(list);
  if (fixed + most <= bound) return;
  builder.addRow({
    name,
    variables: Int32Array.from(own, ({ variable }) => variable),
    amounts: own.map(({ amounts: list }) => list),
    bound: bound - fixed,
  });
}

/** Cost of an edge for the values of its two variables. */
function cellOf({
  edges,
  maps,
  tables,
}: Problem): (edge: number, first: number, second: number) => number {
  return (e, a, b) => {
    const { columns, costs } = tables[edges.table[e]];
    const row = edges.firstMap[e] < 0 ? a : maps[edges.firstMap[e]][a];
    const column = edges.secondMap[e] < 0 ? b : maps[edges.secondMap[e]][b];
    return costs[row * columns + column];
  };
}

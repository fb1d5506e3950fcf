/**
 * Tells whether a record is a problem that the solver can read: every list of its kind, every id
 * and length in range, every number one that sums hold exactly. Nothing is taken for granted, since
 * JavaScript lets any value through.
 */
import type { LinearRow, Problem, UsagePiece } from '../types.ts';

/** A record is no problem of the solver. */
export class MalformedProblem extends Error {
  /** @param fault what is wrong, and where */
  constructor(readonly fault: string) {
    super(`internal: malformed choice problem: ${fault}`);
    this.name = 'MalformedProblem';
  }
}

/**
 * Throws `MalformedProblem` unless every id, length and number of the problem is in order. Costs
 * must be integers or Infinity.
 */
export function checkProblem(problem: Problem): void {
  checkKinds(problem);
  problem.vectors.forEach((v, id) => checkCosts(v, `vector ${id}`));
  problem.tables.forEach((t, id) => {
    checkCosts(t.costs, `table ${id}`);
    if (t.costs.length !== t.rows * t.columns)
      fail(`table ${id} has ${t.costs.length} costs, expected ${t.rows} x ${t.columns}`);
  });
  checkVariables(problem);
  checkEdges(problem);
  problem.rows?.forEach((row) => checkRow(row, problem.domains));
  problem.usage?.pieces.forEach((piece) => checkPiece(piece, problem.domains));
}

/** Costs, or amounts at one time, add up to more than every sum of them holds exactly. */
export class SumsTooLarge extends Error {
  /**
   * @param what what adds up
   * @param total what its largest add up to
   */
  constructor(
    readonly what: string,
    readonly total: number,
  ) {
    super(`the largest ${what} add up to ${total}, more than 2^52: sums would not be exact`);
    this.name = 'SumsTooLarge';
  }
}

/** Largest sum of costs, and of amounts that count at one time: every sum is then exact. */
export const LARGEST_SUM = 2 ** 52;

/**
 * Throws `SumsTooLarge` unless all costs of any choice, and all amounts of a row or at a time, add
 * up exactly in doubles.
 */
export function checkSums({ vectors, unary, tables, edges, constant = 0, ...rest }: Problem): void {
  const ofVectors = vectors.map(largestSize);
  const ofTables = tables.map((t) => largestSize(t.costs));
  let total = Math.abs(constant);
  for (const id of unary) total += ofVectors[id];
  for (const id of edges.table) total += ofTables[id];
  exact('costs of all variables and edges', total);
  for (const { name, amounts } of rest.rows ?? [])
    exact(
      `amounts of row "${name}"`,
      amounts.reduce((sum, of) => sum + largestSize(of), 0),
    );
  const { level, time } = mostUsage(rest.usage?.pieces ?? []);
  exact(`usages at time ${time}`, level);
}

function exact(what: string, total: number): void {
  if (total > LARGEST_SUM) throw new SumsTooLarge(what, total);
}

/** The largest in size that is not forbidden. */
function largestSize(costs: Float64Array): number {
  let most = 0;
  for (const cost of costs) {
    const size = Math.abs(cost);
    if (size < Infinity && size > most) most = size;
  }
  return most;
}

/** The largest sum of usages that count at one time, and the first time of it. */
export function mostUsage(pieces: readonly UsagePiece[]): { level: number; time: number } {
  const changes = pieces
    .filter(({ lo, hi }) => lo < hi)
    .flatMap(({ lo, hi, amounts }) => {
      const most = largestSize(amounts);
      return [
        [lo, most],
        [hi, -most],
      ] as const;
    });
  changes.sort(([s, x], [t, y]) => s - t || x - y);
  let level = 0;
  let most = { level: 0, time: 0 };
  for (const [time, change] of changes) {
    level += change;
    if (level > most.level) most = { level, time };
    // Later levels would be rounded.
    if (level > LARGEST_SUM) break;
  }
  return most;
}

function fail(what: string): never {
  throw new MalformedProblem(what);
}

/** Every part is there and of its kind; what parts hold is checked behind. */
function checkKinds(problem: Problem): void {
  const { name = '', edges, constant = 0, tolerance = 0, minPairs, usage } = problem;
  if (typeof name !== 'string') fail(`name: expected a string, got ${found(name)}`);
  for (const field of ['domains', 'unary'] as const) array(problem[field], 'Int32Array', field);
  if (!isRecord(edges)) fail(`edges: expected a record, got ${found(edges)}`);
  for (const field of ['first', 'second', 'table', 'firstMap', 'secondMap'] as const) {
    array(edges[field], 'Int32Array', `edges.${field}`);
    if (edges[field].length !== edges.first.length)
      fail(`edges.${field} has ${edges[field].length} entries for ${edges.first.length} edges`);
  }
  list(problem.vectors, 'vectors').forEach((v, k) => array(v, 'Float64Array', `vectors[${k}]`));
  list(problem.maps, 'maps').forEach((map, k) => array(map, 'Int32Array', `maps[${k}]`));
  records(problem.tables, 'tables').forEach((t, k) => {
    array(t.costs, 'Float64Array', `tables[${k}].costs`);
    bound(t.rows, `tables[${k}].rows`);
    bound(t.columns, `tables[${k}].columns`);
  });
  if (problem.rows !== undefined) records(problem.rows, 'rows');
  if (usage !== undefined) {
    if (!isRecord(usage)) fail(`usage: expected a record, got ${found(usage)}`);
    records(usage.pieces, 'usage.pieces');
    bound(usage.limit, 'usage.limit');
  }
  if (!Number.isSafeInteger(constant)) fail(`the constant is ${found(constant)}, no integer`);
  if (typeof tolerance !== 'number' || !(tolerance >= 0))
    fail(`the tolerance is ${found(tolerance)}, no number >= 0`);
  if (minPairs === undefined) return;
  if (!isRecord(minPairs)) fail(`minPairs: expected a record, got ${found(minPairs)}`);
  for (const field of ['first', 'second'] as const)
    array(minPairs[field], 'Int32Array', `minPairs.${field}`);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

function list<T>(value: readonly T[], path: string): readonly T[] {
  const given: unknown = value;
  if (!Array.isArray(given)) fail(`${path}: expected a list, got ${found(value)}`);
  return value;
}

function records<T extends object>(value: readonly T[], path: string): readonly T[] {
  list(value, path).forEach((item, k) => {
    if (!isRecord(item)) fail(`${path}[${k}]: expected a record, got ${found(item)}`);
  });
  return value;
}

/** Typed arrays of another realm are as good, so the name decides. */
function array(value: unknown, kind: 'Int32Array' | 'Float64Array', path: string): void {
  if (!ArrayBuffer.isView(value) || Object.prototype.toString.call(value) !== `[object ${kind}]`)
    fail(`${path}: expected ${kind === 'Int32Array' ? 'an' : 'a'} ${kind}, got ${found(value)}`);
}

function bound(value: unknown, path: string): void {
  if (typeof value !== 'number' || Number.isNaN(value))
    fail(`${path}: expected a number, got ${found(value)}`);
}

function found(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'number' || value === null) return String(value);
  return typeof value === 'object' ? Object.prototype.toString.call(value) : `a ${typeof value}`;
}

function checkCosts(costs: Float64Array, what: string): void {
  for (let i = 0; i < costs.length; i++) {
    if (costs[i] !== Infinity && !Number.isSafeInteger(costs[i])) {
      fail(`${what} holds ${costs[i]} at ${i}; costs are integers below 2^53 or Infinity`);
    }
  }
}

function checkVariables({ domains, unary, vectors }: Problem): void {
  const n = domains.length;
  if (unary.length !== n) fail(`${n} domains but ${unary.length} unary ids`);
  for (let i = 0; i < n; i++) {
    const v = vectors[unary[i]];
    if (v === undefined) fail(`variable ${i} has unary id ${unary[i]} of ${vectors.length}`);
    if (v.length !== domains[i])
      fail(`variable ${i} has ${domains[i]} values but ${v.length} costs`);
  }
}

function checkEdges({ domains, edges, tables, maps }: Problem): void {
  const n = domains.length;
  const top = maps.map((m, id) => {
    let most = 0;
    for (const c of m) {
      if (c < 0) fail(`class map ${id} holds ${c}`);
      if (c > most) most = c;
    }
    return most;
  });
  const { first, second, table, firstMap, secondMap } = edges;
  for (let e = 0; e < first.length; e++) {
    const t = tables[table[e]];
    if (t === undefined) fail(`edge ${e} has table id ${table[e]} of ${tables.length}`);
    for (const [v, id, size] of [
      [first[e], firstMap[e], t.rows],
      [second[e], secondMap[e], t.columns],
    ]) {
      if (!(v >= 0 && v < n)) fail(`edge ${e} ends at variable ${v} of ${n}`);
      if (id < 0) {
        if (size !== domains[v])
          fail(`edge ${e}: ${size} rows or columns for the ${domains[v]} values of variable ${v}`);
      } else if (maps[id]?.length !== domains[v] || top[id] >= size) {
        fail(
          `edge ${e}: class map ${id} does not fit variable ${v} (${domains[v]} values) and ` +
            `${size} rows or columns`,
        );
      }
    }
  }
}

/** A linear row. */
function checkRow(row: LinearRow, domains: Int32Array): void {
  if (typeof row.name !== 'string') fail(`a row's name: expected a string, got ${found(row.name)}`);
  const what = `row "${row.name}"`;
  array(row.variables, 'Int32Array', `the variables of ${what}`);
  list(row.amounts, `the amounts of ${what}`);
  bound(row.bound, `the bound of ${what}`);
  row.variables.forEach((v, k) => {
    if (!(v >= 0 && v < domains.length)) fail(`${what} names variable ${v} of ${domains.length}`);
    checkAmounts(row.amounts[k], domains[v], `${what}, variable ${v}`);
  });
}

/** A piece of the usage over time. */
function checkPiece({ variable, lo, hi, amounts }: UsagePiece, domains: Int32Array): void {
  if (!Number.isInteger(variable) || variable < 0 || variable >= domains.length)
    fail(`usage piece names variable ${found(variable)} of ${domains.length}`);
  const what = `usage piece of variable ${variable}`;
  bound(lo, `the begin of the ${what}`);
  bound(hi, `the end of the ${what}`);
  checkAmounts(amounts, domains[variable], what);
}

function checkAmounts(amounts: Float64Array | undefined, values: number, what: string): void {
  array(amounts, 'Float64Array', `the amounts of ${what}`);
  if (amounts?.length !== values) fail(`the amounts of ${what} do not fit its ${values} values`);
  for (const amount of amounts)
    if (!Number.isSafeInteger(amount) || amount < 0)
      fail(`${what} holds amount ${amount}; non-negative integers only`);
}

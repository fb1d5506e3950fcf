/**
 * Reader of the file format of the ASPLOS / EuroSys 2025 contest on intra-operator parallelism
 * (google/iopddl): an already parsed JSON value becomes a choice problem.
 *
 * {"problem": {"name", "nodes": {"intervals": [[lo, hi]], "costs": [[..]], "usages": [[..]]},
 *              "edges": {"nodes": [[i, j]], "costs": [[..]]}, "usage_limit"}}
 *
 * Intervals are half-open; 10^18 in a cost means forbidden; an edge's costs are row-major over its
 * nodes as listed. As in the contest's evaluator, an edge of one node adds to that node's costs.
 * Edges of more than two nodes are refused: the solver's problems are pairwise.
 *
 * Costs and usages whose sums a double does not hold exactly are refused, so that nothing behind
 * this reader has to round.
 */
import { ProblemBuilder } from '../solver/problem/builder.ts';
import { LARGEST_SUM, mostUsage } from '../solver/problem/check-problem.ts';
import type { Problem, UsagePiece } from '../solver/types.ts';

/** The value is not an IOPDDL problem; `path` says where, e.g. `problem.edges.costs[3][1]`. */
export class IopddlError extends Error {
  readonly path: string;

  constructor(
    path: string,
    expected: string,
    got: unknown,
    /** `E_LIMIT`: well-formed, but more than is read. */
    readonly code: 'E_FORMAT' | 'E_LIMIT' = 'E_FORMAT',
  ) {
    super(`${textOf(path)}: expected ${textOf(expected)}, got ${show(got)}`);
    this.name = 'IopddlError';
    this.path = path;
  }
}

const FORBIDDEN = 1e18;

/** The text itself; of what JavaScript passes instead, what it is. */
function textOf(text: unknown): string {
  return typeof text === 'string' ? text : show(text);
}

function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  // Its contents may nest deeper than can be written.
  if (isList(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  const text = typeof value === 'string' ? JSON.stringify(value) : plainText(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** A number or a word as it is written; of anything else what it is. */
function plainText(value: unknown): string {
  return ['number', 'boolean', 'bigint', 'symbol'].includes(typeof value) || value === null
    ? String(value)
    : `a ${typeof value}`;
}

/** `Array.isArray`, which throws for a proxy that was revoked. */
function isList(value: unknown): value is readonly unknown[] {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

function record(value: unknown, path: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || isList(value))
    throw new IopddlError(path, 'an object', value);
  try {
    return { ...value };
  } catch {
    throw new IopddlError(path, 'an object that can be read', value);
  }
}

function list(value: unknown, path: string, length?: number): readonly unknown[] {
  if (!isList(value)) throw new IopddlError(path, 'an array', value);
  const items: readonly unknown[] = value;
  if (length !== undefined && items.length !== length) {
    throw new IopddlError(path, `${length} entries`, `${items.length} entries`);
  }
  return items;
}

/** Non-negative integers; those of 10^18 and more become Infinity where `forbidden` allows it. */
function amounts(value: unknown, path: () => string, forbidden: boolean): Float64Array {
  if (!Array.isArray(value)) throw new IopddlError(path(), 'an array', value);
  const items: readonly unknown[] = value;
  const out = new Float64Array(items.length);
  for (let k = 0; k < items.length; k++) {
    const x = items[k];
    if (typeof x !== 'number' || !(x >= 0))
      throw new IopddlError(`${path()}[${k}]`, 'a non-negative integer', x);
    if (forbidden && x >= FORBIDDEN) out[k] = Infinity;
    // Without the sign of a zero.
    else if (Number.isSafeInteger(x)) out[k] = x + 0;
    else
      throw new IopddlError(
        `${path()}[${k}]`,
        'an integer below 2^53 or 1000000000000000000 (forbidden)',
        x,
      );
  }
  return out;
}

function pair(value: unknown, path: string, below: number): readonly [number, number] {
  const [a, b] = list(value, path, 2);
  for (const x of [a, b]) {
    if (typeof x !== 'number' || !Number.isSafeInteger(x) || x < 0 || x >= below) {
      throw new IopddlError(
        path,
        below === Infinity ? 'two integers >= 0' : `two node numbers below ${below}`,
        value,
      );
    }
  }
  return [Number(a), Number(b)];
}

/**
 * Makes a choice problem of a parsed IOPDDL file. Throws `IopddlError` with the place of the first
 * fault.
 */
export function readIopddl(parsed: unknown): Problem {
  const problem = record(record(parsed, 'the file').problem, 'problem');
  const nodes = record(problem.nodes, 'problem.nodes');
  const edges = record(problem.edges, 'problem.edges');
  const costs = list(nodes.costs, 'problem.nodes.costs');
  const intervals = list(nodes.intervals, 'problem.nodes.intervals', costs.length);
  const usages = list(nodes.usages, 'problem.nodes.usages', costs.length);
  const builder = new ProblemBuilder();
  if (typeof problem.name === 'string') builder.name = problem.name;
  const unaries = costs.map((c, i) => amounts(c, () => `problem.nodes.costs[${i}]`, true));
  const domains = unaries.map((unary) => unary.length);
  const ends = list(edges.nodes, 'problem.edges.nodes');
  const tables = list(edges.costs, 'problem.edges.costs', ends.length);
  const joined = ends.flatMap((end, e) => edgeOf(end, tables[e], e, unaries) ?? []);
  refuseLargeCosts(unaries, joined);
  for (const unary of unaries) builder.addVariable(unary);
  if (problem.usage_limit !== undefined && problem.usage_limit !== null) {
    const limit = problem.usage_limit;
    if (typeof limit !== 'number' || !(limit >= 0)) {
      throw new IopddlError('problem.usage_limit', 'a non-negative integer', limit);
    }
    builder.setLimit(limit);
    const pieces: UsagePiece[] = [];
    intervals.forEach((interval, variable) => {
      const [lo, hi] = pair(interval, `problem.nodes.intervals[${variable}]`, Infinity);
      const usage = amounts(usages[variable], () => `problem.nodes.usages[${variable}]`, false);
      if (usage.length !== domains[variable]) {
        const expected = `${domains[variable]} entries, one per cost`;
        throw new IopddlError(
          `problem.nodes.usages[${variable}]`,
          expected,
          `${usage.length} entries`,
        );
      }
      if (lo < hi) pieces.push({ variable, lo, hi, amounts: usage });
    });
    refuseLargeUsage(pieces);
    for (const piece of pieces) builder.addUsage(piece);
  }
  for (const { i, j, table } of joined) builder.addEdge(i, j, table);
  return builder.build();
}

interface Edge {
  readonly i: number;
  readonly j: number;
  readonly table: Float64Array;
}

/** An edge of two nodes; one of a single node is added to its costs. */
function edgeOf(
  end: unknown,
  costs: unknown,
  e: number,
  unaries: readonly Float64Array[],
): Edge | undefined {
  const path = `problem.edges.nodes[${e}]`;
  const nodes = list(end, path);
  if (nodes.length !== 1 && nodes.length !== 2)
    throw new IopddlError(path, 'one or two nodes', `an edge of ${nodes.length} nodes`);
  const [i, j] = pair([nodes[0], nodes.at(-1)], path, unaries.length);
  const table = amounts(costs, () => `problem.edges.costs[${e}]`, true);
  const sizes = nodes.length === 1 ? [unaries[i].length] : [unaries[i].length, unaries[j].length];
  const cells = sizes.reduce((a, b) => a * b);
  if (table.length !== cells)
    throw new IopddlError(
      `problem.edges.costs[${e}]`,
      `${sizes.join(' x ')} = ${cells} entries`,
      `${table.length} entries`,
    );
  if (nodes.length === 2) return { i, j, table };
  table.forEach((cost, a) => (unaries[i][a] += cost));
  return undefined;
}

function refuseLargeCosts(unaries: readonly Float64Array[], edges: readonly Edge[]): void {
  const sum = [...unaries, ...edges.map((edge) => edge.table)].reduce(
    (total, costs) => total + largestOf(costs),
    0,
  );
  if (sum > LARGEST_SUM)
    throw new IopddlError(
      'problem',
      'largest costs of all nodes and edges that add up to at most 2^52',
      sum,
      'E_LIMIT',
    );
}

/** The largest that is not forbidden. */
function largestOf(costs: Float64Array): number {
  return costs.reduce((most, cost) => (cost < Infinity && cost > most ? cost : most), 0);
}

function refuseLargeUsage(pieces: readonly UsagePiece[]): void {
  const { level, time } = mostUsage(pieces);
  if (level > LARGEST_SUM)
    throw new IopddlError(
      'problem.nodes.usages',
      `largest usages at time ${time} that add up to at most 2^52`,
      level,
      'E_LIMIT',
    );
}

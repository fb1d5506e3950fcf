/**
 * Reader of the file format of the ASPLOS / EuroSys 2025 contest on intra-operator parallelism
 * (google/iopddl): an already parsed JSON value becomes a choice problem.
 *
 * {"problem": {"name", "nodes": {"intervals": [[lo, hi]], "costs": [[..]], "usages": [[..]]},
 *              "edges": {"nodes": [[i, j]], "costs": [[..]]}, "usage_limit"}}
 *
 * Intervals are half-open; 10^18 in a cost means forbidden; an edge's costs are row-major over its
 * nodes as listed.
 */
import { ProblemBuilder } from '../solver/problem/builder.ts';
import type { Problem } from '../solver/types.ts';

/** The value is not an IOPDDL problem; `path` says where, e.g. `problem.edges.costs[3][1]`. */
export class IopddlError extends Error {
  readonly code = 'bad-iopddl';
  readonly path: string;

  constructor(path: string, expected: string, got: unknown) {
    super(`${path}: expected ${expected}, got ${show(got)}`);
    this.name = 'IopddlError';
    this.path = path;
  }
}

const FORBIDDEN = 1e18;

function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  // Its contents may nest deeper than can be written.
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'an object';
  const text = typeof value === 'bigint' ? `${value}` : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

function record(value: unknown, path: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new IopddlError(path, 'an object', value);
  return { ...value };
}

function list(value: unknown, path: string, length?: number): readonly unknown[] {
  if (!Array.isArray(value)) throw new IopddlError(path, 'an array', value);
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
    else if (Number.isSafeInteger(x)) out[k] = x;
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
  const domains = costs.map((c, i) => {
    const unary = amounts(c, () => `problem.nodes.costs[${i}]`, true);
    builder.addVariable(unary);
    return unary.length;
  });
  if (problem.usage_limit !== undefined && problem.usage_limit !== null) {
    const limit = problem.usage_limit;
    if (typeof limit !== 'number' || !(limit >= 0)) {
      throw new IopddlError('problem.usage_limit', 'a non-negative integer', limit);
    }
    builder.setLimit(limit);
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
      if (lo < hi) builder.addUsage({ variable, lo, hi, amounts: usage });
    });
  }
  const ends = list(edges.nodes, 'problem.edges.nodes');
  const tables = list(edges.costs, 'problem.edges.costs', ends.length);
  ends.forEach((end, e) => {
    const [i, j] = pair(end, `problem.edges.nodes[${e}]`, domains.length);
    const table = amounts(tables[e], () => `problem.edges.costs[${e}]`, true);
    if (table.length !== domains[i] * domains[j]) {
      const expected = `${domains[i]} x ${domains[j]} = ${domains[i] * domains[j]} entries`;
      throw new IopddlError(`problem.edges.costs[${e}]`, expected, `${table.length} entries`);
    }
    builder.addEdge(i, j, table);
  });
  return builder.build();
}

/**
 * How wide the choice problem of a real graph is, with and without shared redistributions: domain
 * sizes, table sizes, and the largest table that elimination makes when the search (not messages)
 * proves the optimum. Run: node --import tsx bench/width.ts MODEL mesh cluster
 */
import { writeFileSync } from 'node:fs';

import { loadModel } from '../src/cli/input/load.ts';
import { prepare } from '../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../src/plan/request/request.ts';
import { networkOf } from '../src/solver/network/from-problem.ts';
import { costFunction } from '../src/solver/problem/cost.ts';
import { Search } from '../src/solver/search/branch-and-bound.ts';
import { makeWorkspace } from '../src/solver/search/workspace.ts';
import { Pool } from '../src/solver/store/pool.ts';
import type { Problem } from '../src/solver/types.ts';

const [path, mesh = 'dp=8,tp=8', cluster = 'dgx-h100', dump] = process.argv.slice(2);
const cpu = (): number => process.cpuUsage().user / 1e6 + process.cpuUsage().system / 1e6;
const start = cpu();
const { graph, table } = await loadModel(path, { role: [], tie: [] });
const loaded = cpu();
for (const sharing of [true, false]) {
  const before = cpu();
  const {
    model,
    left: { problem },
  } = prepare(graph, { ...DEFAULT_REQUEST, mesh, cluster, sharing }, table);
  const built = cpu();
  const sizes = [...problem.domains].sort((a, b) => b - a);
  const total = sizes.reduce((a, b) => a + b, 0);
  console.log(
    JSON.stringify({
      sharing,
      loadCpu: loaded - start,
      buildCpu: built - before,
      variables: sizes.length,
      copies: model.copies.length,
      values: total,
      largest: sizes.slice(0, 5),
      median: sizes[sizes.length >> 1],
      edges: problem.edges.first.length,
      tables: problem.tables.length,
      largestTable: Math.max(...problem.tables.map((t) => t.costs.length)),
      elimination: eliminated(problem),
      unitsPerSecond: model.unitsPerSecond,
    }),
  );
  if (dump !== undefined)
    writeFileSync(`${dump}${sharing ? '' : '-noshare'}.json`, JSON.stringify(problem, plain));
}

/** Counts what the search eliminates on its way to the optimum (without the memory row). */
function eliminated(problem: Problem): {
  computed: number;
  found: number;
  largestTable: number;
  cpu: number;
} {
  const from = cpu();
  const net = networkOf(problem, new Pool());
  const workspace = makeWorkspace(net);
  const host = {
    evaluate: costFunction(problem),
    stopped: () => false,
    progress: () => undefined,
    gap: 0,
  };
  new Search(host, workspace).solve(net);
  const { computed, found, largestTable } = workspace.eliminator.counts;
  return { computed, found, largestTable, cpu: cpu() - from };
}

function plain(_key: string, value: unknown): unknown {
  if (value instanceof Float64Array || value instanceof Int32Array)
    return Array.from(value, (v) => (v === Infinity ? -1 : v));
  return value;
}

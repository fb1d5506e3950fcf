/** `trace`: runs a TypeScript or JavaScript program, captures its graph and prints or writes it. */

import { printGraph } from '../../../graph/text/write.ts';
import { countNodes, type Graph } from '../../../graph/types.ts';
import { getOwn } from '../../../graph/value.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { traceScript } from '../../input/load-script.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { TraceOptions } from './flags.ts';

/** The record that `trace --json` prints; its keys are a contract. */
interface TraceSummary {
  readonly nodes: number;
  /** Calls by operator. */
  readonly ops: Readonly<Record<string, number>>;
  /** The same for each body, by name. */
  readonly subgraphs: Readonly<Record<string, TraceSummary>>;
}

export async function traceCommand(
  path: string,
  options: TraceOptions,
  io: CliIo,
): Promise<number> {
  const graph = await traceScript(path, builtinOperators());
  io.stdout(options.json === true ? `${JSON.stringify(summaryOf(graph))}\n` : printGraph(graph));
  return EXIT.ok;
}

function summaryOf(graph: Graph): TraceSummary {
  const counts = new Map<string, number>();
  for (const node of graph.nodes)
    if (node.kind === 'call') counts.set(node.target, (counts.get(node.target) ?? 0) + 1);
  const subgraphs: Record<string, TraceSummary> = Object.create(null) as Record<
    string,
    TraceSummary
  >;
  for (const name of Object.keys(graph.subgraphs)) {
    const body = getOwn(graph.subgraphs, name);
    if (body !== undefined) subgraphs[name] = summaryOf(body);
  }
  const ops = Object.fromEntries([...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)));
  return { nodes: countNodes(graph), ops, subgraphs };
}

/** Checks that what JavaScript hands to a function is a graph, before anything reads it. */
import { checkRecord } from '../errors.ts';

/** The fields that every graph has, and where graphs come from. */
export const GRAPH_FIELDS = {
  fields: ['nodes', 'outputs', 'subgraphs'],
  hint: 'trace and importGraph give one.',
} as const;

/** @throws E_USAGE where the argument is not a graph */
export function checkGraph(call: string, graph: unknown): void {
  checkRecord(call, 'graph', graph, GRAPH_FIELDS);
}

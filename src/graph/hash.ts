/** Hashes what a graph computes, by its canonical text. */

import { sha256 } from '../platform/platform.ts';
import { printGraph } from './text/write.ts';
import type { Graph } from './types.ts';

/**
 * Hash of what a graph computes: 16 hexadecimal digits of the SHA-256 of its canonical text without
 * source positions and remarks. Plan folders use it to tie a plan to its graph.
 */
export function graphHash(graph: Graph): string {
  return sha256(printGraph(graph, { source: false })).slice(0, 16);
}

/**
 * Finds how long control flow holds values, in a graph whose bodies are inlined: by reader, the
 * node up to which a value that it reads is alive, and the stacks of loops.
 *
 * A body is inlined once and runs trip after trip, so the last reader in the list is not the last
 * one in time: a value that a loop reads from outside is alive until its last trip, and so is a
 * value that one trip hands to the next. A stacked result is there in whole from the first trip on,
 * although its node comes after the body. A condition holds its operands until it returns.
 */
import type { Graph } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { Region } from '../../passes/plannable/regions.ts';

export interface RegionLives {
  /**
   * The node up to which a value of one node is alive for another that reads it: the reader itself
   * outside control flow.
   */
  heldUntil(producer: number, reader: number): number;
  /**
   * First node of the outermost call that holds a value of one node for another; -1 where none
   * does.
   */
  heldFrom(producer: number, reader: number): number;
  /** Last node of the loop whose carry a node is; -1 for any other. */
  carryUntil(node: number): number;
  /** First node of the loop that stacks what a node is; -1 for any other. */
  stackedFrom(node: number): number;
}

const STRAIGHT: RegionLives = {
  heldUntil: (_, reader) => reader,
  heldFrom: () => -1,
  carryUntil: () => -1,
  stackedFrom: () => -1,
};

/** @param regions of the graph; undefined for a straight-line program */
export function regionLives(graph: Graph, regions: readonly Region[] | undefined): RegionLives {
  if (regions === undefined || regions.length === 0) return STRAIGHT;
  const byName = new Map(graph.nodes.map(({ name }, n) => [name, n]));
  // Outer ones before those that they hold.
  const sorted = [...regions]
    .filter(({ start, end }) => end > start)
    .sort((a, b) => a.start - b.start || b.end - a.end);
  const parent = sorted.map((region, r) =>
    sorted.findLastIndex((outer, o) => o < r && outer.end >= region.end),
  );
  const innermost = new Int32Array(graph.nodes.length).fill(-1);
  const carried = new Map<number, number>();
  const stacked = new Map<number, number>();
  sorted.forEach(({ start, end }, r) => innermost.fill(r, start, end));
  sorted.forEach((region, r) => {
    if (region.kind === 'branch') return;
    for (const carry of region.carries) {
      const node = isRef(carry) ? byName.get(carry.name) : undefined;
      // A literal, or a tensor that needs no node of its own.
      if (node === undefined || node < region.start || node >= region.end) continue;
      carried.set(node, region.end - 1);
      // It takes the initial value over before the first trip.
      innermost[node] = parent[r];
    }
    if (region.kind === 'scan')
      for (const stack of region.stacks) {
        const node = stack === undefined ? undefined : byName.get(stack.whole);
        if (node !== undefined) stacked.set(node, region.start);
      }
  });
  const outermost = (producer: number, reader: number): Region | undefined => {
    let found: Region | undefined;
    for (let r = innermost[reader]; r >= 0; r = parent[r]) {
      const region = sorted[r];
      if (producer >= region.start && producer < region.end) break;
      found = region;
    }
    return found;
  };
  return {
    heldUntil: (producer, reader) => (outermost(producer, reader)?.end ?? reader + 1) - 1,
    heldFrom: (producer, reader) => outermost(producer, reader)?.start ?? -1,
    carryUntil: (node) => carried.get(node) ?? -1,
    stackedFrom: (node) => stacked.get(node) ?? -1,
  };
}

import type { Graph } from '../graph/types.ts';
import { parseMesh } from '../mesh/mesh.ts';
import { inlineCalls } from '../passes/inline-calls.ts';
import type { Pin } from './request.ts';

/** What the source of a graph says about shardings, as far as pins can say it. */
export interface GivenPins {
  readonly pins: readonly Pin[];
  /** Shardings that became no pin, one sentence each. */
  readonly skipped: readonly string[];
}

/**
 * Pins from the shardings that the source states (`Graph.given`), for a plan on `mesh`. The meshes must have the same dims
 * in the same order; their names may differ. Hints and shardings of outputs are not pinned.
 *
 * @throws E_MESH, E_SYNTAX where `mesh` is no mesh
 */
export function givenPins(graph: Graph, mesh: string): GivenPins {
  // Where functions are written out, their values have the names that the plan uses.
  const { given = [], mesh: own } = inlineCalls(graph);
  if (given.length === 0 || own === undefined) return { pins: [], skipped: [] };
  const [wanted, stated] = [parseMesh(mesh), parseMesh(own)];
  if (wanted.sizes.join() !== stated.sizes.join())
    return { pins: [], skipped: [`The shardings of the source are over mesh ${own}, the plan is on ${mesh}.`] };
  const pins: Pin[] = [];
  const skipped: string[] = [];
  for (const { value, output, sharding, strength } of given) {
    if (value === undefined)
      skipped.push(`Output ${output ?? 0} is ${sharding} in the source; outputs are not pinned.`);
    else if (strength === 'hint') skipped.push(`${value} is ${sharding} or finer in the source, which is only a hint.`);
    else pins.push({ node: value, spec: sharding });
  }
  return { pins, skipped };
}

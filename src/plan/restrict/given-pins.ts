/** Reads the pins and the mesh that the sharding annotations of a graph's source state. */
import type { Graph } from '../../graph/types.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import { inlineCalls } from '../../passes/control/inline-calls.ts';
import { countedText } from '../../units.ts';
import type { Pin } from '../request/request.ts';

/** The statements of a graph's source on shardings, as far as pins can express them. */
export interface GivenPins {
  readonly pins: readonly Pin[];
  /** The same of outputs, by their position in `Graph.outputs`. */
  readonly outputs: readonly { readonly output: number; readonly spec: string }[];
  /** Shardings that became no pin, one sentence each. */
  readonly skipped: readonly string[];
}

/**
 * Pins from the shardings that the source states, for a plan on `mesh`: those of `Graph.given` over
 * the mesh that the source names, which must have the same dims in the same order (names may
 * differ), and those in types, which name no mesh and must have a placement for each dim. Hints are
 * not pinned.
 *
 * @param graph with inlined bodies, where it has control flow (`openBodies`)
 * @throws E_MESH where `mesh` is not a mesh
 */
export function givenPins(graph: Graph, mesh: string): GivenPins {
  // Where functions are inlined, their values have the names that the plan uses.
  const flat = inlineCalls(graph);
  const wanted = parseMesh(mesh);
  const pins: Pin[] = [];
  const outputs: { output: number; spec: string }[] = [];
  const skipped: string[] = [];
  let strangers = 0;
  for (const { name, type } of flat.nodes) {
    if (type.kind !== 'tensor' || type.given === undefined) continue;
    if (parsesOn(type.given, wanted)) pins.push({ node: name, spec: type.given });
    else strangers++;
  }
  if (strangers > 0)
    skipped.push(
      `${countedText(strangers, 'sharding')} in types of the source do not fit the mesh ${mesh}.`,
    );
  const given = flat.given ?? [];
  if (flat.mesh !== undefined && given.length > 0) {
    if (wanted.sizes.join() !== parseMesh(flat.mesh).sizes.join())
      skipped.push(
        `The shardings of the source are over mesh ${flat.mesh}, the plan is on ${mesh}.`,
      );
    else
      for (const { value, output = 0, sharding, strength } of given) {
        if (strength === 'hint')
          skipped.push(
            `${value === undefined ? `Output ${output}` : `%${value}`} is ${sharding} or ` +
              'finer in the source, which is only a hint.',
          );
        else if (value === undefined) outputs.push({ output, spec: sharding });
        else pins.push({ node: value, spec: sharding });
      }
  }
  return { pins, outputs, skipped };
}

function parsesOn(text: string, mesh: ReturnType<typeof parseMesh>): boolean {
  try {
    parseSharding(text, mesh);
    return true;
  } catch {
    return false;
  }
}

import { LOCAL_MAP } from '../../../src/graph/local-map.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { collectiveKind, readCollective } from '../../../src/lower/program/collectives.ts';
import type { DeviceProgram } from '../../../src/lower/program/program.ts';
import { regionProgram } from '../../../src/simulate/ranks/local-map.ts';
import type { JaxCollective } from './recorded.ts';
import { table } from './simulated.ts';

/**
 * Collectives of a per-device program as XLA's text has them: kind, groups of devices, shape of
 * what one device holds after it.
 */
export function hloOf({ graph, mesh }: DeviceProgram): JaxCollective[] {
  return graph.nodes.flatMap(({ target, args, type }): JaxCollective[] => {
    const kind = collectiveKind(target);
    if (kind === undefined || type.kind !== 'tensor') return [];
    const { meshDims } = readCollective(mesh, target, args);
    const groups = mesh.groups(meshDims).map((group) => [...group]);
    return [[kind.replaceAll('_', '-'), groups, [`f32[${type.shape.map(Number).join(',')}]`]]];
  });
}

/** The per-device programs of the regions of a graph, in order. */
export function regionsOf(graph: Graph): DeviceProgram[] {
  return graph.nodes.flatMap((node) => {
    const [body] = node.args;
    if (node.target !== LOCAL_MAP || typeof body !== 'object' || body === null || !('name' in body))
      return [];
    return [regionProgram(table, node, graph.subgraphs[body.name])];
  });
}

/** Members of collectives one by one, where XLA has combined some, in an order of their own. */
export function members(collectives: readonly JaxCollective[]): string[] {
  return collectives
    .flatMap(([kind, groups, shapes]) =>
      shapes.map((shape) => `${kind} ${JSON.stringify(groups)} ${shape}`),
    )
    .sort();
}

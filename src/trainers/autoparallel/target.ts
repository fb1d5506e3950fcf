/**
 * `--target autoparallel` writes the placement of every node of a joint graph for AutoParallel into
 * `placements.json`. Source: the placements that AutoParallel saves: one text for a tensor with one
 * placement for each mesh dim, and tuples in brackets. The keys are the node names of the planned
 * graph, so that graph must be AutoParallel's own dump.
 */
import type {
  ExportFile,
  ExportLoss,
  ExportResult,
  ExportSource,
  ExportTarget,
  ReadPlacements,
} from '../../backend/target.ts';
import { ShardwrightError } from '../../errors.ts';
import { nodesByName } from '../../graph/nodes.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { fromMeshView, toMeshView } from '../../mesh/sharding/mesh-view.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';

interface NodePlacements {
  readonly output: string;
  readonly inputs: readonly string[];
}

function write(source: ExportSource): ExportResult {
  const { mesh, plan, table, graph } = source;
  const losses: ExportLoss[] = [];
  const types = nodesByName(graph);
  const word = (text: string, item: string): string => {
    const own = parseSharding(text, mesh, { kinds: table.kinds });
    const view = toMeshView(own, mesh);
    if ('refused' in view) {
      losses.push({ item, planned: text, instead: view.refused });
      return own.placements.map((p) => p.text).join('');
    }
    return view.placements.map((p) => p.text).join('');
  };
  const placements: [string, NodePlacements][] = [];
  for (const { name, inputs, outputs } of plan.nodes) {
    const node = types.get(name);
    const isTuple = node?.type.kind === 'tuple';
    const words = outputs.map((text) => (text === '-' ? 'None' : word(text, name)));
    if (node?.kind === 'placeholder' && words.length > 0) {
      const own = parseSharding(outputs[0], mesh, { kinds: table.kinds });
      if (own.placements.some(isPending))
        losses.push({
          item: name,
          planned: outputs[0],
          instead: 'AutoParallel has no pending placeholders',
        });
    }
    const output = isTuple ? `(${words.join(', ')})` : (words[0] ?? 'None');
    placements.push([name, { output, inputs: inputs.map((text) => word(text, name)) }]);
  }
  const body = {
    version: 1,
    mesh_shape: mesh.sizes,
    mesh_dim_names: mesh.names,
    placements: Object.fromEntries(placements.map(([name, own]) => [`\u0000${name}`, own])),
  };
  // A node may have the name of a property that every object has, so keys carry a mark while they
  // are in an object.
  const text = `${JSON.stringify(body, null, 1).replace(/^( *")\\u0000/gm, '$1')}\n`;
  return { files: [{ name: 'placements.json', text }], losses };
}

function readBack(files: readonly ExportFile[], mesh: DeviceMesh): ReadPlacements {
  const value: unknown = JSON.parse(files[0]?.text ?? 'null');
  const list =
    typeof value === 'object' && value !== null && 'placements' in value
      ? value.placements
      : undefined;
  if (typeof list !== 'object' || list === null)
    throw new ShardwrightError('E_SYNTAX', 'the file has no placements');
  const nodes = new Map<
    string,
    { readonly inputs: readonly string[]; readonly outputs: readonly string[] }
  >();
  const read = (text: string): string =>
    text === 'None' ? '-' : fromMeshView(parseSharding(text, mesh).placements, mesh).text;
  for (const [name, own] of Object.entries(list as Record<string, NodePlacements>)) {
    const inner =
      own.output.startsWith('(') && own.output.endsWith(')') ? own.output.slice(1, -1) : undefined;
    const outputs = inner === undefined ? [own.output] : inner === '' ? [] : inner.split(', ');
    nodes.set(name, { inputs: own.inputs.map(read), outputs: outputs.map(read) });
  }
  return { nodes };
}

export const autoparallelTarget: ExportTarget = {
  name: 'autoparallel',
  summary: 'placements of every node, for AutoParallel on the same joint graph',
  triedWith: [],
  write,
  readBack,
};

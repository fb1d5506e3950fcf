import { countNodes, DTYPE_BYTES, type Graph } from '../graph/types.ts';
import { graphFlops } from '../ops/flops.ts';
import type { OperatorTable } from '../ops/table.ts';
import { bytesText, countText, flopsText, tableText } from '../report/units.ts';
import type { CliIo } from './io.ts';
import { EXIT } from './io.ts';
import { loadModel, type LoadOptions } from './load.ts';

export interface InspectOptions extends LoadOptions {
  readonly json?: boolean;
}

/** What `inspect` prints; the keys are a contract. */
export interface Inspection {
  readonly name: string;
  readonly format: string;
  readonly nodes: number;
  /** Elements of all parameters; a tied weight counts once per name until it is tied. */
  readonly parameters: number;
  readonly parameterCount: number;
  readonly parameterBytes: number;
  readonly flops: { readonly forward: number; readonly backward: number; readonly total: number };
  readonly ops: Readonly<Record<string, number>>;
  readonly unknownOps: readonly string[];
  readonly notes: readonly string[];
}

export function inspectGraph(graph: Graph, table: OperatorTable, format: string): Inspection {
  const counts = new Map<string, number>();
  const unknown = new Set<string>();
  const tied = new Set((graph.ties ?? []).flatMap((group) => group.slice(1)));
  let parameters = 0;
  let parameterCount = 0;
  let parameterBytes = 0;
  for (const node of graph.nodes) {
    if (node.kind === 'placeholder') {
      if (node.meta.role !== 'parameter' || node.type.kind !== 'tensor') continue;
      if (tied.has(node.meta.roleName ?? node.name)) continue;
      const size = node.type.shape.reduce<number>((n, d) => n * (typeof d === 'number' ? d : (d.example ?? 1)), 1);
      parameters += size;
      parameterCount++;
      parameterBytes += size * DTYPE_BYTES[node.type.dtype];
      continue;
    }
    if (node.kind !== 'call') continue;
    const name = node.meta.original ?? node.target;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    if (node.target !== 'operator.getitem' && table.get(node.target) === undefined) unknown.add(name);
  }
  const ops = Object.fromEntries([...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)));
  const { forward, backward, total } = graphFlops(graph, table);
  return {
    name: graph.name,
    format,
    nodes: countNodes(graph),
    parameters,
    parameterCount,
    parameterBytes,
    flops: { forward, backward, total },
    ops,
    unknownOps: [...unknown].sort(),
    notes: graph.notes ?? [],
  };
}

export function inspectCommand(model: string, options: InspectOptions, io: CliIo): number {
  const { graph, table, format } = loadModel(model, options);
  const found = inspectGraph(graph, table, format);
  if (options.json === true) {
    io.stdout(`${JSON.stringify(found)}\n`);
    return EXIT.ok;
  }
  io.stdout(`${inspectionText(found)}\n`);
  return EXIT.ok;
}

function inspectionText(found: Inspection): string {
  const lines = [
    `${found.name}  (${found.format})`,
    `nodes       ${countText(found.nodes)}`,
    `parameters  ${countText(found.parameters)} in ${countText(found.parameterCount)} tensors, ${bytesText(found.parameterBytes)}`,
    `work        ${flopsText(found.flops.total)}: forward ${flopsText(found.flops.forward)}, backward ${flopsText(found.flops.backward)} (2 per multiply-add)`,
    '',
    tableText([['operator', 'nodes'], ...Object.entries(found.ops).map(([op, n]) => [op, countText(n)])], [1]),
  ];
  if (found.unknownOps.length > 0) lines.push('', `unknown operators: ${found.unknownOps.join(', ')}`);
  if (found.notes.length > 0) lines.push('', ...found.notes.map((n) => `note  ${n}`));
  return lines.join('\n');
}

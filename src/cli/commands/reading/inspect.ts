/** `inspect`: reads a model file and prints its inputs, parameters, operators and refusals. */

import { CONTROL_TARGETS } from '../../../graph/control.ts';
import { TO_GLOBAL, TO_LOCAL } from '../../../graph/local-map.ts';
import { roleName } from '../../../graph/nodes.ts';
import { countNodes, DTYPE_BYTES, type Graph } from '../../../graph/types.ts';
import { exampleShape } from '../../../graph/value.ts';
import type { ProgramCounts } from '../../../import/types.ts';
import { ofThemPadding, type VocabularyPadding } from '../../../models/vocabulary.ts';
import { programFlops } from '../../../ops/program-flops.ts';
import { elements } from '../../../ops/record/record.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { isCheck } from '../../../passes/plannable/checks.ts';
import { isTorchCollective } from '../../../passes/plannable/torch-collectives.ts';
import {
  bytesText,
  countedText,
  countText,
  flopsText,
  lineText,
  tableText,
} from '../../../units.ts';
import { loadModel } from '../../input/load.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { InspectOptions } from './flags.ts';
import { hloText, inspectHlo } from './inspect-hlo.ts';

/** The record that `inspect` prints; its keys are a contract. */
export interface Inspection {
  readonly name: string;
  readonly format: string;
  readonly nodes: number;
  /** Elements of all parameters; a tied weight counts once per name until it is tied. */
  readonly parameters: number;
  /** The part of `parameters` that is padding of the vocabulary (`--pad-vocab`). */
  readonly paddedParameters: number;
  readonly parameterCount: number;
  readonly parameterBytes: number;
  readonly flops: { readonly forward: number; readonly backward: number; readonly total: number };
  readonly ops: Readonly<Record<string, number>>;
  readonly unknownOps: readonly string[];
  readonly notes: readonly string[];
}

/**
 * @param counts what the file itself holds, where that is not one node for each of the graph
 * @param padding of the vocabulary of a model that was built
 */
export function inspectGraph(
  graph: Graph,
  table: OperatorTable,
  format: string,
  counts?: ProgramCounts,
  padding?: VocabularyPadding,
): Inspection {
  const byName = new Map<string, number>();
  const unknown = new Set<string>();
  const tied = new Set((graph.ties ?? []).flatMap((group) => group.slice(1)));
  let parameters = 0;
  let parameterCount = 0;
  let parameterBytes = 0;
  for (const node of graph.nodes) {
    if (node.kind === 'placeholder') {
      if (node.meta.role !== 'parameter' || node.type.kind !== 'tensor') continue;
      if (tied.has(roleName(node))) continue;
      const size = elements(exampleShape(node.type));
      parameters += size;
      parameterCount++;
      parameterBytes += size * DTYPE_BYTES[node.type.dtype];
      continue;
    }
    if (node.kind !== 'call') continue;
    const name = node.meta.original ?? node.target;
    byName.set(name, (byName.get(name) ?? 0) + 1);
  }
  addUnknown(graph, table, unknown);
  const counted = counts === undefined ? [...byName] : Object.entries(counts.ops);
  const ops = Object.fromEntries(counted.sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)));
  const { forward, backward, total, uncountedLoops, unsizedCalls } = programFlops(graph, table);
  return {
    name: graph.name,
    format,
    nodes: counts?.nodes ?? countNodes(graph),
    parameters: counts?.parameters?.elements ?? parameters,
    paddedParameters: padding?.parameters ?? 0,
    parameterCount: counts?.parameters?.count ?? parameterCount,
    parameterBytes: counts?.parameters?.bytes ?? parameterBytes,
    flops: { forward, backward, total },
    ops,
    unknownOps: [...unknown].sort(),
    notes: [...(graph.notes ?? []), ...workNotes(uncountedLoops, unsizedCalls)],
  };
}

/** Notes on work that the FLOPs do not include. */
function workNotes(uncountedLoops: number, unsizedCalls: number): string[] {
  const notes: string[] = [];
  if (uncountedLoops > 0)
    notes.push(`Loops whose number of trips is not known, counted once: ${uncountedLoops}.`);
  if (unsizedCalls > 0)
    notes.push(`Calls with sizes that have no value, whose work counts as 0: ${unsizedCalls}.`);
  return notes;
}

const STRUCTURAL = new Set([
  ...CONTROL_TARGETS,
  'operator.getitem',
  'sdy.manual_computation',
  TO_LOCAL,
  TO_GLOBAL,
]);

/** Operators without a record, bodies included; control flow is structure. */
function addUnknown(graph: Graph, table: OperatorTable, unknown: Set<string>): void {
  const seen = new Set<Graph>();
  const stack = [graph];
  // Where nothing says what a device has, collectives say nothing either.
  const isMarked = graph.nodes.some(({ target }) => target === TO_LOCAL);
  for (let body = stack.pop(); body !== undefined; body = stack.pop()) {
    if (seen.has(body)) continue;
    seen.add(body);
    for (const node of body.nodes)
      if (
        node.kind === 'call' &&
        !STRUCTURAL.has(node.target) &&
        !isCheck(node) &&
        !(isMarked && isTorchCollective(node.target)) &&
        table.get(node.target) === undefined
      )
        unknown.add(node.target);
    stack.push(...Object.values(body.subgraphs));
  }
}

export async function inspectCommand(
  model: string,
  options: InspectOptions,
  io: CliIo,
): Promise<number> {
  const compiled = inspectHlo(model, options.format);
  if (compiled !== undefined) {
    answer(io, options, compiled, hloText);
    return EXIT.ok;
  }
  const { graph, table, format, counts, padding } = await loadModel(model, options);
  const found = inspectGraph(graph, table, format, counts, padding);
  answer(io, options, found, inspectionText);
  return EXIT.ok;
}

function inspectionText(found: Inspection): string {
  const lines = [
    `${lineText(found.name)}  (${found.format})`,
    `nodes       ${countText(found.nodes)}`,
    `parameters  ${countText(found.parameters)} in ` +
      `${countedText(found.parameterCount, 'tensor')}, ` +
      `${bytesText(found.parameterBytes)}${ofThemPadding(found.paddedParameters)}`,
    `work        ${flopsText(found.flops.total)}: forward ${flopsText(found.flops.forward)}, ` +
      `backward ${flopsText(found.flops.backward)} (2 per multiply-add)`,
    '',
    tableText(
      [['operator', 'nodes'], ...Object.entries(found.ops).map(([op, n]) => [op, countText(n)])],
      [1],
    ),
  ];
  if (found.unknownOps.length > 0)
    lines.push('', `unknown operators: ${found.unknownOps.join(', ')}`);
  if (found.notes.length > 0) lines.push('', ...found.notes.map((n) => `note  ${n}`));
  return lines.join('\n');
}

/** Writes the report of a plan as CSV (RFC 4180): one row for each parameter, node and result. */

import type { Graph } from '../../graph/types.ts';
import type { Plan, PlannedRedistribution } from '../../plan/record/types.ts';

const HEAD = [
  'kind',
  'name',
  'target',
  'phase',
  'path',
  'shape',
  'inputs',
  'outputs',
  'times',
  'compute_seconds',
  'internal_seconds',
  'redistribution_seconds',
  'collectives',
  'collective_bytes',
];

/**
 * The plan as one table (RFC 4180): a row for each parameter, node and result. Seconds and bytes of
 * one run of the program.
 */
export function csvReport(plan: Plan, graph?: Graph): string {
  const nodes = new Map((graph?.nodes ?? []).map((node) => [node.name, node]));
  const rows: (string | number)[][] = [HEAD];
  for (const p of plan.parameters)
    rows.push([
      'parameter',
      p.name,
      '',
      '',
      '',
      p.shape.join('x'),
      '',
      p.placement,
      1,
      0,
      0,
      0,
      '',
      0,
    ]);
  for (const node of plan.nodes) {
    const times = node.times ?? 1;
    const meta = nodes.get(node.name)?.meta;
    rows.push([
      'node',
      node.name,
      node.target,
      meta?.phase ?? '',
      meta?.path ?? '',
      '',
      node.inputs.join(' '),
      node.outputs.join(' '),
      times,
      node.seconds * times,
      (node.internalSeconds ?? 0) * times,
      ...movesOf(node.redistributions),
    ]);
  }
  for (const output of plan.outputs)
    rows.push([
      output.role,
      output.value,
      'return',
      '',
      output.of ?? '',
      '',
      '',
      output.placement,
      1,
      0,
      0,
      ...movesOf(output.redistributions),
    ]);
  return csvLines(rows);
}

/** Rows as RFC 4180 has them. */
export function csvLines(rows: readonly (readonly (string | number)[])[]): string {
  return `${rows.map((row) => row.map(field).join(',')).join('\r\n')}\r\n`;
}

function movesOf(moves: readonly PlannedRedistribution[]): [number, string, number] {
  let seconds = 0;
  let bytes = 0;
  const names: string[] = [];
  for (const move of moves) {
    seconds += move.seconds * (move.times ?? 1);
    for (const c of move.collectives) {
      bytes += c.bytes * (move.times ?? 1);
      names.push(`${c.kind}(${c.meshDims.join('+')})`);
    }
  }
  return [seconds, names.join(' '), bytes];
}

/** A field; texts that a spreadsheet would run as a formula are led by an apostrophe. */
function field(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const text = /^[=+@\t\r]|^-./.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

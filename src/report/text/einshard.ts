/** Evaluates an einshard expression on a shape and prints its blocks and devices. */

import { drawBlocks } from '../../notations/draw/blocks.ts';
import { type Block, blockCounts, einshardBlocks } from '../../notations/einshard/blocks.ts';
import { einshardMesh, toPlacements, toSpec } from '../../notations/einshard/placements.ts';
import { type Einshard, einshardLocalShape } from '../../notations/einshard/resolve.ts';
import { formatEinshard } from '../../notations/einshard/syntax.ts';
import type {
  ProgramCollective,
  ProgramResult,
  ProgramValue,
} from '../../notations/einshard-program/program.ts';
import { tableText } from '../../units.ts';

/** The record that `einshard EXPR` prints; its keys are a contract. */
interface EinshardReport {
  /** Canonical text. */
  readonly expression: string;
  /** Sizes of the mesh dims, outermost first. */
  readonly mesh: readonly number[];
  /** Name of each mesh dim, null where it has none. */
  readonly axes: readonly (string | null)[];
  readonly placements: readonly string[];
  /** Names of the mesh dims of each tensor dim. */
  readonly spec: readonly (readonly string[])[];
  readonly localShape: readonly number[];
  readonly blocks: readonly Block[];
  /** Devices of every block as a matrix of matrices, where it is asked for. */
  readonly drawing?: string;
}

/**
 * @param shape global shape of the tensor @throws E_LIMIT for more blocks than can be listed or
 *   drawn
 */
export function einshardReport(
  einshard: Einshard,
  shape: readonly number[],
  draw: boolean,
): EinshardReport {
  const blocks = einshardBlocks(einshard);
  return {
    expression: formatEinshard(einshard.expression),
    mesh: einshard.axes.map((a) => a.size),
    axes: einshard.axes.map((a) => a.name),
    placements: toPlacements(einshard).map((p) => p.text),
    spec: toSpec(einshard),
    localShape: einshardLocalShape(einshard, shape),
    blocks,
    ...(draw ? { drawing: drawBlocks(blocks, blockCounts(einshard)) } : {}),
  };
}

const SHOWN_BLOCKS = 64;

/** The report for people. */
export function einshardText(
  report: EinshardReport,
  einshard: Einshard,
  shape: readonly number[],
): string {
  const { blocks } = report;
  const lines = [
    report.expression,
    `mesh         ${einshardMesh(einshard).toString()}`,
    `placements   ${report.placements.join(' ')}`,
    `spec         P(${report.spec.map((names) => names[0] ?? 'None').join(', ')})`,
    `local shape  ${list(report.localShape)} of ${list(shape)}`,
    `blocks       ${blocks.length}`,
    ...blocks
      .slice(0, SHOWN_BLOCKS)
      .map((b) => `  (${b.index.join(', ')})  {${b.devices.join(', ')}}`),
  ];
  if (blocks.length > SHOWN_BLOCKS)
    lines.push(`  ... and ${blocks.length - SHOWN_BLOCKS} more (--json lists all of them)`);
  if (report.drawing !== undefined) lines.push('', report.drawing);
  return lines.join('\n');
}

/** The table of a program: tensors with their placements, then the collectives. */
export function programText(result: ProgramResult): string {
  const rows = [
    ['tensor', 'type', 'placements', 'by name', 'local shape'],
    ...result.tensors.map((t) => [
      t.name,
      `${t.dtype}${list(t.shape)}`,
      journey(t, (placements) => placements.join('')),
      journey(t, (placements) => byName(placements, t.letters)),
      list(t.localShape),
    ]),
  ];
  const { collectives } = result;
  const lines = [`mesh  (${result.mesh.join(', ')})`, '', tableText(rows), ''];
  if (collectives.length === 0) lines.push('no forward collectives');
  else
    lines.push(
      tableText([
        ['collective', 'result', 'tensor', 'before', 'groups'],
        ...collectives.map((c) => [
          c.kind,
          `${c.dtype}${list(c.shape)}`,
          c.tensor,
          c.before,
          groupsText(c),
        ]),
      ]),
    );
  return lines.join('\n');
}

/** `P(sum) -> R before relu`. */
function journey(t: ProgramValue, text: (placements: readonly string[]) => string): string {
  return t.history
    .map(
      ({ placements, before }, i) =>
        `${i > 0 ? ' -> ' : ''}${text(placements) || 'R'}${suffix(before)}`,
    )
    .join('');
}

function suffix(before: string | undefined): string {
  return before === undefined || before === END ? '' : ` before ${before}`;
}
const END = 'the end';

/** `S(0)` with the letter of the dim in place of its number. */
function byName(placements: readonly string[], letters: string | undefined): string {
  return placements
    .map((p) =>
      p.replace(/^S\((\d+)\)$/, (all, d: string) =>
        letters?.[Number(d)] === undefined ? all : `S(${letters[Number(d)]})`,
      ),
    )
    .join('');
}

function groupsText({ groups }: ProgramCollective): string {
  const shown = groups.slice(0, 16).map((g) => `{${g.join(',')}}`);
  return shown.join('') + (groups.length > 16 ? ` and ${groups.length - 16} more` : '');
}

function list(numbers: readonly number[]): string {
  return `[${numbers.join(', ')}]`;
}

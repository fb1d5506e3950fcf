/** Turns a drawing into plain text of aligned cells. */

import { ShardwrightError } from '../../errors.ts';
import type { Drawing, Gap } from './matrix.ts';

/**
 * A drawing as plain text.
 *
 * Cells are right-justified to one width, at least 2. Columns are separated by one space (level 0),
 * three (level 1), or level-1 colons with two spaces on both sides; between rows nothing, an empty
 * line, or level-1 lines of dots. A cut turns the middle of a gap between columns into bars and the
 * gap between rows into a line of dashes, with + where two cuts of one level meet.
 */
export function drawText(drawing: Drawing): string {
  let width = 2;
  for (const row of drawing.cells)
    for (const cell of row) width = Math.max(width, cell.text.length);
  // A cut of the innermost dim leaves space for its bar at every place of that dim, so that columns
  // stay in step.
  const innermost = drawing.columnGaps.some((g) => g.level === 0 && g.cut) ? 3 : 1;
  const columns = drawing.columnGaps.map((gap) => columnGap(gap, innermost));
  const margin = drawing.rowGaps.some((g) => g.cut);
  checkLength(drawing, columns, width);

  const lines: string[] = [];
  drawing.cells.forEach((row, r) => {
    if (r > 0) pushGapLines(lines, drawing.rowGaps[r - 1], columns, width, margin);
    let line = margin ? ' ' : '';
    row.forEach((cell, c) => {
      if (c > 0) line += columns[c - 1].text;
      line += cell.text.padStart(width);
    });
    lines.push(line);
  });
  const trimmed = lines.map((line) => line.trimEnd());
  if (margin) return trimmed.join('\n');
  let indent = Infinity;
  for (const line of trimmed)
    if (line !== '') indent = Math.min(indent, line.length - line.trimStart().length);
  return trimmed.map((line) => line.slice(indent)).join('\n');
}

/** Characters of one text. */
const MAX_CHARACTERS = 1 << 22;

interface ColumnGap {
  readonly level: number;
  readonly cut: boolean;
  /** The gap in a row of cells, such as `  ::  `. */
  readonly text: string;
  /** Bars or colons, or nothing. */
  readonly mark: string;
}

function columnGap({ level, cut }: Gap, innermost: number): ColumnGap {
  if (level >= 2) {
    const mark = (cut ? '|' : ':').repeat(level - 1);
    return { level, cut, mark, text: `  ${mark}  ` };
  }
  const mark = cut ? '|' : '';
  return { level, cut, mark, text: cut ? ' | ' : ' '.repeat(level === 1 ? 3 : innermost) };
}

function linesOf({ level, cut }: Gap): number {
  if (level >= 2) return level - 1;
  return cut || level === 1 ? 1 : 0;
}

function pushGapLines(
  lines: string[],
  gap: Gap,
  columns: readonly ColumnGap[],
  width: number,
  margin: boolean,
): void {
  const count = linesOf(gap);
  if (count === 0) return;
  const fill = gap.cut ? '-' : gap.level >= 2 ? '.' : ' ';
  let line = !margin ? '' : gap.cut ? '-' : ' ';
  line += fill.repeat(width);
  for (const column of columns) line += crossing(gap, column, fill) + fill.repeat(width);
  if (gap.cut) line += '-';
  for (let i = 0; i < count; i++) lines.push(line);
}

/**
 * The crossing of a line between rows and a gap between columns: the one of a higher level stays
 * whole.
 */
function crossing(gap: Gap, column: ColumnGap, fill: string): string {
  const { mark, text, level } = column;
  if (level < gap.level || (level === gap.level && mark === '')) return fill.repeat(text.length);
  if (level === gap.level) {
    const side = fill.repeat((text.length - mark.length) / 2);
    return side + (gap.cut && column.cut ? '+'.repeat(mark.length) : mark) + side;
  }
  const kept = mark === '' ? ' ' : ` ${mark} `;
  const side = fill.repeat((text.length - kept.length) / 2);
  return side + kept + side;
}

function checkLength(drawing: Drawing, columns: readonly ColumnGap[], width: number): void {
  const across = columns.reduce((sum, c) => sum + c.text.length, drawing.columns * width);
  const down = drawing.rowGaps.reduce((sum, g) => sum + linesOf(g), drawing.rows);
  if (across * down > MAX_CHARACTERS)
    throw new ShardwrightError(
      'E_LIMIT',
      `the drawing takes ${down} lines of ${across} characters, more than ${MAX_CHARACTERS} in all`,
      { hint: 'draw a smaller shape that is cut in the same way, or fewer devices.' },
    );
}

/** Sets tables for a terminal of few columns: cells that are too wide go on below. */

import { lineText, tableText } from '../../units.ts';
import { COLUMNS } from './first-screen.ts';

/** The least columns that a cell which goes on below may have. */
const LEAST = 10;
const BETWEEN = 2;

/**
 * A table of at most so many columns: of the columns with words, the widest are broken behind
 * commas, pluses, dots and blanks. Numbers are never broken.
 *
 * @param right columns of numbers
 */
export function narrowTable(
  cells: readonly (readonly string[])[],
  right: readonly number[] = [],
  columns = COLUMNS,
): string {
  const rows = cells.map((row) => row.map(lineText));
  const widths = narrowed(rows, right, columns);
  return tableText(
    rows.flatMap((row) => {
      const lines = row.map((cell, c) => brokenCell(cell, widths[c] ?? cell.length));
      const height = Math.max(...lines.map((own) => own.length));
      return Array.from({ length: height }, (_, k) => lines.map((own) => own[k] ?? ''));
    }),
    right,
  );
}

/** The widths of the columns, the widest ones of words cut until the table fits. */
function narrowed(
  rows: readonly (readonly string[])[],
  right: readonly number[],
  columns: number,
): number[] {
  const widths: number[] = [];
  for (const row of rows)
    row.forEach((cell, c) => (widths[c] = Math.max(widths[c] ?? 0, cell.length)));
  const total = (): number => widths.reduce((sum, w) => sum + w + BETWEEN, -BETWEEN);
  for (let over = total() - columns; over > 0; over = total() - columns) {
    const widest = widths.reduce(
      (most, w, c) => (!right.includes(c) && w > (widths[most] ?? 0) ? c : most),
      -1,
    );
    const width = widths[widest] ?? 0;
    if (width <= LEAST) break;
    // One column at a time: the next widest takes its share of what is too much.
    widths[widest] = width - 1;
  }
  return widths;
}

/** A cell in lines of at most so many characters, broken where its words or its parts end. */
export function brokenCell(cell: string, width: number): string[] {
  if (cell.length <= width) return [cell];
  const lines: string[] = [];
  let line = '';
  for (const part of cell.match(/[^ ,+.]+[ ,+.]*|[ ,+.]+/g) ?? []) {
    if (line !== '' && (line + part).trimEnd().length > width) {
      lines.push(line.trimEnd());
      line = '';
    }
    line += part;
    while (line.trimEnd().length > width) {
      lines.push(line.slice(0, width));
      line = line.slice(width);
    }
  }
  return line.trim() === '' && lines.length > 0 ? lines : [...lines, line.trimEnd()];
}

/** Prints the rows of a first screen in 80 columns. */

import type { ScreenRow } from '../model/first-screen.ts';

/** The columns of a first screen: those of a terminal that nobody made wider. */
export const COLUMNS = 80;
const LABEL = 11;

/**
 * The rows with their labels, broken between words; a second answer to a question begins a line.
 */
export function screenText(rows: readonly ScreenRow[]): string {
  return rows
    .flatMap((row) =>
      row.texts
        .flatMap((text) => wrapped(text, COLUMNS - LABEL))
        .map((line, k) => `${(k === 0 ? row.label : '').padEnd(LABEL)}${line}`),
    )
    .join('\n');
}

/** Lines of at most so many characters; a longer word has a line of its own. */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  // No line breaks between a number and its unit.
  const glued = text.replace(/(\d) (?=%|[mµn]?s\b|[KMGT]iB\b|B\b)/g, '$1\u00a0');
  for (const word of glued.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      // What goes on is set in, so that the next answer is told from it.
      line = `  ${word}`;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map((one) => one.replaceAll('\u00a0', ' '));
}

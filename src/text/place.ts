/**
 * Finds places in a text for errors: the line and column of an offset, and the line around it. It
 * also holds the limits of all readers.
 */

import { defined } from '../defined.ts';
import type { ErrorDetails, SourcePosition } from '../errors.ts';

/** Characters of a name that is read. */
export const MAX_NAME = 4096;
/** Brackets inside each other that are read: no text can exhaust the stack. */
export const MAX_DEPTH = 256;
/** Characters of a line that an error shows. */
const MAX_EXCERPT = 240;

/**
 * 1-based line and column of an offset. It counts lines from the beginning: only errors need it.
 */
function positionAt(text: string, offset: number): SourcePosition {
  const at = Math.min(offset, text.length);
  let line = 1;
  let lineStart = 0;
  for (let i = text.indexOf('\n'); i >= 0 && i < at; i = text.indexOf('\n', i + 1)) {
    line++;
    lineStart = i + 1;
  }
  return { line, column: at - lineStart + 1 };
}

/** The line around an offset, cut to what a terminal can show. */
function excerptAt(text: string, offset: number): string {
  const at = Math.min(offset, text.length);
  const lineStart = at === 0 ? 0 : text.lastIndexOf('\n', at - 1) + 1;
  const end = text.indexOf('\n', at);
  const line = text.slice(lineStart, end < 0 ? undefined : end);
  if (line.length <= MAX_EXCERPT) return line;
  const from = Math.max(0, at - lineStart - MAX_EXCERPT / 2);
  return `${from > 0 ? '...' : ''}${line.slice(from, from + MAX_EXCERPT)}...`;
}

/** File, line, column and excerpt of an offset, as errors carry them. */
export function placeAt(
  text: string,
  offset: number,
  file?: string,
): Pick<ErrorDetails, 'file' | 'position' | 'excerpt'> {
  return {
    ...defined({ file }),
    position: positionAt(text, offset),
    excerpt: excerptAt(text, offset),
  };
}

/**
 * Colours what a terminal shows: labels and headings, warnings, the recommended row, the lines of a
 * diff. A line is painted after its control characters are escaped, so what comes from outside
 * cannot paint, and it keeps its width.
 */

import { styleText } from 'node:util';

/** Paints one line, which has no line break. */
export type Paint = (line: string) => string;

type Format = Parameters<typeof styleText>[0];

/** The pieces of a screen, the first that a line begins with; all of the match is painted. */
const SCREEN: readonly (readonly [begins: RegExp, format: Format])[] = [
  // The recommended row of a table.
  [/^\* .*$/, ['bold', 'green']],
  // What asks for an action.
  [/^(?:warning|risk|idle|stopped|note)\b(?= )/, ['bold', 'yellow']],
  // What is recommended.
  [/^(?:best|do|set|answer)\b(?= {2})/, ['bold', 'green']],
  // A heading of a table: words, without figures, above it.
  [/^ +plan {2,}mesh .*$/, 'bold'],
  // Any other label of a screen: short words, and blanks up to its text.
  [/^[a-z]+(?: [a-z]+)?(?= {2,}| (?<=^.{11}))/i, 'bold'],
];

const DIFF: typeof SCREEN = [
  [/^(?:---|\+\+\+) .*$/, 'bold'],
  [/^@@ .*$/, 'cyan'],
  [/^\+.*$/, 'green'],
  [/^-.*$/, 'red'],
];

/** A plan that may not fit: `fits with 57 %`. */
const RISKY = /fits with [1-8]?\d %|does not fit[^;,.]*/g;

/** The lines of a first screen. */
export const paintScreen: Paint = (line) => paintedBy(SCREEN, line);

/** The lines of a first screen with the diff of a file in it. */
export const paintDiff: Paint = (line) => paintedBy([...DIFF, ...SCREEN], line);

function paintedBy(rules: typeof SCREEN, line: string): string {
  for (const [begins, format] of rules) {
    const [found] = begins.exec(line) ?? [];
    if (found === undefined) continue;
    return styled(format, found) + painted(line.slice(found.length), RISKY, ['bold', 'red']);
  }
  return painted(line, RISKY, ['bold', 'red']);
}

/** Lines of messages: an error begins with its code, a warning with that word. */
export function paintMessage(line: string): string {
  const [error] = /^E_[A-Z_]+/.exec(line) ?? [];
  if (error !== undefined) return styled(['bold', 'red'], error) + line.slice(error.length);
  const [mark] = /^(?:warning:| {2}hint:)/.exec(line) ?? [];
  if (mark === undefined) return line;
  const format: Format = mark === 'warning:' ? ['bold', 'yellow'] : 'cyan';
  return styled(format, mark) + line.slice(mark.length);
}

function painted(text: string, what: RegExp, format: Format): string {
  return text.replace(what, (found) => styled(format, found));
}

/** Paints without a look at the stream: the caller knows that it shows colours. */
function styled(format: Format, text: string): string {
  return styleText(format, text, { validateStream: false });
}

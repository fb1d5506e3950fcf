/**
 * Writes what changed between two texts as a unified diff, as `patch` and `git apply` take it.
 * Lines are matched by their longest common subsequence, behind what both begin and end with.
 */

const CONTEXT = 3;

interface Line {
  readonly sign: ' ' | '-' | '+';
  readonly text: string;
}

/** The diff of a file; empty where the texts are equal. */
export function unifiedDiff(file: string, before: string, behind: string): string {
  if (before === behind) return '';
  const lines = diffLines(linesOf(before), linesOf(behind));
  const hunks = hunksOf(lines);
  return [`--- a/${file}`, `+++ b/${file}`, ...hunks].join('\n');
}

/** The lines of a text; the last says so where no line feed ends it. */
function linesOf(text: string): string[] {
  const lines = text.split('\n');
  if (lines.at(-1) === '') return lines.slice(0, -1);
  return [...lines.slice(0, -1), `${lines.at(-1) ?? ''}\n\\ No newline at end of file`];
}

function diffLines(a: readonly string[], b: readonly string[]): Line[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end))
    end++;
  const middle = changed(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const same = (text: string): Line => ({ sign: ' ', text });
  return [...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end).map(same)];
}

/** Lines that are taken out and put in, by the longest common subsequence. */
function changed(a: readonly string[], b: readonly string[]): Line[] {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i][j] =
        a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length)
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: ' ', text: a[i] });
      i++;
      j++;
    } else if (j === b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1]))
      lines.push({ sign: '-', text: a[i++] });
    else lines.push({ sign: '+', text: b[j++] });
  return lines;
}

function hunksOf(lines: readonly Line[]): string[] {
  const marks = lines.flatMap(({ sign }, i) => (sign === ' ' ? [] : [i]));
  const ranges: [from: number, to: number][] = [];
  for (const i of marks) {
    const last = ranges.at(-1);
    if (last !== undefined && i - CONTEXT <= last[1])
      last[1] = Math.min(lines.length, i + 1 + CONTEXT);
    else ranges.push([Math.max(0, i - CONTEXT), Math.min(lines.length, i + 1 + CONTEXT)]);
  }
  return ranges.flatMap(([from, to]) => {
    const part = lines.slice(from, to);
    const count = (sign: '-' | '+', some: readonly Line[]): number =>
      some.filter((line) => line.sign !== (sign === '-' ? '+' : '-')).length;
    const before = lines.slice(0, from);
    const place = (sign: '-' | '+'): string => {
      const length = count(sign, part);
      return `${count(sign, before) + Number(length > 0)},${length}`;
    };
    return [
      `@@ -${place('-')} +${place('+')} @@`,
      ...part.map(({ sign, text }) => `${sign}${text}`),
    ];
  });
}

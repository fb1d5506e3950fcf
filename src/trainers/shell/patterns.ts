/**
 * Patterns of a shell: `*`, `?`, `[a-z]`, `[[:digit:]]` and plain characters. Characters that are
 * quoted stand between brackets (`quotedPattern`). Source: the Bash manual, 3.5.8.1 and 3.5.3.
 */

/** A character, a star, a question mark, or brackets with what is in them. */
const SIGNS = /\[[!^]?\]?(?:\[:\w+:\]|[^\]])*\]|[\s\S]/g;

/** The classes of characters that a pattern can name, of ASCII. */
const CLASSES: Readonly<Record<string, RegExp>> = {
  alnum: /[A-Za-z0-9]/,
  alpha: /[A-Za-z]/,
  ascii: /[\0-\x7f]/,
  blank: /[ \t]/,
  cntrl: /[\0-\x1f\x7f]/,
  digit: /\d/,
  graph: /[!-~]/,
  lower: /[a-z]/,
  print: /[ -~]/,
  punct: /[!-/:-@[-`{-~]/,
  space: /[ \t\n\v\f\r]/,
  upper: /[A-Z]/,
  word: /\w/,
  xdigit: /[\dA-Fa-f]/,
};

/** A text whose signs are plain characters, as a pattern. */
export function quotedPattern(text: string): string {
  return text.replace(/[*?[\\(]/g, '[$&]');
}

/** Tells whether a pattern has signs that `matchesPattern` does not read for such a text. */
export function isOpenPattern(pattern: string, text: string): boolean {
  const signs = pattern.match(SIGNS) ?? [];
  // Which letters a class has beyond ASCII is for the locale to say.
  const hasOthers = /[^\0-\x7f]/.test(text);
  return signs.some((sign) => {
    if (sign.length === 1) return sign === '\\' || sign === '(';
    const inner = sign.slice(1, -1);
    const classes = [...inner.matchAll(/\[:(\w+):\]/g)].map(([, name]) => name);
    const isKnown = classes.every((name) => Object.hasOwn(CLASSES, name));
    return (
      !isKnown ||
      (classes.length > 0 && hasOthers) ||
      (inner.length > 1 && inner.includes('\\')) ||
      /\[[.=]/.test(inner)
    );
  });
}

/** One place of a pattern: a character, any, or one of a set. */
type Unit = (char: string) => boolean;

/** The runs of places between the stars of a pattern. */
function runsOf(pattern: string): readonly (readonly Unit[])[] {
  const runs: Unit[][] = [[]];
  for (const sign of pattern.match(SIGNS) ?? []) {
    const run = runs[runs.length - 1];
    if (sign === '*') runs.push([]);
    else if (sign === '?') run.push(() => true);
    else if (sign.length > 1) run.push(setOf(sign.slice(1, -1)));
    else run.push((char) => char === sign);
  }
  return runs;
}

/** The characters of `[a-z_[:digit:]]`, or all others of `[!a-z_]`. */
function setOf(text: string): Unit {
  const isOther = text.length > 1 && /^[!^]/.test(text);
  const members = (isOther ? text.slice(1) : text).match(/\[:\w+:\]|[\s\S]-[\s\S]|[\s\S]/g) ?? [];
  return (char) => members.some((member) => isMember(char, member)) !== isOther;
}

function isMember(char: string, member: string): boolean {
  if (member.length > 3) return CLASSES[member.slice(2, -2)].test(char);
  return member.length === 3 ? char >= member[0] && char <= member[2] : char === member;
}

/** Tells whether a whole text matches a pattern. */
export function matchesPattern(text: string, pattern: string): boolean {
  return matchesRuns(text, runsOf(pattern));
}

function matchesRuns(text: string, runs: readonly (readonly Unit[])[]): boolean {
  const fits = (at: number, run: readonly Unit[]): boolean =>
    at >= 0 && at + run.length <= text.length && run.every((unit, i) => unit(text[at + i]));
  if (!fits(0, runs[0])) return false;
  if (runs.length === 1) return text.length === runs[0].length;
  let at = runs[0].length;
  for (const run of runs.slice(1, -1)) {
    while (at <= text.length && !fits(at, run)) at++;
    if (at > text.length) return false;
    at += run.length;
  }
  const last = runs[runs.length - 1];
  return at <= text.length - last.length && fits(text.length - last.length, last);
}

/** Lengths that a match in a text may have, the longest first. */
function lengthsOf(runs: readonly (readonly Unit[])[], most: number): readonly number[] {
  const least = runs.reduce((sum, run) => sum + run.length, 0);
  if (runs.length === 1) return least <= most ? [least] : [];
  return Array.from({ length: Math.max(0, most - least + 1) }, (_, n) => most - n);
}

/** `${NAME#...}`, `${NAME%%...}`: a text without the shortest or longest match at one end. */
export function removedFrom(
  text: string,
  operator: '#' | '##' | '%' | '%%',
  pattern: string,
): string {
  const runs = runsOf(pattern);
  const lengths = [...lengthsOf(runs, text.length)];
  if (operator.length === 1) lengths.reverse();
  const isHead = operator.startsWith('#');
  const found = lengths.find((n) =>
    matchesRuns(isHead ? text.slice(0, n) : text.slice(text.length - n), runs),
  );
  if (found === undefined) return text;
  return isHead ? text.slice(found) : text.slice(0, text.length - found);
}

/** `${NAME/a/b}` and `//`, `/#`, `/%`: the first match, all of them, or that at one of the ends. */
export function replacedIn(
  text: string,
  operator: '/' | '//' | '/#' | '/%',
  pattern: string,
  replacement: string,
): string {
  const runs = runsOf(pattern);
  const matchAt = (from: number): number | undefined =>
    lengthsOf(runs, text.length - from).find((n) => matchesRuns(text.slice(from, from + n), runs));
  if (operator === '/#') {
    const length = matchAt(0);
    return length === undefined ? text : replacement + text.slice(length);
  }
  if (operator === '/%') {
    const length = lengthsOf(runs, text.length).find((n) =>
      matchesRuns(text.slice(text.length - n), runs),
    );
    return length === undefined ? text : text.slice(0, text.length - length) + replacement;
  }
  let done = '';
  let at = 0;
  while (at < text.length) {
    const length = matchAt(at) ?? 0;
    done += length > 0 ? replacement : text[at];
    at += length > 0 ? length : 1;
    if (length > 0 && operator === '/') break;
  }
  return done + text.slice(at);
}

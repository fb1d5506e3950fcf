/**
 * Finds one configuration in a Python file of several, as trainers keep them: functions that return
 * one, some of them made from others. It gives the lines of the function, without texts and
 * comments, after those of the functions that it calls.
 */

import { ShardwrightError, suggestion } from '../../errors.ts';

/** A configuration inside a function. */
const STATES = /\b(ParallelismConfig|TrainingConfig)\s*\(|\.(parallelism|training)\.\w+\s*=(?!=)/;
/** A function that gives one section, for a configuration to take. */
const SECTION = /\breturn\s+(ParallelismConfig|TrainingConfig)\s*\(/;
/** Names that a message lists. */
const MOST_NAMES = 12;

/**
 * @throws E_INPUT where there are several and none is named, and where there is none of the name
 */
export function configurationLines(text: string, file: string, name?: string): string {
  const functions = new Map<string, string>();
  for (const [, own, body] of text.matchAll(
    /^def (\w+)\s*\([^)]*\)[^:\n]*:[ \t]*\n((?:[ \t]+.*\n?|[ \t]*\n)*)/gm,
  ))
    functions.set(own, body);
  const called = (own: string): string[] =>
    [...(functions.get(own) ?? '').matchAll(/\b(\w+)\s*\(/g)]
      .map(([, other]) => other)
      .filter((other) => functions.has(other) && other !== own);
  const states = (own: string, seen: ReadonlySet<string> = new Set()): boolean =>
    !seen.has(own) &&
    (STATES.test(functions.get(own) ?? '') ||
      called(own).some((other) => states(other, new Set([...seen, own]))));
  const names = [...functions].flatMap(([own, body]) =>
    states(own) && !SECTION.test(body) ? [own] : [],
  );
  const others = names.length > MOST_NAMES ? ' and others' : '';
  const known = `${names.slice(0, MOST_NAMES).join(', ')}${others}`;
  if (name === undefined) {
    if (names.length < 2) return text;
    throw new ShardwrightError(
      'E_INPUT',
      `found ${names.length} configurations, wanted one: ${known}`,
      { file, hint: `name it: --layout ${file}:${names[0]}` },
    );
  }
  if (!names.includes(name))
    throw new ShardwrightError('E_INPUT', `no configuration '${name}'`, {
      file,
      hint:
        names.length === 0
          ? 'no function of the file returns one.'
          : suggestion(name, names, 'configurations'),
    });
  const lines = (own: string, seen: readonly string[] = []): string =>
    seen.includes(own)
      ? ''
      : [
          ...called(own).map((other) => lines(other, [...seen, own])),
          functions.get(own) ?? '',
        ].join('\n');
  return lines(name);
}

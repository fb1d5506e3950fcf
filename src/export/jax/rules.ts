/**
 * Writes the specs of many named inputs as a few rules. The first rule whose pattern is found in a
 * name holds. Numbers of layers become `\d+` where all layers agree; names that differ only at the
 * front share their ending.
 */
import type { SpecOf } from './shardings.ts';

interface Rule {
  /** A regular expression of Python, to be searched in the name. */
  readonly pattern: string;
  readonly spec: string;
}

/** Rules that give every name its spec, the most common spec last as the rule for the rest. */
export function rules(inputs: readonly SpecOf[]): Rule[] {
  const counts = new Map<string, number>();
  for (const { spec } of inputs) counts.set(spec, (counts.get(spec) ?? 0) + 1);
  const [rest] = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0] ?? ['P()'];
  const others = inputs.filter(({ spec }) => spec !== rest);
  const out: Rule[] = [];
  const open = new Set(others.map(({ name }) => name));
  for (const { name, spec } of others) {
    if (!open.has(name)) continue;
    const right = (found: SpecOf): boolean => found.spec === spec;
    const pattern = candidates(name).find((p) => {
      const matched = inputs.filter((own) => new RegExp(p, 'u').test(own.name));
      return matched.every(right);
    });
    const chosen = pattern ?? `^${escaped(name)}$`;
    const found = new RegExp(chosen, 'u');
    for (const own of inputs) if (right(own) && found.test(own.name)) open.delete(own.name);
    out.push({ pattern: chosen, spec });
  }
  return [...out, { pattern: '', spec: rest }];
}

/** From the shortest ending of the name to the whole of it, numbers left open first. */
function candidates(name: string): string[] {
  const parts = name.split(/(?<=[.\]/])|(?=[[])/);
  const open = (text: string): string => escaped(text).replace(/\d+/g, String.raw`\d+`);
  const endings = parts.map((_, i) => parts.slice(parts.length - 1 - i).join(''));
  return [...endings.map((end) => `${open(end)}$`), `^${open(name)}$`];
}

/**
 * JavaScript and Python read the result the same way; what is not ASCII, and a control character,
 * matches any character.
 */
function escaped(text: string): string {
  return text
    .replace(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`)
    .replace(/[^\x20-\x7e]/gu, String.raw`[\s\S]`);
}

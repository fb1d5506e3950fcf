/** Variables after branches that the script alone does not choose between. */

import { joined, textOf, type Unknown, unknownIn, type Value, type Variable } from './value.ts';

type Variables = ReadonlyMap<string, Variable>;

/**
 * Variables that are alike in all branches keep their value. Where branches only add words to what
 * all of them have, the words that may be added are unknown; else the whole value is.
 *
 * @param text the condition as it is written, and its offset
 */
export function mergeVariables(
  branches: readonly Variables[],
  condition: { readonly text: string; readonly at: number },
): Map<string, Variable> {
  const merged = new Map<string, Variable>();
  for (const name of new Set(branches.flatMap((branch) => [...branch.keys()]))) {
    const found = branches.map((branch) => branch.get(name));
    const first = found[0];
    if (
      first !== undefined &&
      found.every((other) => JSON.stringify(other) === JSON.stringify(first))
    )
      merged.set(name, first);
    else merged.set(name, mergeVariable(name, found, condition));
  }
  return merged;
}

function mergeVariable(
  name: string,
  found: readonly (Variable | undefined)[],
  { text, at }: { readonly text: string; readonly at: number },
): Variable {
  const why = `which depends on '${text}'`;
  const lists = found.map((variable) => (variable?.kind === 'array' ? variable.values : []));
  if (found.every((variable) => variable === undefined || variable.kind === 'array')) {
    const kept = commonPrefix(lists);
    const adds = lists.flatMap((list) => list.slice(kept).flatMap(wordsOf));
    const unknown: Unknown = { text: `\${${name}[@]}`, at, why, adds };
    return { kind: 'array', values: [...lists[0].slice(0, kept), [unknown]] };
  }
  const texts = found.map((variable) =>
    variable === undefined
      ? ''
      : textOf(variable.kind === 'text' ? variable.value : joined(variable.values)),
  );
  const shortest = texts.reduce((a, b) => (b.length < a.length ? b : a));
  const isGrown = texts.every(
    (t) => t.startsWith(shortest) && /^(\s|$)/.test(t.slice(shortest.length)),
  );
  const base = isGrown
    ? found.find((v) => v?.kind === 'text' && textOf(v.value) === shortest)
    : undefined;
  const adds = texts.flatMap((t) => t.slice(base === undefined ? 0 : shortest.length).split(/\s+/));
  const unknown: Unknown = {
    text: `\${${name}}`,
    at,
    why,
    adds: adds.filter((word) => word !== ''),
  };
  return {
    kind: 'text',
    value: base?.kind === 'text' ? [...base.value, ' ', unknown] : [unknown],
  };
}

/** Words of a value; what a condition before may add to them counts. */
function wordsOf(value: Value): readonly string[] {
  return [...textOf(value).split(/\s+/), ...(unknownIn(value)?.adds ?? [])];
}

function commonPrefix(lists: readonly (readonly Value[])[]): number {
  const most = Math.min(...lists.map((list) => list.length));
  for (let i = 0; i < most; i++)
    if (lists.some((list) => JSON.stringify(list[i]) !== JSON.stringify(lists[0][i]))) return i;
  return most;
}

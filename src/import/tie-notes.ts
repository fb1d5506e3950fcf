import type { Graph } from '../graph/types.ts';

/** Notes that ask for a tie, and their end: what a tie answers is not asked any more. */

/** @param names role names of the parameters that the graph returns no gradient for */
export function withoutGradientNote(names: readonly string[]): string {
  const more = names.length > 3 ? ` and ${names.length - 3} more` : '';
  return `${names.length === 1 ? 'Parameter' : 'Parameters'} without a gradient: ${names.slice(0, 3).join(', ')}${more}. For the second name of a tied weight, --tie A=B counts it once.`;
}

/** A name that two inputs have. @param own what the second one is called instead */
export function listedTwiceNote(wanted: string, own: string): string {
  return `'${wanted}' is listed twice; the second is called '${own}' (--tie ${wanted}=${own} makes them one).`;
}

/**
 * The notes of a graph whose ties have been stated since they were written.
 *
 * @param before the graph as it was read, with its notes
 * @param tied the same graph with its ties
 */
export function notesOfTied(before: Graph, tied: Graph): readonly string[] {
  const { notes = [] } = before;
  const groups = tied.ties ?? [];
  const asked = new Set<string>();
  for (const group of groups) for (const a of group) for (const b of group) asked.add(listedTwiceNote(a, b));
  const names = withoutGradient(before);
  const open = withoutGradient(tied).filter((name) => !groups.some((group) => group.includes(name)));
  const old = withoutGradientNote(names);
  return notes.flatMap((note) => {
    if (asked.has(note)) return [];
    if (note !== old) return [note];
    return open.length === 0 ? [] : [withoutGradientNote(open)];
  });
}

function withoutGradient({ nodes, outputs }: Graph): string[] {
  const trained = new Set(outputs.flatMap((o) => (o.role === 'grad' && o.value !== null ? [o.of] : [])));
  return nodes.flatMap(({ kind, meta }) =>
    kind === 'placeholder' && meta.role === 'parameter' && !trained.has(meta.roleName) ? [meta.roleName ?? ''] : [],
  );
}

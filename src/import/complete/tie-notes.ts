/** Notes that ask for a tie, and their end: what a tie answers is not asked any more. */

import { roleName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, eachRef, isRef, sameType, typeText } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';

/** @param names role names of the parameters that the graph returns no gradient for */
export function withoutGradientNote(names: readonly string[]): string {
  const more = names.length > 3 ? ` and ${names.length - 3} more` : '';
  return (
    `${names.length === 1 ? 'Parameter' : 'Parameters'} without a gradient: ` +
    `${names.slice(0, 3).join(', ')}${more}. For the second name of a tied weight, --tie A=B ` +
    'counts it once.'
  );
}

/** A name that two inputs have. @param own what the second one is called instead */
export function listedTwiceNote(wanted: string, own: string): string {
  return (
    `'${wanted}' is listed twice; the second is called '${own}' (--tie ${wanted}=${own} makes ` +
    'them one).'
  );
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
  for (const group of groups)
    for (const a of group) for (const b of group) asked.add(listedTwiceNote(a, b));
  const names = withoutGradient(before);
  const open = withoutGradient(tied).filter(
    (name) => !groups.some((group) => group.includes(name)),
  );
  const old = withoutGradientNote(names);
  return notes.flatMap((note) => {
    if (asked.has(note)) return [];
    if (note !== old) return [note];
    return open.length === 0 ? [] : [withoutGradientNote(open)];
  });
}

function withoutGradient({ nodes, outputs }: Graph): string[] {
  const trained = new Set(
    outputs.flatMap((o) => (o.role === 'grad' && o.value !== null ? [o.of] : [])),
  );
  return nodes.flatMap(({ kind, meta }) =>
    kind === 'placeholder' && meta.role === 'parameter' && !trained.has(meta.roleName)
      ? [meta.roleName ?? '']
      : [],
  );
}

function isLookup({ target, args }: Node): boolean {
  return target === 'aten.embedding.default' && isRef(args[0]);
}

/**
 * Asks for a tie where two weights look like one: a table of rows that an embedding reads, and the
 * one other weight of its type, which a product reads. Texts that list a tied weight under both
 * names look the same as two weights.
 */
export function lookEqualNotes(graph: Graph): string[] {
  const untrained = new Set(withoutGradient(graph));
  const hasGradients = graph.outputs.some(({ role }) => role === 'grad');
  const tied = new Set(graph.ties?.flat());
  const weights = graph.nodes.filter(
    ({ kind, type, meta }) =>
      kind === 'placeholder' &&
      meta.role === 'parameter' &&
      type.kind === 'tensor' &&
      type.shape.length === 2 &&
      !tied.has(meta.roleName ?? ''),
  );
  const tables = new Set<string>();
  for (const node of graph.nodes)
    if (isLookup(node)) eachRef(itemAt(node.args, 0), (name) => tables.add(name));
  if (tables.size === 0) return [];
  const read = new Set<string>();
  for (const node of graph.nodes) if (!isLookup(node)) eachOperand(node, (name) => read.add(name));
  return weights.flatMap((table: Node): string[] => {
    if (!tables.has(table.name)) return [];
    const same = weights.filter((other) => other !== table && sameType(other.type, table.type));
    const [weight, ...more] = same;
    if (weight === undefined || more.length > 0) return [];
    if (tables.has(weight.name) || !read.has(weight.name)) return [];
    const [a, b] = [roleName(table), roleName(weight)];
    if (hasGradients && (untrained.has(a) || untrained.has(b))) return [];
    return [
      `${a} (a table of rows) and ${b} (the weight of a product) are both ` +
        `${typeText(table.type)}: if they are one tied weight, --tie ${a}=${b} gives them one ` +
        'placement and one gradient.',
    ];
  });
}

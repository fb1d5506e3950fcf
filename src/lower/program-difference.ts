/**
 * Compares two per-device programs node by node, with the names of values left out: targets,
 * arguments, types, and what is returned.
 */
import type { Arg, Graph, Node } from '../graph/types.ts';
import { isGraphRef, isList, isRef, sameType } from '../graph/value.ts';

/** The first place where two programs differ. */
export interface ProgramDifference {
  readonly text: string;
  /** Node of the second program. */
  readonly node?: string;
}

/** The first difference between two programs; undefined where they are the same. */
export function programDifference(a: Graph, b: Graph): ProgramDifference | undefined {
  const names = new Map<string, string>();
  for (let n = 0; n < Math.max(a.nodes.length, b.nodes.length); n++) {
    const [own, other] = [a.nodes[n] as Node | undefined, b.nodes[n] as Node | undefined];
    if (own === undefined || other === undefined)
      return {
        text: `it has ${a.nodes.length} nodes, the plan ${b.nodes.length}`,
        ...(other === undefined ? {} : { node: other.name }),
      };
    const what = nodeDifference(own, other, names);
    if (what !== undefined)
      return { text: `${what} of ${own.target} for ${other.target}`, node: other.name };
    names.set(own.name, other.name);
  }
  const returned = a.outputs.findIndex(({ value, role }, k) => {
    const other = b.outputs[k];
    return role !== other.role || (value === null ? null : names.get(value)) !== other.value;
  });
  return returned < 0 ? undefined : { text: `output ${returned} is another value` };
}

function nodeDifference(
  own: Node,
  other: Node,
  names: ReadonlyMap<string, string>,
): string | undefined {
  if (own.kind !== other.kind || (own.kind === 'call' && own.target !== other.target))
    return 'another call';
  if (!sameType(own.type, other.type)) return 'another type';
  const keys = Object.keys(own.kwargs);
  const same =
    sameArg(own.args, other.args, names) &&
    keys.length === Object.keys(other.kwargs).length &&
    keys.every((key) => sameArg(own.kwargs[key], other.kwargs[key], names));
  return same ? undefined : 'other arguments';
}

/** Tells whether two arguments are the same, values under their names in the other program. */
function sameArg(
  a: Arg | undefined,
  b: Arg | undefined,
  names: ReadonlyMap<string, string>,
): boolean {
  if (a === undefined || b === undefined) return a === b;
  if (isList(a))
    return isList(b) && a.length === b.length && a.every((item, i) => sameArg(item, b[i], names));
  if (isRef(a)) return isRef(b) && names.get(a.name) === b.name;
  // Bodies of comparators are kept, under names of their own.
  if (typeof a === 'object' && a !== null && isGraphRef(a))
    return typeof b === 'object' && b !== null && !isList(b) && isGraphRef(b);
  if (typeof a !== 'object' || a === null || typeof b !== 'object' || b === null)
    return Object.is(a, b);
  return Object.entries(a).every(([key, value]) =>
    sameArg(value as Arg, (b as unknown as Readonly<Record<string, Arg>>)[key], names),
  );
}

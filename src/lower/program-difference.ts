/**
 * Compares two per-device programs node by node, with the names of values left out: targets,
 * arguments, types, and what is returned.
 */
import type { Arg, Graph, Node } from '../graph/types.ts';
import { isList, sameType } from '../graph/value.ts';

/** The first place where two programs differ. */
interface ProgramDifference {
  readonly text: string;
  /** Node of the second program. */
  readonly node?: string;
}

/** The first difference between two programs; undefined where they are the same. */
export function programDifference(a: Graph, b: Graph): ProgramDifference | undefined {
  const names = new Map<string, string>();
  const isBody = (own: string, other: string): boolean => {
    const [body, second] = [a.subgraphs[own], b.subgraphs[other]];
    return programDifference(body, second) === undefined;
  };
  for (let n = 0; n < Math.max(a.nodes.length, b.nodes.length); n++) {
    const [own, other] = [a.nodes[n] as Node | undefined, b.nodes[n] as Node | undefined];
    if (own === undefined || other === undefined)
      return {
        text: `it has ${a.nodes.length} nodes, the plan ${b.nodes.length}`,
        ...(other === undefined ? {} : { node: other.name }),
      };
    const what = nodeDifference(own, other, { names, isBody });
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

/** The parts of two programs that stand for each other. */
interface Same {
  /** Values of the first program, with their names in the second. */
  readonly names: ReadonlyMap<string, string>;
  /** Tells whether two bodies, such as comparators, are the same. */
  readonly isBody: (a: string, b: string) => boolean;
}

function nodeDifference(own: Node, other: Node, same: Same): string | undefined {
  if (own.kind !== other.kind || (own.kind === 'call' && own.target !== other.target))
    return 'another call';
  if (!sameType(own.type, other.type)) return 'another type';
  const keys = Object.keys(own.kwargs);
  const hasSameArguments =
    sameArg(own.args, other.args, same) &&
    keys.length === Object.keys(other.kwargs).length &&
    keys.every((key) => sameArg(own.kwargs[key], other.kwargs[key], same));
  return hasSameArguments ? undefined : 'other arguments';
}

/** Tells whether two arguments are the same, values under their names in the other program. */
function sameArg(a: Arg | undefined, b: Arg | undefined, same: Same): boolean {
  if (a === undefined || b === undefined) return a === b;
  if (isList(a))
    return isList(b) && a.length === b.length && a.every((item, i) => sameArg(item, b[i], same));
  if (typeof a !== 'object' || a === null) return Object.is(a, b);
  if (typeof b !== 'object' || b === null || isList(b)) return false;
  switch (a.kind) {
    case 'value':
      return b.kind === 'value' && same.names.get(a.name) === b.name;
    case 'graph':
      return b.kind === 'graph' && same.isBody(a.name, b.name);
    case 'slice':
      return (
        b.kind === 'slice' &&
        sameArg(a.start, b.start, same) &&
        sameArg(a.stop, b.stop, same) &&
        sameArg(a.step, b.step, same)
      );
    case 'float':
      return b.kind === 'float' && Object.is(a.value, b.value);
    case 'dtype':
      return b.kind === 'dtype' && a.dtype === b.dtype;
    case 'size':
      return b.kind === 'size' && a.size.sym === b.size.sym;
    case 'device':
    case 'layout':
      return b.kind === a.kind && a.word === b.word;
  }
}

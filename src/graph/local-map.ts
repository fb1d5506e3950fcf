/**
 * Reads regions of per-device code: the parts of a `local_map` call and the types of one device's
 * pieces, where an axis that cuts a dim divides it. It handles the structure only and not the
 * meaning of the types.
 */
import { product } from '../product.ts';
import type { Arg, Graph, Node, ValueType } from './types.ts';
import { getOwn, isGraphRef, isList, tensorType } from './value.ts';

/** Target of a region of per-device code. */
export const LOCAL_MAP = 'local_map';

/** `to_local(x, "dp=2,tp=4", "S(0)R")`: the piece of `x` that a device has. */
export const TO_LOCAL = 'shardwright.to_local.default';
/** `to_global(piece, "dp=2,tp=4", "S(0)R")`: the value that the pieces join to. */
export const TO_GLOBAL = 'shardwright.to_global.default';

/** An axis of a region. */
export interface RegionAxis {
  readonly name: string;
  readonly size: number;
}

/**
 * A region of per-device code: `local_map(@body, [x, w], axes=["dp=2", "tp=4"], in_specs=[["S(0)",
 * "I"], ...], out_specs=[...])`.
 */
export interface LocalMapCall {
  readonly body: string;
  readonly operands: readonly Arg[];
  /** Mesh axes on which the body is per device, in mesh order. */
  readonly axes: readonly RegionAxis[];
  /** For each operand one type for each axis: `S(0)`, `R`, `I`, `P`. */
  readonly inSpecs: readonly (readonly string[])[];
  readonly outSpecs: readonly (readonly string[])[];
}

/**
 * The parts of a `local_map` call. @throws Error (plain, one sentence) when it does not have them
 */
export function localMapCall({ args, kwargs }: Pick<Node, 'args' | 'kwargs'>): LocalMapCall {
  const [body, operands] = args;
  if (body === undefined || !isGraphRef(body))
    throw new Error('argument 0 of local_map must be a subgraph');
  if (operands === undefined || !isList(operands))
    throw new Error('argument 1 of local_map must be a list of values');
  const words = (arg: Arg | undefined, what: string): string[] => {
    if (arg === undefined || !isList(arg) || !arg.every((word) => typeof word === 'string'))
      throw new Error(`${what} of local_map must be a list of texts`);
    return [...arg];
  };
  const axes = words(getOwn(kwargs, 'axes'), 'axes').map((text) => {
    const [, name, size] = /^([A-Za-z_][A-Za-z0-9_.-]*)=(\d{1,7})$/.exec(text) ?? [];
    if (name === undefined || Number(size) < 1)
      throw new Error(`'${text}' names no axis; write tp=4`);
    return { name, size: Number(size) };
  });
  const twice = axes.find(({ name }, i) => axes.findIndex((other) => other.name === name) !== i);
  if (twice !== undefined) throw new Error(`local_map lists the axis '${twice.name}' twice`);
  const specs = (key: string): string[][] => {
    const list = getOwn(kwargs, key);
    if (list === undefined || !isList(list))
      throw new Error(`${key} of local_map must be a list of lists`);
    return list.map((member) => {
      const spec = words(member, `a member of ${key}`);
      if (spec.length !== axes.length || !spec.every((word) => /^(S\(\d{1,3}\)|R|I|P)$/.test(word)))
        throw new Error(
          `[${spec.join(', ')}] in ${key} must have one of S(0), R, I, P for each of ` +
            `${axes.length} axes`,
        );
      return spec;
    });
  };
  const [inSpecs, outSpecs] = [specs('in_specs'), specs('out_specs')];
  if (inSpecs.length !== operands.length)
    throw new Error(`local_map has ${inSpecs.length} in_specs for ${operands.length} operands`);
  return { body: body.name, operands, axes, inSpecs, outSpecs };
}

/** Axes of the regions in a graph that are not among `held`, in the order in which they appear. */
export function nestedAxes(graph: Graph, held: readonly RegionAxis[]): RegionAxis[] {
  const found = new Map<string, RegionAxis>();
  const walk = (of: Graph): void => {
    for (const node of of.nodes)
      if (node.target === LOCAL_MAP)
        for (const axis of localMapCall(node).axes)
          if (!held.some(({ name }) => name === axis.name)) found.set(axis.name, axis);
    for (const body of Object.values(of.subgraphs)) walk(body);
  };
  walk(graph);
  return [...found.values()];
}

/** The type of one device's piece (`cut`), or of what the pieces join to. */
export function localType(
  type: ValueType,
  spec: readonly string[],
  axes: LocalMapCall['axes'],
  way: 'cut' | 'join',
  what: string,
): ValueType {
  if (type.kind !== 'tensor') {
    if (type.kind === 'none') return type;
    throw new Error(`${what} of local_map is not a tensor`);
  }
  const shape = type.shape.map((dim, d) => {
    const cuts = axes.filter((_, a) => spec[a] === `S(${d})`);
    if (cuts.length === 0) return dim;
    if (typeof dim !== 'number')
      throw new Error(`${what} of local_map is cut on dim ${d}, whose size is open`);
    const n = product(cuts.map(({ size }) => size));
    if (way === 'join') return dim * n;
    if (dim % n !== 0)
      throw new Error(
        `dim ${d} of ${what} has ${dim} rows, which do not divide by ` +
          `${cuts.map((c) => `${c.name}=${c.size}`).join(' and ')}`,
      );
    return dim / n;
  });
  const beyond = spec.find((word) => Number(/^S\((\d+)\)$/.exec(word)?.[1] ?? -1) >= shape.length);
  if (beyond !== undefined)
    throw new Error(`${beyond} cuts a dim that ${what} of local_map does not have`);
  return tensorType(type.dtype, shape);
}

/** Symbolic sizes of a graph, and the graph with them fixed. */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { sizeNames, sizeValue, type SizeValues } from '../../graph/text/size-value.ts';
import type { Arg, Dim, Graph, Node, Sym, ValueType } from '../../graph/types.ts';
import { eachOperand, getOwn, isList, setOwn } from '../../graph/value.ts';

/** A named size that a program leaves open. */
export interface OpenSize {
  readonly name: string;
  /** Admissible sizes, where the program states them. */
  readonly min?: number;
  readonly max?: number;
  readonly multiple?: number;
  /** The size that the source was made with, where it says. */
  readonly example?: number;
}

/** The named sizes of a graph, sorted by name. */
export function openSizes(graph: Graph): OpenSize[] {
  checkKinds('openSizes', { graph: [graph, 'graph'] });
  const examples = new Map<string, number | undefined>();
  const see = (size: Sym): void => {
    for (const name of sizeNames(size.sym)) if (!examples.has(name)) examples.set(name, undefined);
    if (size.example !== undefined && /^\w+$/.test(size.sym)) examples.set(size.sym, size.example);
  };
  new SizeFixer((size) => {
    see(size);
    return size;
  }).graph(graph);
  return [...examples]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, example]) => {
      const range = getOwn(graph.dims ?? {}, name);
      return { name, ...(range ?? {}), ...defined({ example }) };
    });
}

/**
 * The graph at these sizes; others are taken at their examples, and those without one stay open.
 * Sizes that are inputs or are computed by nodes become numbers where they are read.
 *
 * @throws E_REF for a name that the graph does not leave open; E_RANGE for a size that it does not
 *   admit
 */
export function atSizes(graph: Graph, given: SizeValues): Graph {
  checkKinds('atSizes', { graph: [graph, 'graph'], given: [given, 'sizesByName'] });
  const open = openSizes(graph);
  for (const [name, value] of given) checkSize(open, name, value);
  const values = new Map(given);
  for (const { name, example } of open)
    if (example !== undefined && !values.has(name)) values.set(name, example);
  if (values.size === 0) return graph;
  const fixed = new SizeFixer((size) => sizeValue(size.sym, values) ?? size).graph(graph);
  const { dims, ...rest } = fixed;
  const left = Object.keys(dims ?? {}).filter((name) => !values.has(name));
  const kept = left.map((name) => [name, getOwn(dims ?? {}, name)!] as const);
  const told = open.flatMap((size) => {
    const value = values.get(size.name);
    return value === undefined
      ? []
      : [`${size.name} = ${value}${size.max === undefined ? '' : ` (of ${rangeText(size)})`}`];
  });
  const note = `Open sizes are taken at ${told.join(', ')}.`;
  return {
    ...rest,
    ...(kept.length > 0 ? { dims: Object.fromEntries(kept) } : {}),
    notes: [...(graph.notes ?? []), note],
  };
}

/** @throws E_REF, E_RANGE */
function checkSize(open: readonly OpenSize[], name: string, value: number): void {
  const size = open.find((one) => one.name === name);
  if (size === undefined)
    throw new ShardwrightError('E_REF', `the program leaves no size '${name}' open`, {
      hint:
        open.length === 0
          ? 'all of its sizes are numbers.'
          : suggestion(
              name,
              open.map((o) => o.name),
              'open sizes',
            ),
    });
  const { min = 0, max = Infinity, multiple = 1 } = size;
  if (Number.isSafeInteger(value) && value >= min && value <= max && value % multiple === 0) return;
  throw new ShardwrightError(
    'E_RANGE',
    `${name} = ${value}: the program admits ${rangeText(size)}`,
    {
      hint: 'give a size that the program was made for, or export it again with a wider range.',
    },
  );
}

/** `2 to 512`, `multiples of 8 from 8`. */
function rangeText({ min = 0, max = Infinity, multiple = 1 }: OpenSize): string {
  const what = multiple === 1 ? '' : `multiples of ${multiple} from `;
  return max === Infinity
    ? `${multiple === 1 ? 'sizes from ' : what}${min}`
    : `${what}${min} to ${max}`;
}

/**
 * The graph with its symbolic sizes fixed at their examples, and a note that says so; as it is
 * where there are none.
 */
export function atExampleSizes(graph: Graph): Graph {
  const fixed = new Set<string>();
  const result = new SizeFixer((size) => {
    // A size without an example stays, and whatever reads it says so.
    if (size.example === undefined) return size;
    fixed.add(`${size.sym} = ${size.example}`);
    return size.example;
  }).graph(graph);
  if (fixed.size === 0) return graph;
  const note = `Symbolic sizes are fixed at their examples: ${[...fixed].sort().join(', ')}.`;
  return { ...result, notes: [...(graph.notes ?? []), note] };
}

/** Replaces the symbolic sizes of a graph and its bodies. */
class SizeFixer {
  constructor(private readonly fix: (size: Sym) => Dim) {}

  graph(graph: Graph): Graph {
    const subgraphs: Record<string, Graph> = {};
    for (const [name, body] of Object.entries(graph.subgraphs))
      setOwn(subgraphs, name, this.graph(body));
    // Values of size nodes, by their names: who reads one reads the number.
    const numbers = new Map<string, number>();
    for (const node of graph.nodes) {
      if (node.type.kind !== 'sym' || node.type.expr === undefined) continue;
      const size = this.fix({ sym: node.type.expr });
      if (typeof size === 'number') numbers.set(node.name, size);
    }
    const nodes = graph.nodes.map((node) => this.node(node, numbers));
    if (numbers.size === 0) return { ...graph, nodes, subgraphs };
    const read = new Set(graph.outputs.map((output) => output.value));
    for (const node of nodes) eachOperand(node, (name) => read.add(name));
    // A size that is fixed is not an input of the program any more, and has no slot among its
    // results.
    const gone = new Set<string>();
    const kept = nodes.filter((node) => {
      if (!numbers.has(node.name) || read.has(node.name)) return true;
      if (node.kind === 'placeholder' && node.meta.roleName !== undefined)
        gone.add(node.meta.roleName);
      return false;
    });
    const outputs = graph.outputs.filter(
      ({ value, of }) => value !== null || of === undefined || !gone.has(of),
    );
    return { ...graph, nodes: kept, outputs, subgraphs };
  }

  private node(node: Node, numbers: ReadonlyMap<string, number>): Node {
    const kwargs: Record<string, Arg> = {};
    for (const [key, arg] of Object.entries(node.kwargs))
      setOwn(kwargs, key, this.arg(arg, numbers));
    const args = node.args.map((arg) => this.arg(arg, numbers));
    return { ...node, type: this.type(node.type), args, kwargs };
  }

  private dim(dim: Dim): Dim {
    return typeof dim === 'number' ? dim : this.fix(dim);
  }

  private type(type: ValueType): ValueType {
    if (type.kind === 'tuple') return { ...type, items: type.items.map((item) => this.type(item)) };
    if (type.kind !== 'tensor' || type.shape.every((d) => typeof d === 'number')) return type;
    const stride = type.stride === undefined ? {} : { stride: type.stride.map((d) => this.dim(d)) };
    return { ...type, shape: type.shape.map((d) => this.dim(d)), ...stride };
  }

  private arg(arg: Arg, numbers: ReadonlyMap<string, number>): Arg {
    if (isList(arg)) return arg.map((member) => this.arg(member, numbers));
    if (arg === null || typeof arg !== 'object') return arg;
    if (arg.kind === 'value') return numbers.get(arg.name) ?? arg;
    if (arg.kind === 'size') {
      const size = this.fix(arg.size);
      return typeof size === 'number' ? size : arg;
    }
    if (arg.kind !== 'slice') return arg;
    const [start, stop, step] = [arg.start, arg.stop, arg.step].map((part) =>
      this.arg(part, numbers),
    );
    return { kind: 'slice', start, stop, step };
  }
}

/** Draws inputs for a graph from a seed, at magnitudes that do not overflow. */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import { controlCall, placeholdersOf } from '../graph/control.ts';
import { typesByName } from '../graph/nodes.ts';
import type { Arg, Graph, Node, ValueType } from '../graph/types.ts';
import { exampleShape, isGraphRef, isList, isRef } from '../graph/value.ts';
import { build, kindOf, type NDArray } from '../ndarray/array.ts';
import { ofParts, partType } from '../ndarray/complex.ts';
import { normal, type RandomStream, streamOf, uniform } from '../ndarray/random.ts';
import { bindCall } from '../ops/record/context.ts';
import { elements, type OperatorRecord } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { product } from '../product.ts';

/**
 * Values for the inputs of a graph, drawn from a seed. Floats are of the size that networks have at
 * their start, so that nothing overflows; integers stay inside of what they index, found from the
 * calls that they reach.
 *
 * @param vocabulary of a padded one: integers that index `rows` rows are token ids, and stay below
 *   `stated`
 */
export function drawInputs(
  table: OperatorTable,
  graph: Graph,
  seed = 0,
  vocabulary?: { readonly rows: number; readonly stated: number },
): NDArray[] {
  checkKinds('drawInputs', {
    table: [table, 'operators'],
    graph: [graph, 'graph'],
    seed: [seed, 'number', 'undefined'],
    vocabulary: [vocabulary, ['rows', 'stated'], 'undefined'],
  });
  const { bounds, domains } = demandsOf(table, graph);
  const positive = positiveInputs(table, graph);
  const ends = groupEnds(graph);
  return graph.nodes
    .filter((node) => node.kind === 'placeholder')
    .map((node) => {
      if (node.type.kind !== 'tensor')
        throw new ShardwrightError('E_UNSUPPORTED', `input ${node.name} is not a tensor`, {
          node: node.name,
        });
      const shape = exampleShape(node.type);
      const { dtype } = node.type;
      const stream: RandomStream = { seed, stream: streamOf(`input ${node.name}`) };
      const domain = domains.get(node.name);
      if (domain !== undefined)
        return build(shape, drawnOf(domain, shape, stream, kindOf(dtype) === 'integer'), dtype);
      switch (kindOf(dtype)) {
        case 'bool':
          return build(shape, (i) => (uniform(stream, i) < 0.6 ? 1 : 0), dtype);
        case 'integer': {
          const last = ends.get(node.name);
          if (last !== undefined)
            return build(shape, (i) => Math.floor(((i + 1) * last) / shape[0]), dtype);
          const rows = bounds.get(node.name) ?? 10;
          const bound = rows === vocabulary?.rows ? vocabulary.stated : rows;
          return build(shape, (i) => Math.floor(uniform(stream, i) * bound), dtype);
        }
        default: {
          if (positive.has(node.name)) return build(shape, (i) => 0.5 + uniform(stream, i), dtype);
          const scale = shape.length >= 2 ? 1 / Math.sqrt(Math.max(1, shape.at(-1) ?? 1)) : 1;
          const part = (from: number): NDArray =>
            build(shape, (i) => normal(stream, from + i) * scale, partType(dtype));
          return ofParts([part(0), part(elements(shape))], dtype);
        }
      }
    });
}

/** Arguments that are row numbers, with the argument and dim whose size bounds them. */
const INDEXERS: Readonly<
  Record<string, readonly [index: string, table: string, dim: (dim: number) => number]>
> = {
  'aten.embedding.default': ['indices', 'weight', () => 0],
  'aten.nll_loss_forward.default': ['target', 'self', () => 1],
  'aten.nll_loss2d_forward.default': ['target', 'self', () => 1],
  'aten.nll_loss_backward.default': ['target', 'self', () => 1],
  'aten.nll_loss2d_backward.default': ['target', 'self', () => 1],
  'aten.cross_entropy_loss.default': ['target', 'self', () => 1],
  'aten.gather.default': ['index', 'self', (d) => d],
  'aten.scatter.src': ['index', 'self', (d) => d],
  'aten.scatter.value': ['index', 'self', (d) => d],
  'aten.scatter_add.default': ['index', 'self', (d) => d],
  'aten.index_select.default': ['index', 'self', (d) => d],
  'aten.index_add.default': ['index', 'self', (d) => d],
  'aten.index_copy.default': ['index', 'self', (d) => d],
  'aten.index_fill.int_Scalar': ['index', 'self', (d) => d],
  'aten.index_fill.int_Tensor': ['index', 'self', (d) => d],
  'aten.index_reduce.default': ['index', 'self', (d) => d],
  'aten.scatter.reduce': ['index', 'self', (d) => d],
  'aten.scatter.value_reduce': ['index', 'self', (d) => d],
  'aten.scatter_reduce.two': ['index', 'self', (d) => d],
  'aten._embedding_bag.default': ['indices', 'weight', () => 0],
  'aten._embedding_bag_forward_only.default': ['indices', 'weight', () => 0],
};

/** Operators whose argument `index` counts all elements of `self`. */
const FLAT_INDEXERS: ReadonlySet<string> = new Set(['aten.take.default', 'aten.put.default']);

/** The demand of an operator on the values of an argument, beyond their type. */
type Domain =
  | { readonly is: 'rising' | 'weights' | 'definite' }
  /** Where bags of so many indices start: from 0 on, in rising order. */
  | { readonly is: 'starts'; readonly of: number }
  /** Places among so many, no two of a window the same. */
  | { readonly is: 'places'; readonly of: number; readonly window: number };

/** Arguments with a domain: sequences to search, starts of bags, weights to draw by, matrices. */
const DOMAINS: Readonly<Record<string, readonly [argument: string, is: Domain['is']]>> = {
  'aten.searchsorted.Tensor': ['sorted_sequence', 'rising'],
  'aten.searchsorted.Scalar': ['sorted_sequence', 'rising'],
  'aten.bucketize.Tensor': ['boundaries', 'rising'],
  'aten._embedding_bag.default': ['offsets', 'starts'],
  'aten._embedding_bag_forward_only.default': ['offsets', 'starts'],
  'aten.multinomial.default': ['self', 'weights'],
  'aten.bernoulli.default': ['self', 'weights'],
  'aten.poisson.default': ['self', 'weights'],
  'aten.normal.Tensor_Tensor': ['std', 'weights'],
  'aten.normal.float_Tensor': ['std', 'weights'],
  'aten.cholesky.default': ['self', 'definite'],
  'aten.linalg_cholesky.default': ['self', 'definite'],
  'aten.linalg_cholesky_ex.default': ['self', 'definite'],
  'stablehlo.cholesky': ['a', 'definite'],
  'aten.max_unpool2d.default': ['indices', 'places'],
  'aten.max_unpool3d.default': ['indices', 'places'],
};

/** A value at each flat position. */
function drawnOf(
  domain: Domain,
  shape: readonly number[],
  stream: RandomStream,
  whole: boolean,
): (i: number) => number {
  const last = shape.at(-1) ?? 1;
  const at = (i: number): number => uniform(stream, i);
  switch (domain.is) {
    case 'rising': {
      const value = (i: number): number => (10 * ((i % last) + at(i))) / last - (whole ? 0 : 5);
      return whole ? (i) => Math.floor(value(i)) : value;
    }
    case 'starts':
      return (i) => (i === 0 ? 0 : Math.floor(((i + at(i)) * domain.of) / last));
    case 'weights':
      return (i) => 0.05 + 0.9 * at(i);
    case 'definite':
      // Symmetric, with a diagonal that outweighs the rest.
      return (i) => {
        const [row, column] = [Math.floor(i / last) % last, i % last];
        const first = i - row * last - column;
        const mirror = first + Math.min(row, column) * last + Math.max(row, column);
        return at(mirror) - 0.5 + (row === column ? last + 0.5 : 0);
      };
    case 'places': {
      const { of, window } = domain;
      return (i) => placesOf(of, stream, Math.floor(i / window))[i % window];
    }
  }
}

/** The places 0 .. n - 1 in an order of their own for each window. */
function placesOf(n: number, stream: RandomStream, window: number): number[] {
  const key = (place: number): number => uniform(stream, window * n + place);
  return Array.from({ length: n }, (_, place) => place).sort((a, b) => key(a) - key(b) || a - b);
}

/** Calls that give a definite matrix of one: sums with its transpose, and scaling. */
const KEEPS_DEFINITE = /^(?:aten|stablehlo)\.(?:add|multiply|mul|divide|div)(?:\.|$)/;

interface Demands {
  /** For each input that becomes row numbers, the least size that it indexes. */
  readonly bounds: Map<string, number>;
  readonly domains: Map<string, Domain>;
}

/** The demands of calls on the values of inputs. Views, copies and bodies are followed. */
function demandsOf(table: OperatorTable, graph: Graph): Demands {
  const demands: Demands = { bounds: new Map(), domains: new Map() };
  const source = new Map<string, string>();
  for (const node of graph.nodes) if (node.kind === 'placeholder') source.set(node.name, node.name);
  new DemandReader(table, graph, source, demands).read();
  return demands;
}

/** Notes what the calls of one graph ask of the inputs of the program. */
class DemandReader {
  private readonly shapes = new Map<string, readonly number[]>();
  private readonly types: ReadonlyMap<string, ValueType>;
  /** Inputs whose multiples values are, beside those in `source`: `(a + aᵀ) / 2`. */
  private readonly multiples = new Map<string, string>();

  /**
   * @param source inputs of the program that values of the graph are made of by views and casts;
   *   filled
   */
  constructor(
    private readonly table: OperatorTable,
    private readonly graph: Graph,
    private readonly source: Map<string, string>,
    private readonly demands: Demands,
  ) {
    this.types = typesByName(graph);
  }

  read(): void {
    for (const node of this.graph.nodes) {
      if (node.type.kind === 'tensor') this.shapes.set(node.name, exampleShape(node.type));
      if (node.kind === 'placeholder') continue;
      this.readBodies(node);
      const record = this.table.get(node.target);
      if (record === undefined) continue;
      const from = passedOn(node, record.cls, node.args[0], this.source);
      if (from !== undefined) this.source.set(node.name, from);
      else this.readMultiple(node, record.cls);
      this.readIndices(node, record.name);
      const named = namedTensors(
        node,
        record.schema.map((s) => s.name),
      );
      this.readDomain(node, record.name, named);
      this.readIndexer(node, record, named);
    }
  }

  private readMultiple(node: Node, cls: string): void {
    const moves = cls === 'view' || MOVES.test(node.target);
    if (!moves && !KEEPS_DEFINITE.test(node.target)) return;
    const of = (arg: Arg): string | undefined =>
      isRef(arg) ? (this.source.get(arg.name) ?? this.multiples.get(arg.name)) : undefined;
    const from = new Set(node.args.flatMap((arg) => of(arg) ?? []));
    const [only] = from;
    if (only !== undefined && from.size === 1) this.multiples.set(node.name, only);
  }

  private readBodies(node: Node): void {
    const { graph, source } = this;
    const control = controlCall(
      node,
      graph.subgraphs,
      (name) => this.types.get(name) ?? { kind: 'none' },
    );
    if (control === undefined) return;
    const operands = bodyOperands(node);
    for (const { graph: body } of control.bodies) {
      const inner = new Map<string, string>();
      placeholdersOf(body).forEach(({ name }, k) => {
        const operand: Arg | undefined = operands[k];
        const from = operand !== undefined && isRef(operand) ? source.get(operand.name) : undefined;
        if (from !== undefined) inner.set(name, from);
      });
      new DemandReader(this.table, body, inner, this.demands).read();
    }
  }

  /** Row numbers of calls whose schema does not tell their bound. */
  private readIndices(node: Node, operator: string): void {
    const [first, second, third] = node.args as readonly (Arg | undefined)[];
    if (operator === 'aten.index.Tensor' || operator === 'aten.index_put.default') {
      if (first !== undefined && isRef(first) && second !== undefined && isList(second))
        second.forEach((member, d) => {
          if (member !== null && isRef(member))
            this.limit(member.name, this.shapes.get(first.name)?.[d]);
        });
    } else if (operator === 'aten.embedding_dense_backward.default') {
      if (second !== undefined && isRef(second)) this.limit(second.name, Number(third));
    } else if (operator === 'aten.one_hot.default') {
      if (first !== undefined && isRef(first)) this.limit(first.name, Number(second));
    }
  }

  /** An argument with a domain of its own, see `DOMAINS`. */
  private readDomain(node: Node, operator: string, named: ReadonlyMap<string, string>): void {
    if (!Object.hasOwn(DOMAINS, operator)) return;
    const [argument, is] = DOMAINS[operator];
    const name = named.get(argument) ?? '';
    const input =
      this.source.get(name) ?? (is === 'definite' ? this.multiples.get(name) : undefined);
    if (input === undefined) return;
    const dims = Number(/(\d)d\./.exec(operator)?.[1] ?? 0);
    const inside = (of: string): number => product((this.shapes.get(of) ?? []).slice(-dims));
    const indices = this.shapes.get(named.get('indices') ?? '') ?? [];
    this.demands.domains.set(
      input,
      is === 'places'
        ? { is, of: inside(node.name), window: inside(name) }
        : is === 'starts'
          ? { is, of: product(indices) }
          : { is },
    );
  }

  /** An argument of row numbers, see `INDEXERS`. */
  private readIndexer(
    node: Node,
    record: OperatorRecord,
    named: ReadonlyMap<string, string>,
  ): void {
    if (FLAT_INDEXERS.has(record.name)) {
      const [indices, of] = [named.get('index'), named.get('self')];
      if (indices !== undefined) this.limit(indices, product(this.shapes.get(of ?? '') ?? []));
    }
    if (!Object.hasOwn(INDEXERS, record.name)) return;
    const [index, rows, dimOf] = INDEXERS[record.name];
    const [indexName, tableName] = [named.get(index), named.get(rows)];
    if (indexName === undefined || tableName === undefined) return;
    const shape = this.shapes.get(tableName) ?? [];
    const ctx = bindCall(record, node.args, node.kwargs, (name) => ({
      dtype: 'f32',
      shape: this.shapes.get(name) ?? [],
    }));
    const written = record.schema.some((s) => s.name === 'dim') ? ctx.int('dim') : 0;
    const dim = dimOf(written < 0 ? written + shape.length : written);
    this.limit(indexName, shape.length === 0 ? 1 : shape[Math.min(dim, shape.length - 1)]);
  }

  private limit(name: string, size: number | undefined): void {
    const { bounds } = this.demands;
    const input = this.source.get(name);
    if (input !== undefined && size !== undefined && size > 0)
      bounds.set(input, Math.min(bounds.get(input) ?? Infinity, size));
  }
}

/**
 * The values that a call hands to its bodies, in the order of their inputs: its lists of values,
 * one after another.
 */
function bodyOperands(node: Node): readonly Arg[] {
  const body = node.args.findIndex((arg) => isGraphRef(arg));
  if (node.target.startsWith('wrap_')) return node.args.slice(body + 1);
  return node.args.flatMap((arg) =>
    isList(arg) && !arg.some((member) => isGraphRef(member)) ? arg : [],
  );
}

/**
 * The input whose values a call hands on: those of its first argument, or of the one of several
 * that comes from an input.
 */
function passedOn(
  node: Node,
  cls: string,
  first: Arg | undefined,
  source: ReadonlyMap<string, string>,
): string | undefined {
  const of = (arg: Arg | undefined): string | undefined =>
    arg !== undefined && isRef(arg) ? source.get(arg.name) : undefined;
  if (cls === 'view' || MOVES.test(node.target)) return of(first);
  if (!MIXES.test(node.target)) return undefined;
  const parts = node.args.flatMap((arg) => (isList(arg) ? arg : [arg]));
  return parts.map(of).find((from) => from !== undefined);
}

const MOVES =
  /^(aten|prims)\.(clone|_to_copy|to|convert_element_type|detach|alias|lift_fresh_copy|gather|index|index_select|flip|roll|repeat|constant_pad_nd|masked_fill|slice_scatter|clamp|clamp_min|contiguous)\.|^spmd_types\.(assert_type|redistribute|convert|reinterpret|all_gather|all_to_all|permute)\.|^stablehlo\.(convert|pad|gather|dynamic_slice|reverse|broadcast_in_dim|slice|transpose|reshape)$/;
/** Calls that put values of one operand among others. */
const MIXES = /^aten\.(cat|stack|where)\.|^stablehlo\.(concatenate|select|clamp)$/;

/** Inputs that are ends of groups of rows, which rise to at most the number of rows. */
function groupEnds(graph: Graph): Map<string, number> {
  const shapes = new Map(
    graph.nodes.map(({ name, type }) => [
      name,
      type.kind === 'tensor' ? type.shape.map(Number) : [],
    ]),
  );
  const out = new Map<string, number>();
  for (const { target, args } of graph.nodes) {
    if (target !== 'aten._grouped_mm.default') continue;
    const [left, right, ends] = args.map((arg) => (isRef(arg) ? arg.name : ''));
    const [a, b] = [shapes.get(left) ?? [], shapes.get(right) ?? []];
    const rows = a.length === 3 ? b[1] : b.length === 3 ? a[0] : a[1];
    if (rows !== undefined) out.set(ends, Math.min(rows, out.get(ends) ?? rows));
  }
  return out;
}

/** Operands of norms that are variances, or one over their roots: both are above zero. */
const POSITIVE_OPERANDS = ['running_var', 'save_var', 'save_invstd', 'rstd'];

/** Inputs that no norm takes below zero. */
function positiveInputs(table: OperatorTable, graph: Graph): Set<string> {
  const out = new Set<string>();
  for (const node of graph.nodes) {
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    if (record === undefined || record.cls !== 'norm') continue;
    const operands = namedTensors(
      node,
      record.schema.map((s) => s.name),
    );
    for (const name of POSITIVE_OPERANDS) {
      const operand = operands.get(name);
      if (operand !== undefined) out.add(operand);
    }
  }
  return out;
}

/** Names of the values in positional and keyword arguments. */
function namedTensors(node: Node, schema: readonly string[]): Map<string, string> {
  const out = new Map<string, string>();
  node.args.forEach((arg, i) => {
    if (isRef(arg)) out.set(schema[i], arg.name);
  });
  for (const [key, arg] of Object.entries(node.kwargs)) if (isRef(arg)) out.set(key, arg.name);
  return out;
}

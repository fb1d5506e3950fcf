import type { Graph, Node, TensorType, ValueType } from '../graph/types.ts';
import { eachOperand } from '../graph/value.ts';
import { bindCall } from '../ops/context.ts';
import { elements, type OperatorRecord, type TypedContext } from '../ops/record.ts';
import type { OperatorTable } from '../ops/table.ts';
import { viewGroups, type DimSpec } from '../ops/viewgroups.ts';
import { slidDims, type Slide } from './shrink-windows.ts';

/**
 * What the sizes of a graph must satisfy whatever they are: the new size of a size is one function for the whole graph, so
 * that tensors that fit together keep fitting; views need products, joins and slices need sums.
 */

export interface Relation {
  readonly kind: 'product' | 'sum' | 'multiple' | 'atMost' | 'window';
  /**
   * `product`, `sum`: both sides give the same. `multiple`: left is a multiple of right. `atMost`: left <= right. `window`:
   * left, rows and kernel, has right many windows.
   */
  readonly left: readonly number[];
  readonly right: readonly number[];
  /** Further factor of the right side of a product. */
  readonly times?: number;
  /** Of windows. A kernel that is a literal and no size stands here. */
  readonly slide?: Slide & { readonly kernel?: number };
}

export class SizeRelations {
  /** Sizes above 1 that occur. */
  readonly sizes = new Set<number>();
  readonly fixed = new Set<number>();
  /** Smallest new size, where a literal asks for one. */
  readonly atLeast = new Map<number, number>();
  /** Sizes of spatial dims. Windows decide what they can be, so they need not stay divisible by a mesh. */
  readonly spatial = new Set<number>();
  private readonly byText = new Map<string, Relation>();

  get relations(): Relation[] {
    return [...this.byText.values()];
  }

  read(node: Node, graph: Graph, table: OperatorTable): void {
    for (const shape of shapesOf(node.type)) for (const n of shape) this.meet(n);
    const record = node.kind === 'call' ? table.get(node.target) : undefined;
    const length = node.target === 'scan' ? node.kwargs['length'] : undefined;
    if (typeof length === 'number') this.meet(length);
    if (record === undefined) return;
    const ctx = contextOf(node, graph, table);
    const reader = READERS[record.name.replace(/^(aten|prims)\./, '')];
    if (reader !== undefined) reader(this, ctx);
    if (/\.(\w*conv(?!ert)|\w*pool|\w*upsample|native_group_norm|group_norm|_grouped_mm)/.test(record.name))
      this.window(ctx, record);
    if (record.cls === 'attention') {
      const heads = (name: string): number | undefined => ctx.tensor(name)?.shape.at(-3);
      const [own, shared] = [heads('query'), heads('key')];
      if (own !== undefined && shared !== undefined && own !== shared)
        this.relate({ kind: 'multiple', left: [own], right: [shared] });
    }
  }

  /** Keeps every size of a call: of its results and its operands. */
  fixNode(graph: Graph, name: string): void {
    const at = graph.nodes.find((node) => node.name === name);
    if (at === undefined) return;
    const types = [at.type];
    eachOperand(at, (used) => types.push(graph.nodes.find((node) => node.name === used)?.type ?? { kind: 'none' }));
    for (const type of types) for (const shape of shapesOf(type)) for (const n of shape) this.fixed.add(n);
  }

  relate(relation: Relation): void {
    const [left, right] = [relation.left.filter((n) => n !== 1), relation.right.filter((n) => n !== 1)];
    const plain = relation.kind === 'sum' || relation.kind === 'window' ? relation : { ...relation, left, right };
    for (const n of [...plain.left, ...plain.right]) this.meet(n);
    if (plain.kind !== 'window' && plain.times === undefined && sorted(plain.left) === sorted(plain.right)) return;
    const sides = plain.kind === 'window' ? [plain.left, plain.right] : [sorted(plain.left), sorted(plain.right)];
    const text = `${plain.kind} ${sides.join(' | ')} | ${plain.times ?? 1} ${JSON.stringify(plain.slide ?? null)}`;
    this.byText.set(text, plain);
  }

  meet(n: number): void {
    if (n > 1) this.sizes.add(n);
  }

  fix(n: number): void {
    this.meet(n);
    this.fixed.add(n);
  }

  least(n: number, bound: number): void {
    this.atLeast.set(n, Math.max(this.atLeast.get(n) ?? 0, bound));
  }

  /** Operators that slide windows or count groups: where no relation is known, all but batch and plain channels stays. */
  private window(ctx: TypedContext, record: OperatorRecord): void {
    const dims = slidDims(ctx, record);
    const { name } = record;
    if (dims !== undefined) {
      for (const { size, kernel, weighted, count, ...slide } of dims) {
        const left = weighted ? [size, kernel] : [size];
        this.relate({ kind: 'window', left, right: [count], slide: weighted ? slide : { ...slide, kernel } });
        for (const n of [size, count]) this.spatial.add(n);
      }
      return;
    }
    const grouped = /group/.test(name) || (/conv/.test(name) && ctx.int('groups') > 1);
    for (const meta of [...ctx.inputs, ...ctx.outputs]) {
      if (meta === null) continue;
      meta.shape.forEach((n, d) => {
        if (d >= 2 || (grouped && d === 1)) this.fix(n);
      });
    }
    if (grouped) for (const meta of ctx.inputs.slice(1)) meta.shape.forEach((n) => this.fix(n));
  }
}

function sorted(list: readonly number[]): string {
  return [...list].sort((a, b) => a - b).join();
}

function shapesOf(type: ValueType): number[][] {
  if (type.kind === 'tuple') return type.items.flatMap(shapesOf);
  if (type.kind !== 'tensor') return [];
  return [type.shape.map((dim) => (typeof dim === 'number' ? dim : (dim.example ?? 1)))];
}

/** The call with the types of the graph. */
export function contextOf(node: Node, graph: Graph, table: OperatorTable): TypedContext {
  const record = table.get(node.target);
  if (record === undefined) throw new Error(`internal: ${node.target} has no record`);
  const metas = metasOf(graph);
  const ctx = bindCall(record, node.args, node.kwargs, (name) => {
    const type = metas.get(name);
    if (type === undefined) throw new Error(`internal: ${name} is no tensor`);
    const [shape] = shapesOf(type);
    return { dtype: type.dtype, shape };
  });
  const outputs = node.type.kind === 'tuple' ? node.type.items : [node.type];
  return Object.assign(Object.create(ctx) as TypedContext, {
    outputs: outputs.map((type) => (type.kind === 'tensor' ? { dtype: type.dtype, shape: shapesOf(type)[0] } : null)),
  });
}

const metaCache = new WeakMap<Graph, Map<string, TensorType>>();

function metasOf(graph: Graph): Map<string, TensorType> {
  let metas = metaCache.get(graph);
  if (metas === undefined) {
    metas = new Map();
    for (const node of graph.nodes) if (node.type.kind === 'tensor') metas.set(node.name, node.type);
    metaCache.set(graph, metas);
  }
  return metas;
}

type Reader = (relations: SizeRelations, ctx: TypedContext) => void;

/** Each group of input dims holds as many elements as the output dims made of it. */
const view: Reader = (relations, ctx) => {
  const from = ctx.inputs[0].shape;
  const to = ctx.outputs[0]?.shape ?? [];
  if (elements(from) === 0) return;
  const groups = new Map<string, { left: number[]; right: number[] }>();
  viewGroups(from, to).forEach((spec, out) => {
    const dims = sourceDims(spec);
    if (dims.length === 0) return;
    const key = dims.join();
    const group = groups.get(key) ?? { left: dims.map((d) => from[d]), right: [] };
    group.right.push(to[out]);
    groups.set(key, group);
  });
  for (const { left, right } of groups.values()) relations.relate({ kind: 'product', left, right });
};

function sourceDims(spec: DimSpec): readonly number[] {
  if (spec.kind === 'input') return [spec.dim];
  if (spec.kind === 'flatten') return spec.dims;
  return spec.kind === 'split' ? sourceDims(spec.source) : [];
}

function dimOf(ctx: TypedContext, rank = ctx.inputs[0].shape.length): number {
  const dim = ctx.int('dim');
  return dim < 0 ? dim + rank : dim;
}

const cat: Reader = (relations, ctx) => {
  const rank = ctx.outputs[0]?.shape.length ?? 0;
  const dim = dimOf(ctx, rank);
  const parts = ctx.inputs.filter((m) => m.shape.length === rank).map((m) => m.shape[dim]);
  relations.relate({ kind: 'sum', left: [ctx.outputs[0]?.shape[dim] ?? 0], right: parts });
};

const split: Reader = (relations, ctx) => {
  const dim = dimOf(ctx);
  const parts = ctx.outputs.map((m) => m?.shape[dim] ?? 0);
  relations.relate({ kind: 'sum', left: [ctx.inputs[0].shape[dim]], right: parts });
};

/** Number of results: cannot change. */
const unbind: Reader = (relations, ctx) => relations.fix(ctx.inputs[0].shape[dimOf(ctx)]);
const stack: Reader = (relations, ctx) => relations.fix(ctx.inputs.length);

/** Rows before, in and after a slice, by the place where they are cut. */
export function sliceParts(
  ctx: TypedContext,
  size: number,
): { start: number; rows: number; rest: number; step: number } {
  const clamp = (at: number): number => Math.min(Math.max(at < 0 ? at + size : at, 0), size);
  const start = clamp(ctx.optionalInt('start') ?? 0);
  const end = Math.max(start, clamp(ctx.optionalInt('end') ?? size));
  return { start, rows: end - start, rest: size - end, step: ctx.int('step') };
}

const slice =
  (whole: (ctx: TypedContext) => readonly number[]): Reader =>
  (relations, ctx) => {
    const shape = whole(ctx);
    const size = shape[dimOf(ctx, shape.length)];
    const { start, rows, rest, step } = sliceParts(ctx, size);
    if (step !== 1) {
      relations.fix(size);
      relations.fix(Math.ceil(rows / step));
      return;
    }
    const parts = [start, rows, rest].filter((n) => n > 0);
    relations.relate({ kind: 'sum', left: [size], right: parts });
  };

const ownSize = (ctx: TypedContext): readonly number[] => ctx.inputs[0].shape;
const resultSize = (ctx: TypedContext): readonly number[] => ctx.outputs[0]?.shape ?? [];

/** The row that is picked must exist. */
const select =
  (whole: (ctx: TypedContext) => readonly number[]): Reader =>
  (relations, ctx) => {
    const shape = whole(ctx);
    const index = ctx.int('index');
    relations.least(shape[dimOf(ctx, shape.length)], index < 0 ? -index : index + 1);
  };

const repeat: Reader = (relations, ctx) => {
  const { shape } = ctx.inputs[0];
  const times = ctx.ints('repeats');
  times.forEach((n, out) => {
    const rows = shape[out - (times.length - shape.length)] ?? 1;
    if (rows > 1) relations.relate({ kind: 'product', left: [rows * n], right: [rows], times: n });
  });
};

const repeatInterleave: Reader = (relations, ctx) => {
  const dim = ctx.optionalInt('dim');
  const { shape } = ctx.inputs[0];
  const rows = dim === undefined ? elements(shape) : shape[dim < 0 ? dim + shape.length : dim];
  const times = ctx.int('repeats');
  relations.relate({ kind: 'product', left: [rows * times], right: [rows], times });
  if (dim === undefined) relations.relate({ kind: 'product', left: [rows], right: shape });
};

/** Padding is a number of rows, not a size of the model. */
const padded: Reader = (relations, ctx) => {
  const out = ctx.outputs[0]?.shape ?? [];
  ctx.inputs[0].shape.forEach((n, d) => {
    if (n === out[d]) return;
    relations.fix(n);
    relations.fix(out[d]);
  });
};

const topk: Reader = (relations, ctx) => {
  const { shape } = ctx.inputs[0];
  if (shape.length > 0) relations.relate({ kind: 'atMost', left: [ctx.int('k')], right: [shape[dimOf(ctx)]] });
};

/** Counts in steps other than 1, or of fractions: the number of rows stays. */
const range: Reader = (relations, ctx) => {
  const [rows] = ctx.outputs[0]?.shape ?? [1];
  const step = ctx.scalar('step')?.value ?? 1;
  if (step !== 1) relations.fix(rows);
};
const fixedRows: Reader = (relations, ctx) => relations.fix(ctx.outputs[0]?.shape[0] ?? 1);

const READERS: Readonly<Record<string, Reader | undefined>> = {
  'view.default': view,
  '_unsafe_view.default': view,
  'reshape.default': view,
  'flatten.using_ints': view,
  'unflatten.int': view,
  'cat.default': cat,
  'stack.default': stack,
  'split.Tensor': split,
  'split.sizes': split,
  'split_with_sizes.default': split,
  'chunk.default': split,
  'unbind.int': unbind,
  'slice.Tensor': slice(ownSize),
  'slice_scatter.default': slice(ownSize),
  'slice_backward.default': slice(resultSize),
  'narrow.default': fixedBoth,
  'select.int': select(ownSize),
  'select_scatter.default': select(ownSize),
  'select_backward.default': select(resultSize),
  'repeat.default': repeat,
  'repeat_interleave.self_int': repeatInterleave,
  'constant_pad_nd.default': padded,
  'diff.default': padded,
  'diagonal.default': fixedBoth,
  'topk.default': topk,
  'arange.start_step': range,
  'linspace.default': fixedRows,
};

/** Every size of the operands and the result stays. */
function fixedBoth(relations: SizeRelations, ctx: TypedContext): void {
  for (const meta of [...ctx.inputs, ...ctx.outputs]) meta?.shape.forEach((n) => relations.fix(n));
}

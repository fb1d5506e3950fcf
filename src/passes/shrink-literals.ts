import type { Arg, Graph, Node, ValueType } from '../graph/types.ts';
import type { OperatorRecord, TypedContext } from '../ops/record.ts';
import type { OperatorTable } from '../ops/table.ts';
import { contextOf, sliceParts } from './shrink-relations.ts';

/** Literals that are sizes or positions, at new sizes. */

type Sizes = ReadonlyMap<number, number>;

interface Setting {
  readonly ctx: TypedContext;
  readonly sizes: Sizes;
  /** Shape of the first result at the new sizes. */
  readonly shape: readonly number[];
}

/** New values of some arguments, by name. */
type Literals = (setting: Setting) => Readonly<Record<string, Arg>>;

/** The call with its literals at the new sizes. */
export function rewriteLiterals(node: Node, type: ValueType, table: OperatorTable, graph: Graph, sizes: Sizes): Node {
  const record = table.get(node.target);
  if (record === undefined) return node;
  const rewrite = LITERALS[record.name.replace(/^(aten|prims)\./, '')];
  if (rewrite === undefined) return node;
  const first = type.kind === 'tuple' ? type.items[0] : type;
  const shape = first?.kind === 'tensor' ? first.shape.map(Number) : [];
  return withArgs(record, node, rewrite({ ctx: contextOf(node, graph, table), sizes, shape }));
}

function withArgs(record: OperatorRecord, node: Node, changed: Readonly<Record<string, Arg>>): Node {
  const args = [...node.args];
  const kwargs = { ...node.kwargs };
  let position = 0;
  for (const s of record.schema) {
    const at = s.kwargOnly ? -1 : position++;
    if (!Object.hasOwn(changed, s.name)) continue;
    if (at >= 0 && at < args.length) args[at] = changed[s.name];
    else if (Object.hasOwn(kwargs, s.name)) kwargs[s.name] = changed[s.name];
  }
  return { ...node, args, kwargs };
}

const size = (sizes: Sizes, n: number): number => sizes.get(n) ?? n;

/** The result's shape, where the call does not leave a size open. */
const shaped =
  (name: string): Literals =>
  ({ ctx, shape }) => ({ [name]: ctx.ints(name).map((n, d) => (n === -1 ? -1 : shape[d])) });

const list =
  (name: string): Literals =>
  ({ ctx, sizes }) => ({ [name]: (ctx.optionalInts(name) ?? []).map((n) => size(sizes, n)) });

const one =
  (name: string): Literals =>
  ({ ctx, sizes }) => ({ [name]: size(sizes, ctx.int(name)) });

const dimOf = (ctx: TypedContext, rank: number): number =>
  ctx.int('dim') < 0 ? ctx.int('dim') + rank : ctx.int('dim');

const slice =
  (whole: (ctx: TypedContext) => readonly number[]): Literals =>
  ({ ctx, sizes, shape }) => {
    const old = whole(ctx);
    const before = old[dimOf(ctx, old.length)];
    const { start, rows, rest, step } = sliceParts(ctx, before);
    const backward: Record<string, Arg> = ctx.target.includes('slice_backward') ? { input_sizes: [...shape] } : {};
    if (step !== 1) return backward;
    const from = start === 0 ? 0 : size(sizes, start);
    const end = rest === 0 ? size(sizes, before) : from + size(sizes, rows);
    return { ...backward, start: from, end };
  };

const repeats: Literals = ({ ctx, shape }) => {
  const times = ctx.ints('repeats');
  const from = ctx.inputs[0].shape;
  return { repeats: times.map((n, out) => ((from[out - (times.length - from.length)] ?? 1) === 1 ? shape[out] : n)) };
};

/** Counting from a start: as many rows as the result has now. */
const range: Literals = ({ ctx, shape }) => {
  const start = ctx.target.includes('start') ? ctx.number('start') : 0;
  const step = ctx.target.includes('step') ? ctx.number('step') : 1;
  if (step !== 1 || !Number.isInteger(start)) return {};
  const end = start + shape[0];
  return { end: ctx.scalar('end')?.kind === 'float' ? { kind: 'float', value: end } : end };
};

const splitSizes =
  (name: string): Literals =>
  ({ ctx, sizes }) => ({ [name]: ctx.ints(name).map((n) => size(sizes, n)) });

const unflatten: Literals = ({ ctx, shape }) => {
  const rank = ctx.inputs[0].shape.length;
  const dim = dimOf(ctx, rank);
  return { sizes: ctx.ints('sizes').map((n, i) => (n === -1 ? -1 : shape[dim + i])) };
};

const groupNorm: Literals = ({ ctx, sizes }) => ({ N: size(sizes, ctx.int('N')), C: size(sizes, ctx.int('C')) });

const LITERALS: Readonly<Record<string, Literals | undefined>> = {
  'view.default': shaped('size'),
  '_unsafe_view.default': shaped('size'),
  'reshape.default': shaped('shape'),
  'unflatten.int': unflatten,
  'expand.default': shaped('size'),
  'zeros.default': shaped('size'),
  'ones.default': shaped('size'),
  'full.default': shaped('size'),
  'empty.memory_format': shaped('size'),
  'rand.default': shaped('size'),
  'randn.default': shaped('size'),
  'new_zeros.default': shaped('size'),
  'new_ones.default': shaped('size'),
  'new_empty.default': shaped('size'),
  'new_full.default': shaped('size'),
  'empty_strided.default': shaped('size'),
  'new_empty_strided.default': shaped('size'),
  'select_backward.default': shaped('input_sizes'),
  'slice_backward.default': slice((ctx) => ctx.outputs[0]?.shape ?? []),
  'slice.Tensor': slice((ctx) => ctx.inputs[0].shape),
  'slice_scatter.default': slice((ctx) => ctx.inputs[0].shape),
  'split.Tensor': one('split_size'),
  'split.sizes': splitSizes('split_size'),
  'split_with_sizes.default': splitSizes('split_sizes'),
  'repeat.default': repeats,
  'arange.default': range,
  'arange.start': range,
  'arange.start_step': range,
  'iota.default': one('length'),
  'topk.default': one('k'),
  'histc.default': one('bins'),
  'one_hot.default': one('num_classes'),
  'embedding_dense_backward.default': one('num_weights'),
  'native_layer_norm.default': list('normalized_shape'),
  'native_layer_norm_backward.default': list('normalized_shape'),
  'layer_norm.default': list('normalized_shape'),
  '_fused_rms_norm.default': list('normalized_shape'),
  '_fused_rms_norm_backward.default': list('normalized_shape'),
  'rms_norm.default': list('normalized_shape'),
  'convolution_backward.default': ({ ctx, sizes }) =>
    ctx.has('bias_sizes') ? { bias_sizes: ctx.ints('bias_sizes').map((n) => size(sizes, n)) } : {},
  'native_group_norm.default': groupNorm,
  'native_group_norm_backward.default': groupNorm,
};

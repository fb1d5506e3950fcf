/**
 * Finds the relations that the sizes of a program satisfy at all values, from its calls with the
 * axes of their dims: views need products, joins and slices need sums, padding needs a difference,
 * windows need their count.
 */

import { LOCAL_MAP } from '../../graph/local-map.ts';
import { elements, type OperatorRecord, type TypedContext } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { type DimSpec, viewGroups } from '../../ops/rules/viewgroups.ts';
import { spmdName } from '../../ops/spmd/operators.ts';
import type { AxisCall, ProgramNode } from './dims.ts';
import type { SizeRelations } from './relation-set.ts';
import { readWindows } from './window-relations.ts';

type Reader = (relations: SizeRelations, call: AxisCall) => void;

const shape = (meta: { readonly shape: readonly number[] } | null | undefined): readonly number[] =>
  meta?.shape ?? [];

/** Each group of input dims holds as many elements as the output dims made of it. */
const view: Reader = (relations, { ctx, inputs, outputs }) => {
  const from = ctx.inputs[0].shape;
  if (elements(from) === 0) return;
  const groups = new Map<string, { left: number[]; right: number[] }>();
  viewGroups(from, shape(ctx.outputs[0])).forEach((spec, out) => {
    const dims = sourceDims(spec);
    if (dims.length === 0) return;
    const group = groups.get(dims.join()) ?? { left: dims.map((d) => inputs[0][d]), right: [] };
    group.right.push(outputs[0][out]);
    groups.set(dims.join(), group);
  });
  for (const { left, right } of groups.values()) relations.relate({ kind: 'product', left, right });
};

function sourceDims(spec: DimSpec): readonly number[] {
  if (spec.kind === 'input') return [spec.dim];
  if (spec.kind === 'flatten') return spec.dims;
  return spec.kind === 'split' ? sourceDims(spec.source) : [];
}

function dimOf(ctx: TypedContext, rank = ctx.inputs[0].shape.length, name = 'dim'): number {
  const dim = ctx.int(name);
  return dim < 0 ? dim + rank : dim;
}

/** The rows of the parts are those of the whole. */
const joined =
  (name: string): Reader =>
  (relations, { ctx, inputs, outputs }) => {
    const rank = shape(ctx.outputs[0]).length;
    const dim = dimOf(ctx, rank, name);
    const parts = inputs.filter((dims) => dims.length === rank).map((dims) => dims[dim]);
    relations.relate({
      kind: 'sum',
      left: [outputs[0][dim]],
      right: parts.filter((axis) => relations.sizeOf(axis) > 0),
    });
  };

const split: Reader = (relations, { ctx, inputs, outputs }) => {
  const dim = dimOf(ctx);
  const parts = outputs.map((dims) => dims[dim]).filter((axis) => axis !== undefined);
  relations.relate({ kind: 'sum', left: [inputs[0][dim]], right: parts });
  if (parts.every((axis) => relations.sizeOf(axis) === relations.sizeOf(parts[0])))
    relations.relate({
      kind: 'product',
      left: [inputs[0][dim]],
      right: [parts[0]],
      times: parts.length,
    });
};

/** Number of results: cannot change. */
const unbind: Reader = (relations, { ctx, inputs }) => relations.fix(inputs[0][dimOf(ctx)]);
const stack: Reader = (relations, { ctx, outputs }) =>
  relations.fix(outputs[0][dimOf(ctx, outputs[0].length)]);

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

/**
 * `rows` axis of a run of rows of `whole`, between others that are counted by positions along it.
 */
function sliced(
  relations: SizeRelations,
  { node }: AxisCall,
  {
    whole,
    rows,
    start,
    count,
    rest,
    step,
    key = '',
  }: {
    whole: number;
    rows: number;
    start: number;
    count: number;
    rest: number;
    step: number;
    key?: string;
  },
): void {
  if (count === 0) {
    // No rows: before the first one, or after the last.
    if (start > 0 && rest === 0)
      relations.literals.set(node, { ...relations.literals.get(node), [`start${key}`]: whole });
    else if (start > 0) relations.fix(whole);
    return;
  }
  if (step !== 1) {
    if (rest > 0 || start >= step) {
      relations.fix(whole);
      relations.fix(rows);
      return;
    }
    relations.relate({
      kind: 'window',
      left: [whole],
      right: [rows],
      slide: { stride: step, padding: -start / 2, dilation: 1, kernel: 1 },
    });
    return;
  }
  const [before, after] = [relations.along(whole, start), relations.along(whole, rest)];
  relations.relate({ kind: 'sum', left: [whole], right: [...before, rows, ...after] });
  const known = relations.literals.get(node) ?? {};
  relations.literals.set(node, {
    ...known,
    ...(before.length === 0 ? {} : { [`start${key}`]: before[0] }),
    ...(after.length === 0 ? {} : { [`rest${key}`]: after[0] }),
  });
}

type Ends = (call: AxisCall) => readonly [whole: readonly number[], part: readonly number[]];
const cutOut: Ends = ({ inputs, outputs }) => [inputs[0], outputs[0]];
const putIn: Ends = ({ inputs }) => [inputs[0], inputs[1]];
const gradient: Ends = ({ inputs, outputs }) => [outputs[0], inputs[0]];

const slice =
  (ends: Ends): Reader =>
  (relations, call) => {
    const [whole, part] = ends(call);
    const dim = dimOf(call.ctx, whole.length);
    const { start, rows, rest, step } = sliceParts(call.ctx, relations.sizeOf(whole[dim]));
    sliced(relations, call, { whole: whole[dim], rows: part[dim], start, count: rows, rest, step });
  };

/** One row between others. The row that is picked must exist. */
const select =
  (ends: Ends): Reader =>
  (relations, call) => {
    const [whole] = ends(call);
    const axis = whole[dimOf(call.ctx, whole.length)];
    const size = relations.sizeOf(axis);
    const index = call.ctx.int('index');
    if (index < 0) {
      relations.least(axis, -index);
      return;
    }
    const start = relations.along(axis, index);
    const rest = relations.along(axis, size - 1 - index);
    const one = relations.program.along(axis, 1);
    relations.relate({ kind: 'sum', left: [axis], right: [...start, one, ...rest] });
    if (start.length > 0) relations.literals.set(call.node, { start: start[0] });
  };

const repeat: Reader = (relations, { ctx, inputs, outputs }) => {
  const times = ctx.ints('repeats');
  times.forEach((n, out) => {
    const rows = inputs[0][out - (times.length - inputs[0].length)];
    if (rows !== undefined && relations.sizeOf(rows) > 1)
      relations.relate({ kind: 'product', left: [outputs[0][out]], right: [rows], times: n });
  });
};

const repeatInterleave: Reader = (relations, { ctx, inputs, outputs }) => {
  const dim = ctx.optionalInt('dim');
  const times = ctx.int('repeats');
  if (dim === undefined)
    relations.relate({ kind: 'product', left: [outputs[0][0]], right: inputs[0], times });
  else {
    const at = dim < 0 ? dim + inputs[0].length : dim;
    relations.relate({ kind: 'product', left: [outputs[0][at]], right: [inputs[0][at]], times });
  }
};

/** A number of rows more or fewer, whatever the size is. */
const padded: Reader = (relations, { inputs, outputs }) => {
  inputs[0].forEach((axis, d) => {
    const by = relations.sizeOf(outputs[0][d]) - relations.sizeOf(axis);
    if (by !== 0) relations.relate({ kind: 'shift', left: [axis], right: [outputs[0][d]], by });
  });
};

const topk: Reader = (relations, { ctx, inputs, outputs }) => {
  if (inputs[0].length === 0) return;
  const dim = dimOf(ctx);
  relations.relate({ kind: 'atMost', left: [outputs[0][dim]], right: [inputs[0][dim]] });
};

/** Counts in steps other than 1, or of fractions: the number of rows stays. */
const range: Reader = (relations, { ctx, outputs }) => {
  const step = ctx.scalar('step')?.value ?? 1;
  if (step !== 1 && outputs[0][0] !== undefined) relations.fix(outputs[0][0]);
};
const fixedRows: Reader = (relations, { outputs }) => relations.fix(outputs[0][0]);

/** Every size of the operands and the result stays. */
const fixedBoth: Reader = (relations, { inputs, outputs }) => {
  for (const dims of [...inputs, ...outputs]) for (const axis of dims) relations.fix(axis);
};

const stablehloSlice: Reader = (relations, call) => {
  const { ctx, inputs, outputs } = call;
  const [start, limit, strides] = ['start_indices', 'limit_indices', 'strides'].map((name) =>
    ctx.ints(name),
  );
  inputs[0].forEach((whole, d) => {
    const rest = relations.sizeOf(whole) - limit[d];
    const count = limit[d] - start[d];
    sliced(relations, call, {
      whole,
      rows: outputs[0][d],
      start: start[d],
      count,
      rest,
      step: strides[d] ?? 1,
      key: `${d}`,
    });
  });
};

/** With rows between there is a stretch as well. */
const stablehloPad: Reader = (relations, { ctx, inputs, outputs }) => {
  const inside = ctx.ints('interior_padding');
  inputs[0].forEach((axis, d) => {
    const times = 1 + (inside[d] ?? 0);
    const by = relations.sizeOf(outputs[0][d]) - relations.sizeOf(axis) * times;
    if (by !== 0 || times !== 1)
      relations.relate({ kind: 'shift', left: [axis], right: [outputs[0][d]], times, by });
  });
};

/** A window of rows at a runtime position is at most the whole. */
const inside: Reader = (relations, { inputs, outputs, ctx }) => {
  const part = ctx.target.includes('update') ? inputs[1] : outputs[0];
  inputs[0].forEach((whole, d) => {
    if (part[d] !== whole) relations.relate({ kind: 'atMost', left: [part[d]], right: [whole] });
  });
};

/**
 * Dims that a Fourier transform mixes keep their sizes: the rows of half a spectrum tell no length.
 */
const transformed: Reader = (relations, { inputs, outputs, ctx }) => {
  const first = inputs[0].length - ctx.ints('fft_length').length;
  for (const dims of [inputs[0], outputs[0]])
    dims.slice(first).forEach((axis) => relations.fix(axis));
};

const READERS: Readonly<Record<string, Reader | undefined>> = {
  'view.default': view,
  '_unsafe_view.default': view,
  'reshape.default': view,
  'flatten.using_ints': view,
  'unflatten.int': view,
  'cat.default': joined('dim'),
  'stack.default': stack,
  'split.Tensor': split,
  'split.sizes': split,
  'split_with_sizes.default': split,
  'split_copy.Tensor': split,
  'chunk.default': split,
  'unbind.int': unbind,
  'slice.Tensor': slice(cutOut),
  'slice_scatter.default': slice(putIn),
  'slice_backward.default': slice(gradient),
  'narrow.default': fixedBoth,
  'select.int': select(cutOut),
  'select_scatter.default': select(putIn),
  'select_backward.default': select(gradient),
  'repeat.default': repeat,
  'repeat_interleave.self_int': repeatInterleave,
  'constant_pad_nd.default': padded,
  'diff.default': padded,
  'diagonal.default': fixedBoth,
  'topk.default': topk,
  'arange.start_step': range,
  'linspace.default': fixedRows,
  'stablehlo.reshape': view,
  'stablehlo.slice': stablehloSlice,
  'stablehlo.pad': stablehloPad,
  'stablehlo.concatenate': joined('dimension'),
  'stablehlo.fft': transformed,
  'stablehlo.dynamic_slice': inside,
  'stablehlo.dynamic_update_slice': inside,
  'chlo.top_k': (relations, { inputs, outputs }) =>
    relations.relate({
      kind: 'atMost',
      left: [outputs[0].at(-1) ?? 0],
      right: [inputs[0].at(-1) ?? 0],
    }),
};

/**
 * Dims that a verb of per-device code joins or cuts are so many times, or so many parts, of what
 * they were.
 */
function readVerb(relations: SizeRelations, { ctx, inputs, outputs }: AxisCall): void {
  const n = ctx.int('size');
  const shift = outputs[0].length - inputs[0].length;
  const [from, to] = [ctx.inputs[0].shape, shape(ctx.outputs[0])];
  // A stack of pieces has one row for each rank.
  if (shift > 0) relations.fix(outputs[0][0]);
  if (shift < 0) relations.fix(inputs[0][0]);
  inputs[0].slice(Math.max(0, -shift)).forEach((inner, i) => {
    const [d, k] = [i + Math.max(0, -shift), i + Math.max(0, shift)];
    const outer = outputs[0][k];
    if (to[k] === from[d] * n && n > 1)
      relations.relate({ kind: 'product', left: [outer], right: [inner], times: n });
    else if (from[d] === to[k] * n && n > 1)
      relations.relate({ kind: 'product', left: [inner], right: [outer], times: n });
  });
}

/** Rows that rules of a call cut together: a piece holds whole units of them. */
function readUnits(relations: SizeRelations, call: AxisCall, record: OperatorRecord): void {
  for (const { inputs } of record.shard(call.ctx))
    inputs.forEach((slot, i) => {
      if (slot?.kind !== 'shard' || slot.scaled || slot.unit === 1) return;
      const axis = call.inputs[i][slot.dim];
      relations.inUnits(axis, slot.unit);
    });
}

/** Adds what a node asks of the sizes of its dims. */
export function readRelations(
  relations: SizeRelations,
  at: ProgramNode,
  table: OperatorTable,
): void {
  for (const dims of relations.program.around(at)) for (const axis of dims) relations.meet(axis);
  const { node } = at;
  if (node.target === LOCAL_MAP)
    for (const { outer, inner, pieces } of relations.program.borders(at))
      if (pieces > 1)
        relations.relate({ kind: 'product', left: [outer], right: [inner], times: pieces });
  const length = node.target === 'scan' ? node.kwargs['length'] : undefined;
  if (typeof length === 'number')
    relations.literals.set(node, { length: relations.along(-1, length)[0] ?? 0 });
  const record = node.kind === 'call' ? table.get(node.target) : undefined;
  const call = record === undefined ? undefined : relations.program.call(at);
  if (record === undefined || call === undefined) return;
  const reader = READERS[record.name.replace(/^(aten|prims)\./, '')];
  if (reader !== undefined) reader(relations, call);
  if (spmdName(node.target) !== undefined && node.args.length === 5) readVerb(relations, call);
  readWindows(relations, call, record);
  readUnits(relations, call, record);
  if (record.cls === 'attention') {
    const heads = (name: string): number | undefined => call.inputs[call.ctx.indexOf(name)]?.at(-3);
    const [own, shared] = [heads('query'), heads('key')];
    if (own !== undefined && shared !== undefined && own !== shared)
      relations.relate({ kind: 'multiple', left: [own], right: [shared] });
  }
}

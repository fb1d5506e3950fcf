/** Operators of ai.onnx that move elements or change shapes. */

import type { Arg, Dim } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import { product } from '../../../product.ts';
import {
  dimArg,
  floatArg,
  literalOf,
  type Lowering,
  type OnnxCall,
  type OnnxOperand,
} from '../call.ts';
import { vector } from '../constant.ts';
import { paddedByOwn } from './indexing.ts';

/** `Reshape`: 0 copies the size of the input unless `allowzero`, one -1 is worked out. */
const reshape: Lowering = (c) => {
  const wanted = c.constantDims(1) ?? c.ints('shape') ?? c.fail('E_TYPE', 'the shape is missing');
  const { shape } = c.type(0);
  const isZeroKept = c.flag('allowzero', false);
  const sizes = wanted.map((dim, i) => {
    if (dim !== 0 || isZeroKept) return dim;
    return (
      shape[i] ??
      c.fail('E_TYPE', `size ${i} is 0, which copies a dim that the input does not have`)
    );
  });
  const [first, ...rest] = sizes;
  const [own] = shape;
  const isKept = typeof first === 'object' && typeof own === 'object' && first.sym === own.sym;
  return isKept && rest.length > 0 && rest.every((dim) => typeof dim === 'number')
    ? [behindFirst(c, rest)]
    : [c.build.emit('aten.reshape.default', [c.arg(0), sizes.map(dimArg)])];
};

/** The input with other sizes behind its first dim, whose size may be a name. */
function behindFirst(c: OnnxCall, sizes: readonly number[]): OnnxOperand {
  const rank = c.rank(0);
  const flat =
    rank === 1
      ? c.build.emit('aten.unsqueeze.default', [c.arg(0), 1])
      : c.build.emit('aten.flatten.using_ints', [c.arg(0), 1, -1]);
  return sizes.length === 1
    ? flat
    : c.build.emit('aten.unflatten.int', [c.build.ref(flat), 1, sizes]);
}

/** Two dims: those before the axis and the rest. */
const flatten: Lowering = (c) => {
  const rank = c.rank(0);
  const stated = c.int('axis', 1);
  const at = stated < 0 ? stated + rank : stated;
  if (at < 0 || at > rank)
    return c.fail('E_TYPE', `axis ${stated} does not exist in a tensor of ${rank} dims`);
  const { shape } = c.type(0);
  const left = shape.slice(0, at);
  if (left.every((dim) => typeof dim === 'number'))
    return [c.build.emit('aten.reshape.default', [c.arg(0), [product(left), -1]])];
  if (left.length > 1) c.fail('E_UNSUPPORTED', 'several symbolic sizes are flattened into one');
  return [behindFirst(c, [-1])];
};

const unsqueeze: Lowering = (c) => {
  const axes = c.axes(1) ?? c.fail('E_TYPE', 'the axes are missing');
  const rank = c.rank(0) + axes.length;
  const sorted = axes.map((axis) => c.axis(axis, rank)).sort((a, b) => a - b);
  let result = c.input(0);
  for (const axis of sorted)
    result = c.build.emit('aten.unsqueeze.default', [c.build.ref(result), axis]);
  return [result];
};

const squeeze: Lowering = (c) => {
  const axes = c.axes(1);
  if (axes === undefined) return [c.build.emit('aten.squeeze.default', [c.arg(0)])];
  return [
    c.build.emit('aten.squeeze.dims', [c.arg(0), axes.map((axis) => c.axis(axis, c.rank(0)))]),
  ];
};

const transpose: Lowering = (c) => {
  const rank = c.rank(0);
  const perm = c.ints('perm') ?? Array.from({ length: rank }, (_, i) => rank - 1 - i);
  return [c.build.emit('aten.permute.default', [c.arg(0), perm])];
};

const concat: Lowering = (c) => {
  const axis = c.int('axis') ?? c.fail('E_TYPE', `attribute 'axis' is missing`);
  return [
    c.build.emit('aten.cat.default', [
      Array.from({ length: c.inputCount }, (_, i) => c.arg(i)),
      axis,
    ]),
  ];
};

/** Sizes as an input or attribute, or as many equal parts as there are outputs. */
const split: Lowering = (c) => {
  const axis = c.axis(c.int('axis', 0), c.rank(0));
  let sizes = c.ints('split') ?? c.constantInts(1);
  if (sizes === undefined) {
    const size = c.sizeAt(c.type(0), axis, `dim ${axis}, which is split,`);
    const parts = c.int('num_outputs', c.node.outputs.length);
    if (parts < 1 || parts > c.node.outputs.length)
      return c.fail('E_TYPE', `num_outputs is ${parts}`);
    const each = Math.ceil(size / parts);
    sizes = Array.from({ length: parts }, (_, i) => Math.max(0, Math.min(each, size - i * each)));
  }
  if (sizes.length !== c.node.outputs.length)
    return c.fail('E_TYPE', `${sizes.length} sizes for ${c.node.outputs.length} outputs`);
  return c.build.emitTuple('aten.split_with_sizes.default', [c.arg(0), sizes, axis]);
};

/** Exporters write numbers beyond any size for "to the end". */
const FAR = 2 ** 30;

const slice: Lowering = (c) => {
  const rank = c.rank(0);
  const starts =
    c.ints('starts') ?? c.constantInts(1) ?? c.fail('E_TYPE', 'the starts are missing');
  const ends = c.ends('ends') ?? c.constantInts(2) ?? c.fail('E_TYPE', 'the ends are missing');
  const axes = c.axes(3) ?? starts.map((_, i) => i);
  const steps = c.constantInts(4) ?? starts.map(() => 1);
  if (
    ends.length !== starts.length ||
    axes.length !== starts.length ||
    steps.length !== starts.length
  )
    return c.fail('E_TYPE', 'starts, ends, axes and steps have different lengths');
  let result = c.input(0);
  starts.forEach((start, i) => {
    const axis = c.axis(itemAt(axes, i), rank);
    const [end, step] = [itemAt(ends, i), itemAt(steps, i)];
    const value = c.build.ref(result);
    if (step > 0) result = c.build.emit('aten.slice.Tensor', [value, axis, start, end, step]);
    else if (step === -1 && (start === -1 || start > FAR) && end < -FAR)
      result = c.build.emit('aten.flip.default', [value, [axis]]);
    else c.fail('E_UNSUPPORTED', `a slice with step ${step} of only a part of axis ${axis}`);
  });
  return [result];
};

/** Both ways of broadcasting: a size of 1 in the wanted shape keeps that of the input. */
const expand: Lowering = (c) => {
  const wanted = c.constantDims(1) ?? c.fail('E_TYPE', 'the shape is missing');
  const { shape } = c.type(0);
  const rank = Math.max(shape.length, wanted.length);
  const sizes = Array.from({ length: rank }, (_, i): Dim => {
    const own: Dim = shape[i - (rank - shape.length)] ?? 1;
    const other: Dim = wanted[i - (rank - wanted.length)] ?? 1;
    return other === 1 ? own : other;
  });
  return [c.build.emit('aten.expand.default', [c.arg(0), sizes.map(dimArg)])];
};

/** Pads of ONNX list all begins and then all ends; torch lists pairs from the last dim. */
const pad: Lowering = (c) => {
  const mode = c.text('mode', 'constant');
  const pads = c.ints('pads') ?? c.constantInts(1) ?? c.fail('E_TYPE', 'the pads are missing');
  const rank = c.rank(0);
  const axes = (c.constantInts(3) ?? Array.from({ length: rank }, (_, i) => i)).map((axis) =>
    c.axis(axis, rank),
  );
  if (pads.length !== 2 * axes.length)
    return c.fail('E_TYPE', `${pads.length} pads for ${axes.length} axes`);
  if (mode !== 'constant') {
    c.optional(2);
    const [cut, grown] = [pads.map((n) => Math.min(n, 0)), pads.map((n) => Math.max(n, 0))];
    return [paddedByOwn(c, padded(c, c.input(0), axes, cut, 0), axes, grown, mode)];
  }
  const stated = c.optional(2)?.constant;
  const value =
    c.optional(2) === undefined
      ? floatArg(c.float('value', 0))
      : stated?.values.length === 1
        ? literalOf({ ...stated, dims: [] })
        : undefined;
  if (value === undefined)
    return c.fail('E_UNSUPPORTED', 'the padding value is computed at run time');
  return [padded(c, c.input(0), axes, pads, value)];
};

/** The value padded on some axes; unchanged where all pads are 0. */
export function padded(
  c: OnnxCall,
  operand: OnnxOperand,
  axes: readonly number[],
  pads: readonly number[],
  value: Arg,
): OnnxOperand {
  if (pads.every((n) => n === 0)) return operand;
  const rank = operand.type.shape.length;
  const list: number[] = new Array<number>(2 * rank).fill(0);
  axes.forEach((axis, i) => {
    list[2 * (rank - 1 - axis)] = itemAt(pads, i);
    list[2 * (rank - 1 - axis) + 1] = itemAt(pads, i + axes.length);
  });
  return c.build.emit('aten.constant_pad_nd.default', [c.build.ref(operand), list, value]);
}

/**
 * Rows of a table are an embedding; one constant index is a select; anything else an indexing of
 * one dim.
 */
const gather: Lowering = (c) => {
  const rank = c.rank(0);
  const axis = c.axis(c.int('axis', 0), rank);
  const indices = c.input(1);
  const literal = c.literal(indices);
  if (typeof literal === 'number')
    return [c.build.emit('aten.select.int', [c.arg(0), axis, literal])];
  if (axis === 0 && rank === 2 && /^(f|bf)/.test(c.type(0).dtype))
    return [c.build.emit('aten.embedding.default', [c.arg(0), c.arg(1)])];
  const before = Array.from({ length: axis }, () => null);
  return [c.build.emit('aten.index.Tensor', [c.arg(0), [...before, c.arg(1)]])];
};

const shapeOf: Lowering = (c) => {
  const { shape } = c.type(0);
  const dims = shape.slice(c.int('start', 0), c.int('end') ?? shape.length);
  return [c.build.constant(vector('i64', dims))];
};

const sizeOf: Lowering = (c) => {
  const count = product(c.type(0).shape.map((dim) => c.size(dim, 'a dim')));
  return [c.build.constant({ dtype: 'i64', dims: [], values: [count] })];
};

const constantOfShape: Lowering = (c) => {
  const sizes = c.constantDims(0) ?? [];
  const stated = c.attribute('value')?.tensor;
  const dtype = stated?.dtype ?? 'f32';
  const value = Number(stated?.values?.[0] ?? 0);
  const fill: Arg = dtype === 'b8' ? value !== 0 : /^[iu]/.test(dtype) ? value : floatArg(value);
  const device: Arg = { kind: 'device', word: 'cpu' };
  return [
    c.build.emit('aten.full.default', [sizes.map(dimArg), fill], {
      dtype: { kind: 'dtype', dtype },
      device,
    }),
  ];
};

const range: Lowering = (c) => {
  const ends = [0, 1, 2].map(
    (i) =>
      c.literal(c.input(i)) ?? c.fail('E_UNSUPPORTED', 'a range with ends computed at run time'),
  );
  const { dtype } = c.type(0);
  return [c.build.emit('aten.arange.start_step', ends, { dtype: { kind: 'dtype', dtype } })];
};

const trilu: Lowering = (c) => {
  const k = c.optional(1) === undefined ? 0 : (c.constantInts(1)?.[0] ?? 0);
  return [
    c.build.emit(c.flag('upper', true) ? 'aten.triu.default' : 'aten.tril.default', [c.arg(0), k]),
  ];
};

const scatterElements: Lowering = (c) => {
  const reduction = c.text('reduction', 'none');
  const target =
    reduction === 'none'
      ? 'aten.scatter.src'
      : reduction === 'add'
        ? 'aten.scatter_add.default'
        : undefined;
  if (target === undefined)
    return c.fail('E_UNSUPPORTED', `a scatter with reduction '${reduction}'`);
  return [c.build.emit(target, [c.arg(0), c.int('axis', 0), c.arg(1), c.arg(2)])];
};

const tile: Lowering = (c) => [
  c.build.emit('aten.repeat.default', [
    c.arg(0),
    c.constantInts(1) ?? c.fail('E_TYPE', 'the repeats are missing'),
  ]),
];

export const SHAPES: readonly (readonly [string, Lowering])[] = [
  ['Reshape', reshape],
  ['Flatten', flatten],
  ['Unsqueeze', unsqueeze],
  ['Squeeze', squeeze],
  ['Transpose', transpose],
  ['Concat', concat],
  ['Split', split],
  ['Slice', slice],
  ['Expand', expand],
  ['Tile', tile],
  ['Pad', pad],
  ['Gather', gather],
  [
    'GatherElements',
    (c) => [c.build.emit('aten.gather.default', [c.arg(0), c.int('axis', 0), c.arg(1)])],
  ],
  ['ScatterElements', scatterElements],
  ['Scatter', scatterElements],
  ['Shape', shapeOf],
  ['Size', sizeOf],
  ['ConstantOfShape', constantOfShape],
  ['Range', range],
  ['Trilu', trilu],
  ['Identity', (c) => [c.input(0)]],
];

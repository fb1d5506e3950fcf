/**
 * Padding by values of the tensor itself, mirrored or repeated: padded dims are whole, others
 * follow.
 * Source: ATen's `ReflectionPad.cpp` and `ReplicationPadding.cpp`.
 */

import { flat, fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { advance, one, resultShape, tensor } from '../../record/kernel.ts';
import { defineOp, type OpContext, type OperatorRecord } from '../../record/record.ts';
import { rule, S } from '../../record/rule.ts';
import { cuttable, movedKinds, need, untouched } from '../../rules/dims.ts';
import { linearIn } from '../../rules/partials.ts';

interface Padding {
  /** Rows before and after, by dim of the tensor. */
  readonly pads: readonly (readonly [before: number, after: number])[];
  readonly shape: readonly number[];
}

/** Pairs of rows before and after, from the last dim on. */
function paddingOf(ctx: OpContext, name: string, dims: number, mirrors: boolean): Padding {
  const { shape } = need(ctx, 'self');
  const list = ctx.ints('padding');
  const lead = shape.length - dims;
  if (lead < 1 || lead > 2 || list.length !== 2 * dims)
    ctx.fail(`pads the last ${dims} of ${dims + 1} or ${dims + 2} dims, got [${shape.join(', ')}]`);
  const pads = shape.map((size, d): [number, number] => {
    const k = 2 * (shape.length - 1 - d);
    const pair: [number, number] = d < lead ? [0, 0] : [list[k], list[k + 1]];
    const most = mirrors ? size - 1 : Infinity;
    if (d >= lead && (size === 0 || Math.max(...pair) > most))
      ctx.fail(`${name} of ${pair.join(' and ')} rows does not fit dim ${d} of size ${size}`);
    return pair;
  });
  return { pads, shape: shape.map((size, d) => size + pads[d][0] + pads[d][1]) };
}

/** The row that a padded place shows: the nearest one, or the one across the edge. */
function sourceRow(at: number, size: number, mirrors: boolean): number {
  if (!mirrors) return Math.min(Math.max(at, 0), size - 1);
  return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
}

/** Flat position in the tensor of each place of the padded one. */
function sources(
  shape: readonly number[],
  { pads, shape: out }: Padding,
  mirrors: boolean,
): number[] {
  const found: number[] = [];
  if (sizeOf(out) === 0) return found;
  const at = new Array<number>(out.length).fill(0);
  do {
    found.push(
      at.reduce(
        (flatAt, i, d) => flatAt * shape[d] + sourceRow(i - pads[d][0], shape[d], mirrors),
        0,
      ),
    );
  } while (advance(at, out));
  return found;
}

/** Sizes of the samples before and after, and their padding. */
const SIZES = [
  ['4', '7', '1,2'],
  ['3,4', '4,7', '1,2,1,0'],
  ['2,2,3', '3,3,6', '1,2,1,0,1,0'],
] as const;

const family = (kind: 'reflection' | 'replication', dims: number): OperatorRecord[] => {
  const name = `${kind}_pad${dims}d`;
  const mirrors = kind === 'reflection';
  const padding = (ctx: OpContext): Padding => paddingOf(ctx, name, dims, mirrors);
  const touched = (ctx: OpContext): number[] =>
    padding(ctx).pads.flatMap(([a, b], d) => (a === 0 && b === 0 ? [] : [d]));
  const [image, padded, pads] = SIZES[dims - 1];
  return [
    defineOp(`aten.${name}.default`, {
      schema: 'Tensor self, int[] padding',
      cls: 'other',
      infer: (ctx) => [{ dtype: need(ctx, 'self').dtype, shape: padding(ctx).shape }],
      shard: (ctx) => untouched(ctx, touched(ctx), movedKinds(ctx.inputs[0].dtype)),
      kernel: one((call): NDArray => {
        const x = tensor(call, 'self');
        const data = flat(x);
        const from = sources(x.shape, padding(call.ctx), mirrors);
        return fromFlat(
          resultShape(call),
          Float64Array.from(from, (i) => data[i]),
          x.dtype,
        );
      }),
      samples: [`x[6,${image}], [${pads}]`, ...(dims === 1 ? ['x[5,6,4], [0,2]'] : [])],
    }),
    defineOp(`aten.${name}_backward.default`, {
      schema: 'Tensor grad_output, Tensor self, int[] padding',
      cls: 'other',
      infer: (ctx) => {
        const [given, wanted] = [need(ctx, 'grad_output').shape, padding(ctx).shape];
        if (given.join() !== wanted.join())
          ctx.fail(`the gradient has sizes [${given.join(', ')}], wanted [${wanted.join(', ')}]`);
        return [need(ctx, 'self')];
      },
      shard: (ctx) => [
        ...cuttable(need(ctx, 'self').shape)
          .filter((d) => !touched(ctx).includes(d))
          .map((d) => rule([S(d), S(d)], [S(d)])),
        ...linearIn('grad_output')(ctx),
      ],
      kernel: one((call): NDArray => {
        const { shape } = tensor(call, 'self');
        const out = new Float64Array(sizeOf(shape));
        const from = sources(shape, padding(call.ctx), mirrors);
        flat(tensor(call, 'grad_output')).forEach((g, k) => (out[from[k]] += g));
        return fromFlat(shape, out);
      }),
      samples: [`x[6,${padded}], x[6,${image}], [${pads}]`],
    }),
  ];
};

export const paddingOps: readonly OperatorRecord[] = (
  ['reflection', 'replication'] as const
).flatMap((kind) => [1, 2, 3].flatMap((dims) => family(kind, dims)));

/**
 * Relations of calls that slide windows or count groups: convolutions, pools, resampling, group
 * norms.
 */

import type { OperatorRecord } from '../../ops/record/record.ts';
import type { AxisCall } from './dims.ts';
import type { SizeRelations } from './relation-set.ts';
import { slidDims, type Slide, windowCount } from './windows.ts';

export function readWindows(
  relations: SizeRelations,
  call: AxisCall,
  record: OperatorRecord,
): void {
  const { name } = record;
  if (
    name === 'stablehlo.convolution' ||
    name === 'stablehlo.reduce_window' ||
    name === 'stablehlo.select_and_scatter'
  )
    stablehloWindows(relations, call, name);
  else if (/^aten\.(\w*conv|\w*pool|\w*upsample)/.test(name)) windows(relations, call, record);
  if (/group_norm/.test(name)) groupNorm(relations, call);
}

/**
 * Windows whose count follows from rows and kernel; where no relation is known all but batch and
 * channels stays.
 */
function windows(relations: SizeRelations, call: AxisCall, record: OperatorRecord): void {
  const { ctx, inputs, outputs } = call;
  const convolution = /conv/.test(record.name);
  const at = (name: string): readonly number[] | undefined => inputs[ctx.indexOf(name)];
  const x = at('input') ?? at('self') ?? inputs[0];
  const w = convolution ? at('weight') : undefined;
  const out = at('grad_output') ?? outputs[0];
  const turned = record.schema.some((s) => s.name === 'transposed')
    ? ctx.bool('transposed')
    : /transpose/.test(record.name);
  if (w !== undefined) channels(relations, call, x, w, out, turned);
  const dims = slidDims(ctx, record);
  if (dims === undefined) {
    for (const axes of [...inputs, ...outputs])
      axes.slice(2).forEach((axis) => relations.fix(axis));
    return;
  }
  dims.forEach(({ kernel, weighted, ...slid }, i) => {
    const slide: Slide = { stride: slid.stride, padding: slid.padding, dilation: slid.dilation };
    const place = i - dims.length;
    const [rows, count] = [x.at(place) ?? 0, out.at(place) ?? 0];
    const left = weighted && w !== undefined ? [rows, w.at(place) ?? 0] : [rows];
    relations.relate({
      kind: 'window',
      left,
      right: [count],
      slide: left.length > 1 ? slide : { ...slide, kernel },
    });
    for (const axis of [rows, count]) relations.spatial.add(axis);
  });
}

/** Channels of a convolution in groups: as many groups as before, or one channel in each. */
function channels(
  relations: SizeRelations,
  { ctx, node }: AxisCall,
  x: readonly number[],
  w: readonly number[],
  out: readonly number[],
  transposed: boolean,
): void {
  const groups = ctx.int('groups');
  if (groups <= 1) return;
  const [own, other] = transposed ? [out, x] : [x, out];
  if (relations.sizeOf(w[1]) === 1) {
    // Each channel is a group of its own, so the groups shrink with them.
    relations.relate({ kind: 'multiple', left: [other[1]], right: [own[1]] });
    relations.relate({ kind: 'multiple', left: [w[0]], right: [own[1]] });
    relations.literals.set(node, { groups: own[1] });
    return;
  }
  relations.relate({ kind: 'product', left: [own[1]], right: [w[1]], times: groups });
  const most = relations.sizeOf(w[0]) / groups;
  if (Number.isInteger(most)) {
    const each = relations.along(w[0], most);
    relations.relate({ kind: 'product', left: [w[0]], right: each, times: groups });
  }
}

/** Whole channels in each group. */
function groupNorm(relations: SizeRelations, { ctx, inputs, outputs }: AxisCall): void {
  const groups = ctx.int(ctx.target.includes('native') ? 'group' : 'num_groups');
  const x = inputs[ctx.indexOf('input')];
  const each = relations.along(x[1], relations.sizeOf(x[1]) / groups);
  relations.relate({ kind: 'product', left: [x[1]], right: each, times: groups });
  // Statistics have a row for each group.
  for (const dims of [...inputs, ...outputs]) if (dims.length === 2) relations.fix(dims[1]);
}

/**
 * Windows with padding of their own on each side; a window over all rows so far grows with them.
 */
function stablehloWindows(
  relations: SizeRelations,
  { ctx, inputs, outputs }: AxisCall,
  name: string,
): void {
  const convolution = name === 'stablehlo.convolution';
  const roles = (what: string): readonly number[] =>
    convolution ? ctx.ints(`${what}_dimensions`).slice(2) : inputs[0].map((_, d) => d);
  const [image, kernel, result] = ['input', 'kernel', 'output'].map(roles);
  const counts = name === 'stablehlo.select_and_scatter' ? inputs[1] : outputs[0];
  const list = (key: string, fill: number, i: number): number => ctx.ints(key)[i] ?? fill;
  image.forEach((d, i) => {
    const [rows, count] = [inputs[0][d], counts[result[i]]];
    const width = convolution
      ? relations.sizeOf(inputs[1][kernel[i]])
      : list('window_dimensions', 1, i);
    const [low, high] = [list('padding', 0, 2 * i), list('padding', 0, 2 * i + 1)];
    if (width === 1 && rows === count && low === 0 && high === 0) return;
    const stride = list('window_strides', 1, i);
    const dilation = list(convolution ? 'rhs_dilation' : 'window_dilations', 1, i);
    const size = relations.sizeOf(rows);
    if (!convolution && cumulative(width, size, low, high)) return;
    const slide = { stride, padding: (low + high) / 2, dilation };
    const spread = list(convolution ? 'lhs_dilation' : 'base_dilations', 1, i);
    if (spread !== 1 || windowCount(size, width, slide) !== relations.sizeOf(count)) {
      for (const axis of [rows, count]) relations.fix(axis);
      if (convolution) relations.fix(inputs[1][kernel[i]]);
      return;
    }
    const left = convolution ? [rows, inputs[1][kernel[i]]] : [rows];
    relations.relate({
      kind: 'window',
      left,
      right: [count],
      slide: convolution ? slide : { ...slide, kernel: width },
    });
    for (const axis of [rows, count]) relations.spatial.add(axis);
  });
  if (!convolution) return;
  const groups = ctx.int('feature_group_count');
  const [channels, within] = [
    inputs[0][ctx.ints('input_dimensions')[1]],
    inputs[1][ctx.ints('kernel_dimensions')[0]],
  ];
  const made = inputs[1][ctx.ints('kernel_dimensions')[1]];
  if (groups === 1 && ctx.int('batch_group_count') === 1) return;
  for (const axis of [channels, within, made, inputs[0][ctx.ints('input_dimensions')[0]]])
    relations.fix(axis);
}

/** Tells whether a window reaches from every row back to the first one, or on to the last. */
export function cumulative(width: number, rows: number, low: number, high: number): boolean {
  return width === rows && rows > 1 && low + high === rows - 1 && (low === 0 || high === 0);
}

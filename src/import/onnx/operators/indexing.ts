/** Operators of ai.onnx that gather, scatter and rearrange by positions. */

import { floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';

/** Columns of an index tensor along its last dim, one for each dim that they count. */
function columns(c: OnnxCall, indices: OnnxOperand): OnnxOperand[] {
  const count = c.size(indices.type.shape.at(-1) ?? 0, 'the last dim of the indices');
  return Array.from({ length: count }, (_, k) => c.op('select.int', indices, -1, k));
}

/** Positions of the batch dims, for indices of as many dims as the columns have. */
function batchPositions(c: OnnxCall, batch: number, rank: number): OnnxOperand[] {
  return Array.from({ length: batch }, (_, d) => {
    const size = c.size(c.type(0).shape[d], `dim ${d}`);
    const behind = Array.from({ length: rank - 1 - d }, () => 1);
    return c.op('reshape', c.counted(size), [size, ...behind]);
  });
}

const gatherND: Lowering = (c) => {
  const batch = c.int('batch_dims', 0);
  const places = columns(c, c.input(1));
  const rank = places[0]?.type.shape.length ?? 0;
  return [c.op('index.Tensor', c.input(0), [...batchPositions(c, batch, rank), ...places])];
};

const scatterND: Lowering = (c) => {
  const reduction = c.text('reduction', 'none');
  if (reduction !== 'none' && reduction !== 'add')
    return c.fail(
      'E_UNSUPPORTED',
      `attribute 'reduction' is '${reduction}'`,
      `scatters that write ('none') or 'add' are read`,
    );
  const places = columns(c, c.input(1));
  return [c.op('index_put', c.input(0), places, c.input(2), reduction === 'add')];
};

/** Blocks of channels to squares of pixels, in either order of the channels. */
const depthToSpace: Lowering = (c) => {
  const b = c.int('blocksize') ?? c.fail('E_TYPE', `attribute 'blocksize' is missing`);
  const [n, channels, height, width] = c.sizes(c.type(0));
  const depth = channels / (b * b);
  const isColumns = c.text('mode', 'DCR') === 'CRD';
  const split = c.op(
    'reshape',
    c.input(0),
    isColumns ? [n, depth, b, b, height, width] : [n, b, b, depth, height, width],
  );
  const moved = c.op('permute', split, isColumns ? [0, 1, 4, 2, 5, 3] : [0, 3, 4, 1, 5, 2]);
  return [c.op('reshape', moved, [n, depth, height * b, width * b])];
};

const spaceToDepth: Lowering = (c) => {
  const b = c.int('blocksize') ?? c.fail('E_TYPE', `attribute 'blocksize' is missing`);
  const [n, channels, height, width] = c.sizes(c.type(0));
  const split = c.op('reshape', c.input(0), [n, channels, height / b, b, width / b, b]);
  const order = c.text('mode', 'DCR') === 'CRD' ? [0, 1, 3, 5, 2, 4] : [0, 3, 5, 1, 2, 4];
  return [
    c.op('reshape', c.op('permute', split, order), [n, channels * b * b, height / b, width / b]),
  ];
};

/** `on` at the position of the index, `off` elsewhere; negative indices count backwards. */
const oneHot: Lowering = (c) => {
  const depth = Number(c.constantInts(1)?.[0]);
  const indices = c.cast(c.input(0), 'i64');
  const rank = indices.type.shape.length + 1;
  const axis = c.axis(c.int('axis', -1), rank);
  const behind = Array.from({ length: rank - 1 - axis }, () => 1);
  const places = c.op('reshape', c.counted(depth), [depth, ...behind]);
  const counted = c.op('remainder.Scalar', indices, depth);
  const isInside = c.op(
    'logical_and',
    c.op('ge.Scalar', indices, -depth),
    c.op('lt.Scalar', indices, depth),
  );
  const isOn = c.op(
    'logical_and',
    c.op('eq.Tensor', c.op('unsqueeze', counted, axis), places),
    c.op('unsqueeze', isInside, axis),
  );
  const [off, on] = [0, 1].map((k) => c.op('select.int', c.input(2), 0, k));
  return [c.op('where.self', isOn, on, off)];
};

/** Positions along a dim for reflecting, repeating and wrapping pads. */
function paddedPositions(size: number, before: number, after: number, mode: string): number[] {
  return Array.from({ length: before + size + after }, (_, i) => {
    const at = i - before;
    const around = (n: number): number => ((at % n) + n) % n;
    if (mode === 'edge') return Math.min(Math.max(at, 0), size - 1);
    if (mode === 'wrap') return around(size);
    const turn = around(Math.max(1, 2 * (size - 1)));
    return turn < size ? turn : 2 * (size - 1) - turn;
  });
}

/** The value with pads taken from its own elements: slices, joined. */
export function paddedByOwn(
  c: OnnxCall,
  operand: OnnxOperand,
  axes: readonly number[],
  pads: readonly number[],
  mode: string,
): OnnxOperand {
  let value = operand;
  axes.forEach((axis, i) => {
    const size = c.size(value.type.shape[axis], `dim ${axis}`);
    const positions = paddedPositions(size, pads[i], pads[i + axes.length], mode);
    const parts: OnnxOperand[] = [];
    for (let from = 0; from < positions.length;) {
      let to = from + 1;
      while (to < positions.length && positions[to] === positions[to - 1] + 1) to++;
      parts.push(c.op('slice.Tensor', value, axis, positions[from], positions[to - 1] + 1));
      from = to;
    }
    value = parts.length === 1 ? parts[0] : c.op('cat', parts, axis);
  });
  return value;
}

const eyeLike: Lowering = (c) => {
  const [rows, columnsOf] = c.sizes(c.type(0));
  const k = c.int('k', 0);
  const down = c.op('reshape', c.counted(rows), [rows, 1]);
  const isOn = c.op('eq.Tensor', c.op('add.Tensor', down, k), c.counted(columnsOf));
  return [c.cast(isOn, c.dtypeAttribute('dtype') ?? c.type(0).dtype)];
};

const GRID_MODES: Readonly<Record<string, number>> = {
  bilinear: 0,
  linear: 0,
  nearest: 1,
  bicubic: 2,
  cubic: 2,
};
const GRID_PADS: Readonly<Record<string, number>> = { zeros: 0, border: 1, reflection: 2 };

const gridSample: Lowering = (c) => {
  if (c.rank(0) !== 4)
    return c.fail('E_UNSUPPORTED', `samples of ${c.rank(0)} dims`, 'four are read');
  const mode = GRID_MODES[c.text('mode', 'linear')];
  const pads = GRID_PADS[c.text('padding_mode', 'zeros')];
  const isAligned = c.int('align_corners', 0) !== 0;
  return [c.op('grid_sampler_2d', c.input(0), c.input(1), mode, pads, isAligned)];
};

/** `Resize` in the forms that torch's `upsample` operators have. */
const resize: Lowering = (c) => {
  const rank = c.rank(0);
  const isOld = c.node.op === 'Upsample' || c.opset < 11;
  const from = isOld ? 1 : 2;
  const axes =
    c.ints('axes')?.map((a) => c.axis(a, rank)) ?? Array.from({ length: rank }, (_, i) => i);
  const scalesOf =
    c.ints('scales') ?? c.optional(from)?.constant?.values.map(Number) ?? c.floats('scales');
  const sizesOf = isOld ? undefined : c.constantInts(3);
  const mode = c.text('mode', 'nearest');
  const transform = c.text('coordinate_transformation_mode', isOld ? 'asymmetric' : 'half_pixel');
  const nearest = c.text('nearest_mode', isOld ? 'floor' : 'round_prefer_floor');
  if (c.text('keep_aspect_ratio_policy', 'stretch') !== 'stretch')
    c.fail('E_UNSUPPORTED', `'keep_aspect_ratio_policy' keeps the ratio`, 'state the sizes');
  if (transform !== 'tf_crop_and_resize') {
    if (!isOld) c.optional(1);
    c.float('extrapolation_value', 0);
  }
  const own = c.sizes(c.type(0));
  const sizes = [...own];
  axes.forEach((axis, i) => {
    const scale = scalesOf?.[i];
    if (sizesOf !== undefined && sizesOf.length > 0) sizes[axis] = sizesOf[i];
    else if (scale !== undefined) sizes[axis] = Math.floor(own[axis] * scale);
    else c.fail('E_UNSUPPORTED', 'the scales are computed at run time');
  });
  const ratio = (d: number): number => {
    const at = axes.indexOf(d);
    const given = sizesOf !== undefined && sizesOf.length > 0 ? undefined : scalesOf?.[at];
    return at < 0 ? 1 : (given ?? sizes[d] / own[d]);
  };
  const scales = [ratio(rank - 2), ratio(rank - 1)];
  const isPlane = rank === 4 && sizes[0] === own[0] && sizes[1] === own[1];
  if (mode !== 'nearest' || !isPlane)
    return [resampled(c, { own, sizes, ratio, mode, transform, nearest })];
  if (transform === 'asymmetric' && nearest === 'floor')
    return [c.op('upsample_nearest2d', c.input(0), sizes.slice(2), ...scales.map(floatArg))];
  return [resampled(c, { own, sizes, ratio, mode, transform, nearest })];
};

interface Resampling {
  readonly own: readonly number[];
  readonly sizes: readonly number[];
  readonly ratio: (dim: number) => number;
  readonly mode: string;
  readonly transform: string;
  readonly nearest: string;
}

/** Dim by dim: each new position is a weighted sum of positions, by the formulas of `Resize`. */
function resampled(c: OnnxCall, spec: Resampling): OnnxOperand {
  const { own, sizes, mode } = spec;
  if (!['nearest', 'linear', 'cubic', 'bilinear'].includes(mode))
    c.fail('E_UNSUPPORTED', `attribute 'mode' is '${mode}'`, 'nearest, linear and cubic are read');
  if (c.int('antialias', 0) !== 0)
    c.fail('E_UNSUPPORTED', `attribute 'antialias' is 1`, 'resize without antialias');
  const isOutside = c.int('exclude_outside', 0) !== 0;
  const a = c.float('cubic_coeff_a', -0.75);
  let value = c.input(0);
  own.forEach((size, d) => {
    if (size === sizes[d] && spec.ratio(d) === 1) return;
    if (size * sizes[d] > MAX_WEIGHTS)
      c.fail(
        'E_LIMIT',
        `dim ${d} is resized from ${size} to ${sizes[d]}`,
        'resize in PyTorch form',
      );
    const rows = Array.from({ length: sizes[d] }, (_, i) => {
      const at = sourceOf(c, spec, d, i);
      const taps = mode === 'nearest' ? [[nearestOf(at, spec.nearest), 1]] : tapsAt(at, mode, a);
      return weightsOf(taps, size, isOutside);
    });
    const { dtype } = value.type;
    const matrix = c.build.constant({ dtype, dims: [sizes[d], size], values: rows.flat() });
    const last = c.op('transpose.int', value, d, -1);
    value = c.op('transpose.int', c.op('matmul', last, c.op('t', matrix)), d, -1);
  });
  return value;
}

/** Weights of one dim that are written out, at most. */
const MAX_WEIGHTS = 1024;

function sourceOf(
  c: OnnxCall,
  { own, sizes, ratio, transform }: Resampling,
  d: number,
  i: number,
): number {
  const scale = ratio(d);
  const length = own[d] * scale;
  switch (transform) {
    case 'half_pixel':
      return (i + 0.5) / scale - 0.5;
    case 'asymmetric':
      return i / scale;
    case 'align_corners':
      return length === 1 ? 0 : (i * (own[d] - 1)) / (length - 1);
    case 'pytorch_half_pixel':
      return length > 1 ? (i + 0.5) / scale - 0.5 : 0;
    case 'half_pixel_symmetric':
      return (own[d] / 2) * (1 - sizes[d] / length) + (i + 0.5) / scale - 0.5;
    default:
      return c.fail(
        'E_UNSUPPORTED',
        `attribute 'coordinate_transformation_mode' is '${transform}'`,
        'half_pixel, asymmetric, align_corners and their variants are read',
      );
  }
}

function nearestOf(at: number, mode: string): number {
  if (mode === 'floor') return Math.floor(at);
  if (mode === 'ceil') return Math.ceil(at);
  return mode === 'round_prefer_ceil' ? Math.floor(at + 0.5) : Math.ceil(at - 0.5);
}

function tapsAt(at: number, mode: string, a: number): number[][] {
  const low = Math.floor(at);
  const t = at - low;
  if (mode !== 'cubic')
    return [
      [low, 1 - t],
      [low + 1, t],
    ];
  const near = (s: number): number => ((a + 2) * s - (a + 3)) * s * s + 1;
  const far = (s: number): number => ((a * s - 5 * a) * s + 8 * a) * s - 4 * a;
  return [
    [low - 1, far(1 + t)],
    [low, near(t)],
    [low + 1, near(1 - t)],
    [low + 2, far(2 - t)],
  ];
}

/** A row of weights: positions outside are the nearest one, or left out. */
function weightsOf(taps: readonly number[][], size: number, excluded: boolean): number[] {
  const row = new Array<number>(size).fill(0);
  for (const [at, weight] of taps) {
    if (excluded && (at < 0 || at >= size)) continue;
    row[Math.min(Math.max(at, 0), size - 1)] += weight;
  }
  const sum = row.reduce((x, y) => x + y, 0);
  return excluded ? row.map((w) => w / sum) : row;
}

export const INDEXING: readonly (readonly [string, Lowering])[] = [
  ['GatherND', gatherND],
  ['ScatterND', scatterND],
  ['DepthToSpace', depthToSpace],
  ['SpaceToDepth', spaceToDepth],
  ['OneHot', oneHot],
  ['EyeLike', eyeLike],
  ['GridSample', gridSample],
  ['Resize', resize],
  ['Upsample', resize],
];

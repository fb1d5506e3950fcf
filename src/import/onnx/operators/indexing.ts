/** Operators of ai.onnx that gather, scatter and rearrange by positions. */

import { itemAt } from '../../../item-at.ts';
import { floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';

/** Columns of an index tensor along its last dim, one for each dim that they count. */
function columns(c: OnnxCall, indices: OnnxOperand): OnnxOperand[] {
  const count = c.size(indices.type.shape.at(-1) ?? 0, 'the last dim of the indices');
  return Array.from({ length: count }, (_, k) => c.op('select.int', indices, -1, k));
}

/** Positions of the batch dims, for indices of as many dims as the columns have. */
function batchPositions(c: OnnxCall, batch: number, rank: number): OnnxOperand[] {
  return Array.from({ length: batch }, (_, d) => {
    const size = c.sizeAt(c.type(0), d);
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
  const [n, channels, height, width] = c.sizesOfRank(c.type(0), 4);
  const depth = channels / (b * b);
  const isColumns = c.word('mode', ['DCR', 'CRD'], 'DCR') === 'CRD';
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
  const [n, channels, height, width] = c.sizesOfRank(c.type(0), 4);
  const split = c.op('reshape', c.input(0), [n, channels, height / b, b, width / b, b]);
  const order =
    c.word('mode', ['DCR', 'CRD'], 'DCR') === 'CRD' ? [0, 1, 3, 5, 2, 4] : [0, 3, 5, 1, 2, 4];
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
  const [off, on] = [c.op('select.int', c.input(2), 0, 0), c.op('select.int', c.input(2), 0, 1)];
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

/** Stretches of positions that follow one another, each from its first up to behind its last. */
function runsOf(positions: readonly number[]): [number, number][] {
  const runs: [number, number][] = [];
  for (const at of positions) {
    const last = runs.at(-1);
    if (last?.[1] === at) last[1] = at + 1;
    else runs.push([at, at + 1]);
  }
  return runs;
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
    const size = c.sizeAt(value.type, axis);
    const [before, after] = [itemAt(pads, i), itemAt(pads, i + axes.length)];
    const positions = paddedPositions(size, before, after, mode);
    const parts = runsOf(positions).map(([from, to]) =>
      c.op('slice.Tensor', value, axis, from, to),
    );
    value = parts.length === 1 ? itemAt(parts, 0) : c.op('cat', parts, axis);
  });
  return value;
}

const eyeLike: Lowering = (c) => {
  const [rows, columnsOf] = c.sizesOfRank(c.type(0), 2);
  const k = c.int('k', 0);
  const down = c.op('reshape', c.counted(rows), [rows, 1]);
  const isOn = c.op('eq.Tensor', c.op('add.Tensor', down, k), c.counted(columnsOf));
  return [c.cast(isOn, c.dtypeAttribute('dtype') ?? c.type(0).dtype)];
};

const GRID_MODES: ReadonlyMap<string, number> = new Map([
  ['bilinear', 0],
  ['linear', 0],
  ['nearest', 1],
  ['bicubic', 2],
  ['cubic', 2],
]);
const GRID_PADS: ReadonlyMap<string, number> = new Map([
  ['zeros', 0],
  ['border', 1],
  ['reflection', 2],
]);

/** The number that torch gives to the word of an attribute. @throws E_UNSUPPORTED */
function numberOf(
  c: OnnxCall,
  numbers: ReadonlyMap<string, number>,
  attribute: string,
  fallback: string,
): number {
  const word = c.text(attribute, fallback);
  const known = [...numbers.keys()].join(', ');
  return (
    numbers.get(word) ??
    c.fail('E_UNSUPPORTED', `attribute '${attribute}' is '${word}'`, `${known} are read`)
  );
}

const gridSample: Lowering = (c) => {
  if (c.rank(0) !== 4)
    return c.fail('E_UNSUPPORTED', `samples of ${c.rank(0)} dims`, 'four are read');
  const mode = numberOf(c, GRID_MODES, 'mode', 'linear');
  const pads = numberOf(c, GRID_PADS, 'padding_mode', 'zeros');
  const isAligned = c.flag('align_corners', false);
  return [c.op('grid_sampler_2d', c.input(0), c.input(1), mode, pads, isAligned)];
};

/** One dim of `Resize`: its sizes, and the stated factor between them. */
interface ResizedDim {
  readonly from: number;
  readonly to: number;
  readonly scale: number;
}

/**
 * The sizes and factors that `Resize` states for its axes; other dims stay.
 * @throws E_UNSUPPORTED where they are computed at run time
 */
function resizedDims(c: OnnxCall, isOld: boolean): ResizedDim[] {
  const rank = c.rank(0);
  const axes =
    c.ints('axes')?.map((a) => c.axis(a, rank)) ?? Array.from({ length: rank }, (_, i) => i);
  const scales =
    c.ints('scales') ??
    c.optional(isOld ? 1 : 2)?.constant?.values.map(Number) ??
    c.floats('scales');
  const sizes = isOld ? undefined : c.constantInts(3);
  const hasSizes = sizes !== undefined && sizes.length > 0;
  return c.sizes(c.type(0)).map((from, d) => {
    const at = axes.indexOf(d);
    if (at < 0) return { from, to: from, scale: 1 };
    const [to, scale] = [hasSizes ? sizes[at] : undefined, hasSizes ? undefined : scales?.[at]];
    if (to !== undefined) return { from, to, scale: to / from };
    if (scale !== undefined) return { from, to: Math.floor(from * scale), scale };
    return c.fail('E_UNSUPPORTED', `neither a size nor a scale is known for dim ${d}`);
  });
}

/** `Resize` in the forms that torch's `upsample` operators have. */
const resize: Lowering = (c) => {
  const isOld = c.node.op === 'Upsample' || c.opset < 11;
  const mode = c.text('mode', 'nearest');
  const transform = c.text('coordinate_transformation_mode', isOld ? 'asymmetric' : 'half_pixel');
  const nearest = c.text('nearest_mode', isOld ? 'floor' : 'round_prefer_floor');
  if (c.text('keep_aspect_ratio_policy', 'stretch') !== 'stretch')
    c.fail('E_UNSUPPORTED', `'keep_aspect_ratio_policy' keeps the ratio`, 'state the sizes');
  if (transform !== 'tf_crop_and_resize') {
    if (!isOld) c.optional(1);
    c.float('extrapolation_value', 0);
  }
  const dims = resizedDims(c, isOld);
  const isPlane = dims.length === 4 && dims.slice(0, 2).every(({ from, to }) => from === to);
  const isTorchs = mode === 'nearest' && transform === 'asymmetric' && nearest === 'floor';
  if (!isPlane || !isTorchs) return [resampled(c, { dims, mode, transform, nearest })];
  const plane = dims.slice(2);
  const sizes = plane.map(({ to }) => to);
  const scales = plane.map(({ scale }) => floatArg(scale));
  return [c.op('upsample_nearest2d', c.input(0), sizes, ...scales)];
};

interface Resampling {
  readonly dims: readonly ResizedDim[];
  readonly mode: string;
  readonly transform: string;
  readonly nearest: string;
}

/** Dim by dim: each new position is a weighted sum of positions, by the formulas of `Resize`. */
function resampled(c: OnnxCall, { dims, mode, transform, nearest }: Resampling): OnnxOperand {
  if (!['nearest', 'linear', 'cubic', 'bilinear'].includes(mode))
    c.fail('E_UNSUPPORTED', `attribute 'mode' is '${mode}'`, 'nearest, linear and cubic are read');
  if (c.flag('antialias', false))
    c.fail('E_UNSUPPORTED', `attribute 'antialias' is 1`, 'resize without antialias');
  const isOutside = c.flag('exclude_outside', false);
  const a = c.float('cubic_coeff_a', -0.75);
  let value = c.input(0);
  dims.forEach((dim, d) => {
    const { from, to, scale } = dim;
    if (from === to && scale === 1) return;
    if (from * to > MAX_WEIGHTS)
      c.fail('E_LIMIT', `dim ${d} is resized from ${from} to ${to}`, 'resize in PyTorch form');
    const rows = Array.from({ length: to }, (_, i) => {
      const at = sourceOf(c, dim, transform, i);
      const taps: Tap[] = mode === 'nearest' ? [[nearestOf(at, nearest), 1]] : tapsAt(at, mode, a);
      return weightsOf(taps, from, isOutside);
    });
    const { dtype } = value.type;
    const matrix = c.build.constant({ dtype, dims: [to, from], values: rows.flat() });
    const last = c.op('transpose.int', value, d, -1);
    value = c.op('transpose.int', c.op('matmul', last, c.op('t', matrix)), d, -1);
  });
  return value;
}

/** Weights of one dim that are written out, at most. */
const MAX_WEIGHTS = 1024;

/** Position in the old dim that a new one stands for. */
function sourceOf(
  c: OnnxCall,
  { from, to, scale }: ResizedDim,
  transform: string,
  i: number,
): number {
  const length = from * scale;
  switch (transform) {
    case 'half_pixel':
      return (i + 0.5) / scale - 0.5;
    case 'asymmetric':
      return i / scale;
    case 'align_corners':
      return length === 1 ? 0 : (i * (from - 1)) / (length - 1);
    case 'pytorch_half_pixel':
      return length > 1 ? (i + 0.5) / scale - 0.5 : 0;
    case 'half_pixel_symmetric':
      return (from / 2) * (1 - to / length) + (i + 0.5) / scale - 0.5;
    default:
      return c.fail(
        'E_UNSUPPORTED',
        `attribute 'coordinate_transformation_mode' is '${transform}'`,
        'half_pixel, asymmetric, align_corners and their variants are read',
      );
  }
}

/** A position and its weight. */
type Tap = readonly [number, number];

function nearestOf(at: number, mode: string): number {
  if (mode === 'floor') return Math.floor(at);
  if (mode === 'ceil') return Math.ceil(at);
  return mode === 'round_prefer_ceil' ? Math.floor(at + 0.5) : Math.ceil(at - 0.5);
}

function tapsAt(at: number, mode: string, a: number): Tap[] {
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
function weightsOf(taps: readonly Tap[], size: number, excluded: boolean): number[] {
  const row = new Array<number>(size).fill(0);
  for (const [at, weight] of taps) {
    if (excluded && (at < 0 || at >= size)) continue;
    const inside = Math.min(Math.max(at, 0), size - 1);
    row[inside] = itemAt(row, inside) + weight;
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

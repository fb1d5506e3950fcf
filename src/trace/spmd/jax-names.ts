/**
 * The verbs of per-device code under the names that JAX gives them in `shard_map`, where every
 * varying value is V. Each is made of the verbs of `verbs.ts`, so its gradient is what theirs say.
 * As in JAX they take what their operand is: a sum takes pieces and addends, and what is equal on
 * all ranks is read as what varies where casts are inserted.
 */
import { checkKinds } from '../../arguments.ts';
import { checkOptions } from '../../errors.ts';
import { needRecorder } from '../record/recorder.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { refuse } from './local-map.ts';
import {
  allGather,
  allReduce,
  axisSize,
  convert,
  needAxis,
  permute,
  reduceScatter,
  reinterpret,
  verb,
} from './verbs.ts';

/** V read as addends; addends stay. */
const addends = (x: Tensor, axis: string): Tensor =>
  verb('reinterpret', x, axis, { src: 'V', dst: 'P' }, ['P', 'I']);

/** The sum over an axis: V or P to I. */
export function psum(x: Tensor, axis: string): Tensor {
  needAxis('psum()', axis);
  return allReduce(addends(x, axis), axis, { dst: 'I' });
}

/** I to V; its gradient is the sum. */
export function pvary(x: Tensor, axis: string): Tensor {
  needAxis('pvary()', axis);
  return reinterpret(x, axis, { src: 'I', dst: 'V' });
}

/** `varying`: I or R to V. `reduced`: I to R. `unreduced`: V to P. */
export function pcast(
  x: Tensor,
  axis: string,
  options: { to: 'varying' | 'reduced' | 'unreduced' },
): Tensor {
  checkOptions('pcast', options, { to: true });
  const { to } = options;
  if (to === 'varying') {
    needAxis('pcast()', axis);
    return verb('reinterpret', x, axis, { src: 'I', dst: 'V' }, ['R']);
  }
  if (to === 'reduced') return convert(x, axis, { src: 'I', dst: 'R' });
  return reinterpret(x, axis, { src: 'V', dst: 'P' });
}

/** How the pieces of a gather join. */
export interface PieceOptions {
  /** Dim on which the pieces join, with `tiled`. Default 0. */
  readonly dim?: number;
  /** Join on the dim; without it the pieces are stacked on a new dim 0. Default false. */
  readonly tiled?: boolean;
}

function cutBy(options: PieceOptions): 'V' | `S(${number})` {
  checkOptions('a gather or scatter of pieces', options, { dim: true, tiled: true, to: true });
  const { dim = 0, tiled = false } = options;
  return tiled ? `S(${dim})` : 'V';
}

/** All pieces on every rank, as V, or as R with `to: 'reduced'`. */
export function jaxAllGather(
  x: Tensor,
  axis: string,
  options: PieceOptions & { readonly to?: 'reduced' } = {},
): Tensor {
  const types = { src: cutBy(options), dst: 'R' } as const;
  if (options.to === 'reduced') return allGather(x, axis, types);
  return reinterpret(verb('all_gather', x, axis, types, ['I']), axis, {
    src: 'R',
    dst: 'V',
    expert: true,
  });
}

/** All pieces on every rank, as I. */
export function allGatherInvariant(x: Tensor, axis: string, options: PieceOptions = {}): Tensor {
  return verb('all_gather', x, axis, { src: cutBy(options), dst: 'I' }, ['I']);
}

/** The own piece of an I. */
export function pscatter(x: Tensor, axis: string, options: PieceOptions = {}): Tensor {
  return convert(x, axis, { src: 'I', dst: cutBy(options) });
}

/**
 * Pieces of dim `split` to the ranks, joined on dim `concat` there: `lax.all_to_all(x, axis, split,
 * concat, tiled=True)`.
 */
export function jaxAllToAll(x: Tensor, axis: string, split: number, concat: number): Tensor {
  checkKinds('jaxAllToAll', { split: [split, 'number'], concat: [concat, 'number'] });
  return verb('all_to_all', x, axis, { src: `S(${concat})`, dst: `S(${split})` }, ['I']);
}

/** The own piece of the sum of V or P. */
export function psumScatter(x: Tensor, axis: string, options: PieceOptions = {}): Tensor {
  needAxis('psumScatter()', axis);
  return reduceScatter(addends(x, axis), axis, { dst: cutBy(options) });
}

/** Sends pieces by pairs (from, to), which must be a permutation. */
export function ppermute(
  x: Tensor,
  axis: string,
  pairs: readonly (readonly [number, number])[],
): Tensor {
  needAxis('ppermute()', axis);
  checkKinds('ppermute', { pairs: [pairs, 'pairs'] });
  const size = axisSize(axis);
  const targets = new Array<number>(size).fill(-1);
  for (const [from, to] of pairs) if (from in targets) targets[from] = to;
  if (pairs.length === size && [...targets].sort((a, b) => a - b).every((t, i) => t === i))
    return permute(x, axis, targets);
  throw refuse(
    needRecorder('ppermute()'),
    `ppermute: the pairs are not a permutation of the ${size} ranks of '${axis}'`,
    'name every rank once as a source and once as a target',
  );
}

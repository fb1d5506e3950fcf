/**
 * The verbs of per-device code under the names that JAX gives them in `shard_map`, where every varying value is V. Each is made of
 * the verbs of `verbs.ts`, so its gradient is what theirs say.
 */
import { refuse } from './local-map.ts';
import { needRecorder } from '../record/recorder.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { allGather, allReduce, axisSize, convert, needAxis, permute, reduceScatter, reinterpret } from './verbs.ts';

/** The sum over an axis: V to I. */
export function psum(x: Tensor, axis: string): Tensor {
  needAxis('psum()', axis);
  return allReduce(reinterpret(x, axis, { src: 'V', dst: 'P' }), axis, { dst: 'I' });
}

/** I to V; its gradient is the sum. */
export function pvary(x: Tensor, axis: string): Tensor {
  needAxis('pvary()', axis);
  return reinterpret(x, axis, { src: 'I', dst: 'V' });
}

/** `varying`: I to V. `reduced`: I to R. `unreduced`: V to P. */
export function pcast(x: Tensor, axis: string, { to }: { to: 'varying' | 'reduced' | 'unreduced' }): Tensor {
  if (to === 'varying') return pvary(x, axis);
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

const cutBy = ({ dim = 0, tiled = false }: PieceOptions): 'V' | `S(${number})` => (tiled ? `S(${dim})` : 'V');

/** All pieces on every rank, as V, or as R with `to: 'reduced'`. */
export function jaxAllGather(
  x: Tensor,
  axis: string,
  options: PieceOptions & { readonly to?: 'reduced' } = {},
): Tensor {
  const all = allGather(x, axis, { src: cutBy(options), dst: 'R' });
  return options.to === 'reduced' ? all : reinterpret(all, axis, { src: 'R', dst: 'V', expert: true });
}

/** All pieces on every rank, as I. */
export function allGatherInvariant(x: Tensor, axis: string, options: PieceOptions = {}): Tensor {
  return allGather(x, axis, { src: cutBy(options), dst: 'I' });
}

/** The own piece of an I. */
export function pscatter(x: Tensor, axis: string, options: PieceOptions = {}): Tensor {
  return convert(x, axis, { src: 'I', dst: cutBy(options) });
}

/** The own piece of the sum of V. */
export function psumScatter(x: Tensor, axis: string, options: PieceOptions = {}): Tensor {
  needAxis('psumScatter()', axis);
  return reduceScatter(reinterpret(x, axis, { src: 'V', dst: 'P' }), axis, { dst: cutBy(options) });
}

/** Sends pieces by pairs (from, to), which must be a permutation. */
export function ppermute(x: Tensor, axis: string, pairs: readonly (readonly [number, number])[]): Tensor {
  needAxis('ppermute()', axis);
  const size = axisSize(axis);
  const targets = new Array<number>(size).fill(-1);
  for (const [from, to] of pairs) if (from in targets) targets[from] = to;
  if (pairs.length === size && [...targets].sort((a, b) => a - b).every((t, i) => t === i)) return permute(x, axis, targets); // prettier-ignore
  throw refuse(needRecorder('ppermute()'), `ppermute: the pairs are no permutation of the ${size} ranks of '${axis}'`, 'name every rank once as a source and once as a target'); // prettier-ignore
}

/**
 * Norms by channel whose statistics are given, as every engine has them in one kernel: what is left
 * of a norm and of its backward when the statistics of all ranks are known.
 */
import type { Arg } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import type { LocalCall } from '../local-call.ts';

export const float = (value: number): Arg => ({ kind: 'float', value });

/** A tensor `[rows, channels, ..]`, and vectors by channel that its norm has. */
interface Channels {
  readonly x: string;
  readonly mean: string;
  readonly variance: string;
}

/** The norm with a weight and a bias by channel. */
export function normalised(
  call: LocalCall,
  { x, mean, variance }: Channels,
  [weight, bias]: readonly [Arg, Arg],
  eps = 0,
): string {
  const args = [ref(x), weight, bias, ref(mean), ref(variance)];
  return call.emit.call('aten.batch_norm.default', [...args, false, float(0), float(eps), false]);
}

/** Gradients under statistics that are constants. */
interface Direct {
  readonly input: string;
  /** `[2, channels]`: sums of the gradient times the normalised tensor, and of the gradient. */
  readonly sums: string;
}

/** @param of has variance and epsilon together */
export function directGradients(
  call: LocalCall,
  of: Channels,
  grad: string,
  weight: string,
): Direct {
  const { emit } = call;
  const [input, ...sums] = emit.callTuple('aten.native_batch_norm_backward.default', [
    ...[grad, of.x, weight, of.mean, of.variance].map(ref),
    ...[null, null, false, float(0), [true, true, true]],
  ]);
  if (input === null || sums.includes(null)) return call.unsupported('it has no gradients');
  const both = sums.flatMap((sum) => (sum === null ? [] : [ref(sum)]));
  return { input, sums: emit.call('aten.stack.default', [both]) };
}

/**
 * The gradient of the input: the one under constant statistics, and what goes through them.
 *
 * @param terms `[2, channels]`, by which the normalised input is multiplied, and which is added
 */
export function withTerms(call: LocalCall, of: Channels, direct: string, terms: string): string {
  const [scale, shift] = rowsOf(call, terms);
  const through = normalised(call, of, [ref(scale), ref(shift)]);
  return call.emit.call('aten.add.Tensor', [ref(direct), ref(through)]);
}

/** The rows of a stack of two. */
export function rowsOf(call: LocalCall, stack: string): readonly [string, string] {
  const [first, second] = call.emit.callTuple('aten.unbind.int', [ref(stack)]);
  return first === null || second === null ? call.unsupported('it has no sums') : [first, second];
}

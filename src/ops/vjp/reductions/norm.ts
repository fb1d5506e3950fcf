/**
 * Normalisations: one backward operator gives the gradients of input, weight and bias; a mask says
 * which are wanted.
 */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { type Gradients, named, together, type VjpCall, type Vjps } from '../vjp.ts';

function mask(c: VjpCall, names: readonly string[]): Arg {
  return names.map((name) => c.optional(name) !== null && c.wants(name));
}

function backward(
  c: VjpCall,
  target: string,
  names: readonly string[],
  args: () => readonly Arg[],
): Gradients {
  return together(c.b, names, () => c.b.call(target, [...args(), mask(c, names)]));
}

const AFFINE = ['input', 'weight', 'bias'];

/**
 * Batch statistics: `[mean, invstd]` are results 1 and 2; without training the running statistics
 * serve, and are constants.
 */
function batchNorm(c: VjpCall, training: boolean): Gradients {
  const running = (name: string): ValueRef | null =>
    c.argumentNames.includes(name) ? c.optional(name) : null;
  return backward(c, 'aten.native_batch_norm_backward.default', AFFINE, () => [
    c.g(),
    c.x('input'),
    c.optional('weight'),
    running('running_mean'),
    running('running_var'),
    c.y(1),
    c.y(2),
    training,
    c.arg('eps') ?? null,
  ]);
}

const inMode = (c: VjpCall): Gradients => batchNorm(c, c.ctx.bool('training'));

export const normVjps: Vjps = {
  ...named('native_layer_norm.default', (c) =>
    backward(c, 'aten.native_layer_norm_backward.default', AFFINE, () => [
      c.g(),
      c.x('input'),
      c.arg('normalized_shape') ?? [],
      c.y(1),
      c.y(2),
      c.optional('weight'),
      c.optional('bias'),
    ]),
  ),
  ...named('_fused_rms_norm.default', (c) =>
    backward(c, 'aten._fused_rms_norm_backward.default', ['input', 'weight'], () => [
      c.g(),
      c.x('input'),
      c.arg('normalized_shape') ?? [],
      c.y(1),
      c.optional('weight'),
    ]),
  ),
  ...named('native_group_norm.default', (c) =>
    backward(c, 'aten.native_group_norm_backward.default', AFFINE, () => [
      c.g(),
      c.x('input'),
      c.y(1),
      c.y(2),
      c.optional('weight'),
      ...['N', 'C', 'HxW', 'group'].map((n) => c.arg(n) ?? null),
    ]),
  ),
  // Running statistics are results 3 and 4 of the functional forms.
  ...named(
    'native_batch_norm.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats',
    inMode,
  ),
  ...named('_native_batch_norm_legit_functional.default', { vjp: inMode, constant: [3, 4] }),
  ...named('_native_batch_norm_legit_no_training.default', (c) => batchNorm(c, false)),
  ...named('_batch_norm_with_update_functional.default', {
    vjp: (c) => batchNorm(c, true),
    constant: [3, 4, 5],
  }),
};

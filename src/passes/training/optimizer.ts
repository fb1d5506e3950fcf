/** Optimizers as functions of parameter, gradient and state: element-wise, without mutation. */

import { checkOptions, ShardwrightError } from '../../errors.ts';
import type { DType, ValueRef } from '../../graph/types.ts';
import { type CallBuilder, literal } from '../../ops/vjp/build.ts';

/** Hyperparameters of SGD, as `torch.optim.SGD` has them. */
export interface SgdOptions {
  readonly lr: number;
  /** Default 0. */
  readonly momentum?: number;
  /** Default false. */
  readonly nesterov?: boolean;
  /** Decay added to the gradient. Default 0. */
  readonly weightDecay?: number;
}

/** Hyperparameters of Adam and AdamW, as `torch.optim` has them. */
export interface AdamOptions {
  readonly lr: number;
  /** Default 0.9. */
  readonly beta1?: number;
  /** Default 0.999. */
  readonly beta2?: number;
  /** Default 1e-8. */
  readonly eps?: number;
  /** Default 0; `adam` adds it to the gradient, `adamw` shrinks the parameter by it. */
  readonly weightDecay?: number;
}

/** One element-wise update. Values are in the dtype of the state. */
interface Update {
  readonly parameter: ValueRef;
  readonly gradient: ValueRef;
  /** By name, in the order of `states`. */
  readonly state: Readonly<Record<string, ValueRef>>;
  /** Number of this step, from 1; a scalar. Only optimizers with `counts` have it. */
  readonly step?: ValueRef;
}

/** An optimizer as a graph: its states per parameter, and the update of one. */
export interface Optimizer {
  readonly name: string;
  /** Names of its states per parameter. */
  readonly states: readonly string[];
  /** True if it needs the number of the step. */
  readonly counts: boolean;
  /** Values that all parameters share, made once from the number of the step. */
  shared?(b: CallBuilder, step: ValueRef): Readonly<Record<string, ValueRef>>;
  /** The new parameter and the new states. */
  update(
    b: CallBuilder,
    u: Update,
    shared: Readonly<Record<string, ValueRef>>,
  ): {
    readonly parameter: ValueRef;
    readonly state: Readonly<Record<string, ValueRef>>;
  };
}

/** `a + factor b`. */
function addScaled(b: CallBuilder, x: ValueRef, y: ValueRef, factor: number): ValueRef {
  return b.call('aten.add.Tensor', [x, y], factor === 1 ? {} : { alpha: literal(factor) });
}

function checked(name: string, values: Readonly<Record<string, number>>): void {
  for (const [key, value] of Object.entries(values))
    if (!Number.isFinite(value) || value < 0)
      throw new ShardwrightError('E_TYPE', `${name}: ${key} is ${value}`, {
        hint: 'it is a finite number, 0 or more',
      });
}

/**
 * Stochastic gradient descent: `b = momentum b + g`, `p = p - lr b`; with `nesterov` the step is `g
 * + momentum b`. Without momentum there is no state.
 *
 * @throws E_TYPE for a negative or infinite number, or nesterov without momentum
 */
export function sgd(options: SgdOptions): Optimizer {
  checkOptions('sgd', options, { lr: true, momentum: true, nesterov: true, weightDecay: true });
  const { lr, momentum = 0, nesterov = false, weightDecay = 0 } = options;
  checked('sgd', { lr, momentum, weightDecay });
  if (nesterov && momentum === 0)
    throw new ShardwrightError('E_TYPE', 'sgd: nesterov needs a momentum', {
      hint: 'give momentum, 0.9 for example',
    });
  return {
    name: 'sgd',
    states: momentum === 0 ? [] : ['momentum_buffer'],
    counts: false,
    update(b, { parameter, gradient, state }) {
      const g = weightDecay === 0 ? gradient : addScaled(b, gradient, parameter, weightDecay);
      if (momentum === 0) return { parameter: addScaled(b, parameter, g, -lr), state: {} };
      const buffer = b.add(b.mul(state['momentum_buffer'], momentum), g);
      const step = nesterov ? addScaled(b, g, buffer, momentum) : buffer;
      return { parameter: addScaled(b, parameter, step, -lr), state: { momentum_buffer: buffer } };
    },
  };
}

/**
 * Adam (Kingma and Ba 2015); weight decay is added to the gradient.
 *
 * @throws E_TYPE for a negative or infinite number, or a beta of 1 or more
 */
export function adam(options: AdamOptions): Optimizer {
  return adaptive('adam', options, false);
}

/**
 * Adam with decoupled weight decay (Loshchilov and Hutter 2019): `p (1 - lr weightDecay)` before
 * the step.
 *
 * @throws E_TYPE for a negative or infinite number, or a beta of 1 or more
 */
export function adamw(options: AdamOptions): Optimizer {
  return adaptive('adamw', options, true);
}

function adaptive(name: string, options: AdamOptions, decoupled: boolean): Optimizer {
  const known = { lr: true, beta1: true, beta2: true, eps: true, weightDecay: true } as const;
  checkOptions(name, options, known);
  const { lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weightDecay = 0 } = options;
  checked(name, { lr, beta1, beta2, eps, weightDecay });
  if (beta1 >= 1 || beta2 >= 1)
    throw new ShardwrightError('E_TYPE', `${name}: a beta is ${Math.max(beta1, beta2)}`, {
      hint: 'betas are below 1',
    });
  return {
    name,
    states: ['exp_avg', 'exp_avg_sq'],
    counts: true,
    shared: (b, step) => ({
      first: correction(b, beta1, step),
      second: correction(b, beta2, step),
    }),
    update(b, { parameter, gradient, state }, shared) {
      const decays = weightDecay !== 0;
      const g = decays && !decoupled ? addScaled(b, gradient, parameter, weightDecay) : gradient;
      const mean = addScaled(b, b.mul(state['exp_avg'], beta1), g, 1 - beta1);
      const square = b.call('aten.addcmul.default', [b.mul(state['exp_avg_sq'], beta2), g, g], {
        value: literal(1 - beta2),
      });
      const root = b.add(b.unary('sqrt', b.div(square, shared['second'])), eps);
      const step = b.div(b.div(mean, shared['first']), root);
      const shrunk = decays && decoupled ? b.mul(parameter, 1 - lr * weightDecay) : parameter;
      return {
        parameter: addScaled(b, shrunk, step, -lr),
        state: { exp_avg: mean, exp_avg_sq: square },
      };
    },
  };
}

/** `1 - beta^step`. */
function correction(b: CallBuilder, beta: number, step: ValueRef): ValueRef {
  return b.rsub(b.call('aten.pow.Scalar', [literal(beta), step]), 1);
}

/** States and arithmetic are in float32, or in float64 for parameters of it. */
export function stateType(parameter: DType): DType {
  return parameter === 'f64' ? 'f64' : 'f32';
}

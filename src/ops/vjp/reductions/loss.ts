/** Losses. `reduction` is 0 none, 1 mean, 2 sum. */

import type { ValueRef } from '../../../graph/types.ts';
import { literal } from '../build.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

const MEAN = 1;

const elements = (c: VjpCall): number => (c.ctx.outputs[0] === null ? 1 : broadcastCount(c));

/** Elements that a mean is taken over: those of both operands broadcast. */
function broadcastCount(c: VjpCall): number {
  const [a, b] = [c.shape('self'), c.shape('target')];
  const rank = Math.max(a.length, b.length);
  let n = 1;
  for (let d = 1; d <= rank; d++) n *= Math.max(a[a.length - d] ?? 1, b[b.length - d] ?? 1);
  return n;
}

/** The gradient of one element, before the formula of the loss. */
function perElement(c: VjpCall): ValueRef {
  return c.ctx.int('reduction') === MEAN ? c.b.div(c.g(), elements(c)) : c.g();
}

const negativeLogLikelihood = (target: string) => (c: VjpCall) => ({
  self: () =>
    c.b.call(target, [
      c.g(),
      c.x('self'),
      c.x('target'),
      c.optional('weight'),
      c.arg('reduction') ?? MEAN,
      c.arg('ignore_index') ?? -100,
      c.y(1),
    ]),
});

/** A loss that is the same with its operands exchanged. */
const symmetric = (name: string, parameter?: 'beta' | 'delta') => (c: VjpCall) => {
  const of = (a: string, b: string): ValueRef => {
    const more = parameter === undefined ? [] : [literal(c.ctx.number(parameter))];
    return c.b.call(`aten.${name}_backward.default`, [
      c.g(),
      c.x(a),
      c.x(b),
      c.ctx.int('reduction'),
      ...more,
    ]);
  };
  return { self: () => of('self', 'target'), target: () => of('target', 'self') };
};

function weighted(c: VjpCall, g: ValueRef): ValueRef {
  const weight = c.optional('weight');
  return weight === null ? g : c.b.mul(g, weight);
}

/**
 * `w ((1 - t) x + (1 + (p - 1) t) softplus(-x))`, p the weight of positive targets: with `q = 1 +
 * (p - 1) t` the derivative is `(1 - t) - q sigmoid(-x)` in x and `-x + (p - 1) softplus(-x)` in t.
 */
function withLogits(c: VjpCall) {
  const { b } = c;
  const [x, t] = [c.x('self'), c.x('target')];
  const positive = c.optional('pos_weight');
  return {
    self: () => {
      if (positive === null)
        return weighted(c, b.mul(b.sub(b.unary('sigmoid', x), t), perElement(c)));
      const q = b.add(b.mul(b.sub(positive, 1), t), 1);
      const slope = b.sub(b.rsub(t, 1), b.mul(b.unary('sigmoid', b.neg(x)), q));
      return weighted(c, b.mul(slope, perElement(c)));
    },
    target: () => {
      if (positive === null) return weighted(c, b.mul(b.neg(x), perElement(c)));
      const extra = b.mul(b.sub(positive, 1), b.unary('log_sigmoid', x));
      return weighted(c, b.mul(b.neg(b.add(x, extra)), perElement(c)));
    },
  };
}

export const lossVjps: Vjps = {
  ...named('nll_loss_forward.default', negativeLogLikelihood('aten.nll_loss_backward.default')),
  ...named('nll_loss2d_forward.default', negativeLogLikelihood('aten.nll_loss2d_backward.default')),
  ...named('mse_loss.default', symmetric('mse_loss')),
  ...named('smooth_l1_loss.default', symmetric('smooth_l1_loss', 'beta')),
  ...named('huber_loss.default', symmetric('huber_loss', 'delta')),
  ...named('l1_loss.default', (c) => {
    const slope = (a: string, b: string): ValueRef =>
      c.b.mul(c.b.unary('sgn', c.b.sub(c.x(a), c.x(b))), perElement(c));
    return { self: () => slope('self', 'target'), target: () => slope('target', 'self') };
  }),
  ...named('binary_cross_entropy.default', (c) => ({
    self: () =>
      c.b.call('aten.binary_cross_entropy_backward.default', [
        c.g(),
        c.x('self'),
        c.x('target'),
        c.optional('weight'),
        c.ctx.int('reduction'),
      ]),
    target: () => {
      const { b } = c;
      const slope = b.sub(b.unary('log', b.rsub(c.x('self'), 1)), b.unary('log', c.x('self')));
      return weighted(c, b.mul(slope, perElement(c)));
    },
  })),
  ...named('binary_cross_entropy_with_logits.default', withLogits),
};

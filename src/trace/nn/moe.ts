/** Mixture of experts by dense dispatch as a traced module (GShard, arXiv:2006.16668). */

import { checkKinds } from '../../arguments.ts';
import type { DType } from '../../graph/types.ts';
import { sizes } from '../sizes/sizes.ts';
import { einsum } from '../tensor/einsum.ts';
import { param, scope } from '../tensor/state.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { Linear } from './linear.ts';

interface MoeOptions {
  /** Experts that see each token, 2 by default. */
  readonly active?: number;
  /**
   * Places for tokens in each expert, for every token group of this many: ceil(capacityFactor *
   * active * tokens / experts).
   */
  readonly capacityFactor?: number;
  readonly dtype?: DType;
}

/**
 * Mixture of experts by dense dispatch (GShard, Lepikhin et al. 2020): each token picks `active`
 * experts, finds a place in each, and tensors of ones carry tokens to their places and back, so
 * that everything is a product of matrices. Tokens that find their expert full are dropped, and
 * pass by the layer on the residual path.
 */
export class MixtureOfExperts {
  private readonly router: Linear;

  constructor(
    readonly name: string,
    private readonly width: number,
    private readonly hidden: number,
    private readonly experts: number,
    private readonly options: MoeOptions = {},
  ) {
    checkKinds('MixtureOfExperts', { options: [options, 'record'] });
    this.router = new Linear('gate', width, experts, {
      bias: false,
      dtype: options.dtype ?? 'f32',
    });
  }

  /** [batch, length, width] to the same; the tokens of one batch row compete for its places. */
  forward(x: Tensor): Tensor {
    const { dtype = 'f32' } = this.options;
    return scope(this.name, () => {
      const { dispatch, combine } = this.route(x);
      // g: group, s: token, e: expert, c: place, m: width, h: hidden.
      const placed = einsum('gsec,gsm->egcm', dispatch.to(dtype), x);
      const weight = (name: string, shape: readonly number[]): Tensor =>
        param(name, { shape, dtype });
      const gate = einsum(
        'egcm,emh->egch',
        placed,
        weight('experts.gate', [this.experts, this.width, this.hidden]),
      );
      const up = einsum(
        'egcm,emh->egch',
        placed,
        weight('experts.up', [this.experts, this.width, this.hidden]),
      );
      const down = weight('experts.down', [this.experts, this.hidden, this.width]);
      const made = einsum('egch,ehm->egcm', gate.silu().mul(up), down);
      return einsum('gsec,egcm->gsm', combine.to(dtype), made);
    });
  }

  /**
   * Ones where a token has a place, and the router's weight there; both [group, token, expert,
   * place], float32.
   */
  private route(x: Tensor): { dispatch: Tensor; combine: Tensor } {
    const { active = 2, capacityFactor = 1.25 } = this.options;
    const tokens = x.size(1);
    const places =
      typeof tokens === 'number'
        ? Math.ceil((capacityFactor * active * tokens) / this.experts)
        : sizes.add(
            sizes.floordiv(sizes.mul(tokens, Math.ceil(capacityFactor * active)), this.experts),
            1,
          );
    const odds = this.router.forward(x).to('f32').softmax(-1);
    const { values, indices } = odds.topk(active, -1);
    const shares = values.div(values.sum([-1], true));
    // One-hot choices, first choices of all tokens before second ones, as they compete for places:
    // [g, active * s, e].
    const chosen = indices.oneHot(this.experts).to('f32');
    const queue = chosen
      .transpose(1, 2)
      .reshape(x.size(0), sizes.mul(tokens, active), this.experts);
    // The place of a choice is the number of earlier choices of its expert.
    const place = queue.cumsum(1).sub(queue);
    const at = place
      .view(x.size(0), active, tokens, this.experts)
      .transpose(1, 2)
      .mul(chosen)
      .sum([-1]);
    const fits = at.lt(places).to('f32');
    const slot = at
      .minimum(sizes.sub(places, 1))
      .to('i64')
      .oneHot(places)
      .to('f32')
      .mul(fits.unsqueeze(-1));
    const dispatch = einsum('gske,gskc->gsec', chosen, slot);
    const combine = einsum('gske,gskc->gsec', chosen.mul(shares.unsqueeze(-1)), slot);
    return { dispatch, combine };
  }
}

/** Routed experts as grouped matrix products over sorted tokens. */

import type { DType } from '../../graph/types.ts';
import { activate, type Activation, SwiGLU } from '../../trace/nn/feed-forward.ts';
import { Linear } from '../../trace/nn/linear.ts';
import { buffer, param, scope } from '../../trace/tensor/state.ts';
import { apply, type Tensor } from '../../trace/tensor/tensor.ts';
import type { ExpertsConfig } from './decoder-config.ts';

/**
 * Routed experts as grouped products: tokens are sorted by expert, every expert multiplies its own
 * run of rows, and the results go back to their places. No token is dropped and the work is that of
 * the chosen experts, whatever the routing.
 */
export class RoutedLayer {
  constructor(
    readonly name: string,
    private readonly width: number,
    private readonly config: ExpertsConfig,
    private readonly activation: Activation,
    private readonly dtype: DType,
  ) {}

  /** [batch, length, width] to the same. */
  forward(x: Tensor): Tensor {
    const { config, width } = this;
    return scope(this.name, () => {
      const tokens = x.view(-1, width);
      const { shares, chosen } = route(tokens, config, width, this.dtype);
      const routed = this.dispatch(tokens, shares, chosen).reshape(x.size(0), x.size(1), width);
      return config.shared === undefined ? routed : routed.add(this.shared(x));
    });
  }

  /** Rows of `tokens` through the experts that `chosen` ([tokens, active]) names. */
  private dispatch(tokens: Tensor, shares: Tensor, chosen: Tensor): Tensor {
    const { experts, active } = this.config;
    const { values: expert, indices: order } = chosen.reshape(-1).sort();
    const share = shares.reshape(-1).index(order).unsqueeze(-1);
    const { weighsInput = false } = this.config;
    const read = tokens.index(order.floordiv(active));
    const rows = weighsInput ? read.mul(share).to(this.dtype) : read;
    const counts = apply('aten.histc.default', [expert.to('f32'), experts, 0, experts - 1]);
    const bounds = apply('aten.cumsum.default', [counts, 0], {
      dtype: { kind: 'dtype', dtype: 'i32' },
    });
    const made = scope('experts', () =>
      this.config.clamp === undefined
        ? this.gated(rows, bounds)
        : this.clamped(rows, bounds, expert, this.config.clamp),
    );
    const weighted = weighsInput ? made : made.mul(share);
    const back = weighted.index(order.argsort());
    return back.view(tokens.size(0), active, this.width).sum([1]).to(this.dtype);
  }

  /** Weights as [experts, out, in], gate above up. */
  private gated(rows: Tensor, bounds: Tensor): Tensor {
    const { experts, hidden } = this.config;
    const { width, dtype } = this;
    const both = param('gate_up_proj', { shape: [experts, 2 * hidden, width], dtype });
    const down = param('down_proj', { shape: [experts, width, hidden], dtype });
    const [gate, up] = grouped(rows, both.transpose(-2, -1), bounds).chunk(2, -1);
    return grouped(activate(gate, this.activation).mul(up), down.transpose(-2, -1), bounds);
  }

  /**
   * Weights as [experts, in, out] with biases; gate and up alternate and are clamped, the gate is x
   * * sigmoid(1.702 x).
   */
  private clamped(rows: Tensor, bounds: Tensor, expert: Tensor, limit: number): Tensor {
    const { experts, hidden } = this.config;
    const { width, dtype } = this;
    const both = param('gate_up_proj', { shape: [experts, width, 2 * hidden], dtype });
    const bothBias = param('gate_up_proj_bias', { shape: [experts, 2 * hidden], dtype });
    const down = param('down_proj', { shape: [experts, hidden, width], dtype });
    const downBias = param('down_proj_bias', { shape: [experts, width], dtype });
    const mixed = grouped(rows, both, bounds).add(bothBias.index(expert));
    const gate = mixed.slice(1, 0, null, 2).clamp(null, limit);
    const up = mixed.slice(1, 1, null, 2).clamp(-limit, limit);
    const made = gate.mul(gate.mul(1.702).sigmoid()).mul(up.add(1));
    return grouped(made, down, bounds).add(downBias.index(expert));
  }

  private shared(x: Tensor): Tensor {
    const { shared } = this.config;
    if (shared === undefined) return x;
    const { width, dtype } = this;
    const made = new SwiGLU(shared.name, width, shared.hidden, { dtype }).forward(x);
    if (!shared.gate) return made;
    const gate = new Linear(`${shared.name}_gate`, width, 1, { bias: false, dtype });
    return gate.forward(x).sigmoid().mul(made);
  }
}

/** Rows [tokens, in] of each expert times its [in, out] of [experts, in, out]. */
function grouped(rows: Tensor, weights: Tensor, bounds: Tensor): Tensor {
  return apply('aten._grouped_mm.default', [rows, weights, bounds]);
}

/** The experts of each token and the shares they get; both [tokens, active]. */
function route(
  tokens: Tensor,
  config: ExpertsConfig,
  width: number,
  dtype: DType,
): { readonly shares: Tensor; readonly chosen: Tensor } {
  const { experts, active, router, scoring, normalised, scaling, correction, groups } = config;
  return scope(router.name, () => {
    const weight = param('weight', { shape: [experts, width], dtype });
    const bias = router.bias ? param('bias', { shape: [experts], dtype }) : undefined;
    const logits = tokens.linear(weight, bias).to('f32');
    if (scoring === 'after') {
      const { values, indices } = logits.topk(active, -1);
      return { shares: values.softmax(-1), chosen: indices };
    }
    const odds = scoring === 'softmax' ? logits.softmax(-1) : logits.sigmoid();
    const plain = !correction && groups === undefined;
    const corrected = correction
      ? odds.add(buffer('e_score_correction_bias', { shape: [experts] }))
      : odds;
    const ranked = groups === undefined ? corrected : withinGroups(corrected, experts, groups);
    const best = ranked.topk(active, -1);
    const picked = plain ? best.values : odds.gather(1, best.indices);
    const shares = normalised ? picked.div(picked.sum([-1], true)) : picked;
    return { shares: scaling === 1 ? shares : shares.mul(scaling), chosen: best.indices };
  });
}

/** Scores with those outside the best groups set to 0, as the published code does. */
function withinGroups(
  scores: Tensor,
  experts: number,
  {
    count,
    kept,
    by,
  }: { readonly count: number; readonly kept: number; readonly by: 'max' | 'top2' },
): Tensor {
  const grouped = scores.view(-1, count, experts / count);
  const strength = by === 'max' ? grouped.amax(-1) : grouped.topk(2, -1).values.sum([-1]);
  const mask = strength.topk(kept, -1).indices.oneHot(count).sum([1]);
  const each = mask
    .unsqueeze(-1)
    .expand(mask.size(0), count, experts / count)
    .reshape(-1, experts);
  return each.gt(0).where(scores, 0);
}

/**
 * Rewrites elementwise losses with mean reduction and cut rows to local sums over the global number
 * of elements.
 */
import { elements } from '../../ops/record/record.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { dividedBy, divisor } from './reduction.ts';

const SUM = 2;

/** Elements of the broadcast inputs. */
function count(call: LocalCall): number {
  const shapes = call.global.inputs.map((t) => t.shape);
  const rank = Math.max(...shapes.map((s) => s.length));
  return elements(
    Array.from({ length: rank }, (_, d) =>
      Math.max(...shapes.map((s) => s[d - (rank - s.length)] ?? 1)),
    ),
  );
}

const loss: Rewrite = (call) => [
  dividedBy(call, call.runOne({ reduction: SUM }, false), divisor(call, count(call))),
];

/** The gradient of a sum, over the global count: a local count would make it too large. */
const backward: Rewrite = (call) => [
  dividedBy(call, call.runOne({ reduction: SUM }, false), count(call)),
];

export const lossRewrites: Rewrites = {
  'aten.mse_loss.default': loss,
  'aten.l1_loss.default': loss,
  'aten.smooth_l1_loss.default': loss,
  'aten.huber_loss.default': loss,
  'aten.binary_cross_entropy.default': loss,
  'aten.binary_cross_entropy_with_logits.default': loss,
  'aten.mse_loss_backward.default': backward,
  'aten.smooth_l1_loss_backward.default': backward,
  'aten.huber_loss_backward.default': backward,
  'aten.binary_cross_entropy_backward.default': backward,
};

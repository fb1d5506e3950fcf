import { ref } from '../emitter.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';

/** Products: convolutions with whole groups cut, grouped products with their rows cut. */

/** Groups that a rank has: channels are cut between whole groups. */
const groups: Rewrite = (call) => {
  const pieces = call.meshDims('groups').reduce((n, m) => n * call.pieces.space.mesh.sizes[m], 1);
  return call.run({ groups: call.global.int('groups') / pieces });
};

/** Ends of the groups of rows, counted from the rank's first row and clipped to its rows. */
const clipped: Rewrite = (call) => {
  const { emit } = call;
  const piece = tokens(call);
  const shifted = emit.call('aten.sub.Tensor', [ref(call.tensor('offs')), emit.int(piece.start)]);
  const ends = emit.call('aten.clamp.default', [ref(shifted), 0, emit.int(piece.rows)]);
  return call.run({ offs: ref(ends) });
};

/** The rows that the groups divide: those of the operand cut in the rule. */
function tokens(call: LocalCall) {
  const rule = call.rules.find((r) => r?.rewrite === 'offsets');
  const at = rule?.inputs.findIndex((slot) => slot?.kind === 'shard') ?? -1;
  const slot = rule?.inputs[at];
  if (slot?.kind !== 'shard') return call.unsupported('no operand is cut');
  return call.pieces.of(call.inputSpecs[at], slot.dim, call.global.inputs[at].shape[slot.dim]);
}

export const productRewrites: Rewrites = {
  'aten.convolution.default': groups,
  'aten.conv1d.default': groups,
  'aten.conv2d.default': groups,
  'aten.conv3d.default': groups,
  'aten.convolution_backward.default': groups,
  'aten._grouped_mm.default': clipped,
};

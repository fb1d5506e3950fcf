/** Rewrites group norms with cut batch or channels to calls with the sizes of the rank. */
import type { Rewrite, Rewrites } from '../local-call.ts';

/** Group norms name their sizes: batch rows, channels and groups that the rank has. */
const sizes: Rewrite = (call) => {
  const { emit } = call;
  const [rows, channels] = emit.type(call.tensor('input')).shape;
  const pieces = call.piecesOf('input', 1);
  return call.run({
    N: emit.int(rows),
    C: emit.int(channels),
    group: call.global.int('group') / pieces,
  });
};

const groups: Rewrite = (call) =>
  call.run({ num_groups: call.global.int('num_groups') / call.piecesOf('input', 1) });

export const normRewrites: Rewrites = {
  'aten.native_group_norm.default': sizes,
  'aten.native_group_norm_backward.default': sizes,
  'aten.group_norm.default': groups,
};

/** Rewrites calls with sizes as arguments to the same calls with local sizes. */
import { ref } from '../../graph/value.ts';
import { UPSAMPLE_GRADIENTS } from '../../ops/aten/movement/upsample.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { combine, type RankInt } from '../program/rank-int.ts';

/** Shape arguments become those of the local result. */
export const localShape =
  (argument: string): Rewrite =>
  (call) =>
    call.run({ [argument]: call.emit.ints(call.localShape()) });

/** The same elements under the local result shape: for views that name dims instead of sizes. */
const reshaped: Rewrite = (call) => [
  call.emit.call(
    'aten.reshape.default',
    [ref(call.tensor('self')), call.emit.ints(call.localShape())],
    {
      name: call.node.name,
    },
  ),
];

/** A dim made of one row by copies: as many copies as the rank has rows. */
const repeat: Rewrite = (call) => {
  const times = call.global.ints('repeats');
  const { shape } = call.global.inputs[0];
  const local = call.localShape();
  const repeats = times.map((n, out): RankInt => {
    const rows = shape[out - (times.length - shape.length)] ?? 1;
    return rows === 1 ? local[out] : n;
  });
  return call.run({ repeats: call.emit.ints(repeats) });
};

const repeatInterleave: Rewrite = (call) => {
  const dim = call.global.int('dim');
  const local = call.localShape();
  return call.run({ output_size: call.emit.int(local[dim < 0 ? dim + local.length : dim]) });
};

/** A triangle of a part: the diagonal moves with the first row and column. */
const triangle: Rewrite = (call) => {
  const rank = call.globalShape().length;
  return call.run({ diagonal: call.emit.int(diagonalOf(call, rank)) });
};

function diagonalOf(call: LocalCall, rank: number): RankInt {
  const [row, column] = [call.outputPiece(rank - 2).start, call.outputPiece(rank - 1).start];
  return combine([row, column], 'diagonal', (r, c) => call.global.int('diagonal') + r - c);
}

export const shapeRewrites: Rewrites = {
  'aten.view.default': localShape('size'),
  'aten._unsafe_view.default': localShape('size'),
  'aten.reshape.default': localShape('shape'),
  'aten.unflatten.int': reshaped,
  'aten.expand.default': localShape('size'),
  'aten.squeeze.default': reshaped,
  'aten.squeeze.dim': reshaped,
  'aten.squeeze.dims': reshaped,
  'aten.slice_backward.default': localShape('input_sizes'),
  'aten.select_backward.default': localShape('input_sizes'),
  'aten.diagonal_backward.default': localShape('input_sizes'),
  'aten.unfold_backward.default': localShape('input_sizes'),
  ...Object.fromEntries(UPSAMPLE_GRADIENTS.map((name) => [name, localShape('input_size')])),
  'aten.repeat.default': repeat,
  'aten.repeat_interleave.self_int': repeatInterleave,
  'aten.tril.default': triangle,
  'aten.triu.default': triangle,
};

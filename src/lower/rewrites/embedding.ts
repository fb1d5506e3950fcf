/**
 * Rewrites embeddings whose table is cut by rows to masked reads and writes of a rank's own rows.
 * Reads of other ranks' rows are zero, so that results add up; writes there are dropped.
 */
import { ref } from '../../graph/value.ts';
import type { Rewrite, Rewrites } from '../local-call.ts';
import { firstRows, notEmpty, oneMore, ownRows, withTrailing, zeroed } from './masked.ts';

const embedding: Rewrite = (call) => {
  const { emit } = call;
  const { rows, outside } = ownRows(emit, call.tensor('indices'), call.inputPiece('weight', 0), 0);
  const weight = notEmpty(emit, call.tensor('weight'), 0);
  const read = call.runOne({ weight: ref(weight), indices: ref(rows), padding_idx: -1 }, false);
  return [zeroed(emit, read, withTrailing(emit, outside, 1), call.node.name)];
};

const backward: Rewrite = (call) => {
  const { emit, global } = call;
  const piece = call.outputPiece(0);
  const own = ownRows(emit, call.tensor('indices'), piece, piece.rows);
  let { rows } = own;
  const padding = global.int('padding_idx');
  if (padding >= 0) {
    const idle = emit.call('aten.eq.Scalar', [ref(call.tensor('indices')), padding]);
    rows = emit.call('aten.masked_fill.Scalar', [ref(rows), ref(idle), emit.int(piece.rows)]);
  }
  const written = call.runOne(
    { indices: ref(rows), num_weights: emit.int(oneMore(piece)), padding_idx: -1 },
    false,
  );
  return [firstRows(emit, written, 0, piece.rows, call.node.name)];
};

const oneHot: Rewrite = (call) => {
  const { emit } = call;
  const last = call.globalShape().length - 1;
  const piece = call.outputPiece(last);
  const { rows } = ownRows(emit, call.tensor('self'), piece, piece.rows);
  const written = call.runOne({ self: ref(rows), num_classes: emit.int(oneMore(piece)) }, false);
  return [firstRows(emit, written, last, piece.rows, call.node.name)];
};

export const embeddingRewrites: Rewrites = {
  'aten.embedding.default': embedding,
  'aten.embedding_dense_backward.default': backward,
  'aten.one_hot.default': oneHot,
};

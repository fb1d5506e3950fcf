/** Rewrites reads and writes with the indexed dim cut to masked local calls. */
import type { Arg } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { firstRows, notEmpty, ownRows, padEnd, withTrailing, zeroed } from './masked.ts';

function dimOf(call: LocalCall): number {
  const { shape } = call.global.inputs[call.global.indexOf('self')];
  const dim = call.global.int('dim');
  return dim < 0 ? dim + shape.length : dim;
}

/** Dims of the result after the ones that the index makes. */
type Trailing = (call: LocalCall, dim: number) => number;

const read =
  (trailing: Trailing): Rewrite =>
  (call) => {
    const { emit } = call;
    const dim = dimOf(call);
    const { rows, outside } = ownRows(emit, call.tensor('index'), call.inputPiece('self', dim), 0);
    const self = notEmpty(emit, call.tensor('self'), dim);
    const out = call.runOne({ self: ref(self), index: ref(rows) }, false);
    return [zeroed(emit, out, withTrailing(emit, outside, trailing(call, dim)), call.node.name)];
  };

const rankOf = (call: LocalCall): number =>
  call.global.inputs[call.global.indexOf('self')].shape.length;

/**
 * A write goes to a row after the last one where the row is another rank's; that row is dropped.
 */
const write: Rewrite = (call) => {
  const { emit } = call;
  const dim = dimOf(call);
  const piece = call.inputPiece('self', dim);
  const { rows } = ownRows(emit, call.tensor('index'), piece, piece.rows);
  const self = padEnd(emit, call.tensor('self'), dim, 1);
  const out = call.runOne({ self: ref(self), index: ref(rows) }, false);
  return [firstRows(emit, out, dim, piece.rows, call.node.name)];
};

/**
 * The dim that a list of indices names, if it is one, and the list with another index in its place.
 */
function singleIndex(call: LocalCall): {
  dim: number;
  index: string;
  replaced: (by: string) => Arg;
} {
  const members = call.global.list('indices');
  const dim = members.findIndex((m) => m !== null);
  const at = members[dim]?.index ?? -1;
  return {
    dim,
    index: call.inputs[at],
    replaced: (by) => members.map((_, d): Arg => (d === dim ? ref(by) : null)),
  };
}

const index: Rewrite = (call) => {
  const { emit } = call;
  const { dim, index: numbers, replaced } = singleIndex(call);
  const size = call.global.inputs[0].shape[dim];
  const { rows, outside } = ownRows(emit, numbers, call.inputPiece('self', dim), 0, size);
  const self = notEmpty(emit, call.tensor('self'), dim);
  const out = call.runOne({ self: ref(self), indices: replaced(rows) }, false);
  return [zeroed(emit, out, withTrailing(emit, outside, rankOf(call) - 1 - dim), call.node.name)];
};

const indexPut: Rewrite = (call) => {
  const { emit } = call;
  const { dim, index: numbers, replaced } = singleIndex(call);
  const piece = call.inputPiece('self', dim);
  const { rows } = ownRows(emit, numbers, piece, piece.rows, call.global.inputs[0].shape[dim]);
  const self = padEnd(emit, call.tensor('self'), dim, 1);
  const out = call.runOne({ self: ref(self), indices: replaced(rows) }, false);
  return [firstRows(emit, out, dim, piece.rows, call.node.name)];
};

export const indexingRewrites: Rewrites = {
  'aten.gather.default': read(() => 0),
  'aten.index_select.default': read((call, dim) => rankOf(call) - 1 - dim),
  'aten.index.Tensor': index,
  'aten.index_put.default': indexPut,
  'aten._unsafe_masked_index_put_accumulate.default': indexPut,
  'aten.scatter.src': write,
  'aten.scatter.value': write,
  'aten.scatter_add.default': write,
  'aten.index_add.default': write,
  'aten.index_copy.default': write,
  'aten.index_fill.int_Scalar': write,
};

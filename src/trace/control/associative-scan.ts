/**
 * Records the running results of an associative function by pairwise combination, at most 2 log2 n
 * calls.
 */

import { checkKinds } from '../../arguments.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder } from '../record/recorder.ts';
import { cat, stack } from '../tensor/functional.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { ownedTree, tensorsOf, treeTypes } from './body.ts';
import { lengthOf, rowsOf } from './loops.ts';
import { note } from './site.ts';
import { asTensor, type BodyTree, type Flat, flat, refill, valueOf } from './traced-values.ts';

/**
 * All running results of an associative function along dim 0: `y[0] = x[0]`, `y[i] = combine(y[i -
 * 1], x[i])`.
 *
 * Unlike `scan` it is not a loop: neighbours are combined pairwise, the half as many results are
 * scanned the same way, and the rows between them are filled in. That is at most 2 log2 n calls of
 * `combine`, of 2 n rows in all, each a call on many rows at once; the graph has them as plain
 * operators, so they are differentiated and cut like any others.
 *
 * @param combine of rows [k, ...] and the k rows after them, each row on its own, to k rows of the
 *   same structure, shapes and dtypes; must be associative, or the result is another than the
 *   loop's
 * @param xs a tensor or a tree of tensors with equal, fixed sizes along dim 0
 * @param options.reverse from the last row to the first: `y[i] = combine(y[i + 1], x[i])`
 * @returns a tree like `xs`
 * @throws E_SCAN_LENGTH when the sizes differ or are symbolic; E_SCAN_CARRY when `combine` returns
 *   something else
 */
export function associativeScan<X extends BodyTree>(
  combine: (earlier: X, later: X) => BodyTree,
  xs: X,
  options: { readonly reverse?: boolean } = {},
): X {
  checkKinds('associativeScan', { combine: [combine, 'function'], options: [options, 'record'] });
  const position = sourcePosition();
  const recorder = needRecorder('associativeScan()');
  const rows = rowsOf(recorder, xs, 0, 'associativeScan');
  const length = lengthOf(recorder, rows, undefined, 'associativeScan');
  if (typeof length !== 'number')
    throw refusal(
      'E_SCAN_LENGTH',
      `associativeScan along ${length.sym}: it is written out, so the size must be a number`,
      recorder.trace.place(),
      {
        hint: 'use scan, or trace at a fixed size.',
      },
    );
  const { reverse = false } = options;
  const turned = (tensors: readonly Tensor[]): readonly Tensor[] =>
    reverse ? tensors.map((t) => t.flip(0)) : tensors;
  const given = turned(rows.leaves.map(({ leaf }) => asTensor(leaf)));
  const scanned =
    length === 0 ? given : prefixes(given, (a, b) => combined(recorder, rows, combine, a, b));
  note(recorder, 'associative_scan', 'operators', `written out in pairs, ${length} rows`, position);
  const values = turned(scanned).map((tensor) => valueOf(tensor, 'a result of associativeScan'));
  return tensorsOf(refill(rows.tree, values)) as X;
}

type Leaves = readonly Tensor[];

/**
 * Running results of n rows: those of n / 2 pairs are the odd ones, and each even one is one step
 * from the odd one before.
 */
function prefixes(rows: Leaves, combine: (earlier: Leaves, later: Leaves) => Leaves): Leaves {
  const n = Number(rows[0].shape[0]);
  if (n < 2) return rows;
  const every = (from: number, to: number): Leaves => rows.map((x) => x.slice(0, from, to, 2));
  const odd = prefixes(combine(every(0, n - 1), every(1, n)), combine);
  const first = rows.map((x) => x.slice(0, 0, 1));
  if (n === 2) return rows.map((_, k) => cat([first[k], odd[k]]));
  const before = n % 2 === 0 ? odd.map((x) => x.slice(0, 0, n / 2 - 1)) : odd;
  const even = combine(before, every(2, n));
  return rows.map((_, k) => interleaved(cat([first[k], even[k]]), odd[k]));
}

/** a[0], b[0], a[1], b[1] ...; `a` has as many rows as `b`, or one more. */
function interleaved(a: Tensor, b: Tensor): Tensor {
  const [pairs, ...shape] = b.shape;
  const paired = a.shape[0] === pairs ? a : a.slice(0, 0, pairs);
  const merged = stack([paired, b], 1).reshape([2 * Number(pairs), ...shape]);
  return a.shape[0] === pairs ? merged : cat([merged, a.slice(0, pairs)]);
}

/** `combine` on leaves, its result checked against the structure and types of the rows. */
function combined<X extends BodyTree>(
  recorder: Recorder,
  { tree }: Flat,
  combine: (earlier: X, later: X) => BodyTree,
  earlier: Leaves,
  later: Leaves,
): Leaves {
  const treeOf = (leaves: Leaves) =>
    refill(
      tree,
      leaves.map((leaf) => valueOf(leaf, 'a row')),
    );
  const [a, b] = [treeOf(earlier), treeOf(later)];
  const result = ownedTree(recorder, combine(tensorsOf(a) as X, tensorsOf(b) as X));
  if (treeTypes(result) !== treeTypes(b))
    throw refusal(
      'E_SCAN_CARRY',
      'the function of associativeScan must return rows like those it got: expected ' +
        `${treeTypes(b)}, got ${treeTypes(result)}`,
      recorder.trace.place(),
      {
        hint: 'it gets several rows at once, along dim 0, and combines each with the row after it.',
      },
    );
  return flat(result).leaves.map(({ leaf }) => asTensor(leaf));
}

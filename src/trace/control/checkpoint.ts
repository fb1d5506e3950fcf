/**
 * Records a function as one region that the backward pass recomputes (activation checkpointing).
 */

import { checkType } from '../../errors.ts';
import { sourcePosition } from '../errors/position.ts';
import { needRecorder, type TracedValue } from '../record/recorder.ts';
import {
  captures,
  finishBody,
  operandRefs,
  ownedTree,
  resultLike,
  tensorsOf,
  traceBody,
} from './body.ts';
import { note } from './site.ts';
import { type BodyTree, flat, refill } from './traced-values.ts';

/**
 * `fn(...args)` as one region that keeps nothing for the backward pass but what it reads: the
 * backward pass runs it again (gradient checkpointing, as `torch.utils.checkpoint`). The region is
 * a `call` of a body; planning writes the body out.
 *
 * What only the region's results need is not recomputed, so of a block that ends in a product that
 * product is computed once.
 *
 * @param fn traced once; outer tensors and parameters that it reads become operands
 * @param args tensors and host constants, nested in lists and records
 * @returns what `fn` returns
 * @throws E_TRACE_INPUT when `fn` returns something that is neither tensor nor host constant;
 *   E_HOP_MUTATION; when the gradient is taken, E_NO_VJP for a random operator without a key, which
 *   would draw other numbers the second time
 */
export function checkpoint<const A extends readonly BodyTree[], R extends BodyTree>(
  fn: (...args: A) => R,
  ...args: A
): R {
  checkType('checkpoint', 'function', fn, 'function');
  const position = sourcePosition();
  const recorder = needRecorder('checkpoint()');
  const given = flat(ownedTree(recorder, args));
  const inputs = given.leaves.map(({ leaf }) => leaf);
  const body = traceBody(recorder, 'checkpoint', inputs, (values) =>
    fn(...(tensorsOf(refill(given.tree, values)) as A)),
  );
  const results = flat(body.result);
  const read = captures([body]);
  const operands = [...inputs, ...read];
  const leaves = results.leaves.map(({ leaf }) => leaf);
  const name = recorder.subgraph(body.recorder.name, finishBody(body, leaves));
  const made = recorder.controlCall(
    'call',
    [{ kind: 'graph', name }, operandRefs(recorder, operands, 'checkpoint')],
    leaves.map((leaf) => resultLike(leaf, operands)),
    { region: 'remat' },
  );
  note(
    recorder,
    'checkpoint',
    'operators',
    'kept as a region; the backward pass runs it again',
    position,
  );
  return tensorsOf(
    refill(
      results.tree,
      made.filter((value): value is TracedValue => value !== undefined),
    ),
  ) as R;
}

/** Declares a function with a derivative of its own (as `jax.custom_vjp`). */

import type { Arg } from '../../graph/types.ts';
import {
  finishBody,
  operandRefs,
  ownedTree,
  resultLike,
  tensorsOf,
  traceBody,
  type TracedBody,
  treeTypes,
} from '../control/body.ts';
import { asTensor, bodyName, flat, note, refill, valueOf } from '../control/cond.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder, type TracedValue } from '../record/recorder.ts';
import type { Tree } from '../record/tree.ts';
import { valueText } from '../record/typed-value.ts';
import type { Tensor } from '../tensor/tensor.ts';

/** One tensor or several. */
type Results = Tensor | readonly Tensor[];

/**
 * A function with a derivative of its own. Without a gradient `fn` runs; where a gradient passes,
 * `forward` runs in its place and says what to keep, and `backward` gives the gradients of the
 * inputs.
 *
 * All three read their arguments only: give parameters as inputs.
 *
 * @param forward the results of `fn` (equal types) and what is kept for `backward`
 * @param backward from what was kept and one gradient for each result, in order, to one gradient
 *   for each input, of its shape and dtype; null for an input that has none
 * @returns the function, to be called while tracing
 * @throws E_OPAQUE_CAPTURE for an outer tensor that one of them reads; E_SHAPE where results or
 *   gradients do not fit
 */
export function customVjp<const A extends readonly Tensor[], R extends Results>(
  fn: (...inputs: A) => R,
  forward: (...inputs: A) => { readonly result: R; readonly saved: readonly Tensor[] },
  backward: (saved: readonly Tensor[], gradients: readonly Tensor[]) => readonly (Tensor | null)[],
): (...inputs: A) => R {
  return (...inputs) => {
    const position = sourcePosition();
    const recorder = needRecorder('customVjp()');
    const given = inputs.map((x) => recorder.own(valueOf(x, 'an input of customVjp'), 'customVjp'));
    const body = (
      kind: string,
      values: readonly TracedValue[],
      run: (tensors: readonly Tensor[]) => unknown,
    ): TracedBody =>
      closed(
        recorder,
        traceBody(recorder, bodyName(recorder, kind), values, (now) => run(now.map(asTensor))),
      );
    const plain = body('custom', given, (tensors) => fn(...(tensors as unknown as A)));
    let saved: Tree<TracedValue> | undefined;
    const kept = body('custom_forward', given, (tensors) => {
      const made = forward(...(tensors as unknown as A));
      saved = ownedTree(needRecorder('customVjp()'), [...made.saved]);
      return made.result;
    });
    const results = flat(plain.result);
    if (treeTypes(kept.result) !== treeTypes(plain.result))
      throw mismatch(
        recorder,
        `forward must return what the function does: expected ${treeTypes(plain.result)}, ` +
          `got ${treeTypes(kept.result)}`,
      );
    const savedLeaves = saved === undefined ? [] : flat(saved).leaves.map(({ leaf }) => leaf);
    const count = savedLeaves.length;
    const outs = results.leaves.map(({ leaf }) => leaf);
    const wrt: number[] = [];
    const back = body('custom_backward', [...savedLeaves, ...outs], (tensors) => {
      const gradients = backward(tensors.slice(0, count), tensors.slice(count));
      if (gradients.length !== given.length)
        throw mismatch(
          recorder,
          `backward must give one gradient for each of ${given.length} inputs, but gives ` +
            `${gradients.length}`,
        );
      return gradients.flatMap((gradient, i): Tensor[] => {
        if (gradient === null) return [];
        const [got, wanted] = [valueText(valueOf(gradient, 'a gradient')), valueText(given[i])];
        if (got !== wanted)
          throw mismatch(recorder, `the gradient of input ${i} is ${got}, the input ${wanted}`);
        wrt.push(i);
        return [gradient];
      });
    });
    const keep = (traced: TracedBody, values: readonly TracedValue[]): Arg => ({
      kind: 'graph',
      name: recorder.subgraph(traced.recorder.name, finishBody(traced, values)),
    });
    const made = recorder.controlCall(
      'call',
      [keep(plain, outs), operandRefs(recorder, given, 'customVjp')],
      outs.map((leaf) => resultLike(leaf, given)),
      {
        vjp_forward: keep(kept, [
          ...flat(kept.result).leaves.map(({ leaf }) => leaf),
          ...savedLeaves,
        ]),
        vjp_backward: keep(
          back,
          flat(back.result).leaves.map(({ leaf }) => leaf),
        ),
        vjp_wrt: wrt,
      },
    );
    note(recorder, 'custom_vjp', 'operators', 'a function with a derivative of its own', position);
    return tensorsOf(
      refill(
        results.tree,
        made.filter((value): value is TracedValue => value !== undefined),
      ),
    ) as R;
  };
}

/** A body that reads its inputs only. */
function closed(recorder: Recorder, traced: TracedBody): TracedBody {
  const names = [...traced.recorder.captured.keys()].map((value) => `%${value.name}`);
  if (names.length === 0) return traced;
  throw refusal(
    'E_OPAQUE_CAPTURE',
    `customVjp: the function reads ${names.join(', ')} without listing ` +
      `${names.length === 1 ? 'it' : 'them'} as input`,
    recorder.trace.place(),
    {
      hint:
        'give every tensor, parameters included, as an argument: the derivative is with ' +
        'respect to arguments.',
    },
  );
}

function mismatch(recorder: Recorder, message: string): Error {
  return refusal('E_SHAPE', `customVjp: ${message}`, recorder.trace.place());
}

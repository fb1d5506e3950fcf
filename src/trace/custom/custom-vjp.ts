/** Declares a function with a derivative of its own (as `jax.custom_vjp`). */

import type { Arg } from '../../graph/types.ts';
import {
  bodyName,
  finishBody,
  operandRefs,
  ownedTree,
  resultLike,
  tensorsOf,
  traceBody,
  type TracedBody,
  treeTypes,
} from '../control/body.ts';
import { note } from '../control/site.ts';
import { asTensor, flat, refill, valueOf } from '../control/traced-values.ts';
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
    const own: OwnFunction = { recorder, given };
    const plain = bodyOf(own, 'custom', given, (tensors) => fn(...(tensors as unknown as A)));
    const kept = traceForward(own, plain, (tensors) => forward(...(tensors as unknown as A)));
    const results = flat(plain.result);
    const outs = results.leaves.map(({ leaf }) => leaf);
    const back = traceBackward(own, [...kept.saved, ...outs], (tensors) =>
      backward(tensors.slice(0, kept.saved.length), tensors.slice(kept.saved.length)),
    );
    const made = recorder.controlCall(
      'call',
      [bodyArg(own, plain, outs), operandRefs(recorder, given, 'customVjp')],
      outs.map((leaf) => resultLike(leaf, given)),
      {
        vjp_forward: bodyArg(own, kept.body, [...leavesOf(kept.body), ...kept.saved]),
        vjp_backward: bodyArg(own, back.body, leavesOf(back.body)),
        vjp_wrt: back.wrt,
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

/** A function with a derivative of its own, where it is called. */
interface OwnFunction {
  readonly recorder: Recorder;
  readonly given: readonly TracedValue[];
}

/** A body of the call, which reads its inputs only. */
function bodyOf(
  { recorder }: OwnFunction,
  kind: string,
  values: readonly TracedValue[],
  run: (tensors: readonly Tensor[]) => unknown,
): TracedBody {
  const name = bodyName(recorder, kind);
  return closed(
    recorder,
    traceBody(recorder, name, values, (now) => run(now.map(asTensor))),
  );
}

/** The body that runs where a gradient passes, and the values that it keeps. */
function traceForward(
  own: OwnFunction,
  plain: TracedBody,
  forward: (tensors: readonly Tensor[]) => {
    readonly result: Results;
    readonly saved: readonly Tensor[];
  },
): { readonly body: TracedBody; readonly saved: readonly TracedValue[] } {
  let saved: Tree<TracedValue> | undefined;
  const body = bodyOf(own, 'custom_forward', own.given, (tensors) => {
    const made = forward(tensors);
    saved = ownedTree(needRecorder('customVjp()'), [...made.saved]);
    return made.result;
  });
  if (treeTypes(body.result) !== treeTypes(plain.result))
    throw mismatch(
      own.recorder,
      `forward must return what the function does: expected ${treeTypes(plain.result)}, ` +
        `got ${treeTypes(body.result)}`,
    );
  return { body, saved: saved === undefined ? [] : flat(saved).leaves.map(({ leaf }) => leaf) };
}

/** The body that gives gradients, and the inputs that they are of. */
function traceBackward(
  own: OwnFunction,
  values: readonly TracedValue[],
  backward: (tensors: readonly Tensor[]) => readonly (Tensor | null)[],
): { readonly body: TracedBody; readonly wrt: readonly number[] } {
  const { recorder, given } = own;
  const wrt: number[] = [];
  const body = bodyOf(own, 'custom_backward', values, (tensors) => {
    const gradients = backward(tensors);
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
  return { body, wrt };
}

function leavesOf(body: TracedBody): TracedValue[] {
  return flat(body.result).leaves.map(({ leaf }) => leaf);
}

/** A body as an argument of the call. */
function bodyArg(
  { recorder }: OwnFunction,
  traced: TracedBody,
  values: readonly TracedValue[],
): Arg {
  return {
    kind: 'graph',
    name: recorder.subgraph(traced.recorder.name, finishBody(traced, values)),
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

/**
 * Tags that say of one value whether the backward pass finds it or runs it again. They win over
 * regions and policies.
 */

import type { Retention } from '../../graph/types.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type Recorder } from '../record/recorder.ts';
import { tracedValue } from './core.ts';
import type { Tensor } from './tensor.ts';

/**
 * Keeps a value for the backward pass, although the `checkpoint` region that it is made in is
 * recomputed, and whatever policy planning is given.
 *
 * @returns the tensor itself
 * @throws E_TRACE_INPUT for an input, or a value of a branch or loop body; E_TRACE_LEAK outside a
 *   trace
 */
export function save(tensor: Tensor): Tensor {
  return retained(tensor, 'save');
}

/**
 * Does not keep a value for the backward pass: `jointGraph` writes the call that makes it a second
 * time, where its result is needed. Inside a `checkpoint` region that is so anyway.
 *
 * @returns the tensor itself
 * @throws E_TRACE_INPUT and E_TRACE_LEAK as `save` does; `jointGraph` E_NO_VJP for random numbers
 *   drawn without a key
 */
export function recompute(tensor: Tensor): Tensor {
  return retained(tensor, 'recompute');
}

function retained(tensor: Tensor, wish: Retention): Tensor {
  const { trace } = needRecorder(`${wish}()`);
  const place = { source: sourcePosition(), path: trace.path };
  const value = tracedValue(tensor);
  if (value === undefined) throw refusal('E_TRACE_INPUT', `${wish}() takes a traced tensor`, place);
  needRecorder(`${wish}()`).own(value, `${wish}()`);
  if (inLoop(value.recorder))
    throw refusal(
      'E_TRACE_INPUT',
      `${wish}(%${value.name}): a value of the body @${value.recorder.name} is not kept by itself`,
      place,
      {
        hint:
          'tag values of the program or of a checkpoint region; a scan takes { checkpoint: ' +
          'true }.',
      },
    );
  if (value.recorder.retain(value.name, wish) === undefined)
    throw refusal('E_TRACE_INPUT', `${wish}(%${value.name}): an input is there anyway`, place, {
      hint: 'tag the result of an operator.',
    });
  return tensor;
}

/** Tells whether a body around the value is one of a loop or a branch. */
function inLoop(recorder: Recorder): boolean {
  for (let at: Recorder | undefined = recorder; at?.parent !== undefined; at = at.parent)
    if (!at.name.startsWith('checkpoint')) return true;
  return false;
}

/**
 * Writes in words which part of a plan, a policy or modules on a number of layers, is recomputed in
 * the backward pass.
 */

import { type Checkpoint, modulesOf } from '../step/checkpoints.ts';

/** Which results of a plan are recomputed in the backward pass. */
interface Recomputed {
  readonly checkpoint: Checkpoint;
  /** Layers, embedding and head among them. */
  readonly unitsAgain?: number | undefined;
}

/**
 * `selective checkpointing of 28 of 128 units`, or `recomputation of layernorm and act in 28 of 128
 * units`; units being the layers, the embedding and the head.
 *
 * @param layers of the model; absent: it is not said how many there are
 */
export function recomputeText({ checkpoint, unitsAgain }: Recomputed, layers?: number): string {
  if (checkpoint === 'none' || unitsAgain === 0) return 'nothing is recomputed';
  const modules = modulesOf(checkpoint);
  const what =
    modules.length === 0
      ? `${checkpoint} checkpointing`
      : `recomputation of ${modules.join(' and ')}`;
  if (unitsAgain === undefined) return what;
  const of = layers === undefined ? '' : ` of ${layers + 2}`;
  return (
    `${what} ${modules.length === 0 ? 'of' : 'in'} ${unitsAgain}${of} ` +
    `units${of === '' ? '' : ' (layers, embedding, head)'}`
  );
}

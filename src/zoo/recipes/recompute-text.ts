/** Which results of a plan are recomputed in the backward pass. */
interface Recomputed {
  readonly checkpoint: string;
  /** Layers, embedding and head among them. */
  readonly unitsAgain?: number | undefined;
}

/**
 * `selective checkpointing of 28 of 128 units`, units being the layers, the embedding and the head.
 *
 * @param layers of the model; absent: it is not said how many there are
 */
export function recomputeText({ checkpoint, unitsAgain }: Recomputed, layers?: number): string {
  if (checkpoint === 'none' || unitsAgain === 0) return 'nothing is recomputed';
  if (unitsAgain === undefined) return `${checkpoint} checkpointing`;
  const of = layers === undefined ? '' : ` of ${layers + 2}`;
  return `${checkpoint} checkpointing of ${unitsAgain}${of} units${of === '' ? '' : ' (layers, embedding, head)'}`;
}

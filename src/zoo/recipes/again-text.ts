/** Which results of a plan run again in the backward pass. */
export interface RunsAgain {
  readonly checkpoint: string;
  /** Layers, embedding and head among them. */
  readonly unitsAgain?: number | undefined;
}

/**
 * `selective checkpointing of 28 of 128 units`, units being the layers, the embedding and the head.
 *
 * @param layers of the model; absent: it is not said how many there are
 */
export function againText({ checkpoint, unitsAgain }: RunsAgain, layers?: number): string {
  if (checkpoint === 'none' || unitsAgain === 0) return 'nothing runs again';
  if (unitsAgain === undefined) return `${checkpoint} checkpointing`;
  const of = layers === undefined ? '' : ` of ${layers + 2}`;
  return `${checkpoint} checkpointing of ${unitsAgain}${of} units${of === '' ? '' : ' (layers, embedding, head)'}`;
}

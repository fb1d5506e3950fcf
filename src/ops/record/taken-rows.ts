/**
 * The sizes of a local call that takes some rows of whole tensors (`Rule.takes`): what the device
 * runs, in place of all that it has.
 */

import { atSizes } from './context.ts';
import type { TensorMeta, TypedContext } from './record.ts';
import type { Rule, TakenRows } from './rule.ts';

/** The rows taken: so many, each for `step` neighbouring rows of the cut input. */
interface Taken {
  readonly rows: number;
  readonly step: number;
}

/**
 * The rows that a device with `own` rows of the cut input takes. The cut is even, so that these
 * begin at a multiple of `own`, and one row serves as many of them as divide both `own` and `each`.
 */
export function takenBy({ each }: TakenRows, own: number): Taken {
  let [step, rest] = [own, each];
  while (rest !== 0) [step, rest] = [rest, step % rest];
  return { rows: own / step, step };
}

/** The rows that the rules of all mesh dims take: one rule speaks for all of them. */
export function takenRows(rules: readonly (Rule | undefined)[]): TakenRows | undefined {
  return rules.find((r) => r?.takes !== undefined)?.takes;
}

/**
 * The call as a device runs it.
 *
 * @param rules the rule of each mesh dim
 * @param parts the call at the sizes of what the device has
 */
export function asRun(rules: readonly (Rule | undefined)[], parts: TypedContext): TypedContext {
  const takes = takenRows(rules);
  if (takes === undefined) return parts;
  const { of, dim, by } = takes;
  const { rows } = takenBy(takes, parts.inputs[by].shape[dim]);
  const { inputs, outputs } = parts;
  const taken = <T extends TensorMeta | null>(meta: T, t: number): T =>
    meta === null || !of.includes(t)
      ? meta
      : { ...meta, shape: meta.shape.map((size, d) => (d === dim ? rows : size)) };
  return atSizes(
    parts,
    inputs.map((meta, i) => taken(meta, i)),
    outputs.map((meta, k) => taken(meta, inputs.length + k)),
  );
}

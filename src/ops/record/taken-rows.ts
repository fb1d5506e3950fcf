/**
 * The sizes of a local call that takes some rows of whole tensors (`Rule.takes`): what the device
 * runs, in place of all that it has.
 */

import { atSizes } from './context.ts';
import type { OpContext, TensorMeta, TypedContext } from './record.ts';
import type { Rule, TakenRows } from './rule.ts';

/** The rows taken: so many, each for `step` neighbouring rows of the cut input. */
export interface Taken {
  readonly rows: number;
  readonly step: number;
}

/**
 * The rows that a device with `own` rows of the cut input takes. In an even cut these begin at a
 * multiple of `own`, and one row serves as many of them as divide both `own` and `each`. In an
 * uneven one each takes a row of its own, unless there is one row alone.
 */
export function takenBy(
  { each, by, dim }: TakenRows,
  own: number,
  { inputs }: OpContext,
  isEven: boolean,
): Taken {
  if (each === inputs[by].shape[dim]) return { rows: 1, step: own };
  if (!isEven) return { rows: own, step: 1 };
  let [step, rest] = [own, each];
  while (rest !== 0) [step, rest] = [rest, step % rest];
  return { rows: own / step, step };
}

/** The rows that the rules of all mesh dims take: one rule speaks for all of them. */
export function takenRows(rules: readonly (Rule | undefined)[]): TakenRows | undefined {
  return rules.find((r) => r?.takes !== undefined)?.takes;
}

/**
 * The call as a device runs it, the one with the largest parts.
 *
 * @param rules the rule of each mesh dim
 * @param whole the call at the sizes of the program
 * @param parts the call at the sizes of what the device has
 * @param piecesOf the number of pieces into which a dim of an input is cut
 */
export function asRun(
  rules: readonly (Rule | undefined)[],
  whole: OpContext,
  parts: TypedContext,
  piecesOf: (input: number, dim: number) => number,
): TypedContext {
  const takes = takenRows(rules);
  if (takes === undefined) return parts;
  const { of, dim, by } = takes;
  const own = parts.inputs[by].shape[dim];
  const isEven = own * piecesOf(by, dim) === whole.inputs[by].shape[dim];
  const { rows } = takenBy(takes, own, whole, isEven);
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

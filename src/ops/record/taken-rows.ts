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
 * The rows that a device with `own` rows of the cut input takes of the `held` rows that it has. In
 * an even cut these begin at a multiple of `own`, and one row serves as many of them as divide both
 * `own` and `each`. In an uneven one each takes a row of its own, unless there is one row alone.
 */
export function takenBy({ each }: TakenRows, own: number, held: number, isEven: boolean): Taken {
  if (held === 1) return { rows: 1, step: own };
  if (!isEven) return { rows: own, step: 1 };
  let [step, rest] = [own, each];
  while (rest !== 0) [step, rest] = [rest, step % rest];
  return { rows: own / step, step };
}

/**
 * Tells whether one tensor may be cut by more mesh dims than another of the same index: those of
 * the other come first, so that its rows are whole groups, and the further ones are under rules
 * that take rows of the other.
 *
 * @param further the mesh dims that cut the one, outermost first
 * @param cuts those that cut the other
 * @param takesAt whether the rule of a mesh dim takes rows of the other
 */
export function takesFurther(
  further: readonly number[],
  cuts: readonly number[],
  takesAt: (meshDim: number) => boolean,
): boolean {
  return cuts.every((m, i) => m === further[i]) && further.slice(cuts.length).every(takesAt);
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
  const { rows } = takenBy(takes, own, parts.inputs[of[0]].shape[dim], isEven);
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

/** Restricts the choices of a data-parallel mesh dim so that only parameters and gradients are redistributed on it. */

import { isPartialCode, REPLICATE_CODE, type ShardingSpace } from '../../mesh/sharding/space.ts';
import type { Model } from '../../plan/model/model.ts';
import type { Restriction } from '../../plan/restrict/restriction.ts';
import type { StrategySet } from '../../strategy/expand.ts';

const UNKNOWN = -1;

/**
 * On a data-parallel mesh dim nothing moves but parameters and gradients: starting from cut inputs and whole parameters,
 * every node takes its inputs as they come, and what it leaves follows. This walks the program once and takes away, node by
 * node, every strategy that would move an activation over the dim. Where no strategy takes the inputs as they come, or more
 * than one result is possible, the node (or its result) is left free.
 *
 * @param dim mesh dim
 * On a tensor-parallel dim the same holds between the sums: a pending result is `reduced` where it is made in the forward pass,
 * and what follows takes it whole; in the backward pass several pending gradients may be added first, so theirs are left free.
 *
 * On a sequence dim what is whole meets what is cut (positions are added to tokens): the whole one is sliced, which is free.
 *
 * @param weights codes of parameters and of their views as the program takes them, by value
 * @param moves nodes of a sequence dim at which the recipe itself moves a value: they do not take what comes
 */
export function lockDataDim(
  model: Model,
  restriction: Restriction,
  dim: number,
  weights: ReadonlyMap<number, readonly number[]>,
  reduced = false,
  moves?: ReadonlySet<number>,
): void {
  const { flow, space, strategies, nodeVariable } = model;
  const codes = new Int32Array(flow.values.length).fill(UNKNOWN);
  for (const [value, list] of weights) codes[value] = list[dim];
  const known = new Map<string, Uint8Array>();
  strategies.nodes.forEach((entry, n) => {
    if (entry === null) return;
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const v = nodeVariable[n];
    const taking = (coming: Int32Array): Uint8Array => {
      const key = `${entry.content}:${coming.join()}`;
      let takes = known.get(key);
      if (takes === undefined) known.set(key, (takes = takesAsTheyCome(space, set, dim, coming)));
      return takes;
    };
    const coming = flow.inputs[n].map((value) => codes[value]);
    const before = restriction.left(v);
    const isPossible = (takes: Uint8Array): boolean => takes.some((yes, a) => yes === 1 && before?.[a] !== 0);
    const isMove = moves?.has(n) === true;
    let takes = taking(coming);
    if (moves !== undefined && !isMove && !isPossible(takes))
      takes = taking(
        coming.map((code, i) => (code === REPLICATE_CODE && !weights.has(flow.inputs[n][i]) ? UNKNOWN : code)),
      );
    if (!isMove && !isPossible(takes)) return;
    if (set.inputCount > 0 && !isMove)
      restriction.keepMarked(v, `mesh dim ${space.mesh.names[dim]} is ${reduced ? 'tensor' : 'data'} parallel`, takes);
    const left = restriction.left(v);
    flow.results[n].forEach((value, k) => {
      if (value < 0 || codes[value] !== UNKNOWN) return;
      let code = UNKNOWN;
      for (let a = 0; a < set.count; a++) {
        if (left?.[a] === 0) continue;
        const kind = space.kindAt(set.specs[a * width + set.inputCount + k], dim);
        if (code === UNKNOWN) code = kind;
        else if (code !== kind) return;
      }
      if (reduced && isPartialCode(code)) {
        if (flow.phases[n] === 'forward') codes[value] = REPLICATE_CODE;
      } else codes[value] = code;
    });
  });
}

/** 1 for every strategy whose inputs have these codes on the mesh dim; UNKNOWN: any. */
function takesAsTheyCome(space: ShardingSpace, set: StrategySet, dim: number, coming: Int32Array): Uint8Array {
  const width = set.inputCount + set.outputCount;
  return Uint8Array.from({ length: set.count }, (_, a) => {
    for (let i = 0; i < coming.length; i++)
      if (coming[i] !== UNKNOWN && space.kindAt(set.specs[a * width + i], dim) !== coming[i]) return 0;
    return 1;
  });
}

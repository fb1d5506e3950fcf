import { isPartialCode, REPLICATE_CODE } from '../mesh/space.ts';
import type { Model } from '../plan/model.ts';
import type { Restriction } from '../plan/pins.ts';

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
 * @param weights codes of parameters and of their views as the program takes them, by value
 */
export function lockDataDim(
  model: Model,
  restriction: Restriction,
  dim: number,
  weights: ReadonlyMap<number, readonly number[]>,
  reduced = false,
): void {
  const { flow, space, strategies, nodeVariable } = model;
  const codes = new Int32Array(flow.values.length).fill(UNKNOWN);
  for (const [value, list] of weights) codes[value] = list[dim];
  strategies.nodes.forEach((entry, n) => {
    if (entry === null) return;
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const v = nodeVariable[n];
    const inputs = flow.inputs[n];
    const takes = (a: number): boolean => {
      for (let i = 0; i < inputs.length; i++) {
        const code = codes[inputs[i]];
        if (code !== UNKNOWN && space.kindAt(set.specs[a * width + i], dim) !== code) return false;
      }
      return true;
    };
    const isCall = set.inputCount > 0;
    let any = false;
    for (let a = 0; a < set.count && !any; a++) any = restriction.allows(v, a) && takes(a);
    if (!any) return;
    if (isCall)
      restriction.keep(v, `mesh dim ${space.mesh.names[dim]} is ${reduced ? 'tensor' : 'data'} parallel`, takes);
    flow.results[n].forEach((value, k) => {
      if (value < 0 || codes[value] !== UNKNOWN) return;
      let code = UNKNOWN;
      for (let a = 0; a < set.count; a++) {
        if (!restriction.allows(v, a)) continue;
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

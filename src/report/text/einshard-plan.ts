/** Gives the parameters of a plan as einshard expressions. */

import { checkKinds } from '../../arguments.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import { fromPlacements } from '../../notations/einshard/placements.ts';
import { formatEinshard } from '../../notations/einshard/syntax.ts';
import type { Plan } from '../../plan/record/types.ts';

/** A parameter of a plan in einshard notation. */
export interface EinshardParameter {
  readonly name: string;
  readonly shape: readonly number[];
  readonly placement: string;
  /** `d h k -> h8 d k`; absent where the placement has none. */
  readonly expression?: string;
  /** Why there is none: a dim that several mesh dims cut, or that does not divide. */
  readonly refused?: string;
}

/**
 * The parameters of a plan as einshard expressions, in the order of the plan.
 *
 * @param dims what the dims of a parameter are called, by its name: `{ 'attention.wq': 'dhk' }`, or
 *   names of several letters as a list; those of others are a, b, c ...
 */
export function einshardParameters(
  plan: Pick<Plan, 'mesh' | 'parameters'>,
  dims: Readonly<Record<string, string | readonly string[]>> = {},
): EinshardParameter[] {
  checkKinds('einshardParameters', {
    plan: [plan, ['mesh', 'parameters']],
    dims: [dims, 'record', 'undefined'],
  });
  const mesh = new DeviceMesh(plan.mesh.map(({ name, size }) => ({ name, size })));
  return plan.parameters.map(({ name, shape, placement }) => {
    const sharding = parseSharding(placement, mesh, { rank: shape.length });
    const named = Object.hasOwn(dims, name) ? dims[name] : undefined;
    const found = fromPlacements(
      sharding,
      mesh,
      shape,
      named === undefined ? undefined : [...named],
    );
    const text =
      'refused' in found
        ? { refused: found.refused }
        : { expression: formatEinshard(found.expression) };
    return { name, shape, placement, ...text };
  });
}

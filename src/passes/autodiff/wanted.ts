/** Gives the placeholders to differentiate with respect to. */

import { ShardwrightError, suggestion } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph, Node, ValueType } from '../../graph/types.ts';
import { typeText } from '../../graph/value.ts';
import { categoryOf } from '../../ops/record/dtypes.ts';

/**
 * `parameters`: every parameter. `all`: every parameter and input. A list: role or node names of
 * placeholders.
 */
export type Wanted = 'parameters' | 'all' | readonly string[];

/**
 * Names of the placeholders to differentiate with respect to. Integers and truth values among the
 * parameters or inputs are passed over; named one by one they are refused.
 *
 * @throws E_REF for an unknown name; E_TYPE for one that has no gradient
 */
export function differentiated(
  graph: Graph,
  placeholders: readonly Node[],
  wanted: Wanted,
): ReadonlySet<string> {
  if (wanted === 'parameters' || wanted === 'all') {
    const roles: readonly unknown[] =
      wanted === 'all' ? ['parameter', 'input', 'arg'] : ['parameter'];
    return new Set(
      placeholders
        .filter((n) => roles.includes(n.meta.role) && hasGradient(n.type))
        .map((n) => n.name),
    );
  }
  return new Set(
    wanted.map((name) => {
      const node =
        placeholders.find((n) => n.meta.roleName === name) ??
        placeholders.find((n) => n.name === name);
      if (node === undefined)
        throw new ShardwrightError(
          'E_REF',
          `there is no input '${name}' to differentiate with respect to`,
          {
            hint: suggestion(name, [...new Set(placeholders.map((n) => roleName(n)))], 'inputs'),
            path: graph.name,
          },
        );
      if (!hasGradient(node.type))
        throw new ShardwrightError(
          'E_TYPE',
          `'${name}' is ${typeText(node.type)}, which has no gradient`,
          {
            node: node.name,
            hint: 'only tensors of real or complex numbers have one; leave it out',
          },
        );
      return node.name;
    }),
  );
}

/** A tensor of real or complex numbers: gradients pass both. */
export function hasGradient(type: ValueType): boolean {
  return type.kind === 'tensor' && categoryOf(type.dtype) >= 2;
}

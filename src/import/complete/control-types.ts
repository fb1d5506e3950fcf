/** Checks the types at the boundary of a control-flow call and words the mismatch. */

import { messageOf } from '../../errors.ts';
import { controlCall, placeholdersOf } from '../../graph/control.ts';
import type { Arg, Graph, TensorType, ValueType } from '../../graph/types.ts';
import { sameType, typeText } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';

/**
 * One sentence on the fault in the types at the boundary of a control-flow call; undefined where
 * there is none.
 */
export function controlMismatch(
  call: {
    readonly target: string;
    readonly args: readonly Arg[];
    readonly kwargs: Readonly<Record<string, Arg>>;
  },
  subgraphs: Readonly<Record<string, Graph>>,
  typeOf: (name: string) => ValueType,
  stated: readonly TensorType[],
): string | undefined {
  let control;
  try {
    control = controlCall(call, subgraphs, typeOf);
  } catch (error) {
    return messageOf(error);
  }
  if (control === undefined) return undefined;
  for (const { graph, inputs } of control.bodies) {
    const wanted = placeholdersOf(graph);
    if (wanted.length !== inputs.length)
      return `a body takes ${wanted.length} inputs, and gets ${inputs.length}`;
    for (const [i, { type }] of wanted.entries()) {
      const given = itemAt(inputs, i);
      if (!sameType(type, given))
        return `input ${i} of a body is ${typeText(type)}, and gets ${typeText(given)}`;
    }
  }
  const items = control.result.kind === 'tuple' ? control.result.items : [control.result];
  if (items.length !== stated.length)
    return `the body returns ${items.length} values, the text says ${stated.length}`;
  for (const [i, item] of items.entries()) {
    const said = itemAt(stated, i);
    if (!sameType(item, said))
      return `result ${i} of the body is ${typeText(item)}, the text says ${typeText(said)}`;
  }
  return undefined;
}

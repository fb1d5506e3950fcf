/** Writes a rules file for a call of an unknown operator, for the user to complete. */

import type { Arg, Node, ValueType } from '../../graph/types.ts';
import { isList, isRef, typeText } from '../../graph/value.ts';

/** At the sizes of the example. */
const textOf = (type: ValueType): string => typeText(type, ({ example = 1 }) => String(example));

/**
 * The text of a rules file (`rules-file.ts`) that gives a record to each operator without one: the
 * operator runs whole on every device until rules are added. Results are typed like the first
 * operand of the same type; where there is none, the type itself is written.
 */
export function rulesTemplate(calls: readonly Node[], typeOf: (name: string) => ValueType): string {
  const operators = calls.map((node) => {
    const tensors: { name: string; type: string }[] = [];
    let operands = 0;
    const argument = (arg: Arg, name: string): string => {
      const isTensors = isList(arg) && arg.length > 0 && arg.every(isRef);
      operands += isTensors ? arg.length : isRef(arg) ? 1 : 0;
      if (isTensors) return `Tensor[] ${name}`;
      if (!isRef(arg)) return `Any ${name}`;
      tensors.push({ name, type: textOf(typeOf(arg.name)) });
      return `Tensor ${name}`;
    };
    const positional = node.args.map((arg, k) => argument(arg, `x${k}`));
    const named = Object.keys(node.kwargs).map((key) => argument(node.kwargs[key], key));
    const results = node.type.kind === 'tuple' ? node.type.items : [node.type];
    const texts = results.map(textOf);
    return {
      name: node.target,
      schema: [...positional, ...(named.length > 0 ? ['*', ...named] : [])].join(', '),
      outputs: texts.map((text) => tensors.find(({ type }) => type === text)?.name ?? text),
      rules: [`${new Array(operands).fill('R').join(', ')} -> ${texts.map(() => 'R').join(', ')}`],
    };
  });
  return JSON.stringify({ format: 'shardwright-rules/1', operators });
}

/**
 * Reads types as programs write them: a word (`'S(0)'`), or the slot of a sharding rule (`S(0)`,
 * `R`, `P`), so that one set of names serves rules and types.
 */
import { checkKinds } from '../arguments.ts';
import { isPlain, ShardwrightError, valueText, wrongArgument } from '../errors.ts';
import type { TypeSpec } from '../mesh/local-types/spec.ts';
import { type AxisType, isAxisType, S as cut } from '../mesh/local-types/types.ts';
import { P, type RuleSlot } from '../ops/record/rule.ts';

/** `R`, `P`, `S(0)` of the rules, `I` and `V`, or any of them as text. */
export type TypeWord = AxisType | RuleSlot | typeof P;

/** Types of a value on all axes: a PartitionSpec, or a record of words. */
export type SpecWord = string | Readonly<Record<string, TypeWord>>;

/** @throws E_SPMD_TYPE for what is not a type */
export function axisType(word: TypeWord): AxisType {
  if (word === P) return 'P';
  if (isAxisType(word)) return word;
  if (typeof word === 'object' && word !== null) {
    if (word.kind === 'replicate') return 'R';
    if (word.kind === 'partial' && word.op === 'sum') return 'P';
    if (word.kind === 'shard' && word.inside === null) return cut(word.dim);
  }
  throw new ShardwrightError(
    'E_SPMD_TYPE',
    `'${typeof word === 'string' ? word : typeof word}' is not a type`,
    {
      hint: 'write V, R, I, P or S(0)',
    },
  );
}

export function typeSpec(spec: SpecWord): TypeSpec {
  if (typeof spec === 'string') return spec;
  if (!isPlain(spec))
    throw wrongArgument('assertType', 'type', valueText(spec), 'write \'P("tp", None)\'.');
  checkKinds('assertType', { type: [spec, 'record'] });
  return Object.fromEntries(Object.entries(spec).map(([axis, word]) => [axis, axisType(word)]));
}

/**
 * Calls of operators written as text: `mm(x[5,6], x[6,7])`, `sum.dim_IntList(x[5,6], [-1], True,
 * dtype=f32)`. A target without namespace is aten, one without overload is default. A tensor is a
 * word and its sizes: a dtype (`bf16[4]`), or how its values are drawn (`WORDS`), `index7[4]` being
 * indices below 7. Literals are Python's; a bare dtype is a dtype; `end` is 2^63 - 1.
 */

import { ShardwrightError } from '../../errors.ts';
import { type Arg, type DType, DTYPES, type TensorType } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { bind } from '../record/infer.ts';
import type { OperatorRecord, TypedContext } from '../record/record.ts';
import type { OperatorTable } from '../record/table.ts';

type Init =
  | 'any'
  | 'positive'
  | 'unit'
  | 'above-one'
  | 'large'
  | 'few'
  | 'index'
  | 'signed-index'
  | 'distinct'
  | 'shuffled'
  | 'bits'
  | 'seven'
  | 'ends'
  | 'starts'
  | 'definite'
  | 'pivots';

export interface TensorSpec {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly init: Init;
  readonly hi?: number;
  /** Written by a word for values and not by a dtype: may be tried in other dtypes. */
  readonly free: boolean;
}

export interface CallText {
  readonly text: string;
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  /** By the name that the arguments use. */
  readonly tensors: ReadonlyMap<string, TensorSpec>;
}

const WORDS: Readonly<Record<string, readonly [DType, Init]>> = {
  x: ['f64', 'any'],
  pos: ['f64', 'positive'],
  unit: ['f64', 'unit'],
  above: ['f64', 'above-one'],
  large: ['f64', 'large'],
  few: ['f64', 'few'],
  shuffled: ['f64', 'shuffled'],
  index: ['i64', 'index'],
  signed: ['i64', 'signed-index'],
  distinct: ['i64', 'distinct'],
  seven: ['i64', 'seven'],
  ends: ['i32', 'ends'],
  starts: ['i64', 'starts'],
  definite: ['f64', 'definite'],
  pivots: ['i32', 'pivots'],
  bits: ['b8', 'bits'],
};

function isDType(word: string): word is DType {
  return (DTYPES as readonly string[]).includes(word);
}

function spec(word: string, shape: readonly number[]): TensorSpec {
  if (isDType(word)) {
    const init =
      word === 'b8' ? 'bits' : /^[fbc]/.test(word) ? 'any' : word.startsWith('u') ? 'index' : 'few';
    return { dtype: word, shape, init, hi: 5, free: false };
  }
  const [, name, hi] = /^([a-z]+)(\d*)$/.exec(word) ?? [];
  const known = WORDS[name];
  if (known === undefined) throw new Error(`no tensor word '${word}'`);
  return {
    dtype: known[0],
    shape,
    init: known[1],
    free: known[0] === 'f64',
    ...(hi === '' ? {} : { hi: Number(hi) }),
  };
}

/** Reads a call. @throws Error with the rest of the text where it stops making sense */
export function parseCall(text: string): CallText {
  let at = 0;
  const tensors = new Map<string, TensorSpec>();
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    if (found !== undefined) at += found.length;
    return found;
  };
  const need = (pattern: RegExp): string => {
    const found = match(pattern);
    if (found === undefined) throw new Error(`cannot read '${text}' from '${text.slice(at)}'`);
    return found;
  };
  const list = <T>(close: RegExp, item: () => T): T[] => {
    const items: T[] = [];
    while (match(close) === undefined) {
      if (items.length > 0) need(/, */y);
      items.push(item());
    }
    return items;
  };
  const value = (): Arg => {
    if (match(/\[/y) !== undefined) return list(/\]/y, value);
    const number = match(/-?(\d+(\.\d*)?(e-?\d+)?|inf)(?![\w[])/y);
    if (number !== undefined) {
      if (/^-?\d+$/.test(number)) return Number(number);
      return { kind: 'float', value: Number(number.replace('inf', 'Infinity')) };
    }
    const quoted = match(/'[^']*'/y);
    if (quoted !== undefined) return quoted.slice(1, -1);
    const word = need(/\w+/y);
    if (match(/\[/y) !== undefined) {
      const name = `x${tensors.size}`;
      tensors.set(
        name,
        spec(
          word,
          list(/\]/y, () => Number(need(/\d+/y))),
        ),
      );
      return ref(name);
    }
    if (word === 'None') return null;
    if (word === 'True' || word === 'False') return word === 'True';
    if (word === 'end') return 9223372036854775807n;
    if (isDType(word)) return { kind: 'dtype', dtype: word };
    throw new Error(`cannot read '${word}' in '${text}'`);
  };
  const name = need(/[\w.]+/y);
  need(/\(/y);
  const args: Arg[] = [];
  const kwargs: Record<string, Arg> = {};
  list(/\)$/y, () => {
    const key = match(/\w+=/y);
    if (key === undefined) args.push(value());
    else kwargs[key.slice(0, -1)] = value();
  });
  return { text, target: fullTarget(name), args, kwargs, tensors };
}

/**
 * A call of an operator on arguments written as `parseCall` reads them.
 *
 * @throws E_SAMPLE with the rest of the text where it stops making sense
 */
export function callOf(target: string, args: string): CallText {
  try {
    return { ...parseCall(`call(${args})`), text: `${target}(${args})`, target };
  } catch (error) {
    if (error instanceof ShardwrightError) throw error;
    throw new ShardwrightError(
      'E_SAMPLE',
      `${target}: the arguments '${args}' cannot be read ` +
        `(${(error as Error).message.replace('call(', '')})`,
      {
        hint:
          "write a word and sizes for a tensor, literals as in Python: 'x[6,4], index6[5], " +
          "dim=1'.",
      },
    );
  }
}

function fullTarget(name: string): string {
  if (/^(stablehlo|chlo|sdy)\./.test(name)) return name; // no overloads there
  const qualified = /^(aten|prims)\./.test(name) ? name : `aten.${name}`;
  return qualified.split('.').length === 3 ? qualified : `${qualified}.default`;
}

/** Type of a tensor of the call, for `inferCall`. */
export function typeOf(call: CallText): (name: string) => TensorType {
  return (name) => {
    const tensor = call.tensors.get(name);
    if (tensor === undefined) throw new Error(`no tensor ${name} in ${call.text}`);
    return { kind: 'tensor', dtype: tensor.dtype, shape: tensor.shape };
  };
}

/** The call bound and typed, as rules read it. */
export function bindText(
  table: OperatorTable,
  call: CallText,
): { record: OperatorRecord; ctx: TypedContext } {
  const record = table.get(call.target);
  const ctx = bind(table, call, typeOf(call));
  if (record === undefined || ctx === undefined) throw new Error(`no record ${call.target}`);
  return { record, ctx };
}

import type { Arg, DType } from '../../../src/graph/types.ts';
import type { CallText, TensorSpec } from '../../../src/ops/samples/call-text.ts';

/**
 * A call of test/fixtures/ops/calls.json.gz: tensors by their type text, floats and large integers
 * by theirs.
 */
type FixtureArg =
  | number
  | string
  | boolean
  | null
  | { readonly t: string }
  | { readonly f: string }
  | { readonly big: string }
  | { readonly kind: 'dtype'; readonly dtype: DType }
  | { readonly kind: 'device' | 'layout'; readonly word: string }
  | readonly FixtureArg[];
export type FixtureCall = readonly [
  target: string,
  args: readonly FixtureArg[],
  kwargs: Readonly<Record<string, FixtureArg>>,
  ...rest: readonly unknown[],
];

function isList(arg: FixtureArg): arg is readonly FixtureArg[] {
  return Array.isArray(arg);
}

export function fixtureCall([target, args, kwargs]: FixtureCall): CallText {
  const tensors = new Map<string, TensorSpec>();
  const convert = (arg: FixtureArg): Arg => {
    if (isList(arg)) return arg.map(convert);
    if (arg === null || typeof arg !== 'object') return arg;
    if ('f' in arg) return { kind: 'float', value: Number(arg.f) };
    if ('big' in arg) return BigInt(arg.big);
    if (!('t' in arg)) return arg;
    const name = `x${tensors.size}`;
    const [dtype, sizes] = arg.t.slice(0, -1).split('[');
    const shape = sizes === '' ? [] : sizes.split(',').map(Number);
    tensors.set(name, { dtype: dtype as DType, shape, init: 'any', free: false });
    return { kind: 'value', name };
  };
  const positional = args.map(convert);
  const keywords = Object.fromEntries(Object.entries(kwargs).map(([k, v]) => [k, convert(v)]));
  return {
    text: JSON.stringify([target, args, kwargs]),
    target,
    args: positional,
    kwargs: keywords,
    tensors,
  };
}

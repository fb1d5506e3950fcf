import type { Arg, DType } from '../../../src/graph/types.ts';
import { fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { complexOf, isComplexType } from '../../../src/ndarray/complex.ts';
import { philox, streamOf } from '../../../src/ndarray/random.ts';
import type { EvaluatedArg } from '../../../src/ops/kernels/evaluate.ts';
import { tensorInputs } from '../../../src/ops/record/context.ts';
import { type CallText, parseCall, type TensorSpec } from '../../../src/ops/samples/call-text.ts';
import { operators, samples } from '../../engines/samples/all.ts';
import { GIVEN_VALUES, moreKernelSamples } from './kernel-samples.ts';

/**
 * Sample calls with values, for kernels and PyTorch. Every float is a float64: nothing is rounded
 * on either side.
 */
export interface KernelSample {
  readonly text: string;
  readonly call: CallText;
  /** By the name that the arguments use. */
  readonly arrays: ReadonlyMap<string, NDArray>;
}

const isFloat = (dtype: DType): boolean => /^(b?f)\d/.test(dtype);
const wide = (dtype: DType): DType => (isFloat(dtype) ? 'f64' : dtype);
/**
 * PyTorch takes no float64 for this one: small integers in float32, which it multiplies exactly.
 */
const SINGLE = 'aten._grouped_mm.default';
/** Nor for this one, whose operands are of 8 bits: small integers as they are typed. */
const AS_TYPED = 'aten._scaled_mm.default';
/** It reads step counts as float32. */
const COUNTS = /^aten\._fused_adam/;

function widened(arg: Arg): Arg {
  if (Array.isArray(arg)) return (arg as readonly Arg[]).map(widened);
  if (arg !== null && typeof arg === 'object' && 'kind' in arg && arg.kind === 'dtype')
    return { kind: 'dtype', dtype: wide(arg.dtype) };
  return arg;
}

const SPECIAL = [
  NaN,
  Infinity,
  -Infinity,
  0,
  -0,
  1,
  -1,
  0.5,
  -0.5,
  2.5,
  -2.5,
  1.5,
  -3,
  3,
  6,
  40,
  -40,
  1e-9,
  710,
  -0.1,
];

/** Values of a tensor by its `init`; the same for the same seed, whatever else is drawn. */
function draw(spec: TensorSpec, seed: number, special: boolean, type: DType): NDArray {
  const { shape, init, hi = 2 } = spec;
  const count = shape.reduce((a, b) => a * b, 1);
  const u = Array.from({ length: count }, (_, i) => philox([i, 0, 0, 0], [seed, 7])[0] / 2 ** 32);
  const order = (n: number): number[] =>
    Array.from({ length: n }, (_, i) => [philox([i, 1, 0, 0], [seed, 7])[0], i])
      .sort((a, b) => a[0] - b[0] || a[1] - b[1])
      .map(([, i]) => i);
  const values: Record<TensorSpec['init'], () => number[]> = {
    any: () => u.map((v) => 4 * v - 2),
    positive: () => u.map((v) => v + 0.5),
    unit: () => u.map((v) => 0.9 * v + 0.05),
    'above-one': () => u.map((v) => v + 1.1),
    large: () => u.map((v) => v + 3),
    few: () => u.map((v) => Math.floor(5 * v) - 2),
    index: () => u.map((v) => Math.floor(hi * v)),
    'signed-index': () => u.map((v) => Math.floor(2 * hi * v) - hi),
    distinct: () => order(hi).slice(0, count),
    shuffled: () => order(count).map((i) => i / 3 - 2),
    bits: () => u.map((v) => (v < 0.4 ? 1 : 0)),
    definite: () => u.map((v, i) => ((i % hi ** 2) % (hi + 1) === 0 ? hi + v : v - 0.5)),
    pivots: () => u.map((v, i) => (i % hi) + 1 + Math.floor(v * (hi - (i % hi)))),
    seven: () => u.map(() => 7),
    starts: () => u.map((v, i) => (i === 0 ? 0 : Math.floor(hi * v))).sort((a, b) => a - b),
    ends: () => u.map((v) => Math.floor((hi + 1) * v)).sort((a, b) => a - b),
  };
  const drawn =
    special && spec.free
      ? u.map((v, i) => SPECIAL[i % SPECIAL.length] * (i < SPECIAL.length ? 1 : v))
      : values[init]();
  if (isComplexType(type))
    return complexOf(fromList(shape, drawn), draw(spec, seed + 1, special, 'f64'), type);
  return fromList(shape, drawn, type);
}

function sample(call: CallText, special = false): KernelSample {
  const typed = call.target === AS_TYPED;
  const widenedCall: CallText = typed
    ? call
    : {
        ...call,
        args: call.args.map(widened),
        kwargs: Object.fromEntries(Object.entries(call.kwargs).map(([k, v]) => [k, widened(v)])),
      };
  const arrays = new Map<string, NDArray>();
  for (const [name, spec] of call.tensors) {
    const given = GIVEN_VALUES[call.text]?.[arrays.size];
    const seed = streamOf(`${call.text} ${arrays.size}`);
    const single = call.target === SINGLE && isFloat(spec.dtype);
    const count = COUNTS.test(call.target) && spec.shape.length === 0;
    const dtype = typed ? spec.dtype : single || count ? 'f32' : wide(spec.dtype);
    arrays.set(
      name,
      given === undefined
        ? draw(single || typed ? { ...spec, init: 'few' } : spec, seed, special, dtype)
        : fromList(spec.shape, given, dtype),
    );
  }
  return { text: `${special ? 'special values: ' : ''}${call.text}`, call: widenedCall, arrays };
}

/** Elementwise functions of one float tensor, on NaN, infinities, zeros and ties. */
const specialCalls: CallText[] = operators.records
  .filter((r) => r.cls === 'pointwise' && /^aten\.[a-z0-9_]*[a-z0-9]\.default$/.test(r.name))
  .filter(
    (r) =>
      r.schema.filter((s) => s.required).length === 1 &&
      !/^aten\.(bitwise_|copy|clone|contiguous|clamp)/.test(r.name),
  )
  .map((r) => parseCall(`${r.name}(x[24])`));

/** The other dialects in the table have no such samples: their names are read as those of ATen. */
const torchTarget = (target: string): boolean =>
  /^(aten|prims)\./.test(operators.get(target)?.name ?? '');

/** Every sample of an ATen or prims operator, each once. */
export const kernelSamples: readonly KernelSample[] = [
  ...[...samples.filter((c) => torchTarget(c.target)), ...moreKernelSamples.map(parseCall)]
    .filter((c, i, all) => all.findIndex((other) => other.text === c.text) === i)
    .map((c) => sample(c)),
  ...specialCalls.map((c) => sample(c, true)),
];

/** Arguments with arrays in the place of values. */
export function evaluatedArgs(s: KernelSample): {
  args: EvaluatedArg[];
  kwargs: Record<string, EvaluatedArg>;
} {
  const convert = (arg: Arg): EvaluatedArg => {
    if (Array.isArray(arg)) return (arg as readonly Arg[]).map(convert);
    if (arg === null || typeof arg !== 'object' || !('kind' in arg)) return arg as EvaluatedArg;
    if (arg.kind === 'value') {
      const array = s.arrays.get(arg.name);
      if (array === undefined) throw new Error(`no array ${arg.name}`);
      return array;
    }
    if (arg.kind === 'graph' || arg.kind === 'slice')
      throw new Error(`${s.text}: a ${arg.kind} argument`);
    return arg;
  };
  return {
    args: s.call.args.map(convert),
    kwargs: Object.fromEntries(Object.entries(s.call.kwargs).map(([k, v]) => [k, convert(v)])),
  };
}

/** Arrays in the order in which the operator counts its inputs. */
export function inputArrays(s: KernelSample): NDArray[] {
  const record = operators.get(s.call.target);
  if (record === undefined) throw new Error(`no record ${s.call.target}`);
  return tensorInputs(record, s.call.args, s.call.kwargs).map(
    (name) => s.arrays.get(name) as NDArray,
  );
}

/** Runs one call on arrays: takes a call and operand values, gives result arrays. */

import { internalError, ShardwrightError } from '../../errors.ts';
import type { Arg, TensorType, ValueType } from '../../graph/types.ts';
import { getOwn, ref } from '../../graph/value.ts';
import { flat, NDArray } from '../../ndarray/array.ts';
import { isComplexType, ofParts, partsOf } from '../../ndarray/complex.ts';
import { map, wrapInteger } from '../../ndarray/elementwise.ts';
import { type RandomStream, streamOf } from '../../ndarray/random.ts';
import type { TensorMeta, TypedContext } from '../record/call.ts';
import { tensorInputs } from '../record/context.ts';
import { bind } from '../record/infer.ts';
import type { EvaluatedArg } from '../record/kernel.ts';
import type { OperatorRecord } from '../record/record.ts';
import type { OperatorTable } from '../record/table.ts';
import { complexKernelOf, isComponentwise } from './elementwise/complex.ts';
import { kernelOf } from './table.ts';

export type { EvaluatedArg } from '../record/kernel.ts';

/** One array; or several, of which a masked-off one is null. */
export type EvaluatedResult = NDArray | readonly (NDArray | null)[] | null;

const NO_SEED: RandomStream = { seed: 0, stream: 0 };

/**
 * Evaluates one operator call in float64. Arguments are checked and results typed by the operator's
 * own inference; the values are those of PyTorch in float64, exact for integers up to 2^53 (beyond,
 * an error). In-place operators return the new value and change nothing.
 *
 * @param random numbers for random operators without a key (`generator`); default seed 0, stream 0
 * @param stated type of the result in the graph, where the operator has several forms
 * @throws E_TYPE when the arguments do not fit, E_VALUE when a value is outside of what the
 *   operator takes, E_NO_KERNEL when there is no such operator or it has no kernel
 */
export function evaluateCall(
  table: OperatorTable,
  target: string,
  args: readonly EvaluatedArg[],
  kwargs: Readonly<Record<string, EvaluatedArg>> = {},
  random: RandomStream = NO_SEED,
  stated?: ValueType,
): EvaluatedResult {
  const record = table.get(target);
  if (record === undefined) throw noKernel(target, record);
  const arrays: NDArray[] = [];
  const names = new Map<NDArray, string>();
  const named = (arg: EvaluatedArg): Arg => {
    if (isList(arg)) return arg.map(named);
    if (typeof arg === 'function') return { kind: 'graph', name: 'body' };
    if (!(arg instanceof NDArray)) return arg;
    let name = names.get(arg);
    if (name === undefined) {
      name = String(arrays.length);
      arrays.push(arg);
      names.set(arg, name);
    }
    return ref(name);
  };
  const call = { target, args: args.map(named), kwargs: mapValues(kwargs, named) };
  const array = (name: string): NDArray => arrays[Number(name)];
  const ctx = bind(table, { ...call, type: stated }, (name) => typeOf(array(name)));
  if (ctx === undefined) throw noKernel(target, record);
  const complex = [...ctx.inputs, ...ctx.outputs].some(
    (meta) => meta !== null && isComplexType(meta.dtype),
  );
  if (
    complex &&
    (record.kernel ?? complexKernelOf(record.name)) === undefined &&
    record.cls !== 'factory'
  )
    return evaluateParts(table, record, ctx, { target, args, kwargs }, random);
  const real = record.kernel ?? kernelOf(record.name);
  const kernel = complex
    ? (complexKernelOf(record.name) ?? real)
    : (real ?? complexKernelOf(record.name));
  if (kernel === undefined) throw noKernel(target, record);
  const inputs = tensorInputs(record, call.args, call.kwargs).map(array);
  const argument = (name: string): EvaluatedArg | undefined => {
    const at = record.schema.filter((s) => !s.kwargOnly).findIndex((s) => s.name === name);
    return at >= 0 && at < args.length ? args[at] : getOwn(kwargs, name);
  };
  const results = kernel({
    ctx,
    inputs,
    random: keyed(random, getOwn(kwargs, 'generator')),
    argument,
  });
  if (results.length < ctx.outputs.length)
    throw internalError(`${record.name} gives ${results.length} of ${ctx.outputs.length} results`);
  const settled = ctx.outputs.map((meta, i) =>
    meta === null ? null : settle(record, i, results[i], meta),
  );
  return record.results === 'tuple' ? settled : (settled[0] ?? null);
}

/** A call that treats both parts of complex numbers the same way, on one part after the other. */
function evaluateParts(
  table: OperatorTable,
  record: OperatorRecord,
  ctx: TypedContext,
  call: {
    target: string;
    args: readonly EvaluatedArg[];
    kwargs: Readonly<Record<string, EvaluatedArg>>;
  },
  random: RandomStream,
): EvaluatedResult {
  if (!isComponentwise(record))
    throw new ShardwrightError(
      'E_NO_KERNEL',
      `${record.name} has no kernel for complex numbers, so it cannot be evaluated`,
    );
  const [real, imaginary] = [0, 1].map((k) => {
    const part = (arg: EvaluatedArg): EvaluatedArg =>
      isList(arg) ? arg.map(part) : arg instanceof NDArray ? (partsOf(arg)[k] ?? arg) : arg;
    const kwargs = Object.fromEntries(
      Object.entries(call.kwargs).map(([key, arg]) => [key, part(arg)]),
    );
    const result = evaluateCall(table, call.target, call.args.map(part), kwargs, random);
    return result === null || result instanceof NDArray ? [result] : result;
  });
  const joined = ctx.outputs.map((meta, i) => {
    const [re, im] = [real[i], imaginary[i]];
    return meta === null || re === null || im === null ? null : ofParts([re, im], meta.dtype);
  });
  return record.results === 'tuple' ? joined : joined[0];
}

/**
 * A call with a key draws by the key alone, so that the same call recomputed, in a backward pass or
 * before a loop, draws the same numbers; without one it draws from its own stream.
 */
function keyed(random: RandomStream, key: EvaluatedArg | undefined): RandomStream {
  return key instanceof NDArray
    ? { ...random, stream: streamOf(`key ${flat(key).join(' ')}`) }
    : random;
}

/** Tells whether calls of an operator can be evaluated, on real or on complex numbers. */
export function hasKernel({ name, kernel }: OperatorRecord): boolean {
  return (kernel ?? kernelOf(name) ?? complexKernelOf(name)) !== undefined;
}

/** Canonical names of the operators of a table that cannot be evaluated, sorted. */
export function operatorsWithoutKernel(table: OperatorTable): string[] {
  return table.records.flatMap((r) => (hasKernel(r) ? [] : [r.name])).sort();
}

function noKernel(target: string, record: OperatorRecord | undefined): ShardwrightError {
  if (record === undefined)
    return new ShardwrightError(
      'E_NO_KERNEL',
      `there is no operator ${target}, so it cannot be evaluated`,
      {
        hint: 'define it with a record, or evaluate a graph without it',
      },
    );
  return new ShardwrightError(
    'E_NO_KERNEL',
    `${record.name} has no kernel, so it cannot be evaluated`,
  );
}

/** The result under its inferred type; integers and bools are checked to be such. */
function settle(
  record: OperatorRecord,
  index: number,
  x: NDArray | null | undefined,
  meta: TensorMeta,
): NDArray {
  if (x === null || x === undefined) throw internalError(`${record.name} gives no result ${index}`);
  if (x.shape.length !== meta.shape.length || x.shape.some((n, d) => n !== meta.shape[d]))
    throw internalError(
      `result ${index} of ${record.name} has shape [${x.shape.join(', ')}], inferred ` +
        `[${meta.shape.join(', ')}]`,
    );
  const named = x.as(meta.dtype);
  if (named.kind === 'float' || named.kind === 'complex' || record.cls === 'view') return named;
  return checked(record, named);
}

/** The least i64 is held exactly; what is added to it is less than float64 tells apart there. */
const LEAST = -(2 ** 63);

function checked(record: OperatorRecord, x: NDArray): NDArray {
  let wraps = false;
  for (const v of x.strides.every((s) => s === 0) && x.size > 0 ? [x.storage[x.offset]] : flat(x)) {
    if (x.kind === 'bool' ? v !== 0 && v !== 1 : !Number.isInteger(v))
      throw internalError(`${record.name} gives ${v} as ${x.dtype}`);
    if (Math.abs(v) > Number.MAX_SAFE_INTEGER && v !== LEAST)
      throw new ShardwrightError(
        'E_VALUE',
        `${record.name} gives ${v}, an integer beyond what is held exactly (2^53)`,
      );
    wraps ||= wrapInteger(v, x.dtype) !== v || Object.is(v, -0);
  }
  return wraps ? map(x, (v) => wrapInteger(v, x.dtype) + 0) : x;
}

function typeOf(x: NDArray): TensorType {
  return { kind: 'tensor', dtype: x.dtype, shape: x.shape };
}

function isList(arg: EvaluatedArg): arg is readonly EvaluatedArg[] {
  return Array.isArray(arg);
}

function mapValues(
  from: Readonly<Record<string, EvaluatedArg>>,
  f: (arg: EvaluatedArg) => Arg,
): Record<string, Arg> {
  const out: Record<string, Arg> = {};
  for (const [key, value] of Object.entries(from)) out[key] = f(value);
  return out;
}

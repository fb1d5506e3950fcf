/**
 * The base of the tensor class: what a traced tensor shows, and how every JavaScript construct that
 * would need its values is refused. Truthiness and identity cannot be trapped; the lint rule and
 * the source-level front end see to those.
 */

import { checkKinds } from '../../arguments.ts';
import { didYouMean, isReadable, valueText as kindText } from '../../errors.ts';
import { baseName } from '../../graph/build.ts';
import type { DType, FloatLiteral } from '../../graph/types.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import {
  type Recorder,
  runningRecorder,
  stopping,
  type TraceArg,
  type TracedValue,
} from '../record/recorder.ts';
import { valueText } from '../record/typed-value.ts';
import { type Size, Sym } from '../sizes/sizes.ts';

/**
 * The value behind a tensor; a table and not a property, so that nothing of it can be read or
 * copied.
 */
const values = new WeakMap<object, TracedValue>();

/** The value behind a traced tensor, undefined for anything else. */
export function tracedValue(value: unknown): TracedValue | undefined {
  return typeof value === 'object' && value !== null ? values.get(value) : undefined;
}

/**
 * The tensor itself. @throws E_TRACE_INPUT where it is none, as a misspelt input is undefined
 *
 * @param what what the value is for
 */
export function needTensor<T extends TensorCore>(value: T, what: string): T {
  if (tracedValue(value) === undefined) throw noOperand(value, what);
  return value;
}

function noOperand(value: unknown, what: string): Error {
  return refusal(
    'E_TRACE_INPUT',
    `${what} is ${isObject(value) ? 'no traced tensor' : kindText(value)}`,
    { source: sourcePosition(), path: runningRecorder()?.trace.path },
    { hint: 'pass a traced tensor: an input, or what is made of inputs.' },
  );
}

function isObject(value: unknown): boolean {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}

/** An argument of an operator as the user writes it. */
export type Argument =
  | TensorCore
  | Sym
  | number
  | bigint
  | string
  | boolean
  | null
  | FloatLiteral
  | { readonly kind: 'dtype'; readonly dtype: DType }
  | readonly Argument[];

export abstract class TensorCore {
  /** Name of the node in the graph. */
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Size[];
  readonly requiresGrad: boolean;

  /** This constructor is not part of the public surface. */
  constructor(value: TracedValue) {
    checkKinds('Tensor', { value: [value, ['name', 'dtype', 'shape', 'recorder']] });
    this.name = value.name;
    this.dtype = value.dtype;
    this.shape = Object.isFrozen(value.shape) ? value.shape : Object.freeze([...value.shape]);
    this.requiresGrad = value.requiresGrad;
    values.set(this, value);
    Object.freeze(this);
    if (!value.recorder.trace.settings.proxy) return;
    const guarded = new Proxy(this, HANDLER);
    values.set(guarded, value);
    return guarded;
  }

  /** Number of dims. */
  get rank(): number {
    return this.shape.length;
  }
  /**
   * Size of a dim; negative dims count from the end. @throws RangeError when there is no such dim
   */
  size(dim: number): Size {
    const size = this.shape.at(dim);
    if (size === undefined)
      throw refuse('E_SHAPE', this, `has no dim ${dim}`, 'dims go from -rank to rank - 1.');
    return size;
  }

  /** Records an operator with this tensor among its arguments. */
  protected op(
    target: string,
    args: readonly Argument[],
    kwargs: Readonly<Record<string, Argument>> = {},
  ): this {
    return this.made(
      this.recorder(target).call(
        target,
        args.map((arg) => traceArg(arg)),
        traceArgs(kwargs),
      ),
    );
  }

  /** Records an operator with several results and reads those numbered `picks`. */
  protected ops(target: string, args: readonly Argument[], picks?: readonly number[]): this[] {
    return this.recorder(target)
      .calls(
        target,
        args.map((arg) => traceArg(arg)),
        {},
        picks,
      )
      .map((value) => this.made(value));
  }

  private made(value: TracedValue): this {
    const Class = this.constructor as new (value: TracedValue) => this;
    return new Class(value);
  }

  private recorder(target: string): Recorder {
    const recorder = runningRecorder();
    if (recorder !== undefined) return recorder;
    const made = tracedValue(this)?.source ?? 'an unknown place';
    throw refusal(
      'E_TRACE_LEAK',
      `${baseName(target)}: tensor %${this.name}, made at ${made}, belongs to a trace that ` +
        'has ended; it was used',
      { source: sourcePosition() },
      {
        hint: 'a traced tensor lives only inside the function that is traced.',
      },
    );
  }

  /**
   * The one value of a tensor, true as 1: ends a region under the policy `regions`, else there are
   * no values while tracing.
   *
   * @throws E_TRACE_HOST_READ; E_SHAPE under `regions` when the tensor may have another number of
   *   elements than one
   */
  item(): number {
    const { shape } = this;
    return hostRead(this, 'item()', () => {
      if (shape.some((size) => size !== 1))
        throw refuse(
          'E_SHAPE',
          this,
          'has not one element, item() reads one',
          'reduce or select first, or use toArray().',
        );
    })[0];
  }
  /** All values, row by row, true as 1; as `item()`. @throws E_TRACE_HOST_READ */
  toArray(): readonly number[] {
    return hostRead(this, 'toArray()', () => undefined);
  }

  [Symbol.toPrimitive](hint: string): never {
    throw coercion(
      this,
      `a JavaScript ${hint === 'default' ? 'number or string' : hint}`,
      COERCION_HINTS[hint] ?? '',
    );
  }
  [Symbol.iterator](): never {
    throw coercion(
      this,
      'an iterable',
      'use `t.select(0, i)`, `t.unbind(0)` or `t.split(size, dim)`.',
    );
  }
  [Symbol.asyncIterator](): never {
    throw coercion(
      this,
      'an iterable',
      'use `t.select(0, i)`, `t.unbind(0)` or `t.split(size, dim)`.',
    );
  }
  toJSON(): never {
    throw coercion(this, 'JSON', 'write `t.name` or `t.shape` instead.');
  }
  valueOf(): never {
    throw coercion(this, 'a primitive value', COERCION_HINTS.number);
  }
  toString(): never {
    throw coercion(this, 'text', COERCION_HINTS.string);
  }
  get [Symbol.toStringTag](): string {
    return 'Tensor';
  }
  /** The text that `console.log` shows: `%mm: f32[4, 8]`. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return describe(this);
  }
}

/** `%mm: f32[4, 8]`. */
export function describe(tensor: TensorCore): string {
  const value = tracedValue(tensor);
  return value === undefined ? 'tensor' : `%${value.name}: ${valueText(value)}`;
}

const COERCION_HINTS: Readonly<Record<string, string>> = {
  number: 'use methods: `a.add(b)`, `a.mul(b)`, `a.lt(b)`; `where` or `cond` to choose by value.',
  default: 'use methods: `a.add(b)`, `a.eq(b)`; `where` or `cond` to choose by value.',
  string: 'use `t.select(0, i)` to index, `t.name` for text.',
};

function coercion(tensor: TensorCore, as: string, hint: string): Error {
  return refuse('E_TRACE_COERCE', tensor, `was used as ${as}`, hint);
}

function hostRead(tensor: TensorCore, what: string, check: () => void): readonly number[] {
  const control = runningRecorder()?.trace.settings.control;
  if (control?.read !== undefined) {
    check();
    return control.read(tensor, { kind: what, position: sourcePosition() ?? 'an unknown place' });
  }
  throw refuse(
    'E_TRACE_HOST_READ',
    tensor,
    `has no values while tracing, ${what} cannot read them`,
    'return the tensor, choose by value with `where` or `cond`, or run the program in ' +
      'regions (`captureRegions`).',
  );
}

function refuse(code: string, tensor: TensorCore, what: string, hint: string): Error {
  const path = tracedValue(tensor)?.recorder.trace.path;
  const place = { source: sourcePosition(), path };
  const error = refusal(code, `traced tensor ${describe(tensor)} ${what}`, place, {
    node: tensor.name,
    hint,
  });
  // A shape is as wrong with values as without; what needs the values would have gone well with
  // them.
  return code === 'E_SHAPE' ? error : stopping(error);
}

/** Property traffic that a frozen object would let pass in silence. */
const HANDLER: ProxyHandler<TensorCore> = {
  get(target, key, receiver) {
    // Symbols are asked for by the language and by printers; `then` by await.
    if (typeof key === 'symbol' || key === 'then' || Reflect.has(target, key))
      return Reflect.get(target, key, receiver) as unknown;
    throw property(target, key, 'was read');
  },
  has(target, key) {
    throw property(target, key, 'was looked for');
  },
  set(target, key) {
    throw property(
      target,
      key,
      'was assigned',
      'a traced tensor never changes: name the result of an operator.',
    );
  },
  defineProperty(target, key) {
    throw property(
      target,
      key,
      'was defined',
      'a traced tensor never changes: name the result of an operator.',
    );
  },
  deleteProperty(target, key) {
    throw property(target, key, 'was deleted', 'a traced tensor never changes.');
  },
  getOwnPropertyDescriptor(target, key) {
    throw property(target, key, 'was inspected');
  },
  ownKeys(target) {
    throw refuse(
      'E_TRACE_COERCE',
      target,
      'was enumerated or spread ({...t}, Object.keys, for...in)',
      'pass the tensor itself, or build the record from its name and shape.',
    );
  },
  setPrototypeOf(target) {
    throw refuse(
      'E_TRACE_COERCE',
      target,
      'was given another prototype',
      'a traced tensor never changes.',
    );
  },
};

function property(tensor: TensorCore, key: string | symbol, what: string, hint?: string): Error {
  const name = String(key);
  const near = name.length < 3 ? [] : didYouMean(name, methodNames(tensor));
  const index = /^-?\d+$/.test(name);
  return refuse(
    'E_TRACE_COERCE',
    tensor,
    `has no property '${name}', which ${what}`,
    hint ??
      (index
        ? `use \`t.select(0, ${name})\` or \`t.slice(0, ${name})\`.`
        : near.length > 0
          ? `did you mean ${near.map((n) => `'${n}'`).join(' or ')}?`
          : 'tensors have methods: add, matmul, view, sum ...; shape, dtype, rank, name can be ' +
            'read.'),
  );
}

function methodNames(tensor: TensorCore): string[] {
  const names = new Set<string>();
  for (
    let p: unknown = Object.getPrototypeOf(tensor);
    p !== null && p !== Object.prototype;
    p = Object.getPrototypeOf(p)
  )
    for (const name of Object.getOwnPropertyNames(p)) names.add(name);
  return [...names];
}

/** Lists in lists that an argument may have; graphs have the same limit. */
const MOST_NESTED = 256;

/** @throws E_TRACE_INPUT for what no operator takes, as JavaScript lets through */
function traceArg(arg: Argument, depth = 0): TraceArg {
  if (arg === undefined || typeof arg === 'function' || typeof arg === 'symbol')
    throw noOperand(arg, 'an argument');
  if (typeof arg !== 'object' || arg === null) return arg;
  const value = tracedValue(arg);
  if (value !== undefined) return value;
  if (depth > MOST_NESTED || !isReadable(arg)) throw noOperand(arg, 'an argument');
  // By position: a list may have gaps, which `map` passes over.
  if (isList(arg)) return Array.from(arg, (item) => traceArg(item, depth + 1));
  if (!(arg instanceof Sym || 'kind' in arg)) throw noOperand(arg, 'an argument');
  return arg;
}

function traceArgs(kwargs: Readonly<Record<string, Argument>>): Record<string, TraceArg> {
  const traced: Record<string, TraceArg> = {};
  for (const key of Object.keys(kwargs)) traced[key] = traceArg(kwargs[key]);
  return traced;
}

function isList(arg: Argument): arg is readonly Argument[] {
  return Array.isArray(arg);
}

export { traceArg, traceArgs };

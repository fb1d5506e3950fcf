/**
 * Binds a call to its operator's schema and gives the context that inference, rules and costs read.
 */

import { ShardwrightError } from '../../errors.ts';
import type { Arg, DType, Literal } from '../../graph/types.ts';
import { isList, isRef } from '../../graph/value.ts';
import type { OpContext, OperatorRecord, ScalarArg, TensorMeta, TypedContext } from './record.ts';
import type { ArgSchema } from './schema.ts';

/** Resolves a value reference of a call to its tensor meta; throws if the value is not a tensor. */
type ResolveValue = (name: string) => TensorMeta;

type Bound = TensorMeta | readonly (TensorMeta | null)[] | Literal | readonly Arg[] | undefined;

/**
 * Binds a call to its operator's schema: names positional arguments, fills defaults, flattens the
 * tensor inputs.
 *
 * @throws E_TYPE when arguments are missing, unknown or of the wrong kind
 */
export function bindCall(
  record: OperatorRecord,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
  resolve: ResolveValue,
): OpContext {
  const given = namedArguments(record, args, kwargs);
  const binder = new Binder(record.name, resolve);
  for (const s of record.schema) {
    const arg = given.get(s.name);
    if (arg !== undefined) binder.bind(s, arg);
    else if (s.required) throw callError(record.name, `argument '${s.name}' is missing`);
  }
  return binder.call(record.schema);
}

function callError(target: string, message: string): ShardwrightError {
  return new ShardwrightError('E_TYPE', `${target}: ${message}`);
}

/** The arguments of a call by name. */
function namedArguments(
  { schema, name: target }: OperatorRecord,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
): Map<string, Arg> {
  const positional = schema.filter((s) => !s.kwargOnly);
  if (args.length > positional.length)
    throw callError(target, `takes ${positional.length} positional arguments, got ${args.length}`);
  const given = new Map<string, Arg>();
  args.forEach((arg, i) => given.set(positional[i].name, arg));
  for (const [key, value] of Object.entries(kwargs)) {
    const known = schema.some((s) => s.name === key);
    // Factories are printed with device, layout and the like, random operators with a generator;
    // they mean nothing to a plan.
    if (!known) {
      if (IGNORED_KEYWORDS.has(key)) continue;
      throw callError(target, `unknown argument '${key}'`);
    }
    if (given.has(key)) throw callError(target, `argument '${key}' is given twice`);
    given.set(key, value);
  }
  return given;
}

/** A tensor of a list, and its number among the inputs; null for None. */
type ListMember = { readonly meta: TensorMeta; readonly index: number } | null;

/** Binds the arguments of one call in schema order: tensors are flattened, others kept. */
class Binder {
  private readonly inputs: TensorMeta[] = [];
  private readonly index = new Map<string, number>();
  private readonly lists = new Map<string, readonly ListMember[]>();
  private readonly bound = new Map<string, Bound>();

  constructor(
    private readonly target: string,
    private readonly resolve: ResolveValue,
  ) {}

  call(schema: readonly ArgSchema[]): OpContext {
    const { index, lists, bound } = this;
    return new Call(this.target, schema, { index, lists, bound }, this.inputs);
  }

  bind({ name, type }: ArgSchema, arg: Arg): void {
    if (!type.startsWith('Tensor') || (type === 'TensorOrScalar' && isNumber(arg)))
      this.bound.set(name, arg as Bound);
    else if (type.includes('[]')) this.lists.set(name, this.members(name, arg));
    else if (arg !== null) {
      const meta = this.tensorOf(arg);
      if (meta === undefined) throw callError(this.target, `argument '${name}' must be a tensor`);
      this.index.set(name, this.inputs.push(meta) - 1);
    } else if (!type.endsWith('?'))
      throw callError(this.target, `argument '${name}' must be a tensor, got None`);
  }

  private members(name: string, arg: Arg): readonly ListMember[] {
    const refused = `argument '${name}' must be a list of tensors`;
    if (!isList(arg)) throw callError(this.target, refused);
    return arg.map((member) => {
      if (member === null) return null;
      const meta = this.tensorOf(member);
      if (meta === undefined) throw callError(this.target, refused);
      return { meta, index: this.inputs.push(meta) - 1 };
    });
  }

  private tensorOf(arg: Arg): TensorMeta | undefined {
    return arg !== null && isRef(arg) ? this.resolve(arg.name) : undefined;
  }
}

function isNumber(arg: Arg): boolean {
  if (typeof arg === 'number' || typeof arg === 'bigint' || typeof arg === 'boolean') return true;
  return isLiteral(arg, 'float') || isLiteral(arg, 'size');
}

const IGNORED_KEYWORDS = new Set([
  'device',
  'layout',
  'pin_memory',
  'memory_format',
  'non_blocking',
  'requires_grad',
  'generator',
]);

/** The arguments of a call by name: numbers of tensors, lists of them, and all else. */
interface BoundArguments {
  readonly index: ReadonlyMap<string, number>;
  readonly lists: ReadonlyMap<string, readonly ListMember[]>;
  readonly bound: ReadonlyMap<string, Bound>;
}

class Call implements TypedContext {
  readonly outputs: readonly (TensorMeta | null)[];

  constructor(
    readonly target: string,
    private readonly schema: readonly ArgSchema[],
    private readonly args: BoundArguments,
    readonly inputs: readonly TensorMeta[],
    outputs: readonly (TensorMeta | null)[] = [],
  ) {
    this.outputs = outputs;
  }

  /** The same call at other sizes: results known, or local shards. */
  at(inputs: readonly TensorMeta[], outputs: readonly (TensorMeta | null)[]): TypedContext {
    return new Call(this.target, this.schema, this.args, inputs, outputs);
  }

  tensor(name: string): TensorMeta | undefined {
    const i = this.indexOf(name);
    return i < 0 ? undefined : this.inputs[i];
  }
  indexOf(name: string): number {
    return this.args.index.get(name) ?? -1;
  }
  list(name: string): readonly ListMember[] {
    return (this.args.lists.get(name) ?? []).map((m) =>
      m === null ? null : { meta: this.inputs[m.index], index: m.index },
    );
  }
  int(name: string): number {
    return this.optionalInt(name) ?? this.fail(`argument '${name}' must be an integer`);
  }
  ints(name: string): readonly number[] {
    return this.optionalInts(name) ?? this.fail(`argument '${name}' must be a list of integers`);
  }
  optionalInt(name: string): number | undefined {
    const value = this.value(name);
    if (value === null || value === undefined) return undefined;
    return this.asInt(value, name);
  }
  optionalInts(name: string): readonly number[] | undefined {
    const value = this.value(name);
    if (value === null || value === undefined) return undefined;
    if (Array.isArray(value)) return value.map((v) => this.asInt(v, name));
    return [this.asInt(value, name)];
  }
  number(name: string): number {
    return this.optionalNumber(name) ?? this.fail(`argument '${name}' must be a number`);
  }
  optionalNumber(name: string): number | undefined {
    return this.scalar(name)?.value;
  }
  bool(name: string): boolean {
    const value = this.value(name);
    if (typeof value === 'boolean') return value;
    if (typeof value === 'number') return value !== 0;
    return this.fail(`argument '${name}' must be True or False`);
  }
  bools(name: string): readonly boolean[] {
    const value = this.value(name);
    if (!Array.isArray(value) || !value.every((v) => typeof v === 'boolean'))
      return this.fail(`argument '${name}' must be a list of True and False`);
    return value;
  }
  text(name: string): string {
    const value = this.value(name);
    return typeof value === 'string' ? value : this.fail(`argument '${name}' must be a string`);
  }
  dtype(name: string): DType | undefined {
    const value = this.value(name);
    if (value === null || value === undefined) return undefined;
    if (isLiteral(value, 'dtype')) return value.dtype;
    return this.fail(`argument '${name}' must be a dtype`);
  }
  scalar(name: string): ScalarArg | undefined {
    const value = this.value(name);
    if (value === null || value === undefined) return undefined;
    if (typeof value === 'boolean') return { value: value ? 1 : 0, kind: 'bool' };
    if (typeof value === 'number') {
      const schema = this.schema.find((s) => s.name === name);
      const float = !this.args.bound.has(name) && schema?.defaultIsFloat === true;
      return { value, kind: float ? 'float' : 'int' };
    }
    if (typeof value === 'bigint') return { value: Number(value), kind: 'int' };
    if (isLiteral(value, 'float')) return { value: value.value, kind: 'float' };
    if (isLiteral(value, 'size') && value.size.example !== undefined)
      return { value: value.size.example, kind: 'int' };
    return this.fail(`argument '${name}' must be a number`);
  }
  has(name: string): boolean {
    if (this.args.index.has(name) || this.args.lists.has(name)) return true;
    const value = this.value(name);
    return value !== null && value !== undefined;
  }
  fail(message: string, hint?: string): never {
    throw new ShardwrightError(
      'E_TYPE',
      `${this.target}: ${message}`,
      hint === undefined ? {} : { hint },
    );
  }

  private value(name: string): Bound | null {
    if (this.args.bound.has(name)) return this.args.bound.get(name) ?? null;
    const schema = this.schema.find((s) => s.name === name);
    if (schema === undefined)
      throw new ShardwrightError(
        'E_INTERNAL',
        `internal: ${this.target} has no argument '${name}'`,
      );
    return schema.default ?? null;
  }
  private asInt(value: unknown, name: string): number {
    if (typeof value === 'number') return value;
    if (typeof value === 'boolean') return value ? 1 : 0;
    if (typeof value === 'bigint') {
      const limit = BigInt(Number.MAX_SAFE_INTEGER);
      return value > limit
        ? Number.MAX_SAFE_INTEGER
        : value < -limit
          ? -Number.MAX_SAFE_INTEGER
          : Number(value);
    }
    if (isLiteral(value, 'size') && value.size.example !== undefined) return value.size.example;
    return this.fail(`argument '${name}' must be an integer`);
  }
}

function isLiteral<K extends 'dtype' | 'float' | 'size'>(
  value: unknown,
  kind: K,
): value is Extract<Literal, { kind: K }> {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === kind;
}

/** The call with its results typed. */
export function withOutputs(ctx: OpContext, outputs: readonly (TensorMeta | null)[]): TypedContext {
  return asCall(ctx).at(ctx.inputs, outputs);
}

/** The call at other sizes, such as those of the largest shard. */
export function atSizes(
  ctx: OpContext,
  inputs: readonly TensorMeta[],
  outputs: readonly (TensorMeta | null)[],
): TypedContext {
  return asCall(ctx).at(inputs, outputs);
}

function asCall(ctx: OpContext): Call {
  if (!(ctx instanceof Call))
    throw new ShardwrightError('E_INTERNAL', 'internal: context was not made by bindCall');
  return ctx;
}

/**
 * Names of the tensor inputs of a call in schema order, as `OpContext.inputs` counts them:
 * positional and keyword tensors, members of tensor lists, absent ones left out. A name occurs as
 * often as it is used.
 */
export function tensorInputs(
  record: OperatorRecord,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
): string[] {
  const names: string[] = [];
  const take = (arg: Arg | undefined): void => {
    if (Array.isArray(arg)) arg.forEach(take);
    else if (arg !== null && typeof arg === 'object' && 'kind' in arg && arg.kind === 'value')
      names.push(arg.name);
  };
  let position = 0;
  for (const s of record.schema) {
    const positional: Arg | undefined = s.kwargOnly ? undefined : args[position++];
    if (s.type.startsWith('Tensor'))
      take(positional ?? (Object.hasOwn(kwargs, s.name) ? kwargs[s.name] : undefined));
  }
  return names;
}

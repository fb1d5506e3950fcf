/**
 * Types of calls. A model repeats its layers, so a call is looked up by content: target, literal
 * arguments and the types of its tensor inputs. Equal calls give the SAME result object, and equal
 * tensor types are one object, so later stages may compare by identity.
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Arg, DType, TensorType, ValueType } from '../../graph/types.ts';
import { bindCall, withOutputs } from './context.ts';
import type { OpContext, OperatorRecord, TensorMeta, TypedContext } from './record.ts';
import type { OperatorTable } from './table.ts';

/** The part of a graph node that decides its type. */
export interface CallNode {
  /** For error messages. */
  readonly name?: string;
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  /**
   * The result that the graph states: it chooses among the forms that an operator has on different
   * devices.
   */
  readonly type?: ValueType | undefined;
  /** Number of that form, where it is known: see `formOf`. */
  readonly form?: number;
}

/** Type of a named value of the graph. */
type TypeOf = (name: string) => ValueType;

/**
 * Type of a call's result: a tensor, or a tuple for operators that are read through getitem; `none`
 * for a result that the call masks off. Symbolic sizes count at their example size. Undefined if
 * the table has no such operator.
 *
 * @throws E_TYPE, with the node, when the arguments do not fit the operator
 */
export function inferCall(
  table: OperatorTable,
  node: CallNode,
  typeOf: TypeOf,
): ValueType | undefined {
  checkKinds('inferCall', {
    table: [table, 'operators'],
    node: [node, ['target', 'args', 'kwargs']],
    typeOf: [typeOf, 'function'],
  });
  if (node.target === 'operator.getitem') return getitem(node, typeOf);
  return resolve(table, node, typeOf)?.type;
}

/**
 * A call bound to its operator's schema, with result types: what rules, costs and kernels read.
 * Undefined if the table has no such operator (`operator.getitem` is structural and has none).
 *
 * @throws E_TYPE, with the node, when the arguments do not fit the operator
 */
export function bind(
  table: OperatorTable,
  node: CallNode,
  typeOf: TypeOf,
): TypedContext | undefined {
  return resolve(table, node, typeOf)?.context;
}

interface Resolved {
  readonly type: ValueType;
  readonly context: TypedContext;
}

/** Lives as long as the table whose records it was computed from. */
const calls = new WeakMap<OperatorTable, Map<string, Resolved>>();

function resolve(table: OperatorTable, node: CallNode, typeOf: TypeOf): Resolved | undefined {
  const record = table.get(node.target);
  if (record === undefined) return undefined;
  let known = calls.get(table);
  if (known === undefined) {
    known = new Map();
    calls.set(table, known);
  }
  const stated = record.variants === undefined ? undefined : (node.form ?? node.type);
  const key =
    stated === undefined
      ? callKey(node, typeOf)
      : `${callKey(node, typeOf)}|${JSON.stringify(stated)}`;
  const hit = known.get(key);
  if (hit !== undefined) return hit;
  try {
    const made = infer(record, node, typeOf);
    known.set(key, made);
    return made;
  } catch (error) {
    if (error instanceof ShardwrightError && node.name !== undefined)
      throw error.with({ node: node.name, hint: 'correct the arguments of the call' });
    throw error;
  }
}

function infer(record: OperatorRecord, node: CallNode, typeOf: TypeOf): Resolved {
  const ctx = bindCall(record, node.args, node.kwargs, (name) => {
    const type = typeOf(name);
    if (type.kind === 'tensor') return metaOf(type, record.name);
    throw new ShardwrightError(
      'E_TYPE',
      `${record.name}: '${name}' must be a tensor, but is a ${type.kind} value`,
    );
  });
  const outputs = resultsOf(record, ctx, node).map((meta) =>
    meta === null ? null : shared(meta.dtype, meta.shape),
  );
  const context = withOutputs(
    ctx,
    outputs.map((type) => (type === null ? null : metaOf(type, record.name))),
  );
  const items = outputs.map((type): ValueType => type ?? NONE);
  if (record.results === 'tuple')
    return { type: Object.freeze({ kind: 'tuple', items: Object.freeze(items) }), context };
  return { type: items[0] ?? NONE, context };
}

/** The operator's own results, or the other form that is known or that the graph states. */
function resultsOf(
  record: OperatorRecord,
  ctx: OpContext,
  { type, form }: CallNode,
): readonly (TensorMeta | null)[] {
  const own = record.infer(ctx);
  if (record.variants === undefined || (form ?? type) === undefined) return own;
  const forms = [own, ...record.variants(ctx)];
  if (form !== undefined) return forms[form];
  const items = type?.kind === 'tuple' ? type.items : [type];
  return forms[formAmong(forms, items)];
}

/**
 * Number of the form that results have: 0 for the operator's own, then its variants in order. The
 * call has the same form at other sizes.
 *
 * @param results null for one that is masked off or that nothing reads
 */
export function formOf(
  record: OperatorRecord,
  ctx: OpContext,
  results: readonly (TensorMeta | null)[],
): number {
  if (record.variants === undefined) return 0;
  return formAmong([record.infer(ctx), ...record.variants(ctx)], results);
}

type Stated = Pick<TensorType, 'dtype' | 'shape'> | ValueType | null | undefined;

/** The first form that has the results as they are stated, else the operator's own. */
function formAmong(
  forms: readonly (readonly (TensorMeta | null)[])[],
  stated: readonly Stated[],
): number {
  return Math.max(
    0,
    forms.findIndex((form) => stated.every((item, k) => isStated(item, form[k]))),
  );
}

/** Tells whether a result is as it is stated; one that nothing reads has no stated type. */
function isStated(stated: Stated, meta: TensorMeta | null | undefined): boolean {
  if (stated === null || stated === undefined || !('shape' in stated)) return true;
  return (
    meta !== null &&
    meta !== undefined &&
    stated.dtype === meta.dtype &&
    stated.shape.length === meta.shape.length &&
    stated.shape.every((dim, d) => (typeof dim === 'number' ? dim : dim.example) === meta.shape[d])
  );
}

const NONE: ValueType = Object.freeze({ kind: 'none' });

/** `x[i]` of a tuple value. */
function getitem(node: CallNode, typeOf: TypeOf): ValueType {
  const [source, index] = node.args;
  const fail = (message: string): never => {
    throw new ShardwrightError('E_TYPE', `operator.getitem: ${message}`, {
      ...defined({ node: node.name }),
      hint:
        'getitem takes a value with several results and the number of one of them: getitem(x, ' +
        '0)',
    });
  };
  if (!isRef(source) || typeof index !== 'number') return fail('needs a value and an integer');
  const type = typeOf(source.name);
  if (type.kind !== 'tuple')
    return fail(`'${source.name}' has one result only (a ${type.kind} value)`);
  const i = index < 0 ? index + type.items.length : index;
  return (
    type.items[i] ??
    fail(`'${source.name}' has ${type.items.length} results, not one with number ${index}`)
  );
}

// ---- one object per tensor type
// -----------------------------------------------------------------------------

/**
 * Canonical objects of plain tensor types (dtype and concrete shape). A pure function of content
 * held for speed: nothing that a caller can observe depends on what was interned before.
 */
const types = new Map<string, Interned>();
const internedOf = new WeakMap<TensorType, Interned>();

interface Interned {
  readonly id: number;
  readonly type: TensorType;
  readonly meta: TensorMeta;
}

function shared(dtype: DType, shape: readonly number[]): TensorType {
  return intern(dtype, shape).type;
}

function intern(dtype: DType, shape: readonly number[]): Interned {
  const key = `${dtype}[${shape.join(',')}]`;
  let entry = types.get(key);
  if (entry === undefined) {
    const sizes = Object.freeze([...shape]);
    const type: TensorType = Object.freeze({ kind: 'tensor', dtype, shape: sizes });
    entry = { id: types.size, type, meta: Object.freeze({ dtype, shape: sizes }) };
    types.set(key, entry);
    internedOf.set(type, entry);
  }
  return entry;
}

function internType(type: TensorType): Interned | undefined {
  let entry = internedOf.get(type);
  if (entry !== undefined) return entry;
  const shape: number[] = [];
  for (const dim of type.shape) {
    const size = typeof dim === 'number' ? dim : dim.example;
    if (size === undefined) return undefined;
    shape.push(size);
  }
  entry = intern(type.dtype, shape);
  internedOf.set(type, entry);
  return entry;
}

function metaOf(type: TensorType, target: string): TensorMeta {
  const entry = internType(type);
  if (entry !== undefined) return entry.meta;
  const unknown = type.shape.filter((d) => typeof d !== 'number' && d.example === undefined);
  const names = unknown.map((d) => (typeof d === 'number' ? String(d) : d.sym)).join(', ');
  throw new ShardwrightError('E_TYPE', `${target}: the size of ${names} is not known`, {
    hint:
      `give --size NAME=VALUE for each name in '${names}' (atSizes in the library), or export ` +
      'with the sizes you will run.',
  });
}

// ---- the key of a call
// -----------------------------------------------------------------------------

function callKey(node: CallNode, typeOf: TypeOf): string {
  let key = node.target;
  for (const arg of node.args) key += `|${argKey(arg, typeOf)}`;
  const names = Object.keys(node.kwargs);
  if (names.length === 0) return key;
  if (names.length > 1) names.sort();
  for (const name of names) key += `|${name}=${argKey(node.kwargs[name], typeOf)}`;
  return key;
}

function argKey(arg: Arg, typeOf: TypeOf): string {
  if (isList(arg)) {
    let key = '[';
    for (const member of arg) key += `${argKey(member, typeOf)},`;
    return `${key}]`;
  }
  if (isRef(arg)) {
    const type = typeOf(arg.name);
    if (type.kind === 'tensor') {
      const entry = internType(type);
      // A type without sizes never becomes a result, so its name keeps the error of each caller
      // apart.
      return entry === undefined ? `?${arg.name}` : `#${entry.id}`;
    }
    return `${type.kind}:${arg.name}`;
  }
  return literalKey(arg, typeOf);
}

function literalKey(arg: Exclude<Arg, readonly Arg[]>, typeOf: TypeOf): string {
  if (arg === null) return 'None';
  switch (typeof arg) {
    case 'number':
      return String(arg);
    case 'bigint':
      return `${arg}n`;
    case 'string':
      return JSON.stringify(arg);
    case 'boolean':
      return arg ? 'True' : 'False';
    default:
      return objectKey(arg, typeOf);
  }
}

function objectKey(arg: Extract<Arg, { kind: string }>, typeOf: TypeOf): string {
  switch (arg.kind) {
    case 'float':
      return `f${Object.is(arg.value, -0) ? '-0' : String(arg.value)}`;
    case 'dtype':
      return `d${arg.dtype}`;
    case 'size':
      return `s${arg.size.sym}=${arg.size.example ?? '?'}`;
    case 'device':
    case 'layout':
      return `w${arg.word}`;
    case 'slice':
      return `${argKey(arg.start, typeOf)}:${argKey(arg.stop, typeOf)}:${argKey(arg.step, typeOf)}`;
    default:
      return `${arg.kind}:${arg.name}`;
  }
}

function isList(arg: Arg): arg is readonly Arg[] {
  return Array.isArray(arg);
}

function isRef(arg: Arg | undefined): arg is Extract<Arg, { kind: 'value' }> {
  return (
    arg !== undefined &&
    arg !== null &&
    typeof arg === 'object' &&
    'kind' in arg &&
    arg.kind === 'value'
  );
}

/**
 * Operators that are described by what they are made of: types, rules, work and values all come
 * from a body of other operators. A rule of the body is a rule of the operator only if the
 * operator, called on the local sizes, makes the very body that each rank would run: the same calls
 * with the same numbers, but for sizes that views and factories state. A body that divides by a
 * number of rows, for one, has another divisor there, and its rule is left out.
 */

import { checkKinds } from '../../../arguments.ts';
import { internalError, ShardwrightError } from '../../../errors.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { typesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node, ValueRef } from '../../../graph/types.ts';
import { isList, isRef, tensorType } from '../../../graph/value.ts';
import type { NDArray } from '../../../ndarray/array.ts';
import { evaluateCall, type EvaluatedArg, type EvaluatedResult } from '../../kernels/evaluate.ts';
import { atSizes } from '../../record/context.ts';
import { bind } from '../../record/infer.ts';
import type { Kernel } from '../../record/kernel.ts';
import {
  defineOp,
  type OpClass,
  type OpContext,
  type OperatorRecord,
  type OpWork,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import type { Rule, ShardSlot } from '../../record/rule.ts';
import type { OperatorTable } from '../../record/table.ts';
import { type Derivation, derivations } from '../../rules/decompose.ts';
import { CallBuilder } from '../build.ts';

/** The call as a body reads it. */
export interface Body {
  readonly b: CallBuilder;
  readonly ctx: OpContext;
  /** A tensor argument. */
  x(this: void, name: string): ValueRef;
  optional(this: void, name: string): ValueRef | null;
}

/** Writes the calls; the results in order. */
export type Decompose = (body: Body) => readonly ValueRef[];

/** An operator that is stated by the operators that it is made of. */
export interface DecomposedSpec {
  readonly schema: string;
  readonly cls: OpClass;
  readonly aliases?: readonly string[];
  readonly results?: 'single' | 'tuple';
  readonly decompose: Decompose;
  /** See `OperatorRecord.samples`. */
  readonly samples?: readonly string[];
}

interface DecomposedRecord extends OperatorRecord {
  readonly decompose: Decompose;
}

/**
 * Defines an operator by a body of known operators: types, FLOPs, rules, kernel and gradient follow
 * from the body.
 *
 * @param table the operators of the body
 */
export function decomposedOp(
  table: OperatorTable,
  name: string,
  spec: DecomposedSpec,
): DecomposedRecord {
  checkKinds('decomposedOp', {
    table: [table, 'operators'],
    name: [name, 'string'],
    spec: [spec, ['schema', 'cls', 'decompose']],
  });
  const body = (ctx: OpContext): Graph => bodyOf(table, name, spec.decompose, ctx);
  const record = defineOp(name, {
    ...spec,
    infer: (ctx) => resultsOf(body(ctx)),
    shard: (ctx) =>
      derivations(body(ctx), table).flatMap((d) =>
        standsLocally(d, ctx, body) ? [withoutRewrite(d.rule)] : [],
      ),
    flops: (ctx) => workOf(table, body(ctx)),
    bytes: (ctx) =>
      calls(table, body(ctx)).reduce((sum, { record: r, call }) => sum + r.bytes(call), 0),
    kernel: kernelOfBody(table, body),
  });
  return { ...record, decompose: spec.decompose };
}

export function isDecomposed(record: OperatorRecord): record is DecomposedRecord {
  return 'decompose' in record;
}

/** Placeholders are the tensor inputs in schema order. */
function bodyOf(table: OperatorTable, name: string, decompose: Decompose, ctx: OpContext): Graph {
  const graph = new GraphBuilder(name);
  const inputs = ctx.inputs.map((meta, i) =>
    graph.placeholder(`x${i}`, tensorType(meta.dtype, meta.shape), { role: 'arg', roleIndex: i }),
  );
  const optional = (argument: string): ValueRef | null => inputs[ctx.indexOf(argument)] ?? null;
  const x = (argument: string): ValueRef =>
    optional(argument) ?? ctx.fail(`argument '${argument}' must be a tensor`);
  const results = decompose({ b: new CallBuilder(graph, table), ctx, x, optional });
  results.forEach((ref, index) => graph.output({ value: ref.name, role: 'output', index }));
  return graph.build();
}

function resultsOf(body: Graph): TensorMeta[] {
  return body.outputs.map(({ value }) => {
    const type = body.nodes.find((node) => node.name === value)?.type;
    if (type?.kind !== 'tensor')
      throw internalError(`'${body.name}' decomposes into something that is not a tensor`);
    return { dtype: type.dtype, shape: type.shape.map(sizeOf) };
  });
}

function sizeOf(dim: number | { readonly example?: number }): number {
  return typeof dim === 'number' ? dim : (dim.example ?? 1);
}

/** The inner calls with their records. */
function calls(
  table: OperatorTable,
  body: Graph,
): { record: OperatorRecord; call: TypedContext }[] {
  const types = typesByName(body);
  return body.nodes.flatMap((node) => {
    if (node.kind !== 'call' || node.target === 'operator.getitem') return [];
    const record = table.get(node.target);
    const call = bind(table, node, (name) => types.get(name) ?? undefinedIn(body, name));
    if (record === undefined || call === undefined)
      throw internalError(`'${body.name}' calls ${node.target}`);
    return [{ record, call }];
  });
}

function workOf(table: OperatorTable, body: Graph): OpWork {
  const work = { matrix: 0, vector: 0 };
  for (const { record, call } of calls(table, body)) {
    const { matrix, vector } = record.flops(call);
    work.matrix += matrix;
    work.vector += vector;
  }
  return work;
}

// ---- values
// -----------------------------------------------------------------------------

/** Values of an operator by the body that it is made of. */
export function decomposedKernel(table: OperatorTable, name: string, decompose: Decompose): Kernel {
  return kernelOfBody(table, (ctx) => bodyOf(table, name, decompose, ctx));
}

function kernelOfBody(table: OperatorTable, body: (ctx: OpContext) => Graph): Kernel {
  return ({ ctx, inputs, random }) => {
    const graph = body(ctx);
    const values = new Map<string, EvaluatedResult>();
    const arrayOf = (name: string): NDArray => {
      const value = values.get(name);
      if (value === null || value === undefined || Array.isArray(value))
        return undefinedIn(graph, name);
      return value as NDArray;
    };
    const evaluated = (arg: Arg): EvaluatedArg => {
      if (isList(arg)) return arg.map(evaluated);
      if (isRef(arg)) return arrayOf(arg.name);
      if (typeof arg === 'object' && arg !== null && (arg.kind === 'graph' || arg.kind === 'slice'))
        throw internalError(
          `the body of ${graph.name} has an argument that no array stands for (${arg.kind})`,
        );
      return arg;
    };
    let given = 0;
    for (const node of graph.nodes) {
      if (node.kind === 'placeholder') values.set(node.name, inputs[given++]);
      else if (node.target === 'operator.getitem') values.set(node.name, member(node, values));
      else {
        const kwargs = Object.fromEntries(
          Object.entries(node.kwargs).map(([key, arg]) => [key, evaluated(arg)]),
        );
        values.set(
          node.name,
          evaluateCall(table, node.target, node.args.map(evaluated), kwargs, random),
        );
      }
    }
    return graph.outputs.map(({ value }) => arrayOf(value ?? ''));
  };
}

function member(
  { args: [source, index], name }: Node,
  values: ReadonlyMap<string, EvaluatedResult>,
): EvaluatedResult {
  const tuple = source !== undefined && isRef(source) ? values.get(source.name) : undefined;
  if (!Array.isArray(tuple) || typeof index !== 'number')
    throw internalError(`${name} reads no tuple`);
  return (tuple as readonly (NDArray | null)[])[index];
}

function undefinedIn(body: Graph, name: string): never {
  throw internalError(`'${name}' has no value in the body of ${body.name}`);
}

// ---- rules
// -----------------------------------------------------------------------------

/** Sizes that views and factories state are those of the local body already. */
const STATED_SIZES = 'local-shape';

function withoutRewrite({ inputs, outputs, origin }: Rule): Rule {
  return { inputs, outputs, origin };
}

/**
 * Tells whether the operator, called on what one rank holds, makes the body that the rank is to
 * run.
 */
function standsLocally(d: Derivation, ctx: OpContext, body: (ctx: OpContext) => Graph): boolean {
  if ([...d.rewrites.values()].some((word) => word !== STATED_SIZES)) return false;
  const whole = body(ctx);
  const placeholders = whole.nodes.filter((node) => node.kind === 'placeholder');
  const shards = d.rule.inputs.flatMap((slot, i) =>
    slot?.kind === 'shard' ? [{ slot, size: ctx.inputs[i].shape[slot.dim] }] : [],
  );
  const n = ranksFor(shards);
  if (n === undefined) return false;
  const localShape = (name: string, shape: readonly number[]): number[] => {
    const slot = d.slots.get(name);
    return shape.map((size, dim) =>
      slot?.kind === 'shard' && slot.dim === dim ? Math.ceil(size / n) : size,
    );
  };
  const locals = placeholders.map(({ name }, i): TensorMeta => ({
    ...ctx.inputs[i],
    shape: localShape(name, ctx.inputs[i].shape),
  }));
  let part: Graph;
  try {
    part = body(atSizes(ctx, locals, []));
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_TYPE') return false;
    throw error;
  }
  return (
    part.nodes.length === whole.nodes.length &&
    part.nodes.every((node, i) =>
      isSameNode(node, whole.nodes[i], d.rewrites.has(node.name), localShape),
    )
  );
}

/**
 * A number of ranks on which the rule is possible at these sizes; undefined where there is none.
 */
function ranksFor(
  shards: readonly { readonly slot: ShardSlot; readonly size: number }[],
): number | undefined {
  const bound = shards.filter(({ slot }) => slot.even || slot.scaled || slot.unit > 1);
  const most = Math.min(...shards.map(({ size }) => size));
  for (let n = 2; n <= most; n++)
    if (bound.every(({ slot, size }) => size % (n * slot.unit) === 0)) return n;
  // A rule that cuts nothing has nothing to compare: whole and part are the same.
  return shards.length === 0 ? 2 : undefined;
}

/**
 * Tells whether a call of the local body is that of the whole one: of the sizes that the placements
 * say, with the same literals.
 */
function isSameNode(
  part: Node,
  whole: Node,
  statesSizes: boolean,
  localShape: (name: string, shape: readonly number[]) => readonly number[],
): boolean {
  if (part.name !== whole.name || part.target !== whole.target) return false;
  if (part.type.kind === 'tensor' && whole.type.kind === 'tensor') {
    const expected = localShape(whole.name, whole.type.shape.map(sizeOf));
    if (part.type.shape.map(sizeOf).join() !== expected.join()) return false;
  }
  const words = ({ args, kwargs }: Node): string =>
    JSON.stringify([args.map((arg) => (statesSizes && isSizes(arg) ? 'sizes' : arg)), kwargs]);
  return words(part) === words(whole);
}

function isSizes(arg: Arg): boolean {
  return isList(arg) && arg.every((size) => typeof size === 'number');
}

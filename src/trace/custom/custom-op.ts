/** Declares a function as one opaque operator with types, cost, sharding rules and derivative. */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { checkRecord } from '../../errors.ts';
import type { TensorMeta, TypedContext } from '../../ops/record/call.ts';
import type { Kernel } from '../../ops/record/kernel.ts';
import {
  defineOp,
  type OpContext,
  type OperatorRecord,
  type OpWork,
} from '../../ops/record/record.ts';
import type { Rule } from '../../ops/record/rule.ts';
import type { Vjp, VjpEntry, Vjps } from '../../ops/vjp/vjp.ts';
import { captures, tensorsOf, traceBody } from '../control/body.ts';
import { note } from '../control/site.ts';
import { refusal } from '../errors/refusal.ts';
import { needRecorder, type TracedValue } from '../record/recorder.ts';
import { type Argument, traceArg, tracedValue } from '../tensor/core.ts';
import { type Tensor, tensorOf } from '../tensor/tensor.ts';

/** An operator of the user: schema, types, rules, kernel and gradient. */
export interface CustomOpSpec {
  /** `vendor.operator.overload`, not the name of an operator that the table has. */
  readonly name: string;
  /** In PyTorch's notation, all inputs listed: `Tensor x, Tensor weight, int k`. */
  readonly schema: string;
  /** Types of the results. */
  readonly type: (ctx: OpContext) => readonly TensorMeta[];
  /** True if there are several results, read one by one. Default false. */
  readonly several?: boolean;
  /** Default: one vector operation for each element of the results. */
  readonly flops?: (ctx: TypedContext) => OpWork;
  /** Default: every input read and every result written once. */
  readonly bytes?: (ctx: TypedContext) => number;
  /** Rules for one mesh dim. Without them the operator runs replicated, and the report says so. */
  readonly sharding?: (ctx: TypedContext) => readonly Rule[];
  /**
   * Without it a gradient that is to pass is E_NO_VJP. `checkRules` compares it with differences of
   * the kernel's values.
   */
  readonly vjp?: Vjp | VjpEntry;
  /** Values, for verification. */
  readonly kernel?: Kernel;
  /** Arguments of calls that the rules are tried with, see `OperatorRecord.samples`. */
  readonly samples?: readonly string[];
  /**
   * The code that the operator hides. It is run once a call, on stand-ins, to see that it reads
   * nothing beyond its tensor inputs.
   */
  readonly body?: (...inputs: Tensor[]) => unknown;
}

/** An operator of the user, ready to be traced, planned and run. */
export interface CustomOp {
  /**
   * For the table that `trace`, planning and simulation get:
   * `builtinOperators().with([op.record])`.
   */
  readonly record: OperatorRecord;
  /** For `jointGraph`: `{ vjps: op.vjps }`; empty without a vjp. */
  readonly vjps: Vjps;
  /**
   * Records one node. @throws E_OPAQUE_CAPTURE when the body reads a tensor that is not an input;
   * E_UNKNOWN_OP without the record
   */
  call(...args: Argument[]): Tensor;
  /** Calls an operator with several results. */
  calls(...args: Argument[]): Tensor[];
}

/** A function as one opaque operator with declared types, cost, sharding rules and derivative. */
export function customOp(spec: CustomOpSpec): CustomOp {
  checkRecord('customOp', 'description', spec, {
    fields: ['name', 'schema', 'type'],
    hint: "give { name: 'my.op.default', schema: 'Tensor x', type: (ctx) => [...] }.",
  });
  checkKinds('customOp', { description: [spec, 'record'] });
  const { name, schema, flops, bytes, sharding, kernel, samples, vjp } = spec;
  const record = defineOp(name, {
    schema,
    cls: 'other',
    results: spec.several === true ? 'tuple' : 'single',
    infer: (ctx) => spec.type(ctx),
    ...defined({ flops, bytes, shard: sharding, kernel, samples }),
  });
  const recorded = (args: readonly Argument[]): TracedValue[] => {
    const recorder = needRecorder(name);
    checkBody(spec, args);
    const made = recorder.calls(
      name,
      args.map((arg) => traceArg(arg)),
    );
    const planned =
      sharding === undefined ? 'no sharding rule: it runs replicated' : 'with sharding rules';
    note(recorder, name, 'opaque', `custom operator, ${planned}`);
    return made;
  };
  return {
    record,
    vjps: vjp === undefined ? {} : { [name]: vjp },
    call: (...args) => tensorOf(recorded(args)[0]),
    calls: (...args) => recorded(args).map(tensorOf),
  };
}

/** Traces the hidden function for what it reads, and drops the trace. */
function checkBody({ name, body }: CustomOpSpec, args: readonly Argument[]): void {
  if (body === undefined) return;
  const recorder = needRecorder(name);
  const tensors = args.flatMap((arg) => {
    const value = tracedValue(arg);
    return value === undefined ? [] : [value];
  });
  const traced = traceBody(recorder, 'opaque', tensors, (inputs) =>
    body(...inputs.map((leaf) => tensorsOf({ kind: 'leaf', path: '', leaf }) as Tensor)),
  );
  const read = captures([traced]);
  if (read.length === 0) return;
  const names = read.map((value) => `%${value.name}`).join(', ');
  throw refusal(
    'E_OPAQUE_CAPTURE',
    `${name} reads ${names} without listing ${read.length === 1 ? 'it' : 'them'} as input`,
    recorder.trace.place(),
    {
      hint:
        'an opaque operator hides what it does: give every tensor, parameters included, as an ' +
        'argument.',
    },
  );
}

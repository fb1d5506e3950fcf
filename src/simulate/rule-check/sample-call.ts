/** A sample call that can run on whole tensors and on shards of them. */

import { ShardwrightError } from '../../errors.ts';
import type { Arg } from '../../graph/types.ts';
import { isList, isRef } from '../../graph/value.ts';
import { NDArray } from '../../ndarray/array.ts';
import { type RandomStream, streamOf } from '../../ndarray/random.ts';
import { evaluateCall, type EvaluatedArg } from '../../ops/kernels/evaluate.ts';
import { tensorInputs } from '../../ops/record/context.ts';
import type { OperatorRecord, TypedContext } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { bindText, type CallText, type TensorSpec } from '../../ops/samples/call-text.ts';
import { type Draw, drawValues } from '../../ops/samples/values.ts';

export type Results = readonly (NDArray | null)[];

/** A sample call that can be run on whole tensors and on parts of them. */
export class SampleCall {
  readonly record: OperatorRecord;
  /** The call at global sizes. */
  readonly ctx: TypedContext;
  /** Names of the tensors in the order in which rules count them. */
  private readonly names: readonly string[];
  private readonly random: RandomStream;

  /** @throws E_TYPE when the call does not fit its operator */
  constructor(
    readonly table: OperatorTable,
    readonly call: CallText,
  ) {
    const { record, ctx } = bindText(table, call);
    this.record = record;
    this.ctx = ctx;
    this.names = tensorInputs(record, call.args, call.kwargs);
    this.random = { seed: 5, stream: streamOf(call.text) };
  }

  spec(input: number): TensorSpec {
    const found = this.call.tensors.get(this.names[input]);
    if (found === undefined)
      throw new ShardwrightError(
        'E_INTERNAL',
        `internal: ${this.call.text} has no tensor ${input}`,
      );
    return found;
  }

  /** Values of all tensors, in the order of `ctx.inputs`. */
  draw(seed: number, how: Draw): NDArray[] {
    return this.names.map((_, i) => drawValues(this.spec(i), seed * 101 + i, how));
  }

  /**
   * Runs the call on these tensors.
   *
   * @param replaced arguments to put in the place of the written ones, by name
   * @param position of random operators: global place of each element of the part in hand
   * @throws E_TYPE, E_VALUE when the call does not fit these tensors
   */
  run(
    inputs: readonly NDArray[],
    replaced: Readonly<Record<string, EvaluatedArg>> = {},
    position?: (flat: number) => number,
  ): Results {
    const { args, kwargs } = this.arguments(inputs, replaced);
    const random = position === undefined ? this.random : { ...this.random, position };
    return results(evaluateCall(this.table, this.call.target, args, kwargs, random));
  }

  /** Runs another operator on the arguments of this call; see `run`. */
  runAs(
    target: string,
    args: readonly EvaluatedArg[],
    kwargs: Readonly<Record<string, EvaluatedArg>> = {},
  ): Results {
    return results(evaluateCall(this.table, target, args, kwargs));
  }

  private arguments(inputs: readonly NDArray[], replaced: Readonly<Record<string, EvaluatedArg>>) {
    const put = (arg: Arg): EvaluatedArg => {
      if (isList(arg)) return arg.map(put);
      return isRef(arg) ? inputs[this.names.indexOf(arg.name)] : (arg as EvaluatedArg);
    };
    const args = this.call.args.map(put);
    const kwargs: Record<string, EvaluatedArg> = {};
    for (const [name, arg] of Object.entries(this.call.kwargs)) kwargs[name] = put(arg);
    const positional = this.record.schema.filter((s) => !s.kwargOnly);
    for (const [name, value] of Object.entries(replaced)) {
      const at = positional.findIndex((s) => s.name === name);
      if (at >= 0 && at < args.length) args[at] = value;
      else kwargs[name] = value;
    }
    return { args, kwargs };
  }
}

function results(value: ReturnType<typeof evaluateCall>): Results {
  if (value === null || value instanceof NDArray) return [value];
  return value;
}

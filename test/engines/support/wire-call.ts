import type { Arg } from '../../../src/graph/types.ts';
import { tensorInputs } from '../../../src/ops/record/context.ts';
import type { OperatorRecord } from '../../../src/ops/record/record.ts';
import type { CallText, TensorSpec } from '../../../src/ops/samples/call-text.ts';

/** JSON of a call for scripts/engines/wire.py. */
export interface WireCall {
  readonly target: string;
  readonly args: readonly unknown[];
  readonly kwargs: Readonly<Record<string, unknown>>;
  readonly tensors: readonly Omit<TensorSpec, 'free'>[];
}

/** The call for PyTorch; tensors stand in the order of `OpContext.inputs`. */
export function wireCall(record: OperatorRecord, call: CallText): WireCall {
  const order = tensorInputs(record, call.args, call.kwargs);
  const convert = (arg: Arg): unknown => {
    if (Array.isArray(arg)) return (arg as readonly Arg[]).map(convert);
    if (typeof arg === 'bigint') return { int: String(arg) };
    if (arg === null || typeof arg !== 'object' || !('kind' in arg)) return arg;
    if (arg.kind === 'value') return { x: order.indexOf(arg.name) };
    if (arg.kind === 'float') return { f: String(arg.value).replace('Infinity', 'inf') };
    if (arg.kind === 'dtype') return { dtype: arg.dtype };
    if (arg.kind === 'device' || arg.kind === 'layout') return { word: arg.word };
    throw new Error(`${call.text}: a ${arg.kind} argument cannot be sent`);
  };
  const tensors = order.map((name) => {
    const tensor = call.tensors.get(name);
    if (tensor === undefined) throw new Error(`no tensor ${name} in ${call.text}`);
    const { dtype, shape, init, hi } = tensor;
    return { dtype, shape, init, ...(hi === undefined ? {} : { hi }) };
  });
  const kwargs = Object.fromEntries(Object.entries(call.kwargs).map(([k, v]) => [k, convert(v)]));
  return { target: call.target, args: call.args.map(convert), kwargs, tensors };
}

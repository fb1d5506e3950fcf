import type { Arg, DType } from '../../../src/graph/types.ts';
import { bindCall, withOutputs } from '../../../src/ops/record/context.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../../../src/ops/record/record.ts';

/** A tensor argument in the notation of the oracle files; `init` says how values are drawn. */
export interface TensorArg {
  readonly t: readonly number[];
  readonly dt?: string;
  readonly init?: string;
  readonly hi?: number;
}
export type TestArg = TensorArg | number | string | boolean | null | readonly TestArg[];

const DTYPES: Readonly<Record<string, DType>> = { bool: 'b8' };

function isTensor(arg: TestArg): arg is TensorArg {
  return typeof arg === 'object' && arg !== null && !Array.isArray(arg) && 't' in arg;
}

export interface TestCall {
  readonly record: OperatorRecord;
  readonly ctx: TypedContext;
  /** The tensor inputs as written, in the order of `ctx.inputs` (which is schema order). */
  readonly tensors: readonly TensorArg[];
}

/**
 * Binds a call written in test notation; `"max"` is the largest int64, fractions are floating-point
 * literals.
 */
export function makeCall(
  record: OperatorRecord,
  args: readonly TestArg[],
  kwargs: Readonly<Record<string, TestArg>> = {},
): TestCall {
  const byName = new Map<string, { arg: TensorArg; meta: TensorMeta }>();
  const metas = new Map<TensorMeta, TensorArg>();
  const convert = (arg: TestArg): Arg => {
    if (isTensor(arg)) {
      const name = `x${byName.size}`;
      const meta: TensorMeta = {
        dtype: DTYPES[arg.dt ?? 'f32'] ?? (arg.dt as DType | undefined) ?? 'f32',
        shape: arg.t,
      };
      byName.set(name, { arg, meta });
      metas.set(meta, arg);
      return { kind: 'value', name };
    }
    if (Array.isArray(arg)) return (arg as readonly TestArg[]).map(convert);
    if (arg === 'max') return 9223372036854775807n;
    if (typeof arg === 'number' && !Number.isInteger(arg)) return { kind: 'float', value: arg };
    return arg as Arg;
  };
  const keywords: Record<string, Arg> = {};
  const positional = args.map(convert);
  for (const [key, value] of Object.entries(kwargs)) keywords[key] = convert(value);
  const bound = bindCall(record, positional, keywords, (name) => {
    const found = byName.get(name);
    if (found === undefined) throw new Error(`no tensor ${name}`);
    return found.meta;
  });
  const ctx = withOutputs(bound, record.infer(bound));
  return {
    record,
    ctx,
    tensors: ctx.inputs.map((meta) => metas.get(meta) ?? { t: meta.shape }),
  };
}

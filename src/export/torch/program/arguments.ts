/**
 * Writes arguments and operators of a local call as Python expressions of PyTorch. Source:
 * PyTorch's schema of ATen calls, dtype names of `torch`.
 */
import { pyBool, pyFloat, pyList, pyString } from '../../../backend/python-text.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Arg, DType, Node } from '../../../graph/types.ts';
import { isList } from '../../../graph/value.ts';

const DTYPE_NAMES: Readonly<Record<DType, string>> = {
  f64: 'float64',
  f32: 'float32',
  bf16: 'bfloat16',
  f16: 'float16',
  f8e4m3fn: 'float8_e4m3fn',
  f8e5m2: 'float8_e5m2',
  f8e8m0fnu: 'float8_e8m0fnu',
  i64: 'int64',
  i32: 'int32',
  i16: 'int16',
  i8: 'int8',
  u64: 'uint64',
  u32: 'uint32',
  u16: 'uint16',
  u8: 'uint8',
  b8: 'bool',
  c64: 'complex64',
  c128: 'complex128',
};

/** `float32` of `f32`. */
/** Numbers that neither gloo nor NCCL takes, or takes in moves alone. */
const NOT_EXCHANGED: ReadonlySet<DType> = new Set<DType>([
  ...(['i16', 'u16', 'u32', 'u64'] as const),
  ...(['f8e4m3fn', 'f8e5m2', 'f8e8m0fnu'] as const),
]);

/** False for numbers that the collectives of PyTorch's backends refuse. */
export function isExchanged(dtype: DType): boolean {
  return !NOT_EXCHANGED.has(dtype);
}

export function torchDtype(dtype: DType): string {
  return DTYPE_NAMES[dtype];
}

/** Names that an expression needs. */
export interface Names {
  /** Identifier of a value. */
  readonly value: (name: string) => string;
  /** Identifier of an integer that differs from rank to rank. */
  readonly integer: (symbol: string) => string;
}

const WORD = /^[a-z][a-z0-9_]*$/;

/** @throws E_UNSUPPORTED for what PyTorch has no literal of */
export function argumentText(arg: Arg, names: Names): string {
  switch (typeof arg) {
    case 'number':
    case 'bigint':
      return String(arg);
    case 'boolean':
      return pyBool(arg);
    case 'string':
      return pyString(arg);
    default:
      break;
  }
  if (arg === null) return 'None';
  if (isList(arg)) return pyList(arg.map((member) => argumentText(member, names)));
  switch (arg.kind) {
    case 'value':
      return names.value(arg.name);
    case 'float':
      return pyFloat(arg.value);
    case 'dtype':
      return `torch.${DTYPE_NAMES[arg.dtype]}`;
    case 'device':
      // The device of the capture does not determine the device of the run.
      return 'here.device';
    case 'layout':
      if (WORD.test(arg.word)) return `torch.${arg.word}`;
      break;
    case 'size':
      return names.integer(arg.size.sym);
    case 'slice': {
      const parts = [arg.start, arg.stop, arg.step].map((part) => argumentText(part, names));
      return `slice(${parts.join(', ')})`;
    }
    case 'graph':
      break;
  }
  throw new ShardwrightError(
    'E_UNSUPPORTED',
    `an argument of kind '${arg.kind}' has no text in PyTorch`,
  );
}

const TARGET = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){2}$/;

/**
 * `aten.mm.default` of a call; other namespaces below `torch.ops`. A view becomes a reshape, which
 * is the same where the tensor at hand can be viewed so and a copy where it was moved and cannot.
 *
 * @throws E_UNSUPPORTED, with the node, for operators of other worlds
 */
export function operatorText({ name, target }: Pick<Node, 'name' | 'target'>): string {
  if (!TARGET.test(target) || target.startsWith('stablehlo.'))
    throw new ShardwrightError('E_UNSUPPORTED', `${target} is not an operator of PyTorch`, {
      node: name,
      hint:
        'programs of StableHLO, jaxpr and ONNX files run with --target jax; PyTorch runs ' +
        'graphs of aten calls.',
    });
  if (target === 'aten.view.default' || target === 'aten._unsafe_view.default')
    return 'aten.reshape.default';
  return target.startsWith('aten.') ? target : `torch.ops.${target}`;
}

import { ShardwrightError } from '../errors.ts';
import { GraphBuilder } from '../graph/build.ts';
import type { Arg, DType, Graph, TensorType, ValueRef } from '../graph/types.ts';
import { withPhases } from '../graph/phases.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { inferCall } from '../ops/infer.ts';
import type { OperatorTable } from '../ops/table.ts';

/**
 * Tracing: a TypeScript function over tensors is run once on stand-ins that record every operation as an `aten.*` node.
 * Shapes and dtypes are checked as the program is recorded. Straight-line functions only: JavaScript cannot tell us of a
 * branch on a traced value, so stand-ins refuse what can be trapped (arithmetic, comparison, text, iteration).
 */

/** What an input looks like. */
export interface TensorSpec {
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly role: 'input' | 'parameter';
}

/** Description of an input, f32 unless said otherwise. */
export function input(shape: readonly number[], dtype: DType = 'f32'): TensorSpec {
  return { shape, dtype, role: 'input' };
}

/** Description of a parameter, f32 unless said otherwise. */
export function parameter(shape: readonly number[], dtype: DType = 'f32'): TensorSpec {
  return { shape, dtype, role: 'parameter' };
}

/**
 * Records `fn` over inputs of the given shapes.
 *
 * @param fn called once with one traced tensor per entry of `inputs`, by name; returns a tensor or a list of tensors
 * @param inputs in the order in which they become placeholders
 * @throws E_TRACE_INPUT, E_TYPE (a call that does not fit), E_TRACE_COERCE (a traced value used as a JavaScript value)
 */
export function trace<K extends string>(
  fn: (inputs: Readonly<Record<K, Tensor>>) => Tensor | readonly Tensor[],
  inputs: Readonly<Record<K, TensorSpec>>,
  options: { readonly name?: string; readonly table?: OperatorTable } = {},
): Graph {
  const recorder = new Recorder(
    options.name ?? (fn.name === '' ? 'main' : fn.name),
    options.table ?? builtinOperators(),
  );
  const given = {} as Record<K, Tensor>;
  for (const name of Object.keys(inputs) as K[]) given[name] = recorder.placeholder(name, inputs[name]);
  const result: unknown = fn(given);
  const outputs = Array.isArray(result) ? (result as unknown[]) : [result];
  outputs.forEach((value, index) => {
    if (!(value instanceof Tensor))
      throw new ShardwrightError('E_TRACE_INPUT', `output ${index} of the traced function is no tensor`, {
        hint: 'return a traced tensor, or a list of them; an async function cannot be traced.',
      });
    recorder.output(value, index);
  });
  return recorder.finish();
}

class Recorder {
  private readonly builder: GraphBuilder;

  constructor(
    name: string,
    private readonly table: OperatorTable,
  ) {
    this.builder = new GraphBuilder(name);
  }

  placeholder(name: string, spec: TensorSpec): Tensor {
    if (spec.shape.some((n) => !Number.isSafeInteger(n) || n < 0))
      throw new ShardwrightError('E_TRACE_INPUT', `input '${name}' has shape [${spec.shape.join(', ')}]`, {
        hint: 'sizes are whole numbers.',
      });
    const type: TensorType = { kind: 'tensor', dtype: spec.dtype, shape: [...spec.shape] };
    const meta = { role: spec.role, roleName: name } as const;
    return new Tensor(this, this.builder.placeholder(name, type, meta), type);
  }

  call(
    target: string,
    args: readonly (Arg | Tensor | readonly Tensor[])[],
    kwargs: Readonly<Record<string, Arg>> = {},
  ): Tensor {
    const plain = args.map((arg) => this.argument(target, arg));
    const type = inferCall(this.table, { target, args: plain, kwargs }, (name) =>
      this.builder.typeOf({ kind: 'value', name }),
    );
    if (type?.kind !== 'tensor') throw new ShardwrightError('E_UNKNOWN_OP', `cannot trace ${target}`);
    return new Tensor(this, this.builder.call(target, plain, type, { kwargs, meta: { phase: 'forward' } }), type);
  }

  output(tensor: Tensor, index: number): void {
    this.builder.output({ value: this.own(tensor, 'return').name, role: 'output', index });
  }

  finish(): Graph {
    return withPhases(this.builder.build());
  }

  private argument(target: string, arg: Arg | Tensor | readonly Tensor[]): Arg {
    if (arg instanceof Tensor) return this.own(arg, target);
    if (Array.isArray(arg)) return arg.map((a: Arg | Tensor) => (a instanceof Tensor ? this.own(a, target) : a));
    return arg as Arg;
  }

  private own(tensor: Tensor, where: string): ValueRef {
    if (tensor.recorder !== this)
      throw new ShardwrightError('E_TRACE_LEAK', `${where}: tensor %${tensor.ref.name} belongs to another trace`, {
        hint: 'pass it to this function as an input.',
      });
    return tensor.ref;
  }
}

/** A stand-in for a tensor while a function is traced. Every method records one operator call. */
export class Tensor {
  /** Not part of the public surface. */
  constructor(
    readonly recorder: Recorder,
    readonly ref: ValueRef,
    private readonly type: TensorType,
  ) {}

  get shape(): readonly number[] {
    return this.type.shape as readonly number[];
  }
  get dtype(): DType {
    return this.type.dtype;
  }

  /** Matrix product: 2-D x 2-D, batched for more dims. */
  matmul(other: Tensor): Tensor {
    const target = this.shape.length === 2 && other.shape.length === 2 ? 'aten.mm.default' : 'aten.matmul.default';
    return this.recorder.call(target, [this, other]);
  }
  add(other: Tensor): Tensor {
    return this.recorder.call('aten.add.Tensor', [this, other]);
  }
  sub(other: Tensor): Tensor {
    return this.recorder.call('aten.sub.Tensor', [this, other]);
  }
  mul(other: Tensor): Tensor {
    return this.recorder.call('aten.mul.Tensor', [this, other]);
  }
  relu(): Tensor {
    return this.recorder.call('aten.relu.default', [this]);
  }
  gelu(): Tensor {
    return this.recorder.call('aten.gelu.default', [this]);
  }
  silu(): Tensor {
    return this.recorder.call('aten.silu.default', [this]);
  }
  tanh(): Tensor {
    return this.recorder.call('aten.tanh.default', [this]);
  }
  /** Transpose of a matrix. */
  t(): Tensor {
    return this.recorder.call('aten.t.default', [this]);
  }
  transpose(dim0: number, dim1: number): Tensor {
    return this.recorder.call('aten.transpose.int', [this, dim0, dim1]);
  }
  view(...shape: readonly number[]): Tensor {
    return this.recorder.call('aten.view.default', [this, [...shape]]);
  }
  /** Sum over the given dims. */
  sum(dims: readonly number[], keepdim = false): Tensor {
    return this.recorder.call('aten.sum.dim_IntList', [this, [...dims], keepdim]);
  }

  /** JavaScript asks for a plain value (`t + 1`, `t < 3`, `${t}`, `arr[t]`): there is none while tracing. */
  [Symbol.toPrimitive](hint: string): never {
    throw new ShardwrightError('E_TRACE_COERCE', `traced tensor %${this.ref.name} was used as a JavaScript ${hint}`, {
      hint: 'use the tensor methods: add, mul, matmul.',
    });
  }
  [Symbol.iterator](): never {
    throw new ShardwrightError('E_TRACE_COERCE', `traced tensor %${this.ref.name} cannot be iterated`, {
      hint: 'its values are not known while tracing.',
    });
  }
  toJSON(): never {
    throw new ShardwrightError('E_TRACE_COERCE', `traced tensor %${this.ref.name} cannot be written as JSON`);
  }
}

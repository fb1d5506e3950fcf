/** The interface of the lowering of one ONNX node: all that it may read and write. */

import { ShardwrightError } from '../../errors.ts';
import type { Arg, Dim, DType, Graph, TensorType } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { Constant } from './constant.ts';
import type { OnnxAttribute, OnnxGraph, OnnxNode } from './file/model.ts';
import { dtypeOf } from './file/tensor.ts';

/** A value of the graph being built, or one known at import. */
export interface OnnxOperand {
  readonly name: string;
  readonly type: TensorType;
  /** Present for values known at import. */
  readonly constant?: Constant;
}

/** The services that the lowering of one ONNX node may use; made by `builder.ts`. */
export interface Builder {
  /** Adds a call and returns its tensor result. @throws E_TYPE when it does not fit the operator */
  emit(target: string, args: readonly Arg[], kwargs?: Readonly<Record<string, Arg>>): OnnxOperand;
  /** Adds a call with several results and returns those. */
  emitTuple(target: string, args: readonly Arg[]): OnnxOperand[];
  /** The value as an argument; a constant becomes a value of the graph. */
  ref(operand: OnnxOperand): Arg;
  constant(value: Constant): OnnxOperand;
}

/** The services that the lowering of control flow may use. */
export interface BodyBuilder extends Builder {
  /** Values of the graph around that this body reads, in order of first use. */
  readonly captured: readonly OnnxOperand[];
  /** Value of an ONNX name; undefined for one that nothing types. @throws E_REF */
  lookup(name: string): OnnxOperand | undefined;
  /** The lowering of a body of this graph. */
  nested(source: OnnxGraph): BodyBuilder;
  /** Lowers a body whose first inputs have these types; captured values become its last inputs. */
  body(
    name: string,
    types: readonly TensorType[],
    finish: (
      inputs: readonly OnnxOperand[],
      results: readonly OnnxOperand[],
    ) => readonly OnnxOperand[],
  ): Graph;
  bodyName(wanted: string): string;
  emitControl(
    target: string,
    args: readonly Arg[],
    bodies: readonly (readonly [string, Graph])[],
    kwargs?: Readonly<Record<string, Arg>>,
  ): OnnxOperand[];
}

/** Sizes to be named, by the number of dims. */
interface SizesOfRank {
  readonly 2: [number, number];
  readonly 3: [number, number, number];
  readonly 4: [number, number, number, number];
}

/** One node with its inputs looked up, as the operator tables see it. */
export class OnnxCall {
  /** Attributes that the conversion has read; all others must have their defaults (`schema.ts`). */
  readonly readAttributes = new Set<string>();
  readonly readInputs = new Set<number>();

  constructor(
    readonly node: OnnxNode,
    readonly index: number,
    private readonly operands: readonly (OnnxOperand | undefined)[],
    readonly build: Builder,
    /** Version of ai.onnx that the file states. */
    readonly opset: number,
    private readonly isUsed: (name: string) => boolean,
  ) {}

  /** Required input. @throws E_TYPE */
  input(i: number): OnnxOperand {
    return this.optional(i) ?? this.fail('E_TYPE', `input ${i} is missing`);
  }

  optional(i: number): OnnxOperand | undefined {
    this.readInputs.add(i);
    return this.operands[i];
  }

  /** Number of inputs, absent ones between them included. */
  get inputCount(): number {
    return this.operands.length;
  }

  /** Tells whether something reads a result; a conversion need not make the others. */
  wants(i: number): boolean {
    const name = this.node.outputs[i] ?? '';
    return name !== '' && this.isUsed(name);
  }

  /** A call of an aten operator; operands among the arguments become values of the graph. */
  op(
    target: string,
    ...args: readonly (Arg | OnnxOperand | readonly OnnxOperand[])[]
  ): OnnxOperand {
    const name = target.includes('.') ? target : `${target}.default`;
    return this.build.emit(
      `aten.${name}`,
      args.map((arg) => this.asArg(arg)),
    );
  }

  private asArg(arg: Arg | OnnxOperand | readonly OnnxOperand[]): Arg {
    if (isOperand(arg)) return this.build.ref(arg);
    if (Array.isArray(arg))
      return (arg as readonly (Arg | OnnxOperand)[]).map((a) => this.asArg(a));
    return arg as Arg;
  }

  /** A tensor of one value. */
  filled(value: number, dtype: DType, shape: readonly Dim[] = []): OnnxOperand {
    const literal: Arg =
      dtype === 'b8' ? value !== 0 : /^[iu]/.test(dtype) ? value : { kind: 'float', value };
    return this.build.emit('aten.full.default', [shape.map(dimArg), literal], {
      dtype: dtypeArg(dtype),
      device: { kind: 'device', word: 'cpu' },
    });
  }

  /** `start, start + 1, ...` below `end`, as i64. */
  counted(end: number, start = 0): OnnxOperand {
    return this.build.emit('aten.arange.start_step', [start, end, 1], {
      dtype: dtypeArg('i64'),
      device: { kind: 'device', word: 'cpu' },
    });
  }

  cast(operand: OnnxOperand, dtype: DType): OnnxOperand {
    return operand.type.dtype === dtype ? operand : this.op('to.dtype', operand, dtypeArg(dtype));
  }

  /** Sizes of a type, which must be numbers. */
  sizes(type: TensorType): number[] {
    return type.shape.map((dim, d) => this.size(dim, `dim ${d}`));
  }

  /** Sizes of a tensor that has so many dims. @throws E_TYPE for another rank */
  sizesOfRank<R extends keyof SizesOfRank>(type: TensorType, rank: R): SizesOfRank[R] {
    const { length } = type.shape;
    if (length !== rank) this.fail('E_TYPE', `a tensor of ${length} dims where ${rank} are read`);
    return this.sizes(type) as SizesOfRank[R];
  }

  /** Size of one dim, which must be a number. @throws E_TYPE where the tensor has no such dim */
  sizeAt({ shape }: TensorType, d: number, what = `dim ${d}`): number {
    const dim = shape[d];
    if (dim !== undefined) return this.size(dim, what);
    return this.fail('E_TYPE', `${what} is missing: the tensor has ${shape.length} dims`);
  }

  /** Required input as an argument. */
  arg(i: number): Arg {
    return this.build.ref(this.input(i));
  }

  optionalArg(i: number): Arg {
    const operand = this.optional(i);
    return operand === undefined ? null : this.build.ref(operand);
  }

  type(i: number): TensorType {
    return this.input(i).type;
  }

  rank(i: number): number {
    return this.type(i).shape.length;
  }

  /**
   * A scalar known at import as a literal of its own kind, else the value; `isScalar` tells them
   * apart.
   */
  scalarOrRef(i: number): Arg {
    const operand = this.input(i);
    return this.literal(operand) ?? this.build.ref(operand);
  }

  isLiteral(arg: Arg): boolean {
    return !isRef(arg);
  }

  /** The literal of a constant with one element and rank 0; undefined otherwise. */
  literal(operand: OnnxOperand): Arg | undefined {
    const { constant } = operand;
    if (constant?.dims.length !== 0) return undefined;
    return literalOf(constant);
  }

  /** Integers of an input that must be known at import; undefined where the input is absent. */
  constantInts(i: number): number[] | undefined {
    const dims = this.constantDims(i);
    return dims?.map((dim) => {
      if (typeof dim === 'number') return dim;
      return this.fail('E_UNSUPPORTED', `input ${i} holds the symbolic size ${dim.sym}`);
    });
  }

  /**
   * Like `constantInts`, with symbolic sizes. Integers beyond 2^53, which mean "to the end", are
   * cut to 2^53.
   */
  constantDims(i: number): Dim[] | undefined {
    const operand = this.optional(i);
    if (operand === undefined) return undefined;
    const { constant } = operand;
    if (constant === undefined)
      return this.fail(
        'E_UNSUPPORTED',
        `input ${i} ('${operand.name}') is computed at run time, but decides the shape`,
      );
    return constant.values.map((value) => (typeof value === 'object' ? value : bounded(value)));
  }

  attribute(name: string): OnnxAttribute | undefined {
    this.readAttributes.add(name);
    return this.node.attributes.get(name);
  }

  int(name: string): number | undefined;
  int(name: string, fallback: number): number;
  int(name: string, fallback?: number): number | undefined {
    const value = this.attribute(name)?.int;
    if (value === undefined) return fallback;
    if (typeof value === 'bigint') return this.fail('E_LIMIT', `attribute ${name} is ${value}`);
    return value;
  }

  /** An attribute that is 0 or 1; any other number is refused, since tools read it otherwise. */
  flag(name: string, fallback: boolean): boolean {
    const value = this.int(name, fallback ? 1 : 0);
    if (value !== 0 && value !== 1)
      return this.fail('E_TYPE', `attribute '${name}' is ${value}, neither 0 nor 1`);
    return value === 1;
  }

  /** A text that is one of the words that ONNX names. */
  word<T extends string>(name: string, words: readonly T[], fallback: T): T {
    const text = this.text(name, fallback);
    return (
      words.find((word) => word === text) ??
      this.fail('E_TYPE', `attribute '${name}' is '${text}', none of ${words.join(', ')}`)
    );
  }

  float(name: string, fallback: number): number {
    return this.attribute(name)?.float ?? fallback;
  }

  text(name: string, fallback: string): string {
    return this.attribute(name)?.text ?? fallback;
  }

  floats(name: string): readonly number[] | undefined {
    return this.attribute(name)?.floats;
  }

  texts(name: string): readonly string[] | undefined {
    return this.attribute(name)?.texts;
  }

  /** A dtype that an attribute states by its ONNX number. */
  dtypeAttribute(name: string): DType | undefined {
    const number = this.int(name);
    return number === undefined ? undefined : dtypeOf(number, `attribute ${name}`);
  }

  ints(name: string): number[] | undefined {
    return this.attribute(name)?.ints.map((value) =>
      typeof value === 'bigint' ? this.fail('E_LIMIT', `attribute ${name} holds ${value}`) : value,
    );
  }

  /** Like `ints`, of which those beyond 2^53 mean "to the end". */
  ends(name: string): number[] | undefined {
    return this.attribute(name)?.ints.map(bounded);
  }

  /** Axes of a reduction or squeeze: an attribute in old opsets, an input in new ones. */
  axes(input: number): number[] | undefined {
    return this.ints('axes') ?? this.constantInts(input);
  }

  /** An axis counted from the front. */
  axis(axis: number, rank: number): number {
    if (axis < -rank || axis >= Math.max(rank, 1))
      return this.fail('E_TYPE', `axis ${axis} does not exist in a tensor of ${rank} dims`);
    return axis < 0 ? axis + rank : axis;
  }

  /** A size that must be a number. */
  size(dim: Dim, what: string): number {
    return typeof dim === 'number'
      ? dim
      : this.fail('E_UNSUPPORTED', `${what} is the symbolic size ${dim.sym}`);
  }

  fail(code: string, message: string, hint?: string): never {
    throw nodeError(code, message, this.node, this.index, hint);
  }
}

/** An error at a node: its position among the nodes, its operator and its name. */
export function nodeError(
  code: string,
  message: string,
  node: OnnxNode,
  index: number,
  hint?: string,
): ShardwrightError {
  const name = node.name !== '' ? node.name : (node.outputs[0] ?? '');
  return new ShardwrightError(
    code,
    `node ${index} (${node.op}${name === '' ? '' : ` '${name}'`}): ${message}`,
    {
      node: name === '' ? `${node.op} ${index}` : name,
      path: `graph.node[${index}]`,
      hint: hint ?? 'check the model with onnx.checker, or export it again',
    },
  );
}

export function literalOf(constant: Constant): Arg | undefined {
  const [value] = constant.values;
  if (value === undefined || (typeof value === 'object' && constant.values.length === 1))
    return undefined;
  if (typeof value === 'bigint') return value;
  if (typeof value === 'object') return undefined;
  if (constant.dtype === 'b8') return value !== 0;
  return /^[iu]/.test(constant.dtype) ? value : { kind: 'float', value };
}

function isOperand(value: unknown): value is OnnxOperand {
  return typeof value === 'object' && value !== null && 'type' in value && 'name' in value;
}

export function dtypeArg(dtype: DType): Arg {
  return { kind: 'dtype', dtype };
}

export function floatArg(value: number): Arg {
  return { kind: 'float', value };
}

export function dimArg(dim: Dim): Arg {
  return typeof dim === 'number' ? dim : { kind: 'size', size: dim };
}

/** Lowering of one operator: its results in order; undefined for one that is not made. */
export type Lowering = (call: OnnxCall) => readonly (OnnxOperand | undefined)[];

/** A whole number; one beyond 2^53 is cut to it. */
function bounded(value: number | bigint): number {
  if (typeof value === 'number') return value;
  return value < 0n ? -Number.MAX_SAFE_INTEGER : Number.MAX_SAFE_INTEGER;
}

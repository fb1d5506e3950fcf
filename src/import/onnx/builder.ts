/**
 * One graph while it is built: the meaning of the file's names, and the calls that its operators
 * become.
 */

import { messageOf, ShardwrightError, suggestion } from '../../errors.ts';
import { freeKey, FreeNames } from '../../graph/names.ts';
import type { Arg, Dim, Graph, Node, NodeMeta, TensorType, ValueType } from '../../graph/types.ts';
import { eachOperand, NO_KWARGS, ref, setOwn, tensorType } from '../../graph/value.ts';
import { type Builder, literalOf, nodeError, type OnnxOperand } from './call.ts';
import type { Constant } from './constant.ts';
import { mangled, type ModelContext } from './context.ts';
import type { OnnxGraph, OnnxNode } from './file/model.ts';
import type { OnnxTensor } from './file/tensor.ts';
import { inferCallType, inferControlType } from './infer-types.ts';
import { Weights } from './weights.ts';

/** A value in scope: of this graph, known at import, a weight, or of a graph around this one. */
type Scoped =
  | { readonly kind: 'here'; readonly operand: OnnxOperand }
  | { readonly kind: 'weight'; readonly tensor: OnnxTensor; readonly key: string }
  /** Result of an operator that nothing types; what uses it cannot be typed either. */
  | { readonly kind: 'untyped' };

/**
 * Adds calls with checked types. A value of a graph around this one becomes an input, listed in
 * `captured`.
 */
export class OnnxGraphBuilder implements Builder {
  readonly captured: OnnxOperand[] = [];
  /** Inputs of this body by the value of the graph around. */
  private readonly inner = new Map<OnnxOperand, OnnxOperand>();
  /** Values that this graph defines. */
  private readonly mine = new Set<OnnxOperand>();
  protected readonly placeholders: Node[] = [];
  protected readonly nodes: Node[] = [];
  private readonly types = new Map<string, ValueType>();
  protected readonly scope = new Map<string, Scoped>();
  protected readonly weights: Weights;
  protected readonly subgraphs: Record<string, Graph> = {};
  private readonly taken = new Set<string>();
  /** The node whose calls are added, for their names and origin and for errors. */
  protected current: { node: OnnxNode; index: number; meta: NodeMeta } | undefined;

  constructor(
    readonly context: ModelContext,
    readonly source: OnnxGraph,
    readonly outer: OnnxGraphBuilder | undefined,
  ) {
    this.weights = outer?.weights ?? new Weights(context, (wanted) => this.fresh(wanted));
  }

  // ---- values
  // ---------------------------------------------------------------------------

  /**
   * Value of an ONNX name here or in a graph around; undefined for one that nothing types. @throws
   * E_REF
   */
  lookup(name: string): OnnxOperand | undefined {
    const found = this.scope.get(name);
    if (found?.kind === 'untyped') return undefined;
    if (found?.kind === 'here') return found.operand;
    if (found?.kind === 'weight') return this.weights.operand(found.tensor, found.key);
    if (this.outer === undefined) {
      const known = [...this.scope.keys()];
      throw this.failure(
        'E_REF',
        `'${name.slice(0, 80)}' is not defined`,
        suggestion(name, known, 'values'),
      );
    }
    return this.outer.lookup(name);
  }

  /** The operand as a value of this graph: values of a graph around are captured. */
  protected local(operand: OnnxOperand): OnnxOperand {
    if (this.mine.has(operand)) return operand;
    if (operand.name === '') return this.materialize(operand);
    if (this.outer === undefined) return operand;
    const outside = this.outer.local(operand);
    const known = this.inner.get(outside);
    if (known !== undefined) return known;
    const index = this.source.inputs.length + this.captured.length;
    this.captured.push(outside);
    const made = this.placeholder(outside.name, outside.type, { role: 'arg', roleIndex: index });
    this.inner.set(outside, made);
    return made;
  }

  ref(operand: OnnxOperand): Arg {
    return ref(this.local(operand).name);
  }

  constant(constant: Constant): OnnxOperand {
    return { name: '', type: tensorType(constant.dtype, constant.dims), constant };
  }

  protected nameOf(operand: OnnxOperand): string {
    return this.local(operand).name;
  }

  /**
   * A constant that is used as a tensor is made in the graph: a fill, or one for each element.
   */
  private materialize(operand: OnnxOperand): OnnxOperand {
    const { constant } = operand;
    if (
      constant === undefined ||
      constant.values.some((value) => literalOf(one(constant, value)) === undefined)
    )
      throw this.failure(
        'E_UNSUPPORTED',
        'a list computed from symbolic sizes is used as a tensor',
      );
    const { dims, values } = constant;
    if (values.every((value) => Object.is(value, values[0])))
      return this.filled(constant, dims, values[0] ?? 0);
    const parts = values.map((value) => this.ref(this.filled(constant, [1], value)));
    const list = this.emit('aten.cat.default', [parts, 0]);
    return dims.length === 1
      ? list
      : this.emit('aten.reshape.default', [this.ref(list), [...dims]]);
  }

  private filled(constant: Constant, dims: readonly number[], value: Dim | bigint): OnnxOperand {
    const device: Arg = { kind: 'device', word: 'cpu' };
    const literal = literalOf(one(constant, value)) ?? null;
    return this.emit('aten.full.default', [[...dims], literal], {
      dtype: { kind: 'dtype', dtype: constant.dtype },
      device,
    });
  }

  protected initializers(prefix: string): void {
    for (const tensor of this.source.initializers) {
      if (this.scope.has(tensor.name))
        throw this.failure(
          'E_DUP',
          `initializer '${tensor.name.slice(0, 80)}' is defined twice`,
          'rename one of them',
        );
      this.scope.set(tensor.name, { kind: 'weight', tensor, key: prefix + tensor.name });
    }
  }

  protected input(name: string, type: TensorType, meta: NodeMeta): OnnxOperand {
    if (this.scope.has(name))
      throw this.failure('E_DUP', `'${name.slice(0, 80)}' is defined twice`, 'rename one of them');
    const operand = this.placeholder(name, type, meta);
    this.scope.set(name, { kind: 'here', operand });
    return operand;
  }

  private placeholder(wanted: string, type: TensorType, meta: NodeMeta): OnnxOperand {
    const name = this.fresh(wanted);
    const own = this.context.intern(type);
    this.placeholders.push({
      name,
      kind: 'placeholder',
      target: name,
      args: [],
      kwargs: NO_KWARGS,
      type: own,
      meta,
    });
    this.types.set(name, own);
    return this.operand(name, own);
  }

  private operand(name: string, type: TensorType): OnnxOperand {
    const made: OnnxOperand = { name, type };
    this.mine.add(made);
    return made;
  }

  /** A name without characters that other notations cannot carry, and not yet used. */
  fresh(wanted: string): string {
    // A name that was given back is free again, so nothing is remembered from call to call.
    const name = new FreeNames(this.taken).near(mangled(wanted));
    this.taken.add(name);
    return name;
  }

  // ---- calls
  // ---------------------------------------------------------------------------

  emit(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>> = NO_KWARGS,
  ): OnnxOperand {
    const type = this.typed(target, args, kwargs);
    if (type?.kind === 'tensor') return this.push(target, args, kwargs, type);
    throw this.failure('E_TYPE', `${target} gives no tensor here`);
  }

  emitTuple(target: string, args: readonly Arg[]): OnnxOperand[] {
    const type = this.typed(target, args, NO_KWARGS);
    if (type?.kind !== 'tuple')
      throw this.failure('E_TYPE', `${target} gives no list of tensors here`);
    const items = type.items.map((item) =>
      item.kind === 'tensor' ? item : this.fail('E_TYPE', `${target} leaves out a result`),
    );
    return this.members(this.call(target, args, NO_KWARGS, type), items);
  }

  /** A control-flow call with its bodies. */
  emitControl(
    target: string,
    args: readonly Arg[],
    bodies: readonly (readonly [string, Graph])[],
    kwargs: Readonly<Record<string, Arg>> = NO_KWARGS,
  ): OnnxOperand[] {
    for (const [name, body] of bodies) setOwn(this.subgraphs, name, body);
    let result: ValueType;
    try {
      result = inferControlType({ target, args, kwargs }, this.subgraphs, (name) =>
        this.typeOf(name),
      );
    } catch (error) {
      throw this.failure('E_TYPE', messageOf(error));
    }
    const items = (result.kind === 'tuple' ? result.items : [result]).map((item) =>
      item.kind === 'tensor'
        ? item
        : this.fail('E_TYPE', `${target} returns something else than tensors`),
    );
    return this.members(this.call(target, args, kwargs, result), items);
  }

  /** Name for a body of this graph. */
  bodyName(wanted: string): string {
    return freeKey(this.subgraphs, mangled(wanted === '' ? 'body' : wanted));
  }

  protected members(tuple: string, items: readonly TensorType[]): OnnxOperand[] {
    return items.map((type, i) => this.push('operator.getitem', [ref(tuple), i], NO_KWARGS, type));
  }

  private typed(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
  ): ValueType | undefined {
    const call = { target, args, kwargs, name: this.current?.node.outputs[0] ?? target };
    try {
      return inferCallType(this.context.infer, call, (name) => this.typeOf(name));
    } catch (error) {
      if (error instanceof ShardwrightError && error.code === 'E_TYPE')
        throw this.failure('E_TYPE', error.message, error.details.hint);
      throw error;
    }
  }

  private typeOf(name: string): ValueType {
    const known = this.types.get(name);
    if (known !== undefined) return known;
    return this.weights.use(name) ?? { kind: 'none' };
  }

  protected push(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    type: TensorType,
  ): OnnxOperand {
    const own = this.context.intern(type);
    return this.operand(this.call(target, args, kwargs, own), own);
  }

  protected call(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    type: ValueType,
  ): string {
    // Bodies have weights as inputs; the call of the main graph that hands them over is their use.
    if (this.outer === undefined)
      eachOperand({ args, kwargs }, (name) => void this.weights.use(name));
    const name = this.fresh(`tmp_${mangled(this.current?.node.outputs[0] ?? 'value')}`);
    this.types.set(name, type);
    this.nodes.push({
      name,
      kind: 'call',
      target,
      args,
      kwargs,
      type,
      meta: this.current?.meta ?? {},
    });
    return name;
  }

  /** The last call of a lowering takes the name of the ONNX value. */
  protected renamed(operand: OnnxOperand, wanted: string): OnnxOperand {
    const last = this.nodes[this.nodes.length - 1];
    const at =
      last === undefined || last.name === operand.name
        ? this.nodes.length - 1
        : this.nodes.findLastIndex((n) => n.name === operand.name);
    const node = this.nodes[at];
    const plain = mangled(wanted);
    if (
      node === undefined ||
      !this.mine.has(operand) ||
      node.name === plain ||
      !node.name.startsWith('tmp_') ||
      this.nodes.slice(at + 1).some((later) => reads(later, node.name))
    )
      return operand;
    const name = this.fresh(wanted);
    this.nodes[at] = { ...node, name };
    this.taken.delete(node.name);
    const type = this.types.get(node.name)!;
    this.types.delete(node.name);
    this.types.set(name, type);
    return this.operand(name, operand.type);
  }

  // ---- errors
  // ---------------------------------------------------------------------------

  private fail(code: string, message: string): never {
    throw this.failure(code, message);
  }

  failure(code: string, message: string, hint?: string): ShardwrightError {
    if (this.current !== undefined)
      return nodeError(code, message, this.current.node, this.current.index, hint);
    return new ShardwrightError(code, `graph '${this.source.name.slice(0, 80)}': ${message}`, {
      hint: hint ?? 'check the model with onnx.checker, or export it again',
    });
  }
}

/** One element of a constant, as a scalar. */
function one({ dtype }: Constant, value: Dim | bigint): Constant {
  return { dtype, dims: [], values: [value] };
}

function reads(node: Node, name: string): boolean {
  let found = false;
  eachOperand(node, (operand) => {
    found ||= operand === name;
  });
  return found;
}

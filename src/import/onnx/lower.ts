import { ShardwrightError, suggestion } from '../../errors.ts';
import { controlCall } from '../../graph/control.ts';
import type { Arg, Dim, Graph, Node, NodeMeta, Output, TensorType, ValueType } from '../../graph/types.ts';
import { NO_KWARGS, eachOperand, setOwn, tensorType, typeText } from '../../graph/value.ts';
import { inferSymbolic } from '../symbolic.ts';
import { OnnxCall, literalOf, nodeError, type BodyBuilder, type Lowering, type OnnxOperand } from './call.ts';
import { fold, type Constant } from './constant.ts';
import { mangled, originOf, type ModelContext } from './context.ts';
import { lowerControl } from './control.ts';
import { ELEMENTWISE } from './elementwise.ts';
import type { OnnxGraph, OnnxNode, OnnxValue } from './model.ts';
import type { OnnxTensor } from './tensor.ts';
import { NETWORK } from './network.ts';
import { SHAPES } from './shapes.ts';
import { Weights } from './weights.ts';

/** Operators by name; those of another domain carry it. */
const LOWERINGS: ReadonlyMap<string, Lowering> = new Map([...ELEMENTWISE, ...SHAPES, ...NETWORK]);

const MAX_BODY_DEPTH = 64;

/** A value in scope: of this graph, known at import, a weight, or of a graph around this one. */
type Scoped =
  | { readonly kind: 'here'; readonly operand: OnnxOperand }
  | { readonly kind: 'weight'; readonly tensor: OnnxTensor; readonly key: string }
  /** Result of an operator that nothing types; what uses it cannot be typed either. */
  | { readonly kind: 'untyped' };

/**
 * Lowers one graph: the main one, or a body. A body reads values of the graphs around it by name; each becomes an input of
 * the body, listed in `captured`.
 */
export class GraphLowering implements BodyBuilder {
  readonly captured: OnnxOperand[] = [];
  /** Inputs of this body by the value of the graph around. */
  private readonly inner = new Map<OnnxOperand, OnnxOperand>();
  /** Values that this graph defines. */
  private readonly mine = new Set<OnnxOperand>();
  private readonly placeholders: Node[] = [];
  private readonly nodes: Node[] = [];
  private readonly types = new Map<string, ValueType>();
  private readonly scope = new Map<string, Scoped>();
  private readonly weights: Weights;
  private readonly subgraphs: Record<string, Graph> = {};
  private readonly taken = new Set<string>();
  private readonly stated: ReadonlyMap<string, OnnxValue>;
  private current: { node: OnnxNode; index: number; meta: NodeMeta } | undefined;

  constructor(
    readonly context: ModelContext,
    readonly source: OnnxGraph,
    readonly outer: GraphLowering | undefined,
    readonly depth: number,
  ) {
    if (depth > MAX_BODY_DEPTH)
      throw new ShardwrightError('E_LIMIT', `graphs nest deeper than ${MAX_BODY_DEPTH}`, {
        hint: 'no model needs this',
      });
    this.weights = outer?.weights ?? new Weights(context, (wanted) => this.fresh(wanted));
    // An output may be listed with a type in one place and without in the other.
    const stated = new Map<string, OnnxValue>();
    for (const value of [...source.values, ...source.outputs])
      if (stated.get(value.name)?.shape === undefined) stated.set(value.name, value);
    this.stated = stated;
  }

  /** The main graph. */
  main(name: string): Graph {
    const { source } = this;
    this.initializers('');
    for (const input of source.inputs) {
      if (this.scope.has(input.name)) continue; // old models list their initializers as inputs too
      this.input(input.name, this.typeOfValue(input, 'input'), { role: 'input', roleName: input.name });
    }
    this.run();
    const outputs = this.results().map((operand, i): Output => ({ value: operand.name, role: 'output', index: i }));
    return {
      name,
      nodes: [...this.placeholders, ...this.weights.placeholders(source.initializers), ...this.nodes],
      outputs,
      subgraphs: this.subgraphs,
    };
  }

  /**
   * A body whose first inputs have these types. `finish` may change what is returned; captured values become the last
   * inputs, in order of their first use.
   */
  body(
    name: string,
    types: readonly TensorType[],
    finish: (inputs: readonly OnnxOperand[], results: readonly OnnxOperand[]) => readonly OnnxOperand[],
  ): Graph {
    const { source } = this;
    if (source.inputs.length !== types.length)
      throw this.failure(
        'E_TYPE',
        `graph '${source.name}' takes ${source.inputs.length} inputs, the call gives ${types.length}`,
      );
    this.initializers(`${name}/`);
    const inputs = source.inputs.map((input, i) => {
      this.sameAsStated(input, types[i], `input '${input.name}' of graph '${source.name}'`);
      return this.input(input.name, types[i], { role: 'arg', roleIndex: i });
    });
    this.run();
    const returned = finish(inputs, this.results());
    const outputs = returned.map((operand, i): Output => ({ value: this.nameOf(operand), role: 'output', index: i }));
    return { name, nodes: [...this.placeholders, ...this.nodes], outputs, subgraphs: this.subgraphs };
  }

  // ---- values --------------------------------------------------------------------------------------------------------

  /** Value of an ONNX name here or in a graph around; undefined for one that nothing types. @throws E_REF */
  lookup(name: string): OnnxOperand | undefined {
    const found = this.scope.get(name);
    if (found?.kind === 'untyped') return undefined;
    if (found?.kind === 'here') return found.operand;
    if (found?.kind === 'weight') return this.weights.operand(found.tensor, found.key);
    if (this.outer === undefined) {
      const known = [...this.scope.keys()];
      throw this.failure('E_REF', `'${name.slice(0, 80)}' is not defined`, suggestion(name, known, 'values'));
    }
    return this.outer.lookup(name);
  }

  /** The operand as a value of this graph: values of a graph around are captured. */
  private local(operand: OnnxOperand): OnnxOperand {
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
    return { kind: 'value', name: this.local(operand).name };
  }

  constant(constant: Constant): OnnxOperand {
    return { name: '', type: tensorType(constant.dtype, constant.dims), constant };
  }

  private nameOf(operand: OnnxOperand): string {
    return this.local(operand).name;
  }

  /** A constant that is used as a tensor: a scalar is made in the graph, anything larger has no place to come from. */
  private materialize(operand: OnnxOperand): OnnxOperand {
    const { constant } = operand;
    const value = constant === undefined ? undefined : literalOf(constant);
    if (constant === undefined || constant.values.length !== 1 || value === undefined)
      throw this.failure('E_UNSUPPORTED', 'a list computed from sizes is used as a tensor');
    const device: Arg = { kind: 'device', word: 'cpu' };
    return this.emit('aten.full.default', [[...constant.dims], value], {
      dtype: { kind: 'dtype', dtype: constant.dtype },
      device,
    });
  }

  private initializers(prefix: string): void {
    for (const tensor of this.source.initializers) {
      if (this.scope.has(tensor.name))
        throw this.failure('E_DUP', `initializer '${tensor.name.slice(0, 80)}' is defined twice`, 'rename one of them');
      this.scope.set(tensor.name, { kind: 'weight', tensor, key: prefix + tensor.name });
    }
  }

  private input(name: string, type: TensorType, meta: NodeMeta): OnnxOperand {
    if (this.scope.has(name))
      throw this.failure('E_DUP', `'${name.slice(0, 80)}' is defined twice`, 'rename one of them');
    const operand = this.placeholder(name, type, meta);
    this.scope.set(name, { kind: 'here', operand });
    return operand;
  }

  private placeholder(wanted: string, type: TensorType, meta: NodeMeta): OnnxOperand {
    const name = this.fresh(wanted);
    const own = this.context.intern(type);
    this.placeholders.push({ name, kind: 'placeholder', target: name, args: [], kwargs: NO_KWARGS, type: own, meta });
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
    const plain = mangled(wanted);
    let name = plain;
    for (let i = 1; this.taken.has(name); i++) name = `${plain}_${i}`;
    this.taken.add(name);
    return name;
  }

  // ---- nodes ---------------------------------------------------------------------------------------------------------

  private run(): void {
    this.source.nodes.forEach((node, index) => this.node(node, index));
  }

  private node(node: OnnxNode, index: number): void {
    const original = `onnx.${node.domain === '' ? '' : `${node.domain}.`}${node.op}`;
    this.current = { node, index, meta: { original, ...originOf(node) } };
    const made = this.lowered(node, index);
    node.outputs.forEach((name, i) => {
      if (name === '') return;
      if (this.scope.has(name))
        throw this.failure('E_DUP', `'${name.slice(0, 80)}' is defined twice`, 'rename one of them');
      const result = made?.[i];
      if (result === undefined) {
        if (made !== undefined)
          throw this.failure('E_UNSUPPORTED', `result ${i} ('${name.slice(0, 80)}') is not made here`);
        this.scope.set(name, { kind: 'untyped' });
        return;
      }
      const stated = this.stated.get(name);
      if (stated !== undefined) this.sameAsStated(stated, result.type, `'${name.slice(0, 80)}'`);
      this.scope.set(name, { kind: 'here', operand: this.renamed(result, name) });
    });
    this.current = undefined;
  }

  /** The last call of a lowering takes the name of the ONNX value. */
  private renamed(operand: OnnxOperand, wanted: string): OnnxOperand {
    const last = this.nodes[this.nodes.length - 1];
    const at = last === undefined || last.name === operand.name ? this.nodes.length - 1 : this.nodes.findLastIndex((n) => n.name === operand.name); // prettier-ignore
    const node = this.nodes[at];
    const plain = mangled(wanted);
    if (node === undefined || !this.mine.has(operand) || node.name === plain || !node.name.startsWith('tmp_'))
      return operand;
    const name = this.fresh(wanted);
    this.nodes[at] = { ...node, name };
    this.taken.delete(node.name);
    const type = this.types.get(node.name)!;
    this.types.delete(node.name);
    this.types.set(name, type);
    return this.operand(name, operand.type);
  }

  /** Results of a node; undefined where it cannot be typed. */
  private lowered(node: OnnxNode, index: number): readonly (OnnxOperand | undefined)[] | undefined {
    const { context } = this;
    const operator = node.domain === '' ? node.op : `${node.domain}.${node.op}`;
    if (context.model.functions.has(`${node.domain}.${node.op}`))
      throw nodeError(
        'E_UNSUPPORTED',
        'functions that the model itself defines',
        node,
        index,
        'inline them: onnx.inliner.inline_local_functions',
      );
    if (operator === 'If' || operator === 'Loop' || operator === 'Scan') return lowerControl(this, node, index);
    if (operator === 'Constant') return [this.attributeConstant(node, index)];
    const inputs = node.inputs.map((name) => (name === '' ? undefined : this.lookup(name)));
    if (node.inputs.some((name, i) => name !== '' && inputs[i] === undefined)) return undefined;
    const constants = inputs.map((operand) => operand?.constant);
    if (constants.length > 0 && constants.every((c) => c !== undefined) && operator !== 'Shape') {
      const known = fold(operator, constants, (name) => {
        const value = node.attributes.get(name)?.int;
        return typeof value === 'number' ? value : undefined;
      });
      if (known !== undefined && operator !== 'Identity') return [this.constant(known)];
    }
    const lowering = LOWERINGS.get(operator);
    if (lowering === undefined) return this.opaque(operator, node, index, inputs);
    return lowering(new OnnxCall(node, index, inputs, this));
  }

  private attributeConstant(node: OnnxNode, index: number): OnnxOperand {
    const { attributes } = node;
    const tensor = attributes.get('value')?.tensor;
    if (tensor !== undefined) {
      const key = `${node.outputs[0] ?? 'constant'}`;
      return this.weights.operand(tensor, key);
    }
    const float = attributes.get('value_float')?.float;
    if (float !== undefined) return this.constant({ dtype: 'f32', dims: [], values: [float] });
    const int = attributes.get('value_int')?.int;
    if (int !== undefined) return this.constant({ dtype: 'i64', dims: [], values: [int] });
    const ints = attributes.get('value_ints')?.ints;
    if (ints !== undefined) return this.constant({ dtype: 'i64', dims: [ints.length], values: ints });
    const floats = attributes.get('value_floats')?.floats;
    if (floats !== undefined) return this.constant({ dtype: 'f32', dims: [floats.length], values: floats });
    throw nodeError('E_UNSUPPORTED', 'a constant that is neither a tensor nor a number', node, index);
  }

  /** An operator without a lowering stays as it is if the file types its results; otherwise it is listed. */
  private opaque(
    operator: string,
    node: OnnxNode,
    index: number,
    inputs: readonly (OnnxOperand | undefined)[],
  ): readonly OnnxOperand[] | undefined {
    const types = node.outputs.map((name) => {
      const stated = this.stated.get(name);
      return stated?.dtype === undefined || stated.shape === undefined || stated.shape.includes(null)
        ? undefined
        : this.typeOfValue(stated, 'value');
    });
    if (types.length === 0 || types.some((type) => type === undefined)) {
      this.context.addUnknown(operator, index);
      return undefined;
    }
    const items = types as TensorType[];
    const args = inputs.map((operand) => (operand === undefined ? null : this.ref(operand)));
    if (items.length === 1) return [this.push(`onnx.${operator}`, args, NO_KWARGS, items[0])];
    return this.members(this.call(`onnx.${operator}`, args, NO_KWARGS, { kind: 'tuple', items }), items);
  }

  emit(target: string, args: readonly Arg[], kwargs: Readonly<Record<string, Arg>> = NO_KWARGS): OnnxOperand {
    const type = this.typed(target, args, kwargs);
    if (type?.kind === 'tensor') return this.push(target, args, kwargs, type);
    throw this.failure('E_TYPE', `${target} gives no tensor here`);
  }

  emitTuple(target: string, args: readonly Arg[]): OnnxOperand[] {
    const type = this.typed(target, args, NO_KWARGS);
    if (type?.kind !== 'tuple') throw this.failure('E_TYPE', `${target} gives no list of tensors here`);
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
      const control = controlCall({ target, args, kwargs }, this.subgraphs, (name) => this.typeOf(name));
      if (control === undefined) throw new Error(`${target} is no control flow`);
      result = control.result;
    } catch (error) {
      throw this.failure('E_TYPE', error instanceof Error ? error.message : String(error));
    }
    const items = (result.kind === 'tuple' ? result.items : [result]).map((item) =>
      item.kind === 'tensor' ? item : this.fail('E_TYPE', `${target} returns something else than tensors`),
    );
    return this.members(this.call(target, args, kwargs, result), items);
  }

  /** The lowering of a body of this graph. */
  nested(source: OnnxGraph): GraphLowering {
    return new GraphLowering(this.context, source, this, this.depth + 1);
  }

  /** Name for a body of this graph. */
  bodyName(wanted: string): string {
    const plain = mangled(wanted === '' ? 'body' : wanted);
    let name = plain;
    for (let i = 1; Object.hasOwn(this.subgraphs, name); i++) name = `${plain}_${i}`;
    return name;
  }

  private members(tuple: string, items: readonly TensorType[]): OnnxOperand[] {
    return items.map((type, i) => this.push('operator.getitem', [{ kind: 'value', name: tuple }, i], NO_KWARGS, type));
  }

  private typed(target: string, args: readonly Arg[], kwargs: Readonly<Record<string, Arg>>): ValueType | undefined {
    const call = { target, args, kwargs, name: this.current?.node.outputs[0] ?? target };
    let symbolic = false;
    eachOperand(call, (name) => {
      const type = this.typeOf(name);
      symbolic ||= type.kind === 'tensor' && type.shape.some((dim) => typeof dim !== 'number');
    });
    try {
      const { infer } = this.context;
      const typeOf = (name: string): ValueType => this.typeOf(name);
      return symbolic ? inferSymbolic(infer, call, typeOf) : infer(call, typeOf);
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

  private push(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    type: TensorType,
  ): OnnxOperand {
    const own = this.context.intern(type);
    return this.operand(this.call(target, args, kwargs, own), own);
  }

  private call(target: string, args: readonly Arg[], kwargs: Readonly<Record<string, Arg>>, type: ValueType): string {
    // Bodies have weights as inputs; the call of the main graph that hands them over is their use.
    if (this.outer === undefined) eachOperand({ args, kwargs }, (name) => void this.weights.use(name));
    const name = this.fresh(`tmp_${mangled(this.current?.node.outputs[0] ?? 'value')}`);
    this.types.set(name, type);
    this.nodes.push({ name, kind: 'call', target, args, kwargs, type, meta: this.current?.meta ?? {} });
    return name;
  }

  // ---- types and errors ----------------------------------------------------------------------------------------------

  private results(): OnnxOperand[] {
    return this.source.outputs.map((output) => {
      const operand = this.lookup(output.name);
      if (operand === undefined)
        throw this.context.unknownError() ?? this.failure('E_TYPE', `'${output.name}' has no type`);
      return this.local(operand);
    });
  }

  typeOfValue(value: OnnxValue, what: string): TensorType {
    if (value.dtype === undefined || value.shape === undefined)
      throw this.failure(
        'E_TYPE',
        `${what} '${value.name.slice(0, 80)}' has no type`,
        'export the model with static or named sizes',
      );
    const dims = value.shape.map((dim, i): Dim => {
      if (typeof dim === 'number') return dim;
      return { sym: dim ?? `${mangled(value.name)}_dim${i}` };
    });
    return this.context.intern(tensorType(value.dtype, dims));
  }

  /** A stated type against ours; symbolic sizes of the file have names of its own and are not compared. */
  private sameAsStated(stated: OnnxValue, ours: TensorType, what: string): void {
    const { dtype, shape } = stated;
    const sizes = shape?.length === undefined || shape.length === ours.shape.length;
    const equal =
      sizes &&
      (dtype === undefined || dtype === ours.dtype) &&
      (shape ?? []).every((dim, i) => {
        const own = ours.shape[i];
        return typeof dim !== 'number' || typeof own !== 'number' || dim === own;
      });
    if (equal) return;
    const text = `${dtype ?? '?'}[${(shape ?? []).map((dim) => dim ?? '?').join(', ')}]`;
    throw this.failure('E_TYPE', `the file says that ${what} is ${text}, but it is ${typeText(ours)}`);
  }

  private fail(code: string, message: string): never {
    throw this.failure(code, message);
  }

  failure(code: string, message: string, hint?: string): ShardwrightError {
    if (this.current !== undefined) return nodeError(code, message, this.current.node, this.current.index, hint);
    return new ShardwrightError(code, `graph '${this.source.name.slice(0, 80)}': ${message}`, {
      hint: hint ?? 'check the model with onnx.checker, or export it again',
    });
  }
}

/** Lowers one ONNX graph, the main one or a body, node by node. */

import { ShardwrightError } from '../../errors.ts';
import type { Dim, Graph, Output, TensorType } from '../../graph/types.ts';
import { NO_KWARGS, tensorType, typeText } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { OnnxGraphBuilder } from './builder.ts';
import { type BodyBuilder, type Lowering, nodeError, OnnxCall, type OnnxOperand } from './call.ts';
import { fold, type FoldedAttributes } from './constant.ts';
import { mangled, type ModelContext, originOf } from './context.ts';
import type { OnnxGraph, OnnxNode, OnnxValue } from './file/model.ts';
import { ATTENTION } from './operators/attention.ts';
import { lowerControl } from './operators/control.ts';
import { ELEMENTWISE } from './operators/elementwise.ts';
import { INDEXING } from './operators/indexing.ts';
import { LOSSES } from './operators/losses.ts';
import { SHAPES } from './operators/movement.ts';
import { NETWORK } from './operators/network.ts';
import { RECURRENT } from './operators/recurrent.ts';
import { firstUnread } from './schema.ts';

/** Operators by name; those of another domain carry it. */
const LOWERINGS: ReadonlyMap<string, Lowering> = new Map([
  ...ELEMENTWISE,
  ...SHAPES,
  ...INDEXING,
  ...NETWORK,
  ...ATTENTION,
  ...LOSSES,
  ...RECURRENT,
]);

const MAX_BODY_DEPTH = 64;

/**
 * Lowers one graph: the main one, or a body. A body reads values of the graphs around it by name;
 * each becomes an input of the body, listed in `captured`.
 */
export class GraphLowering extends OnnxGraphBuilder implements BodyBuilder {
  private readonly stated: ReadonlyMap<string, OnnxValue>;

  constructor(
    context: ModelContext,
    source: OnnxGraph,
    outer: GraphLowering | undefined,
    readonly depth: number,
  ) {
    super(context, source, outer);
    if (depth > MAX_BODY_DEPTH)
      throw new ShardwrightError('E_LIMIT', `graphs nest deeper than ${MAX_BODY_DEPTH}`, {
        hint: 'no model needs this',
      });
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
      this.input(input.name, this.typeOfValue(input, 'input'), {
        role: 'input',
        roleName: input.name,
      });
    }
    this.run();
    const outputs = this.results().map((operand, i): Output => ({
      value: operand.name,
      role: 'output',
      index: i,
    }));
    return {
      name,
      nodes: [
        ...this.placeholders,
        ...this.weights.placeholders(source.initializers),
        ...this.nodes,
      ],
      outputs,
      subgraphs: this.subgraphs,
    };
  }

  /**
   * A body whose first inputs have these types. `finish` may change what is returned; captured
   * values become the last inputs, in order of their first use.
   */
  body(
    name: string,
    types: readonly TensorType[],
    finish: (
      inputs: readonly OnnxOperand[],
      results: readonly OnnxOperand[],
    ) => readonly OnnxOperand[],
  ): Graph {
    const { source } = this;
    if (source.inputs.length !== types.length)
      throw this.failure(
        'E_TYPE',
        `graph '${source.name}' takes ${source.inputs.length} inputs, the call gives ` +
          `${types.length}`,
      );
    this.initializers(`${name}/`);
    const inputs = source.inputs.map((input, i) => {
      const type = itemAt(types, i);
      this.sameAsStated(input, type, `input '${input.name}' of graph '${source.name}'`);
      return this.input(input.name, type, { role: 'arg', roleIndex: i });
    });
    this.run();
    const returned = finish(inputs, this.results());
    const outputs = returned.map((operand, i): Output => ({
      value: this.nameOf(operand),
      role: 'output',
      index: i,
    }));
    return {
      name,
      nodes: [...this.placeholders, ...this.nodes],
      outputs,
      subgraphs: this.subgraphs,
    };
  }

  // ---- nodes
  // ---------------------------------------------------------------------------

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
        throw this.failure(
          'E_DUP',
          `'${name.slice(0, 80)}' is defined twice`,
          'rename one of them',
        );
      const result = made?.[i];
      if (result === undefined) {
        if (made !== undefined && this.context.isUsed(name))
          throw this.failure(
            'E_UNSUPPORTED',
            `result ${i} ('${name.slice(0, 80)}') is not made here`,
          );
        this.scope.set(name, { kind: 'untyped' });
        return;
      }
      const stated = this.stated.get(name);
      if (stated !== undefined) this.sameAsStated(stated, result.type, `'${name.slice(0, 80)}'`);
      this.scope.set(name, { kind: 'here', operand: this.renamed(result, name) });
    });
    this.current = undefined;
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
    if (operator === 'If' || operator === 'Loop' || operator === 'Scan')
      return lowerControl(this, node, index);
    if (operator === 'Constant') return [this.attributeConstant(node, index)];
    const inputs = node.inputs.map((name) => (name === '' ? undefined : this.lookup(name)));
    if (node.inputs.some((name, i) => name !== '' && inputs[i] === undefined)) return undefined;
    const constants = inputs.map((operand) => operand?.constant);
    if (constants.length > 0 && constants.every((c) => c !== undefined) && operator !== 'Shape') {
      const known = fold(operator, constants, foldedAttributes(node));
      if (known !== undefined && operator !== 'Identity') return [this.constant(known)];
    }
    const lowering = LOWERINGS.get(operator);
    if (lowering === undefined) return this.opaque(operator, node, index, inputs);
    const { opset } = context;
    const call = new OnnxCall(node, index, inputs, this, opset, (name) => context.isUsed(name));
    const made = lowering(call);
    const unread = firstUnread(node, opset, call.readAttributes, call.readInputs);
    if (unread !== undefined)
      throw nodeError('E_UNSUPPORTED', unread.what, node, index, unread.hint);
    return made;
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
    if (ints !== undefined)
      return this.constant({ dtype: 'i64', dims: [ints.length], values: ints });
    const floats = attributes.get('value_floats')?.floats;
    if (floats !== undefined)
      return this.constant({ dtype: 'f32', dims: [floats.length], values: floats });
    throw nodeError(
      'E_UNSUPPORTED',
      'a constant that is neither a tensor nor a number',
      node,
      index,
    );
  }

  /**
   * An operator without a lowering stays as it is if the file types its results; otherwise it is
   * listed.
   */
  private opaque(
    operator: string,
    node: OnnxNode,
    index: number,
    inputs: readonly (OnnxOperand | undefined)[],
  ): readonly OnnxOperand[] | undefined {
    const types = node.outputs.map((name) => {
      const stated = this.stated.get(name);
      return stated?.dtype === undefined ||
        stated.shape === undefined ||
        stated.shape.includes(null)
        ? undefined
        : this.typeOfValue(stated, 'value');
    });
    if (types.length === 0 || types.some((type) => type === undefined)) {
      this.context.addUnknown(operator, index);
      return undefined;
    }
    const items = types as TensorType[];
    const args = inputs.map((operand) => (operand === undefined ? null : this.ref(operand)));
    if (items.length === 1)
      return [this.push(`onnx.${operator}`, args, NO_KWARGS, itemAt(items, 0))];
    return this.members(
      this.call(`onnx.${operator}`, args, NO_KWARGS, { kind: 'tuple', items }),
      items,
    );
  }

  /** The lowering of a body of this graph. */
  nested(source: OnnxGraph): GraphLowering {
    return new GraphLowering(this.context, source, this, this.depth + 1);
  }

  // ---- types and errors
  // ---------------------------------------------------------------------------

  private results(): OnnxOperand[] {
    return this.source.outputs.map((output) => {
      const operand = this.lookup(output.name);
      if (operand === undefined)
        throw this.context.unknownError() ?? this.failure('E_TYPE', `'${output.name}' has no type`);
      const made = this.local(operand);
      this.weights.use(made.name);
      return made;
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

  /**
   * A stated type against ours; symbolic sizes of the file have names of its own and are not
   * compared.
   */
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
    throw this.failure(
      'E_TYPE',
      `the file says that ${what} is ${text}, but it is ${typeText(ours)}`,
    );
  }
}

/** Attributes as `fold` reads them. */
function foldedAttributes({ attributes }: OnnxNode): FoldedAttributes {
  return {
    int: (name) => {
      const value = attributes.get(name)?.int;
      return typeof value === 'number' ? value : undefined;
    },
    ints: (name) => {
      const values = attributes.get(name)?.ints;
      return values === undefined || values.length === 0 ? undefined : values.map(Number);
    },
    tensor: (name) => {
      const tensor = attributes.get(name)?.tensor;
      return tensor?.values === undefined
        ? undefined
        : { dtype: tensor.dtype, dims: tensor.dims, values: tensor.values };
    },
  };
}

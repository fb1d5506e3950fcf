/** Lowers ONNX `If`, `Loop` and `Scan` to `cond`, `while_loop` and `scan`. */

import { NameSet } from '../../../graph/names.ts';
import type { Arg, Graph, TensorType } from '../../../graph/types.ts';
import { tensorType } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import { type BodyBuilder, nodeError, type OnnxOperand } from '../call.ts';
import type { OnnxGraph, OnnxNode } from '../file/model.ts';

/** A branch of an `If`, lowered. */
interface Branch {
  readonly lowering: BodyBuilder;
  readonly name: string;
  readonly made: Graph;
}

/**
 * `If`, `Loop` and `Scan` become `cond`, `while_loop` or `scan`. Bodies of ONNX read values of the
 * graph around them by name; ours take everything they read as inputs, behind those that the
 * operator hands over.
 */
export function lowerControl(
  graph: BodyBuilder,
  node: OnnxNode,
  index: number,
): readonly (OnnxOperand | undefined)[] | undefined {
  const inputs = node.inputs.map((name) => (name === '' ? undefined : graph.lookup(name)));
  if (node.inputs.some((name, i) => name !== '' && inputs[i] === undefined)) return undefined;
  const control = new Control(graph, node, index, inputs);
  return node.op === 'If' ? control.cond() : node.op === 'Scan' ? control.scan() : control.loop();
}

class Control {
  constructor(
    private readonly graph: BodyBuilder,
    private readonly node: OnnxNode,
    private readonly index: number,
    private readonly inputs: readonly (OnnxOperand | undefined)[],
  ) {}

  private fail(code: string, message: string): never {
    throw nodeError(code, message, this.node, this.index);
  }

  private body(name: string): OnnxGraph {
    return (
      this.node.attributes.get(name)?.graph ??
      this.fail('E_TYPE', `attribute '${name}' holds no graph`)
    );
  }

  private input(i: number): OnnxOperand {
    return this.inputs[i] ?? this.fail('E_TYPE', `input ${i} is missing`);
  }

  private lowering(body: OnnxGraph): BodyBuilder {
    return this.graph.nested(body);
  }

  private refs(operands: readonly OnnxOperand[]): Arg[] {
    return operands.map((operand) => this.graph.ref(operand));
  }

  /** Both branches take the values that either reads. */
  cond(): readonly OnnxOperand[] {
    const { graph } = this;
    const branch = (attribute: string): Branch => {
      const source = this.body(attribute);
      const lowering = this.lowering(source);
      const name = graph.bodyName(source.name === '' ? attribute : source.name);
      return { lowering, name, made: lowering.body(name, [], (_inputs, results) => results) };
    };
    const [a, b] = [branch('then_branch'), branch('else_branch')];
    const all: OnnxOperand[] = [];
    for (const { lowering } of [a, b])
      for (const operand of lowering.captured)
        if (!all.some((known) => known.name === operand.name)) all.push(operand);
    const other = b.name === a.name ? `${b.name}_else` : b.name;
    const bodies: [string, Graph][] = [
      [a.name, withInputs(a.made, a.lowering.captured, all)],
      [other, { ...withInputs(b.made, b.lowering.captured, all), name: other }],
    ];
    const args: Arg[] = [
      graph.ref(this.input(0)),
      { kind: 'graph', name: a.name },
      { kind: 'graph', name: other },
      this.refs(all),
    ];
    return graph.emitControl('cond', args, bodies);
  }

  /** States first, then slices along dim 0; results likewise. */
  scan(): readonly OnnxOperand[] {
    const { graph, node } = this;
    const source = this.body('body');
    const scanned = node.attributes.get('num_scan_inputs')?.int;
    if (typeof scanned !== 'number' || scanned < 1 || scanned > this.inputs.length)
      return this.fail(
        'E_TYPE',
        `num_scan_inputs is ${String(scanned)} for ${this.inputs.length} inputs`,
      );
    for (const name of [
      'scan_input_axes',
      'scan_output_axes',
      'scan_input_directions',
      'scan_output_directions',
    ])
      if (node.attributes.get(name)?.ints.some((value) => value !== 0) === true)
        return this.fail('E_UNSUPPORTED', `a scan whose ${name} are not all 0`);
    const operands = this.inputs.map((_, i) => this.input(i));
    const states = operands.slice(0, operands.length - scanned);
    const xs = operands.slice(operands.length - scanned);
    const types = [
      ...states.map((operand) => operand.type),
      ...xs.map(({ type }) =>
        type.shape.length === 0
          ? this.fail('E_TYPE', 'a scalar is scanned')
          : tensorType(type.dtype, type.shape.slice(1)),
      ),
    ];
    const lowering = this.lowering(source);
    const name = graph.bodyName(source.name);
    const made = lowering.body(name, types, (_inputs, results) => results);
    const args: Arg[] = [
      { kind: 'graph', name },
      this.refs(states),
      this.refs(xs),
      this.refs(lowering.captured),
    ];
    return graph.emitControl('scan', args, [[name, made]]);
  }

  /**
   * With a known count and no condition of its own a loop is a scan over nothing; otherwise a
   * `while_loop` that carries the iteration number and the condition.
   */
  loop(): readonly OnnxOperand[] {
    const { graph } = this;
    const source = this.body('body');
    const limit = this.inputs[0];
    const start = this.inputs[1];
    const carried = this.inputs.slice(2).map((_, i) => this.input(i + 2));
    const passesCondition =
      source.outputs[0] !== undefined && source.outputs[0].name === source.inputs[1]?.name;
    const count = limit?.constant?.values[0];
    const startsTrue = start === undefined || Number(start.constant?.values[0] ?? 0) === 1;
    const number = (value: number): OnnxOperand =>
      graph.constant({ dtype: 'i64', dims: [], values: [value] });
    const truth = graph.constant({ dtype: 'b8', dims: [], values: [1] });
    const scalars: TensorType[] = [tensorType('i64', []), tensorType('b8', [])];
    const types = [...scalars, ...carried.map((operand) => operand.type)];
    const lowering = this.lowering(source);
    const name = graph.bodyName(source.name);
    const counted = typeof count === 'number' && startsTrue && passesCondition;
    const made = lowering.body(name, types, (inputs, results) => {
      const next = lowering.emit('aten.add.Tensor', [lowering.ref(itemAt(inputs, 0)), 1]);
      return [next, ...results];
    });
    const init = [number(0), start ?? truth, ...carried];
    const stacked = source.outputs.length - 1 - carried.length;
    if (stacked < 0)
      return this.fail(
        'E_TYPE',
        `the body returns ${source.outputs.length} values for ${carried.length} carried ones`,
      );
    if (counted) {
      const args: Arg[] = [
        { kind: 'graph', name },
        this.refs(init),
        [],
        this.refs(lowering.captured),
      ];
      return graph.emitControl('scan', args, [[name, made]], { length: count }).slice(2);
    }
    if (stacked > 0)
      return this.fail('E_UNSUPPORTED', 'a loop with a condition that also collects values');
    if (limit !== undefined && !isEndless(limit))
      return this.fail('E_UNSUPPORTED', 'a loop with both a count and a condition');
    const test = graph.bodyName(`${source.name}_condition`);
    const captured = lowering.captured;
    const inputs = [...types, ...captured.map((operand) => operand.type)];
    const args: Arg[] = [
      { kind: 'graph', name: test },
      { kind: 'graph', name },
      this.refs(init),
      this.refs(captured),
    ];
    return graph
      .emitControl('while_loop', args, [
        [test, conditionBody(test, inputs)],
        [name, made],
      ])
      .slice(2);
  }
}

/** A count that no loop reaches, as exporters write for "until the condition fails". */
function isEndless(limit: OnnxOperand): boolean {
  const value = limit.constant?.values[0];
  return typeof value === 'bigint' || (typeof value === 'number' && value >= 2 ** 31 - 1);
}

/** Returns the carried condition. */
function conditionBody(name: string, types: readonly TensorType[]): Graph {
  const nodes = types.map((type, i) => ({
    name: `arg${i}`,
    kind: 'placeholder' as const,
    target: `arg${i}`,
    args: [],
    kwargs: {},
    type,
    meta: { role: 'arg' as const, roleIndex: i },
  }));
  return { name, nodes, outputs: [{ value: 'arg1', role: 'output', index: 0 }], subgraphs: {} };
}

/** The body with one input for each of `all`; those that it does not read are there but unused. */
function withInputs(body: Graph, own: readonly OnnxOperand[], all: readonly OnnxOperand[]): Graph {
  const first = body.nodes.findIndex((node) => node.kind !== 'placeholder');
  const placeholders = first < 0 ? body.nodes : body.nodes.slice(0, first);
  const rest = first < 0 ? [] : body.nodes.slice(first);
  const taken = new NameSet(body.nodes.map((node) => node.name));
  const inputs = all.map((operand, i) => {
    const at = own.findIndex((known) => known.name === operand.name);
    const meta = { role: 'arg' as const, roleIndex: i };
    if (at >= 0) return { ...itemAt(placeholders, at), meta };
    const name = taken.take(operand.name);
    return {
      name,
      kind: 'placeholder' as const,
      target: name,
      args: [],
      kwargs: {},
      type: operand.type,
      meta,
    };
  });
  return { ...body, nodes: [...inputs, ...rest] };
}

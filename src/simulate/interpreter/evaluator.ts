/**
 * Runs a graph with numbers: takes inputs on one or several ranks and gives the value of every
 * node.
 */

import { internalError, ShardwrightError } from '../../errors.ts';
import { type Frame, interpret, type Visitor } from '../../graph/interpret.ts';
import { LOCAL_MAP, localMapCall } from '../../graph/local-map.ts';
import { indexGraph } from '../../graph/order.ts';
import type { Arg, Graph, Node, ValueType } from '../../graph/types.ts';
import { eachOperand, getOwn, isList, isRef, typeText } from '../../graph/value.ts';
import { NDArray } from '../../ndarray/array.ts';
import { streamOf } from '../../ndarray/random.ts';
import { evaluateCall, type EvaluatedArg } from '../../ops/kernels/evaluate.ts';
import type { EvaluatedBody } from '../../ops/record/kernel.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { controlFlow, isControl } from './control.ts';
import { standIn } from './stand-in.ts';
import { type Cell, Ledger, type Value } from './values.ts';

export type { Value } from './values.ts';

/** Seed, wanted outputs and limits of an evaluation. */
export interface EvaluateOptions {
  /** Seed of the random operators; every call draws from a stream of its own. Default 0. */
  readonly seed?: number;
  /**
   * Positions in `graph.outputs` that are wanted; the others are null and what only they need is
   * not evaluated. Default all.
   */
  readonly outputs?: readonly number[];
  /** Evaluate calls that no output needs as well. Default false. */
  readonly unused?: boolean;
  /** Values of attribute nodes, by target. */
  readonly attributes?: ReadonlyMap<string, NDArray>;
  /**
   * Calls of operators that the table does not have give what `standIn` gives. Default false: they
   * are an error.
   */
  readonly standIns?: boolean;
  /** Trips of one while loop after which it counts as endless. Default 10,000. */
  readonly maxTrips?: number;
  /**
   * Called with every value when it is made, inputs of bodies included, and with the run of the
   * body that it is in: the path of calls, trips and bodies, empty for the graph itself.
   */
  readonly onValue?: (run: string, node: Node, value: Value) => void;
}

/** Outputs of a graph that was run with numbers in float64. */
export interface Evaluation {
  /**
   * By position in `graph.outputs`; null for one that the graph does not return, or that was not
   * wanted.
   */
  readonly outputs: readonly Value[];
  /**
   * Most elements that were held at one time, inputs included, views of one storage counted once.
   */
  readonly peakElements: number;
}

/** A `local_map` node and the body that it names. */
export interface MappedRegion {
  readonly node: Node;
  readonly body: Graph;
}

/** Results of a region of per-device code, in order. */
type RunRegion = (
  table: OperatorTable,
  region: MappedRegion,
  look: (name: string) => Value,
  seed: number,
) => readonly Value[];

/** For comparators, reducers and programs of one device, in which regions are not allowed. */
const noRegions: RunRegion = (_table, { node }) => {
  throw new ShardwrightError(
    'E_TYPE',
    `${node.name}: a region of per-device code, in a program that one device runs`,
  );
};

/**
 * Runs a graph on arrays in float64 and returns what it returns: the reference that programs on
 * simulated devices are compared with. Values are freed after their last use. Control-flow calls
 * run their bodies through the same interpreter.
 *
 * @param inputs one value for each placeholder, in order
 * @throws E_INPUT when the inputs do not fit the placeholders; what `evaluateCall` throws, with the
 *   node
 */
export function evaluateWith(
  regions: RunRegion,
  table: OperatorTable,
  graph: Graph,
  inputs: readonly Value[],
  options: EvaluateOptions = {},
): Evaluation {
  checkInputs(graph, inputs);
  const evaluator = new Evaluator(regions, table, options);
  let at = 0;
  for (const node of graph.nodes)
    if (node.kind === 'placeholder') options.onValue?.('', node, inputs[at++]);
  const ledger = evaluator.ledger;
  for (const input of inputs) ledger.hold(input);
  const wanted = new Set(options.outputs ?? graph.outputs.map((_, i) => i));
  if (options.unused !== true) evaluator.skipped = unneeded(graph, wanted);
  const { outputs } = interpret(
    graph,
    evaluator,
    inputs.map((value) => ({ value })),
  );
  return {
    outputs: outputs.map((cell, i) =>
      cell === null || !wanted.has(i) ? null : evaluator.read(cell),
    ),
    peakElements: ledger.peak,
  };
}

class Evaluator implements Visitor<Cell> {
  readonly ledger = new Ledger();
  /** Nodes of the outermost graph that no wanted output needs. */
  skipped: ReadonlySet<Node> = new Set();
  /** Which run of which body is at hand: part of the name of every random stream. */
  private scope = '';
  private readonly deaths = new Map<Graph, readonly (readonly string[])[]>();

  constructor(
    private readonly regions: RunRegion,
    private readonly table: OperatorTable,
    private readonly options: EvaluateOptions,
  ) {}

  placeholder(node: Node): Cell {
    throw internalError(`placeholder ${node.name} has no input`);
  }

  getAttr(node: Node, frame: Frame<Cell>): Cell {
    // The name of a body, which calls use directly.
    if (getOwn(frame.graph.subgraphs, node.target) !== undefined) return { value: null };
    const value = this.options.attributes?.get(node.target);
    if (value !== undefined) return { value };
    throw new ShardwrightError('E_INPUT', `attribute '${node.target}' has no value`, {
      node: node.name,
      hint: 'give it in the option `attributes`',
    });
  }

  call(node: Node, _operands: readonly Cell[], frame: Frame<Cell>): Cell {
    const value = this.skipped.has(node) ? null : this.compute(node, frame);
    this.ledger.hold(value);
    this.options.onValue?.(this.scope, node, value);
    const cell: Cell = { value };
    this.free(node, frame, cell);
    return cell;
  }

  read(cell: Cell): Value {
    if (cell.value === undefined) throw internalError('a value is read after it was freed');
    return cell.value;
  }

  private compute(node: Node, frame: Frame<Cell>): Value {
    const look = (name: string): Value => this.read(frame.value(name));
    try {
      if (node.target === 'operator.getitem') return item(node, look);
      if (node.target === LOCAL_MAP) return this.localMap(node, frame, look);
      if (isControl(node.target))
        return controlFlow(node, {
          ranks: 1,
          value: (name) => [look(name)],
          type: () => node.type,
          maxTrips: this.options.maxTrips ?? 10_000,
          run: (body, inputs, trip) =>
            this.runBody(
              frame,
              node,
              body,
              inputs.map(([value]) => value),
              trip,
            ).map((value) => [value]),
        }).map(([value]) => value);
      if (this.options.standIns === true && this.table.get(node.target) === undefined)
        return standIn(node, look);
      const seed = this.options.seed ?? 0;
      const bodies = bodiesOf(this.table, frame.graph);
      return evaluateCall(
        this.table,
        node.target,
        node.args.map((arg) => argument(arg, look, bodies)),
        Object.fromEntries(
          Object.entries(node.kwargs).map(([key, arg]) => [key, argument(arg, look, bodies)]),
        ),
        { seed, stream: streamOf(`${this.scope}${node.name}`) },
        node.type,
      );
    } catch (error) {
      if (error instanceof ShardwrightError && error.details.node === undefined)
        throw error.with({ node: node.name });
      throw error;
    }
  }

  /** A region of per-device code: its ranks are virtual devices of their own. */
  private localMap(node: Node, frame: Frame<Cell>, look: (name: string) => Value): Value {
    const body = getOwn(frame.graph.subgraphs, localMapCall(node).body);
    if (body === undefined) throw internalError(`${node.name} has no body`);
    return this.regions(this.table, { node, body }, look, this.options.seed ?? 0);
  }

  private runBody(
    frame: Frame<Cell>,
    node: Node,
    body: string,
    inputs: readonly Value[],
    trip: number,
  ): Value[] {
    const outer = this.scope;
    this.scope = runOf(outer, node.name, trip, body);
    for (const input of inputs) this.ledger.hold(input);
    const graph = getOwn(frame.graph.subgraphs, body);
    let at = 0;
    for (const inner of graph?.nodes ?? [])
      if (inner.kind === 'placeholder') this.options.onValue?.(this.scope, inner, inputs[at++]);
    // Cells of its own, so that the body may free what it was given.
    const results = frame.run(
      body,
      inputs.map((value) => ({ value })),
    );
    this.scope = outer;
    const values = results.map((cell) => (cell === null ? null : this.read(cell)));
    for (const value of values) this.ledger.release(value);
    return values;
  }

  /** Drops every value whose last use is this node. */
  private free(node: Node, frame: Frame<Cell>, own: Cell): void {
    let plan = this.deaths.get(frame.graph);
    if (plan === undefined) {
      plan = lastUses(frame.graph);
      this.deaths.set(frame.graph, plan);
    }
    const at = indexGraph(frame.graph).position.get(node.name) ?? -1;
    for (const name of plan[at] ?? []) {
      const cell = name === node.name ? own : frame.value(name);
      this.ledger.release(cell.value ?? null);
      cell.value = undefined;
    }
  }
}

/** Path of a run of a body: part of the name of every random stream in it. */
export function runOf(around: string, call: string, trip: number, body: string): string {
  return `${around}${call}[${trip}].${body}.`;
}

/** For each node the names that are not used after it. What the graph returns stays. */
function lastUses(graph: Graph): readonly (readonly string[])[] {
  const { userStart, users, returned } = indexGraph(graph);
  const lists = graph.nodes.map((): string[] => []);
  graph.nodes.forEach((node, i) => {
    if (returned[i] === 1) return;
    const last = userStart[i + 1] > userStart[i] ? users[userStart[i + 1] - 1] : i;
    if (last !== i || node.kind === 'call') lists[last].push(node.name);
  });
  return lists;
}

/** Calls that none of the wanted outputs depends on. */
function unneeded(graph: Graph, wanted: ReadonlySet<number>): ReadonlySet<Node> {
  const { position, operandStart, operands } = indexGraph(graph);
  const needed = new Uint8Array(graph.nodes.length);
  graph.outputs.forEach((output, i) => {
    const at = output.value === null ? undefined : position.get(output.value);
    if (wanted.has(i) && at !== undefined) needed[at] = 1;
  });
  for (let i = graph.nodes.length - 1; i >= 0; i--)
    if (needed[i] === 1)
      for (let k = operandStart[i]; k < operandStart[i + 1]; k++) needed[operands[k]] = 1;
  return new Set(graph.nodes.filter((node, i) => node.kind === 'call' && needed[i] === 0));
}

/** `x[i]` of a call with several results. */
function item(node: Node, look: (name: string) => Value): Value {
  const [source, index] = node.args;
  const list = isRef(source) ? look(source.name) : null;
  if (!Array.isArray(list) || typeof index !== 'number')
    throw new ShardwrightError(
      'E_TYPE',
      'operator.getitem needs a value with several results and a number',
    );
  const values = list as readonly Value[];
  const value = values[index < 0 ? index + values.length : index];
  if (value !== undefined) return value;
  throw new ShardwrightError(
    'E_TYPE',
    `operator.getitem: there are ${values.length} results, not one with number ${index}`,
  );
}

/** Runs of the bodies that calls of a graph take as arguments. */
export function bodiesOf(table: OperatorTable, graph: Graph): (name: string) => EvaluatedBody {
  return (name) => {
    const bodyOf = (): Graph => {
      const body = getOwn(graph.subgraphs, name);
      if (body === undefined) throw internalError(`graph ${graph.name} has no body @${name}`);
      return body;
    };
    const whole = (inputs: readonly NDArray[]): NDArray[] =>
      evaluateWith(noRegions, table, bodyOf(), inputs).outputs.map((value) => {
        if (value instanceof NDArray) return value;
        throw new ShardwrightError('E_TYPE', `body @${name} must return arrays`);
      });
    const elementwise = (inputs: readonly NDArray[]): (NDArray | null)[] => {
      checkElementwise(table, bodyOf());
      const evaluator = new Evaluator(noRegions, table, {});
      const { outputs } = interpret(
        bodyOf(),
        evaluator,
        inputs.map((value) => ({ value })),
      );
      return outputs.map((cell) => {
        const value = cell === null ? null : evaluator.read(cell);
        return value instanceof NDArray ? value : null;
      });
    };
    return Object.assign(whole, { elementwise });
  };
}

/** Operators besides the elementwise ones that treat every element of a scalar input alone. */
const ALONE: ReadonlySet<string> = new Set([
  'aten.alias.default',
  'aten.clone.default',
  'aten.detach.default',
  'aten.index.Tensor',
  'aten.lift_fresh_copy.default',
  'flex_lib.zeros_and_scatter.default',
]);

/** @throws E_NO_KERNEL with the node, see `EvaluatedBody.elementwise` */
function checkElementwise(table: OperatorTable, body: Graph): void {
  const many = new Set<string>();
  for (const node of body.nodes) {
    const { target, name, type } = node;
    if (node.kind === 'placeholder') {
      if (type.kind === 'tensor' && type.shape.length === 0) many.add(name);
      continue;
    }
    let reads = false;
    eachOperand(node, (operand) => (reads ||= many.has(operand)));
    if (!reads) continue;
    if (table.get(target)?.cls !== 'pointwise' && !ALONE.has(target))
      throw new ShardwrightError(
        'E_NO_KERNEL',
        `${target} of body @${body.name} is not elementwise, so it is not evaluated for many ` +
          'numbers at once',
        { node: name },
      );
    if (target !== 'flex_lib.zeros_and_scatter.default') many.add(name);
  }
}

/**
 * An argument with the values of the graph and runs of its bodies put in; a symbolic size counts at
 * its example size.
 */
export function argument(
  arg: Arg,
  look: (name: string) => Value,
  bodies: (name: string) => EvaluatedBody,
): EvaluatedArg {
  if (isList(arg)) return arg.map((member) => argument(member, look, bodies));
  if (isRef(arg)) {
    const value = look(arg.name);
    if (value instanceof NDArray || typeof value === 'number' || value === null) return value;
    throw new ShardwrightError(
      'E_TYPE',
      `'${arg.name}' has several results; read one with getitem`,
    );
  }
  if (arg !== null && typeof arg === 'object' && arg.kind === 'graph') return bodies(arg.name);
  if (arg !== null && typeof arg === 'object' && arg.kind === 'slice')
    throw new ShardwrightError('E_NO_KERNEL', 'a slice argument is not evaluated');
  return arg;
}

function checkInputs(graph: Graph, inputs: readonly Value[]): void {
  const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
  if (placeholders.length !== inputs.length)
    throw new ShardwrightError(
      'E_INPUT',
      `graph ${graph.name} takes ${placeholders.length} inputs, got ${inputs.length}`,
    );
  placeholders.forEach((node, i) => {
    const why = misfit(inputs[i], node.type);
    if (why !== undefined)
      throw new ShardwrightError(
        'E_INPUT',
        `input ${i} (${node.name}) must be ${typeText(node.type)}, is ${why}`,
        {
          node: node.name,
        },
      );
  });
}

function misfit(value: Value, type: ValueType): string | undefined {
  if (type.kind === 'none') return value === null ? undefined : 'not absent';
  if (type.kind === 'sym') return typeof value === 'number' ? undefined : 'no number';
  if (type.kind === 'tuple') return 'a list of values, which is not supported';
  if (!(value instanceof NDArray)) return value === null ? 'absent' : 'no array';
  const fits =
    value.dtype === type.dtype &&
    value.rank === type.shape.length &&
    type.shape.every(
      (dim, d) =>
        (typeof dim === 'number' ? dim : (dim.example ?? value.shape[d])) === value.shape[d],
    );
  return fits ? undefined : `${value.dtype}[${value.shape.join(', ')}]`;
}

/**
 * Makes one record for each input that a node reads, with its costs, from the data flow and
 * strategies of a graph.
 */
import { gradientsOfParameters, ownersOfOutputs } from '../../graph/carried.ts';
import { shardable } from '../../mesh/sharding/sharding.ts';
import type { Dataflow } from '../../strategy/dataflow.ts';
import type { StrategyTable } from '../../strategy/nodes.ts';
import { runsOf } from '../../strategy/runs.ts';
import type { BuildInput } from './input.ts';
import type { SpecList, Use } from './model.ts';
import type { TableBuilder } from './tables.ts';

/** The spec list of every (node content, slot), made once. */
export class SpecColumns {
  private readonly cache = new Map<number, SpecList>();

  constructor(
    private readonly strategies: StrategyTable,
    private readonly tables: TableBuilder,
  ) {}

  /** Slot i < inputs: that input; slot inputs + k: result k. */
  of(node: number, slot: number): SpecList {
    const entry = this.strategies.nodes[node];
    if (entry === null) throw new Error(`internal: node ${node} has no strategies`);
    const key = entry.content * 4096 + slot;
    let list = this.cache.get(key);
    if (list === undefined) {
      const { set } = entry;
      const width = set.inputCount + set.outputCount;
      const ids = new Int32Array(set.count);
      for (let s = 0; s < set.count; s++) ids[s] = set.specs[s * width + slot];
      list = this.tables.specList(ids);
      this.cache.set(key, list);
    }
    return list;
  }

  result(node: number, result: number): SpecList {
    const entry = this.strategies.nodes[node];
    return this.of(node, (entry?.set.inputCount ?? 0) + result);
  }
}

/**
 * Tells whether an output is placed as what it is named for: it has its type, or it is the gradient
 * in the dtype of the sums.
 */
function isPartner(
  of: Dataflow['values'][number],
  value: Dataflow['values'][number],
  role: string,
): boolean {
  return (
    of.type === value.type ||
    (role === 'grad' && String(of.meta.shape) === String(value.meta.shape))
  );
}

const OUTERMOST = { scope: 0, times: 1 } as const;

/**
 * Every use of a value, without copies yet: inputs of calls in node order, then what the program
 * returns.
 */
export function collectUses(
  input: BuildInput,
  columns: SpecColumns,
  tables: TableBuilder,
  nodeVariable: Int32Array,
): Use[] {
  const from = { input, columns, tables, nodeVariable };
  return [...inputUses(from), ...outputUses(from), ...carryUses(from)];
}

/** The data that uses are made from. */
interface UsesFrom {
  readonly input: BuildInput;
  readonly columns: SpecColumns;
  readonly tables: TableBuilder;
  readonly nodeVariable: Int32Array;
}

/** The loop body in which a value moves to its consumer, and how often it does. */
function moveOf(
  { graph, flow, opened }: BuildInput,
  value: number,
  consumer: number,
): Pick<Use, 'scope' | 'times'> {
  if (opened === undefined) return OUTERMOST;
  const producer = graph.nodes[flow.values[value].node].name;
  const scope = opened.loops.moveScope(producer, graph.nodes[consumer].name);
  return { scope, times: opened.loops.timesOf(scope) };
}

/** Inputs of calls in node order. */
function inputUses({ input, columns, nodeVariable }: UsesFrom): Use[] {
  const { graph, flow } = input;
  return graph.nodes.flatMap((_, n) =>
    Array.from(flow.inputs[n], (value, i): Use => ({
      value,
      variable: nodeVariable[n],
      at: { kind: 'input', node: n, input: i },
      phase: flow.passOf(n, value),
      ...moveOf(input, value, n),
      demands: columns.of(n, i),
      copy: -1,
      ...(input.inPlace?.has(n) === true ? { stays: true } : {}),
    })),
  );
}

/**
 * The uses of returned values; an output that is placed as no input is has a variable of its own.
 * Where a step has several passes, the gradient of a parameter is brought to its placement in the
 * last of them.
 */
function outputUses({ input, columns, tables, nodeVariable }: UsesFrom): Use[] {
  const partnerOf = partners(input);
  const ofParameter = gradientsOfParameters(input.graph);
  return input.flow.outputs.flatMap(({ output, value }, k): Use[] => {
    if (value < 0) return [];
    const partner = partnerOf(k);
    const use = {
      value,
      at: { kind: 'output', output: k },
      phase: output.role === 'output' ? 'forward' : 'backward',
      scope: OUTERMOST.scope,
      times: ofParameter(output) ? 1 / (input.accumulate ?? 1) : OUTERMOST.times,
      copy: -1,
    } as const;
    if (partner !== undefined) {
      const demands = columns.result(partner, 0);
      return [{ ...use, variable: nodeVariable[partner], demands }];
    }
    const specs = outputSpecs(input, k);
    const vector = tables.vector(`z${specs.length}`, () => new Float64Array(specs.length));
    const variable = tables.addVariable({ kind: 'output', output: k, specs }, specs.length, vector);
    return [{ ...use, variable, demands: tables.specList(specs) }];
  });
}

/**
 * Finds the placeholder that an output is placed as: the tensor that a gradient is of, or that the
 * next step reads instead, or the tangent of a result.
 */
function partners({ graph, flow, typedOutputs }: BuildInput): (k: number) => number | undefined {
  const ownerOf = ownersOfOutputs(graph);
  const tangents = new Map<number, number>();
  graph.nodes.forEach((node, n) => {
    if (node.kind === 'placeholder' && node.meta.role === 'tangent')
      tangents.set(node.meta.roleIndex ?? 0, n);
  });
  return (k) => {
    const { output, value } = flow.outputs[k];
    const named = output.role === 'output' ? tangents.get(output.index ?? k) : ownerOf(output);
    if (named === undefined || typedOutputs?.get(k) !== undefined) return undefined;
    // A graph without stated roles counts updated statistics among its outputs: their tangent is
    // another tensor's.
    const placed = flow.values[flow.results[named][0]];
    return isPartner(placed, flow.values[value], output.role) ? named : undefined;
  };
}

/** Placements that an output of its own may have. */
function outputSpecs({ flow, space, typedOutputs, mostRuns }: BuildInput, k: number): Int32Array {
  const stated = typedOutputs?.get(k);
  if (stated !== undefined) return Int32Array.of(stated);
  const { shape } = flow.values[flow.outputs[k].value].meta;
  return Int32Array.from(
    space
      .enumerate(shape.length)
      .filter((id) => runsOf(space, id) <= (mostRuns ?? Infinity))
      .filter((id) => shardable(space.get(id), space.mesh, shape)),
  );
}

/** Values that an opened loop takes to its next trip. */
function carryUses({ input, columns, nodeVariable }: UsesFrom): Use[] {
  const { flow, opened } = input;
  return (opened?.carries ?? []).map(({ value: name, carry }): Use => {
    const value = flow.valueOf(name);
    const { node } = flow.values[flow.valueOf(carry)];
    return {
      value,
      variable: nodeVariable[node],
      at: { kind: 'carry', node },
      phase: flow.passOf(flow.values[value].node, value),
      ...moveOf(input, value, node),
      demands: columns.result(node, 0),
      copy: -1,
    };
  });
}

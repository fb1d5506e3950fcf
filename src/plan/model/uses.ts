/**
 * Makes one record for each input that a node reads, with its costs, from the data flow and
 * strategies of a graph.
 */
import { ownersOfOutputs } from '../../graph/carried.ts';
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
  const { graph, flow, space } = input;
  const uses: Use[] = [];
  const loops = input.opened?.loops;
  const moveOf = (value: number, consumer: number): Pick<Use, 'scope' | 'times'> => {
    if (loops === undefined) return OUTERMOST;
    const scope = loops.moveScope(
      graph.nodes[flow.values[value].node].name,
      graph.nodes[consumer].name,
    );
    return { scope, times: loops.timesOf(scope) };
  };
  graph.nodes.forEach((_, n) => {
    flow.inputs[n].forEach((value, i) => {
      uses.push({
        value,
        variable: nodeVariable[n],
        at: { kind: 'input', node: n, input: i },
        phase: flow.passOf(n, value),
        ...moveOf(value, n),
        demands: columns.of(n, i),
        copy: -1,
        ...(input.inPlace?.has(n) === true ? { stays: true } : {}),
      });
    });
  });
  const metaOf = (n: number): Dataflow['values'][number] => flow.values[flow.results[n][0]];
  const ownerOf = ownersOfOutputs(graph);
  const tangents = new Map<number, number>();
  graph.nodes.forEach((node, n) => {
    if (node.kind === 'placeholder' && node.meta.role === 'tangent')
      tangents.set(node.meta.roleIndex ?? 0, n);
  });
  flow.outputs.forEach(({ output, value }, k) => {
    if (value < 0) return;
    const named = output.role === 'output' ? tangents.get(output.index ?? k) : ownerOf(output);
    // A graph without stated roles counts updated statistics among its outputs: their tangent is
    // another tensor's.
    const stated = input.typedOutputs?.get(k);
    const partner =
      stated === undefined &&
      named !== undefined &&
      isPartner(metaOf(named), flow.values[value], output.role)
        ? named
        : undefined;
    const at = { kind: 'output', output: k } as const;
    const phase = output.role === 'output' ? 'forward' : 'backward';
    if (partner !== undefined) {
      uses.push({
        value,
        variable: nodeVariable[partner],
        at,
        phase,
        ...OUTERMOST,
        demands: columns.result(partner, 0),
        copy: -1,
      });
      return;
    }
    const meta = flow.values[value].meta;
    const specs =
      stated !== undefined
        ? Int32Array.of(stated)
        : Int32Array.from(
            space
              .enumerate(meta.shape.length)
              .filter((id) => runsOf(space, id) <= (input.mostRuns ?? Infinity))
              .filter((id) => shardable(space.get(id), space.mesh, meta.shape)),
          );
    const vector = tables.vector(`z${specs.length}`, () => new Float64Array(specs.length));
    const variable = tables.addVariable({ kind: 'output', output: k, specs }, specs.length, vector);
    uses.push({
      value,
      variable,
      at,
      phase,
      ...OUTERMOST,
      demands: tables.specList(specs),
      copy: -1,
    });
  });
  for (const { value: name, carry } of input.opened?.carries ?? []) {
    const value = flow.valueOf(name);
    const node = flow.values[flow.valueOf(carry)].node;
    uses.push({
      value,
      variable: nodeVariable[node],
      at: { kind: 'carry', node },
      phase: flow.passOf(flow.values[value].node, value),
      ...moveOf(value, node),
      demands: columns.result(node, 0),
      copy: -1,
    });
  }
  return uses;
}

import type { Cluster } from '../cost/cluster.ts';
import type { CollectiveModel } from '../cost/collectives.ts';
import { computeSeconds } from '../cost/compute.ts';
import { defaultOptimizer, stateBytes, type Optimizer } from '../cost/memory.ts';
import type { Redistributor } from '../cost/redistribute.ts';
import { DTYPE_BYTES, type Graph } from '../graph/types.ts';
import { shardable } from '../mesh/sharding.ts';
import type { ShardingSpace } from '../mesh/space.ts';
import { atSizes } from '../ops/context.ts';
import { elements, type TensorMeta } from '../ops/record.ts';
import type { LinearRow } from '../solver/types.ts';
import type { Dataflow } from '../strategy/dataflow.ts';
import type { NodeStrategies, StrategyTable } from '../strategy/nodes.ts';
import type { CopyVariable, Model, NodeSeconds, SpecList, StateBytes, Use, Variable } from './model.ts';
import { TableBuilder } from './tables.ts';

export interface BuildInput {
  readonly graph: Graph;
  readonly flow: Dataflow;
  readonly strategies: StrategyTable;
  readonly space: ShardingSpace;
  readonly cluster: Cluster;
  readonly collectives: CollectiveModel;
  readonly redistributor: Redistributor;
  readonly optimizer: Optimizer | undefined;
  readonly sharing: boolean;
  /** Bytes per device that parameters, gradients, optimizer state and buffers may take. */
  readonly budgetBytes: number;
}

/** Builds the choice problem of `Model` from strategies and prices. */
export function buildModel(input: BuildInput): Model {
  const { graph, flow, strategies, space } = input;
  const tables = new TableBuilder(input.redistributor);
  const variables: Variable[] = [];
  const nodeVariable = new Int32Array(graph.nodes.length).fill(-1);
  const seconds = new Map<number, NodeSeconds>();
  strategies.nodes.forEach((entry, node) => {
    if (entry === null) return;
    const vector = tables.vector(`n${entry.content}`, () => {
      const v = strategySeconds(entry, input);
      seconds.set(entry.content, v);
      return v.compute.map((c, i) => c + v.internal[i]);
    });
    nodeVariable[node] = tables.addVariable(entry.set.count, vector);
    variables.push({ kind: 'node', node });
  });
  const columns = new SpecColumns(strategies, tables);
  const uses = collectUses(input, columns, tables, variables, nodeVariable);
  const copies = input.sharing ? shareCopies(input, uses, columns, tables, variables) : [];
  connect(input, uses, copies, columns, tables, nodeVariable);
  tieParameters(input, columns, tables, nodeVariable);
  const { problem, unitsPerSecond } = tables.finish();
  const states = parameterStates(input, nodeVariable);
  return {
    graph,
    flow,
    strategies,
    space,
    cluster: input.cluster,
    redistributor: input.redistributor,
    problem: { ...problem, name: graph.name, rows: memoryRows(input, states, nodeVariable) },
    unitsPerSecond,
    variables,
    nodeVariable,
    uses,
    copies,
    nodeSeconds: seconds,
    stateBytes: states,
    notes: [],
  };
}

/** Seconds of each strategy of a node: roofline at local sizes, and the collectives inside the rule itself. */
function strategySeconds(entry: NodeStrategies, input: BuildInput): NodeSeconds {
  const { set, call, record } = entry;
  const compute = new Float64Array(set.count);
  const internal = new Float64Array(set.count);
  if (call === undefined || record === undefined) return { compute, internal };
  const width = set.inputCount + set.outputCount;
  const dims = input.space.meshRank;
  const remembered = new Map<string, number>();
  for (let s = 0; s < set.count; s++) {
    const at = (t: number, meta: TensorMeta): TensorMeta => {
      const id = set.specs[s * width + t];
      return id < 0 ? meta : { dtype: meta.dtype, shape: input.space.localShape(id, meta.shape) };
    };
    const inputs = call.inputs.map((meta, i) => at(i, meta));
    const outputs = call.outputs.map((meta, k) => (meta === null ? null : at(set.inputCount + k, meta)));
    const local = atSizes(call, inputs, outputs);
    // Many strategies see the same local sizes; pending reductions cost nothing to compute with.
    const key = `${inputs.map((m) => m.shape.join('x')).join()}>${outputs.map((m) => m?.shape.join('x')).join()}`;
    let cost = remembered.get(key);
    if (cost === undefined) {
      cost = computeSeconds(record, local, input.cluster);
      remembered.set(key, cost);
    }
    for (let d = 0; d < dims; d++) {
      for (const use of set.rules[set.choice[s * dims + d]]?.collectives ?? [])
        internal[s] += input.collectives.seconds(use.kind, use.bytes(local), [d]);
    }
    compute[s] = cost;
  }
  return { compute, internal };
}

/** The spec list of every (node content, slot), made once. */
class SpecColumns {
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

/** Every use of a value: inputs of calls in node order, then what the program returns. */
function collectUses(
  input: BuildInput,
  columns: SpecColumns,
  tables: TableBuilder,
  variables: Variable[],
  nodeVariable: Int32Array,
): Use[] {
  const { graph, flow, space } = input;
  const uses: Use[] = [];
  graph.nodes.forEach((node, n) => {
    flow.inputs[n].forEach((value, i) => {
      uses.push({
        value,
        variable: nodeVariable[n],
        at: { kind: 'input', node: n, input: i },
        phase: node.meta.phase ?? 'forward',
        demands: columns.of(n, i),
        copy: -1,
      });
    });
  });
  const byRole = new Map<string, number>();
  const tangents = new Map<number, number>();
  graph.nodes.forEach((node, n) => {
    if (node.kind !== 'placeholder') return;
    if (node.meta.roleName !== undefined) byRole.set(node.meta.roleName, n);
    if (node.meta.role === 'tangent') tangents.set(node.meta.roleIndex ?? 0, n);
  });
  flow.outputs.forEach(({ output, value }, k) => {
    if (value < 0) return;
    const partner =
      output.role === 'output'
        ? tangents.get(output.index ?? k)
        : output.of === undefined
          ? undefined
          : byRole.get(output.of);
    const at = { kind: 'output', output: k } as const;
    const phase = output.role === 'output' ? 'forward' : 'backward';
    if (partner !== undefined) {
      uses.push({ value, variable: nodeVariable[partner], at, phase, demands: columns.result(partner, 0), copy: -1 });
      return;
    }
    const meta = flow.values[value].meta;
    const specs = Int32Array.from(
      space.enumerate(meta.shape.length).filter((id) => shardable(space.get(id), space.mesh, meta.shape)),
    );
    const variable = tables.addVariable(
      specs.length,
      tables.vector(`z${specs.length}`, () => new Float64Array(specs.length)),
    );
    variables.push({ kind: 'output', output: k, specs });
    uses.push({ value, variable, at, phase, demands: tables.specList(specs), copy: -1 });
  });
  return uses;
}

/** Adds the copy variable of every value that has two or more uses in one phase, and names it in those uses. */
function shareCopies(
  input: BuildInput,
  uses: readonly Use[],
  columns: SpecColumns,
  tables: TableBuilder,
  variables: Variable[],
): CopyVariable[] {
  const groups = new Map<string, Use[]>();
  for (const use of uses) {
    const key = `${use.value}:${use.phase}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [use]);
    else group.push(use);
  }
  const copies: CopyVariable[] = [];
  const domains = new Map<string, CopyDomain | null>();
  for (const group of groups.values()) {
    if (group.length < 2) continue;
    const { value, phase } = group[0];
    const { node, result, type, meta } = input.flow.values[value];
    const owned = columns.result(node, result);
    const wanted = tables.specList(Int32Array.from(wantedTwice(group)));
    const key = `c${type}:${owned.list}:${wanted.list}`;
    let domain = domains.get(key);
    if (domain === undefined) {
      domain = copyDomain(input, meta, owned.specs, wanted.specs);
      domains.set(key, domain);
    }
    if (domain === null) continue;
    const { cost } = domain;
    const variable = tables.addVariable(
      cost.length,
      tables.vector(key, () => cost),
    );
    const index = copies.length;
    copies.push({ value, phase, variable, owned: domain.owned, copy: domain.copy });
    variables.push({ kind: 'copy', copy: index });
    for (const use of group) use.copy = index;
  }
  return copies;
}

interface CopyDomain {
  readonly owned: Int32Array;
  readonly copy: Int32Array;
  readonly cost: Float64Array;
}

/** The pairs (owned placement, copy or none) that are worth having; null when no copy is. */
function copyDomain(input: BuildInput, meta: TensorMeta, owned: Int32Array, wanted: Int32Array): CopyDomain | null {
  if (wanted.length === 0) return null;
  const prices = input.redistributor.matrix(priced(meta), owned, wanted);
  const from: number[] = [];
  const copy: number[] = [];
  const cost: number[] = [];
  for (let o = 0; o < owned.length; o++) {
    from.push(owned[o]);
    copy.push(-1);
    cost.push(0);
    for (let q = 0; q < wanted.length; q++) {
      const price = prices[o * wanted.length + q];
      // A copy that is free (a local slice) is made at each use instead.
      if (price === 0 || price === Infinity || !worthKeeping(input.space, owned[o], wanted[q])) continue;
      from.push(owned[o]);
      copy.push(wanted[q]);
      cost.push(price);
    }
  }
  if (from.length === owned.length) return null;
  return { owned: Int32Array.from(from), copy: Int32Array.from(copy), cost: Float64Array.from(cost) };
}

/** Shardings that two or more uses of the group can demand, in ascending order of id. */
function wantedTwice(group: readonly Use[]): number[] {
  const count = new Map<number, number>();
  for (const use of group) for (const id of use.demands.specs) count.set(id, (count.get(id) ?? 0) + 1);
  return [...count]
    .filter(([, n]) => n >= 2)
    .map(([id]) => id)
    .sort((a, b) => a - b);
}

/**
 * Whether a copy `to` of a value in `from` is considered for several uses: one that differs on one mesh dim (an all-gather,
 * all-to-all or reduction over it), or, on meshes of one or two dims, any. Others are priced at each use.
 */
function worthKeeping(space: ShardingSpace, from: number, to: number): boolean {
  if (space.meshRank <= 2) return true;
  let changed = 0;
  for (let d = 0; d < space.meshRank; d++) if (space.kindAt(from, d) !== space.kindAt(to, d)) changed++;
  return changed <= 1;
}

function priced(meta: TensorMeta): { shape: readonly number[]; itemBytes: number } {
  return { shape: meta.shape, itemBytes: DTYPE_BYTES[meta.dtype] };
}

/** Edges: producer to copy, and producer or copy to every use. */
function connect(
  input: BuildInput,
  uses: readonly Use[],
  copies: readonly CopyVariable[],
  columns: SpecColumns,
  tables: TableBuilder,
  nodeVariable: Int32Array,
): void {
  const { flow, redistributor } = input;
  const copyLists = copies.map((copy) => {
    const { node, result } = flow.values[copy.value];
    const owned = columns.result(node, result);
    const key = `${tables.listId(copy.owned)}:${tables.listId(copy.copy)}`;
    const table = tables.table(`own${owned.list}:${key}`, owned.specs.length, copy.owned.length, () => {
      const costs = new Float64Array(owned.specs.length * copy.owned.length).fill(Infinity);
      copy.owned.forEach((id, z) => (costs[owned.specs.indexOf(id) * copy.owned.length + z] = 0));
      return costs;
    });
    tables.addEdge(nodeVariable[node], copy.variable, table, owned.mapId, -1);
    return key;
  });
  for (const use of uses) {
    const { node, result, type, meta } = flow.values[use.value];
    if (use.copy < 0) {
      const owned = columns.result(node, result);
      const table = tables.redistribution(type, priced(meta), owned, use.demands);
      tables.addEdge(nodeVariable[node], use.variable, table, owned.mapId, use.demands.mapId);
      continue;
    }
    const copy = copies[use.copy];
    const wanted = use.demands.specs;
    const key = `use${type}:${copyLists[use.copy]}:${use.demands.list}`;
    const table = tables.table(key, copy.owned.length, wanted.length, () => {
      const own = redistributor.matrix(priced(meta), copy.owned, wanted);
      const shared = redistributor.matrix(
        priced(meta),
        copy.copy.map((q, z) => (q < 0 ? copy.owned[z] : q)),
        wanted,
      );
      return own.map((price, i) => Math.min(price, shared[i]));
    });
    tables.addEdge(copy.variable, use.variable, table, -1, use.demands.mapId);
  }
}

/** Parameters that are one tensor are placed alike: a table that allows equal placements only. */
function tieParameters(input: BuildInput, columns: SpecColumns, tables: TableBuilder, nodeVariable: Int32Array): void {
  const byRole = new Map<string, number>();
  input.graph.nodes.forEach((node, n) => {
    if (node.kind === 'placeholder') byRole.set(node.meta.roleName ?? node.name, n);
  });
  for (const group of input.graph.ties ?? []) {
    const [owner, ...others] = group.map((name) => byRole.get(name) ?? -1);
    for (const other of others) {
      const a = columns.result(owner, 0);
      const b = columns.result(other, 0);
      const table = tables.table(`tie${a.list}:${b.list}`, a.specs.length, b.specs.length, () => {
        const costs = new Float64Array(a.specs.length * b.specs.length).fill(Infinity);
        a.specs.forEach((id, i) => {
          const j = b.specs.indexOf(id);
          if (j >= 0) costs[i * b.specs.length + j] = 0;
        });
        return costs;
      });
      tables.addEdge(nodeVariable[owner], nodeVariable[other], table, a.mapId, b.mapId);
    }
  }
}

/** State bytes of every parameter and buffer under each of its placements. Tied parameters count once. */
function parameterStates(input: BuildInput, nodeVariable: Int32Array): Map<number, StateBytes> {
  const { graph, flow, strategies, space } = input;
  const states = new Map<number, StateBytes>();
  const withGradient = new Set<string>();
  for (const output of graph.outputs)
    if (output.role === 'grad' && output.value !== null && output.of !== undefined) withGradient.add(output.of);
  const tied = new Set<string>();
  for (const [owner, ...others] of graph.ties ?? []) {
    if (others.some((name) => withGradient.has(name))) withGradient.add(owner);
    for (const name of others) tied.add(name);
  }
  graph.nodes.forEach((node, n) => {
    const { role } = node.meta;
    if (node.kind !== 'placeholder' || nodeVariable[n] < 0 || tied.has(node.meta.roleName ?? node.name)) return;
    if (role !== 'parameter' && role !== 'buffer' && role !== 'constant' && role !== 'state') return;
    const { set } = strategies.nodes[n]!;
    const { meta } = flow.values[flow.results[n][0]];
    const trained = role === 'parameter' && withGradient.has(node.meta.roleName ?? node.name);
    const bytes = trained
      ? stateBytes(input.optimizer ?? defaultOptimizer(meta.dtype), meta.dtype)
      : { parameter: DTYPE_BYTES[meta.dtype], gradient: 0, optimizer: 0 };
    const localElements = new Float64Array(set.count);
    for (let s = 0; s < set.count; s++) localElements[s] = elements(space.localShape(set.specs[s], meta.shape));
    states.set(n, { ...bytes, localElements });
  });
  return states;
}

/** The static memory row: bytes of parameters, gradients, optimizer state and buffers on the fullest device. */
function memoryRows(input: BuildInput, states: ReadonlyMap<number, StateBytes>, nodeVariable: Int32Array): LinearRow[] {
  const nodes = [...states.keys()];
  return [
    {
      name: 'memory',
      variables: Int32Array.from(nodes, (n) => nodeVariable[n]),
      amounts: nodes.map((n) => {
        const s = states.get(n)!;
        const perElement = s.parameter + s.gradient + s.optimizer;
        return s.localElements.map((local) => local * perElement);
      }),
      bound: Math.floor(input.budgetBytes),
    },
  ];
}

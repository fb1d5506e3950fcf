/**
 * Builds the planning model of a graph, with its problem, from strategies, prices and options
 * (`BuildInput`).
 */
import { defined } from '../../defined.ts';
import { placeholdersByRoleName } from '../../graph/carried.ts';
import { shareCopies } from './copies.ts';
import type { BuildInput } from './input.ts';
import {
  copyIn,
  type CopyVariable,
  type Model,
  type NodeSeconds,
  type SpecList,
  type Use,
} from './model.ts';
import { strategySeconds } from './node-costs.ts';
import { memoryRows, parameterStates } from './state-memory.ts';
import { chargedKey, repeated, TableBuilder } from './tables.ts';
import { collectUses, SpecColumns } from './uses.ts';

/** Builds the choice problem of `Model` from strategies and prices. */
export function buildModel(input: BuildInput): Model {
  const { graph, flow, strategies, space } = input;
  const tables = new TableBuilder(input.charges);
  const nodeVariable = new Int32Array(graph.nodes.length).fill(-1);
  const seconds = new Map<number, NodeSeconds>();
  strategies.nodes.forEach((entry, node) => {
    if (entry === null) return;
    const times = input.opened?.loops.runsOf(graph.nodes[node].name) ?? 1;
    const vector = tables.vector(`n${entry.content}x${times}`, () => {
      let v = seconds.get(entry.content);
      if (v === undefined) seconds.set(entry.content, (v = strategySeconds(entry, input)));
      const { compute, internal } = v;
      return repeated(
        compute.map((c, i) => c + internal[i]),
        times,
      );
    });
    nodeVariable[node] = tables.addVariable({ kind: 'node', node }, entry.set.count, vector);
  });
  const columns = new SpecColumns(strategies, tables);
  const direct = collectUses(input, columns, tables, nodeVariable);
  const { uses, copies } = input.sharing
    ? shareCopies(input, direct, columns, tables)
    : { uses: direct, copies: [] };
  const parts = { input, columns, tables, nodeVariable };
  connect(parts, uses, copies);
  tieParameters(parts);
  const { problem, ...meaning } = tables.finish(input.ceilingSeconds);
  const states = parameterStates(input, nodeVariable);
  return {
    graph,
    table: input.table,
    ...defined({
      opened: input.opened,
      statedDims: input.statedDims,
      accumulate: input.accumulate,
    }),
    flow,
    strategies,
    space,
    cluster: input.cluster,
    charges: input.charges,
    redistributor: input.charges.redistributor,
    collectives: input.collectives,
    problem: { ...problem, name: graph.name, rows: memoryRows(input, states, nodeVariable) },
    ...meaning,
    ...defined({ ceilingSeconds: input.ceilingSeconds }),
    nodeVariable,
    uses,
    copies,
    nodeSeconds: seconds,
    ...defined({ facts: input.facts }),
    stateBytes: states,
  };
}

/** The data that edges are made from. */
interface ModelParts {
  readonly input: BuildInput;
  readonly columns: SpecColumns;
  readonly tables: TableBuilder;
  readonly nodeVariable: Int32Array;
}

/** Edges: producer to copy, and producer or copy to every use. */
function connect(
  { input, columns, tables, nodeVariable }: ModelParts,
  uses: readonly Use[],
  copies: readonly CopyVariable[],
): void {
  const { flow, charges } = input;
  const copyLists = copies.map((copy, index) => {
    const { node, result } = flow.values[copy.value];
    const owned = columns.result(node, result);
    const key = `${tables.listId(copy.owned)}:${tables.listId(copy.copy)}`;
    const table = tables.table(
      `own${owned.list}:${key}`,
      owned.specs.length,
      copy.owned.length,
      () => {
        const costs = new Float64Array(owned.specs.length * copy.owned.length).fill(Infinity);
        copy.owned.forEach((id, z) => (costs[owned.specs.indexOf(id) * copy.owned.length + z] = 0));
        return costs;
      },
    );
    tables.addEdge(
      { kind: 'copy', copy: index },
      table,
      { variable: nodeVariable[node], map: owned.mapId },
      { variable: copy.variable, map: -1 },
    );
    return key;
  });
  uses.forEach((use, k) => {
    const edge = { kind: 'use', use: k } as const;
    const end = { variable: use.variable, map: use.demands.mapId };
    const { node, result, type } = flow.values[use.value];
    const charged = charges.typeOf(flow.values[use.value]);
    if (use.copy < 0) {
      const owned = columns.result(node, result);
      const table =
        use.stays === true
          ? inPlace(tables, owned, use.demands)
          : tables.redistribution(type, charged, owned, use.demands, use.times);
      tables.addEdge(edge, table, { variable: nodeVariable[node], map: owned.mapId }, end);
      return;
    }
    const copy = copies[use.copy];
    const wanted = use.demands.specs;
    const taken = copy.copy.map((_, z) => copyIn(copy, z, use.phase));
    const lists = `${copyLists[use.copy]}:${use.demands.list}`;
    const pass = copy.life === undefined ? '' : `/${tables.listId(taken)}`;
    const key = `use${chargedKey(type, charged)}:${lists}x${use.times}${pass}`;
    const table = tables.table(key, copy.owned.length, wanted.length, () => {
      const own = charges.matrix(charged, copy.owned, wanted);
      const source = taken.map((q, z) => (q < 0 ? copy.owned[z] : q));
      const shared = charges.matrix(charged, source, wanted);
      for (let i = 0; i < own.length; i++) if (shared[i] < own[i]) own[i] = shared[i];
      return repeated(own, use.times);
    });
    tables.addEdge(edge, table, { variable: copy.variable, map: -1 }, end);
  });
}

/** A table that allows equal placements only. */
function inPlace(tables: TableBuilder, a: SpecList, b: SpecList): number {
  return tables.table(`tie${a.list}:${b.list}`, a.specs.length, b.specs.length, () => {
    const costs = new Float64Array(a.specs.length * b.specs.length).fill(Infinity);
    a.specs.forEach((id, i) => {
      const j = b.specs.indexOf(id);
      if (j >= 0) costs[i * b.specs.length + j] = 0;
    });
    return costs;
  });
}

/** Parameters that are one tensor are placed the same way. */
function tieParameters({ input, columns, tables, nodeVariable }: ModelParts): void {
  const byRole = placeholdersByRoleName(input.graph);
  for (const group of input.graph.ties ?? []) {
    const [owner, ...others] = group.map((name) => byRole.get(name) ?? -1);
    for (const other of others) {
      const a = columns.result(owner, 0);
      const b = columns.result(other, 0);
      const table = inPlace(tables, a, b);
      tables.addEdge(
        { kind: 'tie' },
        table,
        { variable: nodeVariable[owner], map: a.mapId },
        { variable: nodeVariable[other], map: b.mapId },
      );
    }
  }
}

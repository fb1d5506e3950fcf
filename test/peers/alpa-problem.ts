import { ProblemBuilder } from '../../src/solver/problem.ts';
import type { Problem } from '../../src/solver/types.ts';
import { AlpaCosts, type AlpaMesh, type Spec } from './alpa-costs.ts';
import { followed, following, ownValues, type Value } from './alpa-values.ts';
import type { Hlo, Instruction } from './hlo.ts';

/** Costs carry up to three decimals. */
export const UNITS = 1000;

export interface AlpaProblem {
  readonly problem: Problem;
  readonly free: number;
  readonly edges: number;
  /** Binaries of Alpa's integer program: one for each value of a free variable, one for each cell of an edge. */
  readonly binaries: number;
  /** Value of every instruction under a choice. */
  readonly valuesOf: (choice: Int32Array) => Value[];
}

interface Node {
  readonly values: readonly Value[];
  /** Instruction whose variable decides, and for each of its values the value taken here. */
  readonly leader: number;
  readonly taken: readonly number[];
}

export interface AlpaOptions {
  /** Dots whose result has dim 0 of the first parameter keep the values that cut it on this axis. */
  readonly batchAxis?: number;
}

/** The choice problem that Alpa solves for a program on a mesh: followers merged into the instructions that they follow. */
export function alpaProblem(hlo: Hlo, mesh: AlpaMesh, options: AlpaOptions = {}): AlpaProblem {
  const costs = new AlpaCosts(mesh);
  const { batchAxis } = options;
  // An axis of one device cuts nothing.
  const batchDims = batchAxis === undefined || mesh.sizes[batchAxis] === 1 ? [] : batchDimsOf(hlo);
  const nodes: Node[] = [];
  const unary = new Map<number, number[]>();
  const pairs = new Map<string, { readonly i: number; readonly j: number; readonly table: number[] }>();
  const specOf = (n: number, v: number): Spec => nodes[n].values[nodes[n].taken[v]].spec;

  /** Adds a cost that depends on the values of two variables, or of one where they are the same. */
  const charge = (x: number, y: number, price: (a: number, b: number) => number): void => {
    const [i, j] = x < y ? [x, y] : [y, x];
    const [k, l] = [nodes[i].values.length, nodes[j].values.length];
    if (i === j) {
      const own = unary.get(i) ?? [];
      own.forEach((_, a) => (own[a] += price(a, a)));
      return;
    }
    const key = `${i},${j}`;
    const pair = pairs.get(key) ?? { i, j, table: new Array<number>(k * l).fill(0) };
    pairs.set(key, pair);
    for (let a = 0; a < k; a++) for (let b = 0; b < l; b++) pair.table[a * l + b] += x < y ? price(a, b) : price(b, a);
  };
  const chargeOperand = (ins: Instruction, position: number): void => {
    const operand = ins.operands[position];
    const from = nodes[operand.id].leader;
    const { leader, values, taken } = nodes[ins.id];
    charge(from, leader, (a, b) => costs.reshard(operand.shape, specOf(operand.id, a), values[taken[b]].operands[position])); // prettier-ignore
  };

  for (const ins of hlo.instructions) {
    const at = followed(ins);
    if (at === undefined) {
      let values = ownValues(ins, costs);
      const dim = ins.op.kind === 'dot' ? batchDims[ins.id] : undefined;
      if (dim !== undefined) values = values.filter((v) => v.spec[dim] === batchAxis);
      nodes.push({ values, leader: ins.id, taken: values.map((_, v) => v) });
      unary.set(ins.id, values.map((v) => v.cost)); // prettier-ignore
      if (ins.op.kind !== 'tuple') ins.operands.forEach((_, p) => chargeOperand(ins, p));
      continue;
    }
    const source = ins.operands[at];
    const { leader, values: sources, taken: takenThere } = nodes[source.id];
    const made = sources.map((value) => following(ins, at, value.spec, costs));
    const values = made.filter((v) => v !== undefined);
    // The value that is cheapest to reach from each value of the leader, whatever it costs itself; of equals the last.
    const taken = takenThere.map((v) => {
      if (ins.op.kind === 'elementwise') return v;
      const price = values.map((mine) => costs.reshard(source.shape, sources[v].spec, mine.operands[0]));
      return price.lastIndexOf(Math.min(...price));
    });
    nodes.push({ values, leader, taken });
    const own = unary.get(leader) ?? [];
    takenThere.forEach((v, a) => {
      const mine = values[taken[a]];
      own[a] += mine.cost + costs.reshard(source.shape, sources[v].spec, mine.operands[at]);
    });
    ins.operands.forEach((_, p) => {
      if (p !== at) chargeOperand(ins, p);
    });
  }
  for (const [parameter, replacement] of hlo.aliases)
    charge(nodes[parameter.id].leader, nodes[replacement.id].leader, (a, b) =>
      same(specOf(parameter.id, a), specOf(replacement.id, b)) ? 0 : Infinity,
    );
  const made = assemble(unary, [...pairs.values()]);
  const variables = [...unary.keys()];
  return {
    ...made,
    valuesOf: (choice) => nodes.map(({ leader, values, taken }) => values[taken[choice[variables.indexOf(leader)]]]),
  };
}

function assemble(
  unary: ReadonlyMap<number, readonly number[]>,
  pairs: readonly { readonly i: number; readonly j: number; readonly table: readonly number[] }[],
): Omit<AlpaProblem, 'valuesOf'> {
  const builder = new ProblemBuilder();
  const scaled = (list: readonly number[]): Float64Array => Float64Array.from(list, (c) => Math.round(c * UNITS));
  const variable = new Map<number, number>();
  let binaries = 0;
  let free = 0;
  let edges = 0;
  for (const [i, list] of unary) {
    variable.set(i, builder.addVariable(scaled(list)));
    if (list.length === 1) continue;
    free++;
    binaries += list.length;
  }
  const size = (i: number): number => unary.get(i)?.length ?? 0;
  for (const { i, j, table } of pairs) {
    builder.addEdge(variable.get(i) ?? -1, variable.get(j) ?? -1, scaled(table));
    if (size(i) === 1 || size(j) === 1) continue;
    edges++;
    binaries += table.length;
  }
  return { problem: builder.build(), free, edges, binaries };
}

/** Where dim 0 of the first parameter is in every instruction that has it. */
function batchDimsOf(hlo: Hlo): (number | undefined)[] {
  const out: (number | undefined)[] = [];
  for (const { id, op, operands } of hlo.instructions) {
    const of = operands.map((o) => out[o.id]);
    let dim: number | undefined = id === 0 ? 0 : undefined;
    if (op.kind === 'elementwise') dim = of.find((d) => d !== undefined);
    else if (op.kind === 'dot' && of[0] !== undefined && of[0] !== op.contract[0][0]) dim = 0;
    out.push(dim);
  }
  return out;
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.every((axis, d) => axis === b[d]);
}

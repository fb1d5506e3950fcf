import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import type { Problem } from '../../src/solver/types.ts';
import { compilerValues, type Surroundings } from './alpa-compiler-values.ts';
import { ALL, AlpaCosts, type AlpaMesh, type Spec } from './alpa-costs.ts';
import { followed, following, ownValues, type Value } from './alpa-values.ts';
import type { Hlo, Instruction } from './hlo.ts';

/** Costs carry up to three decimals. */
export const UNITS = 1000;

export interface AlpaProblem {
  readonly problem: Problem;
  readonly free: number;
  readonly edges: number;
  /**
   * Binaries of Alpa's integer program: one for each value of a free variable, one for each cell of
   * an edge.
   */
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
  /**
   * Dots whose result has dim 0 of the first parameter keep the values that cut it on this axis.
   */
  readonly batchAxis?: number;
  /** Further inputs whose dim 0 is the batch. */
  readonly batched?: readonly Instruction[];
  /** The compiler pass may compute products on more devices than needed. */
  readonly recompute?: true;
}

/**
 * The choice problem that Alpa solves for a program on a mesh: followers merged into the
 * instructions that they follow.
 */
export function alpaProblem(hlo: Hlo, mesh: AlpaMesh, options: AlpaOptions = {}): AlpaProblem {
  const costs = new AlpaCosts(mesh);
  const { batchAxis } = options;
  const { compiler } = mesh;
  const labels = batchDimsOf(hlo, options.batched ?? []);
  // In the Python solver an axis of one device cuts nothing; in the compiler pass it keeps the
  // batch whole.
  const batchDims =
    batchAxis === undefined || (compiler !== true && mesh.sizes[batchAxis] === 1) ? [] : labels;
  const kept =
    compiler === true && batchAxis !== undefined && mesh.sizes[batchAxis] === 1 ? -1 : batchAxis;
  const around: Surroundings = {
    costs,
    users: usersOf(hlo),
    batchDims: labels,
    recompute: options.recompute === true,
  };
  const sources = new Map(
    hlo.aliases.map(([parameter, replacement]) => [replacement.id, parameter.id]),
  );
  const nodes: Node[] = [];
  const unary = new Map<number, number[]>();
  const pairs = new Map<
    string,
    { readonly i: number; readonly j: number; readonly table: number[] }
  >();
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
    for (let a = 0; a < k; a++)
      for (let b = 0; b < l; b++) pair.table[a * l + b] += x < y ? price(a, b) : price(b, a);
  };
  const chargeOperand = (ins: Instruction, position: number): void => {
    const operand = ins.operands[position];
    const from = nodes[operand.id].leader;
    const { leader, values, taken } = nodes[ins.id];
    charge(from, leader, (a, b) =>
      costs.reshard(operand.shape, specOf(operand.id, a), values[taken[b]].operands[position]),
    );
  };

  const mostTiles = (x: Instruction): number =>
    nodes[nodes[x.id].leader].values.reduce((most, v) => Math.max(most, costs.tiles(v.spec)), 0);
  const depths = depthsOf(hlo);
  /**
   * Position of the operand to follow, and the value made of each of the values of its leader; none
   * where none can.
   */
  const followedBy = (
    ins: Instruction,
  ): { readonly at: number; readonly made: (Value | undefined)[] } | undefined => {
    let at = followed(ins);
    if (at === undefined) return undefined;
    if (compiler === true) {
      if (ins.op.kind === 'elementwise')
        at = firstChoice(ins, mostTiles, depths, sources.get(ins.id));
      if (ins.op.kind === 'reshape' && !mayFollow(ins, around)) return undefined;
    }
    const made = nodes[ins.operands[at].id].values.map((value) =>
      following(ins, at, value.spec, costs),
    );
    return made.every((v) => v === undefined) ? undefined : { at, made };
  };

  for (const ins of hlo.instructions) {
    const follow = followedBy(ins);
    if (follow === undefined) {
      let values = compiler === true ? compilerValues(ins, around) : ownValues(ins, costs);
      const decides =
        ins.op.kind === 'dot' || (compiler === true && ['conv', 'parameter'].includes(ins.op.kind));
      const dim = decides ? batchDims[ins.id] : undefined;
      if (dim !== undefined)
        values = values.filter((v) => v.spec[dim] === kept || (kept === 0 && v.spec[dim] === ALL));
      nodes.push({ values, leader: ins.id, taken: values.map((_, v) => v) });
      unary.set(
        ins.id,
        values.map((v) => v.cost),
      );
      if (ins.op.kind !== 'tuple') ins.operands.forEach((_, p) => chargeOperand(ins, p));
      continue;
    }
    const { at, made } = follow;
    const source = ins.operands[at];
    const { leader, values: sourceValues, taken: takenThere } = nodes[source.id];
    const values = made.filter((v) => v !== undefined);
    // The value that is cheapest to reach from each value of the leader, whatever it costs itself;
    // of equals the last.
    const taken = sourceValues.map((_, v) => {
      if (ins.op.kind === 'elementwise') return v;
      // The compiler pass follows to the letter: what cannot be kept is barred.
      if (compiler === true && made[v] === undefined) return values.length - 1;
      if (compiler === true) return made.slice(0, v).filter((m) => m !== undefined).length;
      const price = values.map((mine) =>
        costs.reshard(source.shape, sourceValues[v].spec, mine.operands[0]),
      );
      return price.lastIndexOf(Math.min(...price));
    });
    nodes.push({ values, leader, taken: takenThere.map((v) => taken[v]) });
    const own = unary.get(leader) ?? [];
    takenThere.forEach((v, a) => {
      const mine = values[taken[v]];
      const way =
        compiler === true
          ? made[v] === undefined
            ? Infinity
            : 0
          : costs.reshard(source.shape, sourceValues[v].spec, mine.operands[at]);
      own[a] += mine.cost + way;
    });
    ins.operands.forEach((_, p) => {
      if (p !== at) chargeOperand(ins, p);
    });
  }
  // All-reduces of two products that are added become one where both are made the same way.
  for (const [x, y] of compiler === true ? summedProducts(hlo) : []) {
    const { values } = nodes[x.id];
    if (x.id === y.id || values.length !== nodes[y.id].values.length) continue;
    charge(x.id, y.id, (a, b) =>
      a === b && values[a].reduced !== undefined ? -values[a].cost : 0,
    );
  }
  for (const [parameter, replacement] of hlo.aliases)
    charge(nodes[parameter.id].leader, nodes[replacement.id].leader, (a, b) =>
      same(specOf(parameter.id, a), specOf(replacement.id, b)) ? 0 : Infinity,
    );
  const made = assemble(unary, [...pairs.values()]);
  const variables = [...unary.keys()];
  return {
    ...made,
    valuesOf: (choice) =>
      nodes.map(({ leader, values, taken }) => values[taken[choice[variables.indexOf(leader)]]]),
  };
}

function assemble(
  unary: ReadonlyMap<number, readonly number[]>,
  pairs: readonly { readonly i: number; readonly j: number; readonly table: readonly number[] }[],
): Omit<AlpaProblem, 'valuesOf'> {
  const builder = new ProblemBuilder();
  const scaled = (list: readonly number[]): Float64Array =>
    Float64Array.from(list, (c) => Math.round(c * UNITS));
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

/**
 * Where dim 0 of the first parameter, and of further batched inputs, is in every instruction that
 * has it.
 */
function batchDimsOf(hlo: Hlo, batched: readonly Instruction[]): (number | undefined)[] {
  const out: (number | undefined)[] = [];
  for (const ins of hlo.instructions) {
    const of = ins.operands.map((o) => out[o.id]);
    out.push(
      (batched.length === 0 ? ins.id === 0 : batched.includes(ins)) ? 0 : batchDimOf(ins, of),
    );
  }
  return out;
}

function batchDimOf(
  { op, operands }: Instruction,
  of: readonly (number | undefined)[],
): number | undefined {
  const [first] = of;
  if (op.kind === 'elementwise') return of.find((d) => d !== undefined);
  if (op.kind === 'conv') return op.left[0] === first ? op.left[1] : undefined;
  if (op.kind === 'dot') {
    const together = op.batch.findIndex((p) => p[0] === first);
    if (first !== undefined && together >= 0) return together;
    return first !== undefined && first !== op.contract[0][0] ? op.batch.length : undefined;
  }
  if (first === undefined) return undefined;
  switch (op.kind) {
    case 'broadcast':
      return op.dims[first];
    case 'transpose':
      return op.permutation.indexOf(first);
    case 'reduce':
      return op.dims.includes(first) ? undefined : first - op.dims.filter((d) => d < first).length;
    case 'window':
      return first;
    case 'reshape':
      return first === 0 && operands[0].shape.length > 0 ? 0 : undefined;
    default:
      return undefined;
  }
}

export function usersOf(hlo: Hlo): Instruction[][] {
  const users: Instruction[][] = hlo.instructions.map(() => []);
  for (const ins of hlo.instructions) for (const o of new Set(ins.operands)) users[o.id].push(ins);
  return users;
}

/**
 * The compiler pass's choice: most tiles, then depth where it differs clearly; a parameter that is
 * replaced, at once.
 */
function firstChoice(
  ins: Instruction,
  tiles: (x: Instruction) => number,
  depths: readonly number[],
  source?: number,
): number {
  const step = 0.1 / Math.max(...depths);
  let best = -Infinity;
  let at = 0;
  for (const [i, operand] of ins.operands.entries()) {
    const priority = tiles(operand) + depths[operand.id] * step;
    if (priority > best + 4 * step) [best, at] = [priority, i];
    if (operand.id === source) break;
  }
  return at;
}

/**
 * The compiler pass's depth: products weigh much, reductions start anew and broadcasts are set
 * back, so that what is elementwise follows neither of the last two.
 */
function depthsOf(hlo: Hlo): number[] {
  const depths: number[] = [];
  for (const { op, operands } of hlo.instructions) {
    const step =
      op.kind === 'dot' || op.kind === 'conv'
        ? 1000
        : op.kind === 'broadcast'
          ? -5
          : op.kind === 'reshape'
            ? 0
            : 1;
    const deepest = operands.reduce((most, o) => Math.max(most, depths[o.id]), -Infinity);
    depths.push(operands.length === 0 || op.kind === 'reduce' ? 0 : deepest + step);
  }
  return depths;
}

/**
 * A reshape with several users, or between the dims of a batched product and a transpose, decides
 * itself.
 */
function mayFollow(ins: Instruction, { users, costs }: Surroundings): boolean {
  const { sizes, mixed } = costs.mesh;
  const [operand] = ins.operands;
  const switches =
    operand.op.kind === 'dot' &&
    operand.op.batch.length > 0 &&
    users[ins.id][0]?.op.kind === 'transpose';
  return (
    (users[ins.id].length === 1 && !switches) || (sizes[0] > 1 && sizes[1] > 1 && mixed !== true)
  );
}

function summedProducts(hlo: Hlo): (readonly [Instruction, Instruction])[] {
  return hlo.instructions.flatMap(({ op, operands: [a, b] }) =>
    op.kind === 'elementwise' && op.does === 'add' && a.op.kind === 'dot' && b.op.kind === 'dot'
      ? [[a, b] as const]
      : [],
  );
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.every((axis, d) => axis === b[d]);
}

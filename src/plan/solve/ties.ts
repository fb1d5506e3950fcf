/**
 * Decides among plans of equal seconds: it prefers parameters of equal layers in equal placements,
 * then fewer collectives, then simpler placements. It compares the plans in which every call is
 * placed as it is, as an equal call is, or whole; seconds and bound stay what they are.
 */
import { roleName } from '../../graph/nodes.ts';
import { isPartialCode, REPLICATE_CODE, shardDimOfCode } from '../../mesh/sharding/space.ts';
import { type Preference, preferredOptimum } from '../../solver/preferences.ts';
import { compactProblem, KeptLists } from '../../solver/problem/restrict.ts';
import type { LinearRow, Problem } from '../../solver/types.ts';
import { copyIn, CopyLife, type Model } from '../model/model.ts';

/** The rule, as a plan says it. */
export const TIE_BREAK =
  'Among plans of equal seconds: parameters of equal layers placed the same way, then fewer ' +
  'collectives, then simpler placements.';

/** The note of a plan for whose ties there was no time. */
export const TIES_LEFT = 'Plans of equal seconds were not compared: the time was over before that.';

/**
 * The preferred choice among those that cost no more than an optimal one.
 *
 * @param problem of the model, with what may not be chosen at Infinity
 * @returns undefined where a budget binds, or too many choices cost about as much to be compared
 */
export function brokenTies(
  model: Model,
  problem: Problem,
  choice: Int32Array,
  objective: number,
): Int32Array | undefined {
  if (problem.rows?.some((row) => isTightRow(row, choice)) === true) return undefined;
  const values = candidates(model, problem, choice);
  const lists = new KeptLists();
  const {
    problem: small,
    expand,
    contract,
  } = compactProblem(
    problem,
    values.map((list) => lists.of(list.join(), () => list)),
  );
  const full = (variable: number, value: number): number => values[variable][value];
  const levels = [
    { equal: equalParameters(model, values) },
    collectives(model, full),
    simplicity(model, full),
  ];
  const found = preferredOptimum(small, contract(choice)!, objective, levels);
  return found === undefined ? undefined : expand(found);
}

/**
 * Tells whether a row is too tight to place the tensor that varies most in another way: the
 * placement that it admits is then a matter of its price.
 */
function isTightRow({ variables, amounts, bound }: LinearRow, choice: Int32Array): boolean {
  let used = 0;
  let most = 0;
  variables.forEach((v, k) => {
    const own = amounts[k][choice[v]];
    used += own;
    most = Math.max(most, amounts[k].reduce((a, b) => Math.max(a, b), 0) - own);
  });
  return used + most > bound;
}

/**
 * The values of each variable that are compared: those that variables of equal content take, and
 * the one that cuts nothing.
 */
function candidates(model: Model, problem: Problem, choice: Int32Array): Int32Array[] {
  const { variables, strategies, copies, flow, nodeVariable } = model;
  const taken = new Map<string, Set<number>>();
  const keys = variables.map((own, v) => {
    if (own.kind === 'node') return `n${strategies.nodes[own.node]!.content}`;
    if (own.kind === 'output') return `o${own.specs.join()}`;
    return `c${model.problem.unary[v]}:${copies[own.copy].owned.length}`;
  });
  keys.forEach((key, v) => {
    const set = taken.get(key);
    if (set === undefined)
      taken.set(key, new Set([choice[v], wholeValue(model, v)].filter((a) => a >= 0)));
    else set.add(choice[v]);
  });
  const allowed = (v: number, a: number): boolean =>
    problem.vectors[problem.unary[v]][a] !== Infinity;
  const out = keys.map((key, v) =>
    Int32Array.from([...taken.get(key)!].filter((a) => allowed(v, a))).sort(),
  );
  // A copy goes with what its producer may leave now.
  for (const { variable, value, owned, copy } of copies) {
    const { node, result } = flow.values[value];
    const { set } = strategies.nodes[node]!;
    const at = set.inputCount + result;
    const left = new Set(
      Array.from(
        out[nodeVariable[node]],
        (a) => set.specs[a * (set.inputCount + set.outputCount) + at],
      ),
    );
    const shared = new Set(Array.from(out[variable], (z) => copy[z]).concat(-1));
    out[variable] = Int32Array.from(owned.keys()).filter(
      (z) => left.has(owned[z]) && shared.has(copy[z]) && allowed(variable, z),
    );
  }
  return out;
}

/**
 * The value of a node or an output that cuts nothing and leaves nothing pending; -1 where there is
 * none.
 */
function wholeValue({ variables, strategies, space }: Model, v: number): number {
  const own = variables[v];
  if (own.kind === 'output') return own.specs.indexOf(space.replicated);
  if (own.kind === 'copy') return -1;
  const { set } = strategies.nodes[own.node]!;
  const width = set.inputCount + set.outputCount;
  for (let s = 0; s < set.count; s++)
    if (
      set.specs
        .subarray(s * width, (s + 1) * width)
        .every((id) => id < 0 || id === space.replicated)
    )
      return s;
  return -1;
}

/**
 * Neighbours among the parameters whose names differ in numbers only and that have the same
 * choices.
 */
function equalParameters(
  model: Model,
  values: readonly Int32Array[],
): (readonly [number, number])[] {
  const { graph, strategies, nodeVariable } = model;
  const last = new Map<string, number>();
  const pairs: (readonly [number, number])[] = [];
  graph.nodes.forEach((node, n) => {
    const entry = strategies.nodes[n];
    if (
      node.kind !== 'placeholder' ||
      node.meta.role !== 'parameter' ||
      entry === null ||
      entry === undefined
    )
      return;
    const variable = nodeVariable[n];
    const name = roleName(node).replace(/\d+/g, '#');
    const key = `${name} ${entry.content} ${values[variable].join()}`;
    const before = last.get(key);
    if (before !== undefined) pairs.push([before, variable]);
    last.set(key, variable);
  });
  return pairs;
}

/** Collectives inside of calls, of shared copies and of uses, as `Routes` makes them. */
function collectives(model: Model, full: (variable: number, value: number) => number): Preference {
  const { variables, edges, copies, uses, strategies, flow, charges, redistributor, nodeSeconds } =
    model;
  const moves = (value: number, from: number, to: number): number =>
    from === to
      ? 0
      : (redistributor.plan(charges.typeOf(flow.values[value]), from, to)?.collectives ?? 0);
  return {
    value: (variable, value) => {
      const own = variables[variable];
      const a = full(variable, value);
      if (own.kind === 'node') {
        const entry = strategies.nodes[own.node];
        const inside =
          entry === null || entry === undefined
            ? undefined
            : nodeSeconds.get(entry.content)?.internal[a];
        return (inside ?? 0) > 0 ? 1 : 0;
      }
      if (own.kind !== 'copy') return 0;
      const copy = copies[own.copy];
      if (copy.copy[a] < 0) return 0;
      const times = copy.life?.[a] === CopyLife.EACH ? 2 : 1;
      return times * moves(copy.value, copy.owned[a], copy.copy[a]);
    },
    pair: (e, first, second) => {
      const edge = edges[e];
      if (edge.kind !== 'use') return 0;
      const use = uses[edge.use];
      const wanted = use.demands.specs[use.demands.map[full(use.variable, second)]];
      const { node, result } = flow.values[use.value];
      if (use.copy < 0) {
        const { set } = strategies.nodes[node]!;
        const at = full(model.nodeVariable[node], first) * (set.inputCount + set.outputCount);
        return moves(use.value, set.specs[at + set.inputCount + result], wanted);
      }
      const copy = copies[use.copy];
      const a = full(copy.variable, first);
      const type = charges.typeOf(flow.values[use.value]);
      const direct = charges.seconds(type, copy.owned[a], wanted);
      const taken = copyIn(copy, a, use.phase);
      const isShared = taken >= 0 && charges.seconds(type, taken, wanted) < direct;
      return moves(use.value, isShared ? taken : copy.owned[a], wanted);
    },
  };
}

/**
 * Mesh dims on which results are not whole: 1 for a plain cut or a pending reduction, 2 for other
 * cuts.
 */
function simplicity(model: Model, full: (variable: number, value: number) => number): Preference {
  const { variables, strategies, space } = model;
  const cuts = (id: number): number => {
    let sum = 0;
    for (let d = 0; d < space.meshRank; d++) {
      const code = space.kindAt(id, d);
      if (code !== REPLICATE_CODE) sum += isPartialCode(code) || shardDimOfCode(code) >= 0 ? 1 : 2;
    }
    return sum;
  };
  return {
    value: (variable, value) => {
      const own = variables[variable];
      const a = full(variable, value);
      if (own.kind === 'output') return cuts(own.specs[a]);
      if (own.kind !== 'node') return 0;
      const { set } = strategies.nodes[own.node]!;
      const width = set.inputCount + set.outputCount;
      let sum = 0;
      for (let k = set.inputCount; k < width; k++) {
        const id = set.specs[a * width + k];
        if (id >= 0) sum += cuts(id);
      }
      return sum;
    },
  };
}

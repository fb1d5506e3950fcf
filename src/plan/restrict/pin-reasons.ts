/**
 * Finds the reason of a refused pin: why no strategy of a node leaves its result in a sharding. The
 * reason is the first of the search's own filters that takes the sharding away
 * (`ops/expansion/expand.ts`), found by asking them one after the other.
 */
import {
  evenlyShardable,
  fillsAllRanks,
  isPending,
  refusedCut,
  shardable,
  Sharding,
  strideEvenly,
} from '../../mesh/sharding/sharding.ts';
import { FIRST_OTHER_CODE, type ShardingSpace } from '../../mesh/sharding/space.ts';
import { allReplicate, cutRows, plainRow } from '../../ops/expansion/expand.ts';
import { offered } from '../../ops/expansion/patterns.ts';
import type { Row } from '../../ops/expansion/row.ts';
import { type ProductOptions, RowProduct } from '../../ops/expansion/row-product.ts';
import type { TensorMeta } from '../../ops/record/record.ts';
import { type Rule, ruleText, type ShardSlot } from '../../ops/record/rule.ts';
import { product } from '../../product.ts';
import type { Model } from '../model/model.ts';

/** Combinations of rules that are looked at; of more, the first ones speak for the rest. */
const MOST_COMBINATIONS = 4096;

/**
 * @param value position in `model.flow.values` @param wanted id of a sharding that its producer
 *   does not offer
 */
export function whyNotOffered(model: Model, value: number, wanted: number): string {
  const { space, flow, graph, strategies } = model;
  const { node: n, result, meta } = flow.values[value];
  const node = graph.nodes[n];
  const { uneven, cuts = [], strided = 'off', mostRuns = Infinity } = strategies.options;
  const sharding = space.get(wanted);
  const own = ofTheTensor(sharding, space, meta, uneven);
  if (own !== undefined) return own;
  const special = sharding.placements.find(
    (p) => p.dim !== undefined && space.codeOf(p) >= FIRST_OTHER_CODE,
  );
  if (special !== undefined && !cuts.some((cut) => cut.withDim(0).equals(special.withDim(0))))
    return `${special.text} is a further kind of cut, which --cut offers`;
  if (special !== undefined && !strideEvenly(sharding, space.mesh, meta.shape))
    return (
      `with ${special.text} its ${meta.shape[special.dim!]} rows of dim ${special.dim} are in ` +
      'pieces of different sizes, for which no device program is written'
    );
  if (node.kind !== 'call') {
    const pending = sharding.placements.find(isPending);
    if (pending !== undefined)
      return `what a program is given is whole; ${pending.text} is of results only`;
    if (!sharding.inMeshOrder)
      return 'only parameters are offered cuts in another order than that of the mesh dims';
    return `it has more than ${mostRuns} stretches of mesh dims that are placed differently`;
  }
  if (!sharding.inMeshOrder)
    return 'results are cut in the order of the mesh dims; another order is offered for parameters';
  const { record, call } = strategies.nodes[n]!;
  if (record === undefined || call === undefined)
    return `${node.target} has no rules and is planned replicated (--unknown replicate)`;
  const inputs = Array.from(flow.inputs[n], (v) => flow.values[v].meta);
  const names = Array.from(flow.inputs[n], (v) => `%${graph.nodes[flow.values[v].node].name}`);
  const listed = offered(record.shard(call), [...inputs, ...call.outputs], strided);
  const rules = [allReplicate(inputs, call.outputs), ...listed];
  const plain = rules.map((r, i) => plainRow(r, i));
  const rows = cuts.length === 0 ? plain : [...plain, ...cutRows(space, plain, cuts)];
  // Records build their rules again at every call.
  const kept = new Set(strategies.nodes[n]!.set.rules.map(ruleText));
  const search: Search = {
    space,
    target: node.target,
    rows,
    rules,
    tensors: [...inputs, ...call.outputs],
    names: [
      ...names,
      ...call.outputs.map((_, k) => (call.outputs.length > 1 ? `result ${k}` : 'the result')),
    ],
    column: inputs.length + result,
    isKept: (r) => kept.has(ruleText(rules[r])),
    uneven,
    mostRuns,
  };
  return ofTheRules(search, wanted);
}

/** The fault of a sharding of such a tensor, whatever operator makes the tensor. */
function ofTheTensor(
  sharding: Sharding,
  { mesh }: ShardingSpace,
  { shape }: TensorMeta,
  uneven: 'allow' | 'forbid',
): string | undefined {
  const beyond = sharding.placements.find((p) => (p.dim ?? -1) >= shape.length);
  if (beyond !== undefined)
    return (
      `it has no dim ${beyond.dim}: ` +
      `${shape.length === 0 ? 'it is a scalar' : `its dims are 0 to ${shape.length - 1}`}`
    );
  if (!shardable(sharding, mesh, shape)) {
    for (const [dim, order] of sharding.orders) {
      const refused = refusedCut(sharding, mesh, dim, shape[dim]);
      if (refused !== undefined) return refused;
      const pieces = order.reduce(
        (most, m, i) =>
          Math.max(
            most,
            product(order.slice(0, i + 1).map((d) => mesh.sizes[d])) *
              sharding.placements[m].chunks,
          ),
        1,
      );
      if (shape[dim] < pieces)
        return `dim ${dim} has ${shape[dim]} rows, fewer than its ${pieces} pieces`;
    }
  }
  if (uneven === 'forbid' && !evenlyShardable(sharding, mesh, shape)) {
    for (const [dim, order] of sharding.orders) {
      const pieces = product(order.map((m) => mesh.sizes[m]));
      if (shape[dim] % pieces !== 0)
        return (
          `dim ${dim} of ${shape[dim]} rows does not divide into ${pieces} pieces, and ` +
          '--uneven forbid asks for that'
        );
    }
    return 'its pieces are not of one size, and --uneven forbid asks for that';
  }
  return undefined;
}

/** The data that the search over the rules of a call works on. */
interface Search {
  readonly space: ShardingSpace;
  readonly target: string;
  readonly rows: readonly Row[];
  readonly rules: readonly Rule[];
  /** Inputs, then results. */
  readonly tensors: readonly (TensorMeta | null)[];
  readonly names: readonly string[];
  /** The tensor that the sharding is wanted of. */
  readonly column: number;
  /**
   * Tells whether a rule was taken into the search: one that only hands pending sums on is not,
   * where no input can be pending.
   */
  readonly isKept: (rule: number) => boolean;
  readonly uneven: 'allow' | 'forbid';
  readonly mostRuns: number;
}

function ofTheRules(search: Search, wanted: number): string {
  const { space, target, rows, column, names } = search;
  const fitting: number[][] = [];
  for (let m = 0; m < space.meshRank; m++) {
    const code = space.kindAt(wanted, m);
    const word = space.placementOf(code).text;
    const on = space.meshRank > 1 ? ` on mesh dim '${space.mesh.names[m]}'` : '';
    if (space.mesh.sizes[m] === 1) {
      fitting.push([0]);
      continue;
    }
    const here = [...rows.keys()].filter((r) => rows[r].codes[column] === code);
    if (here.length === 0) return `no rule of ${target} leaves ${names[column]} ${word}${on}`;
    const kept = here.filter((r) => search.isKept(rows[r].rule));
    if (kept.length === 0)
      return (
        `${target} only hands ${word} on from its inputs${on}, and nothing leaves ` +
        `${listOf(names.slice(0, column), 'or')} pending`
      );
    fitting.push(kept);
  }
  // Each filter in turn is dropped: the one without which a combination passes is the one that took
  // it away.
  const tried = combinations(fitting);
  const passes = (
    options: Partial<Pick<ProductOptions, 'uneven' | 'mostRuns' | 'evenStrides'>>,
  ): boolean => {
    const product = new RowProduct(space, rows, search.tensors, {
      uneven: search.uneven,
      mostRuns: search.mostRuns,
      patterns: 'any',
      evenStrides: true,
      ...options,
    });
    return tried.some(
      (combination) => combination.every((r, m) => product.take(m, r)) && product.complete(),
    );
  };
  if (passes({ uneven: 'allow' }))
    return (
      `another tensor of ${target} would be cut unevenly with it, which --uneven forbid rules ` +
      'out'
    );
  if (passes({ evenStrides: false }))
    return (
      `another tensor of ${target} would be cut in strides unevenly with it, which no device ` +
      'program is written for'
    );
  if (passes({ mostRuns: Infinity }))
    return (
      `its call would need more than ${search.mostRuns} stretches of mesh dims that take ` +
      'different rules'
    );
  return faultOf(search, tried[0]);
}

/** The first combinations of the rows that fit on each mesh dim, in the order of the search. */
function combinations(fitting: readonly (readonly number[])[]): number[][] {
  let out: number[][] = [[]];
  for (const rows of fitting)
    out = out.slice(0, MOST_COMBINATIONS).flatMap((head) => rows.map((r) => [...head, r]));
  return out.slice(0, MOST_COMBINATIONS);
}

/** The fault of one combination of rows that the product refuses. */
function faultOf(
  { space, target, rows, rules, tensors, names, uneven }: Search,
  combination: readonly number[],
): string {
  const { mesh } = space;
  const said = [...new Set(combination.map((r) => ruleText(rules[rows[r].rule])))].join('; ');
  const by = `the rule of ${target} that leaves it so (${said})`;
  const pieces = (t: number, dim: number): number =>
    combination.reduce(
      (k, r, m) => (space.dimOfCode(rows[r].codes[t]) === dim ? k * mesh.sizes[m] : k),
      1,
    );
  for (const [t, meta] of tensors.entries()) {
    for (const [dim, size] of (meta?.shape ?? []).entries()) {
      const count = pieces(t, dim);
      if (size < count)
        return `${by} cuts dim ${dim} of ${names[t]}, ${size} rows, into ${count} pieces`;
      if (uneven === 'forbid' && size % count !== 0)
        return (
          `${by} cuts dim ${dim} of ${names[t]}, ${size} rows, into ${count} uneven pieces ` +
          '(--uneven forbid)'
        );
    }
    const pending = [
      ...new Set(combination.map((r) => space.placementOf(rows[r].codes[t]))),
    ].filter(isPending);
    if (pending.length > 1 && pending.some((p) => !p.standsWith(pending[0])))
      return `${by} leaves ${names[t]} both ${listOf(
        pending.map((p) => p.text),
        'and',
      )}`;
  }
  for (const r of combination)
    for (const { t, slot, mates } of rows[r].shards) {
      const cut = new Sharding(combination.map((row) => space.placementOf(rows[row].codes[t])));
      const size = tensors[t]?.shape[slot.dim] ?? 0;
      const own = needOf(slot, size, pieces(t, slot.dim), fillsAllRanks(cut, mesh, slot.dim, size));
      if (own !== undefined) return `${by} needs dim ${slot.dim} of ${names[t]} ${own}`;
      for (const mate of mates)
        if (
          pieces(t, slot.dim) !== pieces(mate.t, mate.slot.dim) ||
          (!slot.scaled &&
            !mate.slot.scaled &&
            tensors[t]?.shape[slot.dim] !== tensors[mate.t]?.shape[mate.slot.dim])
        )
          return (
            `${by} takes dim ${slot.dim} of ${names[t]} and dim ${mate.slot.dim} of ` +
            `${names[mate.t]} for one index, which must be cut the same way`
          );
    }
  return `the rules of ${target} that leave it so do not combine over the mesh dims (${said})`;
}

/** The condition of a cut on the size of its dim that is not met. */
function needOf(
  { even, scaled, unit, filled }: ShardSlot,
  size: number,
  pieces: number,
  fills: boolean,
): string | undefined {
  if ((even || scaled || unit > 1) && (size / unit) % pieces !== 0)
    return (
      'in equal pieces, but ' +
      `${unit > 1 ? `its ${size / unit} groups of ${unit} rows` : `its ${size} rows`} do not ` +
      `divide by ${pieces}`
    );
  if (filled && !fills)
    return `to leave every device a row, but ${size} rows in ${pieces} pieces do not`;
  return undefined;
}

function listOf(words: readonly string[], last: 'and' | 'or'): string {
  const distinct = [...new Set(words)];
  return distinct.length < 2
    ? distinct.join('')
    : `${distinct.slice(0, -1).join(', ')} ${last} ${distinct.at(-1)!}`;
}

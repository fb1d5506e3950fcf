/** Makes shared copies: one copy variable for each value that several uses need. */
import type { ChargedType } from '../../cost/redistribution/charges.ts';
import { defined } from '../../defined.ts';
import { push } from '../../list-map.ts';
import { runsOf } from '../../strategy/runs.ts';
import type { BuildInput } from './input.ts';
import { CopyLife, type CopyVariable, type Model, type Use } from './model.ts';
import { chargedKey, repeated, type TableBuilder } from './tables.ts';
import type { SpecColumns } from './uses.ts';

/**
 * Adds the copy variable of every value that has two or more uses in one phase of one body, or,
 * where copies may be kept, in both; the uses out name their copy.
 */
export function shareCopies(
  input: BuildInput,
  uses: readonly Use[],
  columns: SpecColumns,
  tables: TableBuilder,
): Pick<Model, 'uses' | 'copies'> {
  const copyOf = new Map<Use, number>();
  const groups = new Map<string, Use[]>();
  for (const use of uses) {
    if (use.stays === true) continue;
    // A gradient that is moved once in several passes is no copy for what moves in each.
    const key = `${use.value}:${input.keepCopies ? '' : use.phase}:${use.scope}x${use.times}`;
    push(groups, key, use);
  }
  const copies: CopyVariable[] = [];
  const domains = new Map<string, NamedDomain | null>();
  for (const group of groups.values()) {
    if (group.length < 2) continue;
    const { value, times } = group[0];
    const { node, result, type } = input.flow.values[value];
    const charged = input.charges.typeOf(input.flow.values[value]);
    const owned = columns.result(node, result);
    const wanted = tables.specList(Int32Array.from(wantedTwice(group)));
    const lives = livesOf(group);
    const passes = lives === undefined ? '' : `/${lives.join()}`;
    const key = `c${chargedKey(type, charged)}:${owned.list}:${wanted.list}x${times}${passes}`;
    let domain = domains.get(key);
    if (domain === undefined) {
      const found = copyDomain(input, charged, owned.specs, wanted.specs, lives);
      domain =
        found === null ? null : named(tables, { ...found, cost: repeated(found.cost, times) });
      domains.set(key, domain);
    }
    if (domain === null) continue;
    const { cost, life } = domain;
    const copy = copies.length;
    const vector = tables.vector(key, () => cost);
    const variable = tables.addVariable({ kind: 'copy', copy }, cost.length, vector);
    tables.pairs(variable, domain.first, domain.second);
    copies.push({ value, variable, owned: domain.owned, copy: domain.copy, ...defined({ life }) });
    for (const use of group) copyOf.set(use, copy);
  }
  return { uses: uses.map((use) => ({ ...use, copy: copyOf.get(use) ?? -1 })), copies };
}

/**
 * The lives that a copy of a group may have, undefined where one pass alone reads the value. A copy
 * for one pass pays only where that pass has two uses.
 */
function livesOf(group: readonly Use[]): readonly number[] | undefined {
  const forward = group.filter((use) => use.phase === 'forward').length;
  const backward = group.length - forward;
  if (forward === 0 || backward === 0) return undefined;
  return [
    CopyLife.KEPT,
    ...(forward > 1 ? [CopyLife.FORWARD] : []),
    ...(backward > 1 ? [CopyLife.BACKWARD] : []),
    ...(forward > 1 && backward > 1 ? [CopyLife.EACH] : []),
  ];
}

interface CopyDomain {
  readonly owned: Int32Array;
  readonly copy: Int32Array;
  readonly cost: Float64Array;
  readonly life?: Uint8Array;
}

/** A domain with the maps that name the two placements of each value. */
interface NamedDomain extends CopyDomain {
  readonly first: number;
  readonly second: number;
}

function named(tables: TableBuilder, domain: CopyDomain): NamedDomain {
  const { owned, copy, life } = domain;
  // Copies of one placement and another life are taken by other uses.
  const alternatives = copy.map((q, z) => (life === undefined ? q : q * 8 + life[z]));
  return {
    ...domain,
    first: tables.specList(owned).mapId,
    second: tables.specList(alternatives).mapId,
  };
}

/**
 * The pairs (owned placement, copy or none) that are worth having, one for each life of the copy;
 * null when no copy is.
 */
function copyDomain(
  input: BuildInput,
  charged: ChargedType,
  owned: Int32Array,
  wanted: Int32Array,
  lives: readonly number[] | undefined,
): CopyDomain | null {
  if (wanted.length === 0) return null;
  const prices = input.charges.matrix(charged, owned, wanted);
  const from: number[] = [];
  const copy: number[] = [];
  const cost: number[] = [];
  const life: number[] = [];
  const add = (o: number, q: number, price: number, lasts: number): void => {
    from.push(o);
    copy.push(q);
    cost.push(price);
    life.push(lasts);
  };
  for (let o = 0; o < owned.length; o++) {
    add(owned[o], -1, 0, 0);
    for (let q = 0; q < wanted.length; q++) {
      const price = prices[o * wanted.length + q];
      // A copy that is free (a local slice) is made at each use instead.
      if (price === 0 || price === Infinity || !worthKeeping(input, owned[o], wanted[q])) continue;
      for (const lasts of lives ?? [0])
        add(owned[o], wanted[q], lasts === CopyLife.EACH ? 2 * price : price, lasts);
    }
  }
  if (from.length === owned.length) return null;
  return {
    owned: Int32Array.from(from),
    copy: Int32Array.from(copy),
    cost: Float64Array.from(cost),
    ...(lives === undefined ? {} : { life: Uint8Array.from(life) }),
  };
}

/** Shardings that two or more uses of the group can demand, in ascending order of id. */
function wantedTwice(group: readonly Use[]): number[] {
  const count = new Map<number, number>();
  for (const use of group)
    for (const id of use.demands.specs) count.set(id, (count.get(id) ?? 0) + 1);
  return [...count]
    .filter(([, n]) => n >= 2)
    .map(([id]) => id)
    .sort((a, b) => a - b);
}

/**
 * Tells whether a copy `to` of a value in `from` is considered for several uses: one that differs
 * on one mesh dim (an all-gather, all-to-all or reduction over it), or, on meshes of one or two
 * dims, any. Where strategies are limited to some stretches of neighbouring mesh dims, both sides
 * of a copy have one stretch less. Others are priced at each use.
 */
function worthKeeping({ space, mostRuns }: BuildInput, from: number, to: number): boolean {
  if (space.mesh.activeRank <= 2) return true;
  if (mostRuns !== undefined && (runsOf(space, from) >= mostRuns || runsOf(space, to) >= mostRuns))
    return false;
  let changed = 0;
  for (let d = 0; d < space.meshRank; d++)
    if (space.kindAt(from, d) !== space.kindAt(to, d)) changed++;
  return changed <= 1;
}

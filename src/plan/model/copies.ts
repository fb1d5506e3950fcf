/** Makes shared copies: one copy variable for each value that several uses of one phase need. */
import type { ChargedType } from '../../cost/redistribution/charges.ts';
import { runsOf } from '../../strategy/runs.ts';
import type { BuildInput } from './input.ts';
import type { CopyVariable, Model, Use } from './model.ts';
import { chargedKey, repeated, type TableBuilder } from './tables.ts';
import type { SpecColumns } from './uses.ts';

/**
 * Adds the copy variable of every value that has two or more uses in one phase of one body; the
 * uses out name their copy.
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
    const key = `${use.value}:${use.phase}:${use.scope}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [use]);
    else group.push(use);
  }
  const copies: CopyVariable[] = [];
  const domains = new Map<string, NamedDomain | null>();
  for (const group of groups.values()) {
    if (group.length < 2) continue;
    const { value, phase, times } = group[0];
    const { node, result, type } = input.flow.values[value];
    const charged = input.charges.typeOf(input.flow.values[value]);
    const owned = columns.result(node, result);
    const wanted = tables.specList(Int32Array.from(wantedTwice(group)));
    const key = `c${chargedKey(type, charged)}:${owned.list}:${wanted.list}x${times}`;
    let domain = domains.get(key);
    if (domain === undefined) {
      const found = copyDomain(input, charged, owned.specs, wanted.specs);
      domain =
        found === null ? null : named(tables, { ...found, cost: repeated(found.cost, times) });
      domains.set(key, domain);
    }
    if (domain === null) continue;
    const { cost } = domain;
    const copy = copies.length;
    const vector = tables.vector(key, () => cost);
    const variable = tables.addVariable({ kind: 'copy', copy }, cost.length, vector);
    tables.pairs(variable, domain.first, domain.second);
    copies.push({ value, phase, variable, owned: domain.owned, copy: domain.copy });
    for (const use of group) copyOf.set(use, copy);
  }
  return { uses: uses.map((use) => ({ ...use, copy: copyOf.get(use) ?? -1 })), copies };
}

interface CopyDomain {
  readonly owned: Int32Array;
  readonly copy: Int32Array;
  readonly cost: Float64Array;
}

/** A domain with the maps that name the two placements of each value. */
interface NamedDomain extends CopyDomain {
  readonly first: number;
  readonly second: number;
}

function named(tables: TableBuilder, domain: CopyDomain): NamedDomain {
  return {
    ...domain,
    first: tables.specList(domain.owned).mapId,
    second: tables.specList(domain.copy).mapId,
  };
}

/** The pairs (owned placement, copy or none) that are worth having; null when no copy is. */
function copyDomain(
  input: BuildInput,
  charged: ChargedType,
  owned: Int32Array,
  wanted: Int32Array,
): CopyDomain | null {
  if (wanted.length === 0) return null;
  const prices = input.charges.matrix(charged, owned, wanted);
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
      if (price === 0 || price === Infinity || !worthKeeping(input, owned[o], wanted[q])) continue;
      from.push(owned[o]);
      copy.push(wanted[q]);
      cost.push(price);
    }
  }
  if (from.length === owned.length) return null;
  return {
    owned: Int32Array.from(from),
    copy: Int32Array.from(copy),
    cost: Float64Array.from(cost),
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

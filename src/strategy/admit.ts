/** Asks the rules of one call whether given input shardings are allowed as they are. */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import { MaskPartial } from '../mesh/placements/partials/mask-partial.ts';
import { Partial } from '../mesh/placements/partials/partial.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import { REPLICATE } from '../mesh/placements/replicate.ts';
import { Shard } from '../mesh/placements/shards/shard.ts';
import {
  evenlyShardable,
  fillsAllRanks,
  isPending,
  pendingTogether,
  refusedCut,
  Sharding,
} from '../mesh/sharding/sharding.ts';
import { takesAnyCut } from '../ops/expansion/row.ts';
import type { TensorMeta } from '../ops/record/record.ts';
import { inOnePiece, R, type Rule, type RuleSlot, type ShardSlot } from '../ops/record/rule.ts';
import { takesFurther } from '../ops/record/taken-rows.ts';

/** One way in which the rules of a call take its operands. */
interface Admitted {
  /** The rule taken on each mesh dim. */
  readonly rules: readonly Rule[];
  /** Shardings of the results; null where masked off. */
  readonly outputs: readonly (Sharding | null)[];
}

/** Rules on all mesh dims that are tried together. */
const MOST_WAYS = 1 << 20;

/** Strategies that a call admits for operands that are placed; or why there is none. */
export type Admission = { readonly accepted: readonly Admitted[] } | { readonly refused: string };

/** The call as the rules see it. */
interface Call {
  readonly mesh: DeviceMesh;
  readonly inputs: readonly TensorMeta[];
  readonly outputs: readonly (TensorMeta | null)[];
  readonly given: readonly Sharding[];
}

/**
 * Asks the rules of one call whether given input shardings are allowed as they are, and for the
 * shardings of the results. Nothing is moved: this is the strict reading, for eager checks and for
 * kinds of placement that the planner does not enumerate. A rule takes any slicing kind; what it
 * demands of it is one of three things:
 *
 * - any: the index only passes through, and the same cut is on the output dim;
 * - same: tensors that share the index have equal placements, cut by the mesh dims in the same
 *   order;
 * - even: every rank holds equally many rows.
 *
 * @param rules rules of the call without the all-replicate rule
 * @param inputs global metas of the tensor inputs, in schema order
 * @param outputs global metas of the results, null where masked off
 * @param given the sharding of each input
 * @returns every way in which the rules take them, all-replicate rule first, or the reason why none
 *   does
 * @throws E_LIMIT where there are more than a million ways
 */
export function admit(
  mesh: DeviceMesh,
  rules: readonly Rule[],
  inputs: readonly TensorMeta[],
  outputs: readonly (TensorMeta | null)[],
  given: readonly Sharding[],
): Admission {
  checkKinds('admit', {
    mesh: [mesh, 'mesh'],
    rules: [rules, 'list'],
    inputs: [inputs, 'list'],
    outputs: [outputs, 'list'],
    given: [given, 'list'],
  });
  const call: Call = { mesh, inputs, outputs, given };
  const unfit = misplaced(call);
  if (unfit !== undefined) return { refused: unfit };
  const replicate: Rule = {
    inputs: inputs.map(() => R),
    outputs: outputs.map((o) => o && R),
    origin: 'base',
  };
  // A later dim becomes strides under a view, which the strict reading does not make: the dim must
  // be whole.
  const list = [replicate, ...rules.flatMap((r) => inOnePiece(r) ?? [])];
  const candidates: Rule[][] = [];
  for (let m = 0; m < mesh.rank; m++) {
    // One device holds everything, whatever the placement is called.
    const fitting =
      mesh.sizes[m] === 1 ? [replicate] : list.filter((r) => mismatch(call, r, m) === undefined);
    if (fitting.length === 0) return { refused: whyNone(call, list, m) };
    candidates.push(fitting);
  }
  const ways = candidates.reduce((n, fitting) => n * fitting.length, 1);
  if (ways > MOST_WAYS)
    throw new ShardwrightError(
      'E_LIMIT',
      `the rules of a call take its inputs in ${ways} ways, more than ${MOST_WAYS}`,
      { hint: 'ask on a mesh of fewer dims.' },
    );
  const accepted: Admitted[] = [];
  let first: string | undefined;
  const pick = new Int32Array(mesh.rank);
  for (;;) {
    const chosen = Array.from(pick, (i, m) => candidates[m][i]);
    const result = combine(call, chosen);
    if ('refused' in result) first ??= result.refused;
    else accepted.push(result);
    let m = mesh.rank - 1;
    while (m >= 0 && pick[m] === candidates[m].length - 1) pick[m--] = 0;
    if (m < 0) break;
    pick[m]++;
  }
  return accepted.length > 0 ? { accepted } : { refused: first ?? 'no rule takes these inputs' };
}

/** Why an input cannot have the sharding that is given for it. */
function misplaced({ mesh, inputs, given }: Call): string | undefined {
  for (const [t, sharding] of given.entries())
    for (const dim of sharding.orders.keys()) {
      const size = inputs[t].shape[dim];
      if (size === undefined)
        return `input ${t} is ${sharding.text}, but has ${inputs[t].shape.length} dims`;
      const reason = refusedCut(sharding, mesh, dim, size);
      if (reason !== undefined) return `input ${t}, ${reason}`;
    }
  return undefined;
}

/**
 * Why a rule does not take the inputs on one mesh dim; undefined when it does. `near` marks a rule
 * that wants these dims.
 */
function mismatch(
  call: Call,
  r: Rule,
  m: number,
): { readonly near: boolean; readonly reason: string } | undefined {
  let fault: string | undefined;
  const groups = new Map<string, { readonly t: number; readonly p: Placement }>();
  for (const [t, slot] of r.inputs.entries()) {
    const p = call.given[t].placements[m];
    if (slot === null) continue;
    if (slot.kind !== 'shard') {
      const fits =
        slot.kind === 'replicate'
          ? p.kind === 'replicate'
          : p instanceof Partial && p.op === slot.op;
      if (!fits) return { near: false, reason: '' };
      continue;
    }
    if (p.dim !== slot.dim) return { near: false, reason: '' };
    const mate = groups.get(slot.tie);
    if (!takesAnyCut(slot) && !(p instanceof Shard))
      fault ??= `input ${t} is cut ${p.text}, but ${plainOnly(slot)}`;
    else if (mate === undefined) groups.set(slot.tie, { t, p });
    else if (!mate.p.withDim(p.dim).equals(p))
      fault ??=
        `input ${mate.t} is cut ${mate.p.text} and input ${t} ${p.text}, but the two dims are ` +
        'one index: both must be cut the same way';
  }
  return fault === undefined ? undefined : { near: true, reason: fault };
}

function plainOnly(slot: ShardSlot): string {
  const wants = 'this operator wants contiguous chunks (a plain Shard)';
  if (slot.slicing === 'contiguous') return `${wants}: it computes offsets from the rank`;
  return slot.unit > 1
    ? `${wants} of whole groups of ${slot.unit} rows`
    : `${wants}: it reshapes the dim`;
}

function whyNone(call: Call, list: readonly Rule[], m: number): string {
  const on = `mesh dim '${call.mesh.names[m]}'`;
  for (const r of list) {
    const found = mismatch(call, r, m);
    if (found?.near === true) return `${on}: ${found.reason}`;
  }
  return `${on}: no rule takes ${call.given.map((s) => s.placements[m].text).join(', ')}`;
}

/** The rules of all mesh dims together: tied dims, evenness, and the shardings of the results. */
function combine(call: Call, chosen: readonly Rule[]): Admitted | { readonly refused: string } {
  const { mesh, inputs, outputs, given } = call;
  for (const [m, r] of chosen.entries()) {
    const groups = new Map<string, { readonly t: number; readonly slot: ShardSlot }>();
    for (const [t, slot] of r.inputs.entries()) {
      if (slot?.kind !== 'shard') continue;
      const reason = unevenness(call, chosen, t, slot);
      if (reason !== undefined) return { refused: `mesh dim '${mesh.names[m]}': ${reason}` };
      const mate = groups.get(slot.tie);
      if (mate === undefined) {
        groups.set(slot.tie, { t, slot });
        continue;
      }
      const size = inputs[mate.t].shape[mate.slot.dim];
      if (!slot.scaled && !mate.slot.scaled && size !== inputs[t].shape[slot.dim])
        return {
          refused:
            `dims ${mate.slot.dim} of input ${mate.t} and ${slot.dim} of input ${t} differ in ` +
            'size',
        };
      const a = cutsOf(given[mate.t], mate.slot.dim);
      const b = cutsOf(given[t], slot.dim);
      if (
        !isSameCut(a, b) &&
        !isFurtherCut(chosen, a, b, { t, dim: slot.dim }) &&
        !isFurtherCut(chosen, b, a, { t: mate.t, dim: mate.slot.dim })
      )
        return {
          refused:
            `input ${mate.t} is ${given[mate.t].orderedText} and input ${t} ` +
            `${given[t].orderedText}, but dim ${mate.slot.dim} of the one is dim ${slot.dim} ` +
            'of the other: mesh dims must cut both in the same way and order ' +
            `(${namesOf(mesh, a)} against ${namesOf(mesh, b)})`,
        };
    }
  }
  const results: (Sharding | null)[] = [];
  for (const [k, meta] of outputs.entries()) {
    if (meta === null) {
      results.push(null);
      continue;
    }
    const placements = chosen.map((r, m) => resultPlacement(call, r, r.outputs[k], m));
    const pending = placements.filter(isPending);
    const odd = pending.find((p) => !pendingTogether(pending[0], p));
    if (odd !== undefined)
      return {
        refused:
          `the result would wait for ${pending[0].text} and ${odd.text}, which cannot stand ` +
          'together',
      };
    results.push(new Sharding(placements, resultOrders(call, chosen, k, placements)));
  }
  return { rules: chosen, outputs: results };
}

interface OneCut {
  readonly meshDim: number;
  readonly placement: Placement;
}

/**
 * Cuts of one dim in order; the placements are named for dim 0, so that those of different dims
 * compare.
 */
function cutsOf(sharding: Sharding, dim: number): OneCut[] {
  return sharding
    .orderOf(dim)
    .map((meshDim) => ({ meshDim, placement: sharding.placements[meshDim].withDim(0) }));
}

function isSameCut(a: readonly OneCut[], b: readonly OneCut[]): boolean {
  return (
    a.length === b.length &&
    a.every((cut, i) => cut.meshDim === b[i].meshDim && cut.placement.equals(b[i].placement))
  );
}

/** Tells whether the one cut goes on where the other ends, by rules that take rows of the other. */
function isFurtherCut(
  chosen: readonly Rule[],
  one: readonly OneCut[],
  other: readonly OneCut[],
  { t, dim }: { readonly t: number; readonly dim: number },
): boolean {
  const [a, b] = [one, other].map((cuts) => cuts.map(({ meshDim }) => meshDim));
  return (
    isSameCut(one.slice(0, other.length), other) &&
    takesFurther(a, b, (m) => {
      const takes = chosen[m]?.takes;
      return takes?.dim === dim && takes.of.includes(t);
    })
  );
}

function namesOf(mesh: DeviceMesh, cuts: readonly OneCut[]): string {
  return cuts.map((cut) => `${mesh.names[cut.meshDim]} ${cut.placement.text}`).join(', ');
}

/** Tells whether a slot that needs even or whole units gets them. */
function unevenness(
  call: Call,
  chosen: readonly Rule[],
  t: number,
  slot: ShardSlot,
): string | undefined {
  const { mesh, inputs, given } = call;
  const size = inputs[t].shape[slot.dim];
  if (slot.filled && !fillsAllRanks(given[t], mesh, slot.dim, size))
    return (
      `input ${t} is ${given[t].text}, which leaves ranks without a row of dim ${slot.dim} ` +
      `(${size}), and this operator needs one`
    );
  if (!slot.even && !slot.scaled && slot.unit === 1) return undefined;
  // A rule that takes rows of what is not cut with it cuts whole groups further, evenly or not.
  const order = given[t].orderOf(slot.dim).filter((m) => chosen[m]?.takes === undefined);
  const only = new Sharding(
    given[t].placements.map((p, m) => (order.includes(m) ? p.withDim(0) : REPLICATE)),
    new Map([[0, order]]),
  );
  if (evenlyShardable(only, mesh, [size / slot.unit])) return undefined;
  const units = slot.unit > 1 ? ` in groups of ${slot.unit}` : '';
  return (
    `input ${t} is ${given[t].text}, but this operator needs equally many rows of dim ` +
    `${slot.dim} (${size}${units}) on every rank`
  );
}

/** Placement of a result on one mesh dim. */
function resultPlacement(call: Call, r: Rule, slot: RuleSlot, m: number): Placement {
  if (slot === null || slot.kind === 'replicate') return REPLICATE;
  if (slot.kind === 'partial') {
    // A lookup in a table cut by rows leaves rows to be masked: pending, but bound to its own mask.
    const table = r.rewrite === 'mask' ? r.inputs.findIndex((s) => s?.kind === 'shard') : -1;
    const cut = table < 0 ? null : r.inputs[table];
    if (slot.op === 'sum' && cut?.kind === 'shard')
      return new MaskPartial(call.inputs[table].shape, cut.dim);
    return Partial.of(slot.op);
  }
  const source = sourceOf(r, slot);
  return source < 0 ? Shard.of(slot.dim) : call.given[source].placements[m].withDim(slot.dim);
}

/** First input whose cut a result slot repeats, -1 if the rule cuts the result only. */
function sourceOf(r: Rule, slot: ShardSlot): number {
  return r.inputs.findIndex((s) => s?.kind === 'shard' && s.tie === slot.tie);
}

/** Order of mesh dims on the dims of a result: that of the inputs which they come from. */
function resultOrders(
  call: Call,
  chosen: readonly Rule[],
  k: number,
  placements: readonly Placement[],
): Map<number, readonly number[]> {
  const orders = new Map<number, readonly number[]>();
  for (const [m, r] of chosen.entries()) {
    const slot = r.outputs[k];
    if (slot?.kind !== 'shard' || orders.has(slot.dim)) continue;
    const source = sourceOf(r, slot);
    const from = source < 0 ? null : r.inputs[source];
    if (from?.kind !== 'shard') continue;
    const order = call.given[source].orderOf(from.dim);
    const cut = placements.flatMap((p, i) => (p.dim === slot.dim ? [i] : []));
    if (order.includes(m) && order.length === cut.length && cut.every((i) => order.includes(i)))
      orders.set(slot.dim, order);
  }
  return orders;
}

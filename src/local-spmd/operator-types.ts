/**
 * Types ordinary operators: the types of a call's results on every mesh axis follow from those of
 * its operands, or the conflict is named with the cast that solves it. Linearity and cuts come from
 * the sharding rules of the record, combined over the axes as the planner combines them
 * (`ops/expansion`), with what they ask of sizes; nothing here names an operator.
 */
import { DeviceMesh } from '../mesh/devices/mesh.ts';
import { type AxisType, chunksOf, placementOf } from '../mesh/local-types/types.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import { StridedShard } from '../mesh/placements/shards/strided.ts';
import { FIRST_SHARD_CODE, REPLICATE_CODE, ShardingSpace } from '../mesh/sharding/space.ts';
import { allReplicate, cutRows, plainRow } from '../ops/expansion/expand.ts';
import { needsOf, type Row } from '../ops/expansion/row.ts';
import { RowProduct } from '../ops/expansion/row-product.ts';
import { isIntegral } from '../ops/record/dtypes.ts';
import { functionalForm } from '../ops/record/in-place.ts';
import type { OperatorRecord, TypedContext } from '../ops/record/record.ts';
import type { Rule } from '../ops/record/rule.ts';

/**
 * Type of an operand: `number` is a tensor made of plain numbers, the same on every rank (`full`,
 * `arange`).
 */
export type OperandType = AxisType | 'number';

/**
 * The meaning for an operator of a dim that an axis cuts. `manual`: none, operators act on the
 * pieces (V). `strict`: operators act on the whole value, and a cut must be one that the operator
 * passes on. `auto` and `explicit`: as `strict`, with redistributions that nobody wrote
 * (`modes.ts`). `lint`: operators act on pieces whose cut is known, so that a difference from the
 * whole shows.
 */
export type Meaning = 'manual' | 'strict' | 'auto' | 'explicit' | 'lint';

/** An operand that must be cast before the call. */
interface Cast {
  /** Position among the tensor operands. */
  readonly operand: number;
  readonly op: string;
  readonly src: AxisType;
  readonly dst: AxisType;
}

export interface Conflict {
  /** Which of the laws is broken: `I with V`, `nonlinear(P)`. */
  readonly rule: string;
  /** Positions of the operands that do not go together, or the one that is refused. */
  readonly operands: readonly number[];
  readonly reason: string;
  /** The casts that solve it; none where another program is wanted. */
  readonly casts: readonly Cast[];
  /** Said where no cast solves it. */
  readonly fix?: string;
}

interface ResultTypes {
  readonly results: readonly OperandType[];
  /** The type as which each operand is taken: a plain number is cut where the rule cuts it. */
  readonly taken: readonly OperandType[];
  /** The rule that passes the operands on; absent where every rank runs the call as it stands. */
  readonly rule?: Rule;
  /** The sum over a cut dim that the call leaves to a later cast (`outPartial`). */
  readonly pending?: true;
}

type TypedCall = { readonly typing: ResultTypes } | { readonly conflict: Conflict };

/** An axis that a call is typed on. */
interface OperatorAxis {
  readonly size: number;
  readonly meaning: Meaning;
}

/** Equal calls have one context object, so a model's layers are typed once. */
const known = new WeakMap<TypedContext, Map<string, readonly TypedCall[]>>();

/**
 * Types of the results of a call on each axis, or why there are none. The cuts of all axes are
 * judged together, in mesh order.
 *
 * @param operands by axis, one type for each tensor operand
 * @param owed by axis, the cut that the result is to have where its operands are whole
 */
export function typeOperator(
  record: OperatorRecord,
  ctx: TypedContext,
  axes: readonly OperatorAxis[],
  operands: readonly (readonly OperandType[])[],
  owed: readonly (AxisType | undefined)[] = [],
): readonly TypedCall[] {
  const meanings = axes.map(({ size, meaning }) => `${size}${meaning}`);
  const key = `${record.name} ${meanings.join()} ${operands.join(';')} ${owed.join()}`;
  let calls = known.get(ctx);
  if (calls === undefined) known.set(ctx, (calls = new Map<string, readonly TypedCall[]>()));
  let typed = calls.get(key);
  if (typed === undefined) {
    const own = operands.map((types) => withoutGradient(ctx, types));
    const laws = own.map((types, a) =>
      owed[a] === undefined ? lawOf(record, ctx, types, axes[a].meaning) : undefined,
    );
    const open = laws.flatMap((law, a) => (law === undefined ? [a] : []));
    const passed =
      open.length === 0
        ? []
        : new RuleSearch(
            record,
            ctx,
            open.map((a) => axes[a]),
            open.map((a) => own[a]),
            open.map((a) => owed[a]),
          ).types();
    typed = laws.map((law, a) => inPlace(record, operands[a], law ?? passed[open.indexOf(a)]));
    calls.set(key, typed);
  }
  return typed;
}

/**
 * The type that holds on an axis whatever the rules of the operator are; undefined where they
 * decide.
 */
function lawOf(
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  meaning: Meaning,
): TypedCall | undefined {
  const everywhere = (type: OperandType): TypedCall => ({
    typing: { results: ctx.outputs.map(() => type), taken: operands },
  });
  const at = (type: OperandType): number[] => operands.flatMap((t, i) => (t === type ? [i] : []));
  const kinds = new Set(operands);
  kinds.delete('number');
  if (kinds.size === 0) return everywhere('number');
  const [only] = kinds;
  if (kinds.size === 1 && (only === 'I' || only === 'R'))
    return everywhere(meaning !== 'manual' && record.cls === 'factory' ? 'number' : only);
  const varying = operands.flatMap((t, i) => (t === 'V' || isCut(t) ? [i] : []));
  if (kinds.has('I')) return { conflict: invariantMixed(operands, at('I')) };
  const addends = at('P');
  if (addends.length > 0 && varying.length > 0)
    return { conflict: addendsWithPieces(operands, addends, varying) };
  if (varying.length > 0 && (meaning === 'manual' || operands.includes('V')))
    return everywhere('V');
  return undefined;
}

/**
 * I and R differ in their gradients: whole numbers and truth values have none, so they are what the
 * others are.
 */
function withoutGradient(
  ctx: TypedContext,
  operands: readonly OperandType[],
): readonly OperandType[] {
  const kinds = new Set(operands);
  if (!kinds.has('I') || [...kinds].every((type) => type === 'I' || type === 'number'))
    return operands;
  const isFree = operands.map(
    (type, i) => (type === 'I' || type === 'R') && isIntegral(ctx.inputs[i].dtype),
  );
  const others = operands.filter((type, i) => !isFree[i] && type !== 'number');
  const now = others.length > 0 && others.every((type) => type === 'I') ? 'I' : 'R';
  return operands.map((type, i) => (isFree[i] ? now : type));
}

/** An operator that writes into its first operand leaves it of the type that it had. */
function inPlace(
  { name }: OperatorRecord,
  operands: readonly OperandType[],
  found: TypedCall,
): TypedCall {
  if (functionalForm(name) === undefined || !('typing' in found)) return found;
  const [target] = operands;
  const [result] = found.typing.results;
  if (target === undefined || result === target) return found;
  const other = operands.findIndex((type, i) => i > 0 && type !== target);
  return {
    conflict: {
      rule: `${target} += ${result}`,
      operands: [0, other],
      reason: `the result is ${result}, the target of the operator in place stays ${target}`,
      casts: [],
      fix: `cast the target to ${result} first, or use the operator that makes a new value`,
    },
  };
}

function isCut(type: OperandType): boolean {
  return type !== 'number' && chunksOf(type) !== undefined;
}

/** Changes of a call that types do not see: sizes that it writes, positions of random numbers. */
const UNSEEN: ReadonlySet<string> = new Set(['local-shape', 'groups', 'random-offset']);

/**
 * Tells whether each device runs the call itself under a rule: none that hides a collective in it,
 * masks rows, or counts those of others.
 */
export function isPlainRule({ collectives, rewrite }: Rule): boolean {
  return (collectives ?? []).length === 0 && (rewrite === undefined || UNSEEN.has(rewrite));
}

export function plainRules(record: OperatorRecord, ctx: TypedContext): readonly Rule[] {
  return record.shard(ctx).filter(isPlainRule);
}

/** Meshes of the axes that calls are typed on, whose names say nothing here. */
const meshes = new Map<string, ShardingSpace>();

function spaceOf(axes: readonly OperatorAxis[]): ShardingSpace {
  const key = axes.map(({ size }) => size).join();
  let space = meshes.get(key);
  if (space === undefined)
    meshes.set(
      key,
      (space = new ShardingSpace(
        new DeviceMesh(axes.map(({ size }, a) => ({ name: `axis${a}`, size }))),
      )),
    );
  return space;
}

/** Rules under which the operands of a call stay as they are, on all axes together. */
class RuleSearch {
  private readonly space: ShardingSpace;
  private readonly rules: readonly Rule[];
  private readonly rows: readonly Row[];
  private readonly product: RowProduct;

  constructor(
    private readonly record: OperatorRecord,
    private readonly ctx: TypedContext,
    private readonly axes: readonly OperatorAxis[],
    private readonly operands: readonly (readonly OperandType[])[],
    private readonly owed: readonly (AxisType | undefined)[],
  ) {
    this.space = spaceOf(axes);
    const { inputs, outputs } = ctx;
    this.rules = [
      allReplicate(inputs, outputs),
      ...plainRules(record, ctx).filter((r) => r.inputs.length === inputs.length),
    ];
    const plain = this.rules.map((r, i) => plainRow(r, i));
    const cuts = operands.flat().flatMap((type) => stridedOf(type) ?? []);
    this.rows = cuts.length === 0 ? plain : [...plain, ...cutRows(this.space, plain, cuts)];
    this.product = new RowProduct(this.space, this.rows, [...inputs, ...outputs], {
      uneven: 'allow',
      patterns: 'any',
      evenStrides: true,
    });
  }

  /** The types on each axis, or why it has none beside those before it. */
  types(): TypedCall[] {
    const all = [...this.axes.keys()];
    const whole = this.on(all);
    if (whole !== undefined) return all.flatMap((a) => whole.get(a) ?? []);
    const conflicts = new Map<number, TypedCall>();
    let taken: readonly number[] = [];
    for (const a of all)
      if (this.on([...taken, a]) !== undefined) taken = [...taken, a];
      else conflicts.set(a, { conflict: this.conflict(a, taken) });
    const typed = this.on(taken);
    return all.flatMap((a) => conflicts.get(a) ?? typed?.get(a) ?? []);
  }

  /**
   * The types on some axes, by the first combination of rules that stands at these sizes; the
   * others count as one device.
   */
  private on(asked: readonly number[]): Map<number, TypedCall> | undefined {
    const picked: number[] = [];
    const step = (a: number): boolean => {
      if (a === this.axes.length) return this.product.complete();
      const rows = asked.includes(a) ? this.fitting(a) : [0];
      return rows.some((r) => {
        picked[a] = r;
        return this.product.take(a, r) && (r === 0 || this.isHeld(a)) && step(a + 1);
      });
    };
    if (!step(0)) return undefined;
    return new Map(asked.map((a) => [a, { typing: this.typing(a, picked[a]) }]));
  }

  /** Rows whose slots are what the operands are on an axis, and whose results have types. */
  private fitting(a: number): number[] {
    const owed = this.owed[a];
    return [...this.rows.keys()].filter((r) => {
      const { slots, codes } = this.rows[r];
      const results = slots.slice(this.ctx.inputs.length);
      return (
        this.takes(r, a) &&
        results.every((slot) => slot?.kind !== 'partial' || slot.op === 'sum') &&
        (owed === undefined || codes.at(-1) === this.codeOf(owed))
      );
    });
  }

  private takes(r: number, a: number): boolean {
    const { slots, codes } = this.rows[r];
    return this.operands[a].every((type, i) => {
      const slot = slots[i];
      if (slot === null) return false;
      if (type === 'number') return slot.kind !== 'partial';
      if (slot.kind === 'shard' && slot.inside !== null) return chunksOf(type)?.dim === slot.dim;
      return codes[i] === this.codeOf(type);
    });
  }

  /**
   * Tells whether the cuts inside of merged dims, which depend on the axes before, are the
   * operands'.
   */
  private isHeld(a: number): boolean {
    return this.operands[a].every(
      (type, i) => type === 'number' || this.product.codeOn(i, a) === this.codeOf(type),
    );
  }

  private codeOf(type: AxisType): number {
    return this.space.codeOf(placementOf(type));
  }

  private typeOn(t: number, a: number): AxisType {
    const code = this.product.codeOn(t, a);
    if (code === REPLICATE_CODE) return 'R';
    if (code < FIRST_SHARD_CODE) return 'P';
    const placement = this.space.placementOf(code);
    const dim = this.space.dimOfCode(code);
    return placement instanceof StridedShard ? `_S(${dim},${placement.factor})` : `S(${dim})`;
  }

  private typing(a: number, r: number): ResultTypes {
    const { ctx, record } = this;
    const operands = this.operands[a];
    const types = ctx.outputs.map((_, k) => this.typeOn(ctx.inputs.length + k, a));
    const sums = types.includes('P') && !operands.includes('P');
    const { rule } = this.rows[r];
    return {
      // What is made from nothing can be cut anywhere.
      results: types.map((type) => (type === 'R' && record.cls === 'factory' ? 'number' : type)),
      taken: operands.map((type, i) => (type === 'number' ? this.typeOn(i, a) : type)),
      ...(rule === 0 ? {} : { rule: this.rules[rule] }),
      ...(sums ? { pending: true as const } : {}),
    };
  }

  /** Why an axis has no rule beside those of other axes. */
  private conflict(a: number, beside: readonly number[]): Conflict {
    const operands = this.operands[a];
    const addends = operands.flatMap((type, i) => (type === 'P' ? [i] : []));
    const cut = operands.flatMap((type, i) => (isCut(type) ? [i] : []));
    const [row] = this.fitting(a);
    if (row !== undefined) return this.refusedSizes(a, row, beside);
    if (addends.length > 0) return refusedAddends(this.record, operands, addends);
    const averages = [...this.rows.keys()].some(
      (r) =>
        this.takes(r, a) &&
        this.rows[r].slots
          .slice(operands.length)
          .every((slot) => slot?.kind === 'partial' && slot.op === 'avg'),
    );
    return averages ? refusedMean(operands, cut) : refusedCut(operands, cut);
  }

  /** A rule that takes the operands, but not at their sizes. */
  private refusedSizes(a: number, r: number, beside: readonly number[]): Conflict {
    const tensors = [...this.ctx.inputs, ...this.ctx.outputs];
    const row = this.rows[r];
    const needs = needsOf(row, tensors).singles;
    const { t, slot } = needs[0] ?? row.shards[0] ?? { t: 0, slot: undefined };
    const operand = Math.min(t, this.operands[a].length - 1);
    const type = this.operands[a][operand];
    const rows = slot === undefined ? 0 : (tensors[t]?.shape[slot.dim] ?? 0);
    const pieces = [...beside, a].reduce(
      (n, b) => (this.operands[b][operand] === type ? n * this.axes[b].size : n),
      1,
    );
    const wants =
      slot === undefined
        ? 'other sizes'
        : slot.unit > 1
          ? `whole groups of ${slot.unit} rows on every rank`
          : slot.even || slot.scaled
            ? 'equally many rows on every rank'
            : 'the same rows of all operands on every rank';
    return {
      rule: `${type} of ${rows} rows`,
      operands: [operand],
      reason:
        `${this.record.name} passes a cut on where it leaves ${wants}, and ${rows} rows ` +
        `in ${pieces} pieces are not so`,
      casts:
        type === 'number' || !isCut(type)
          ? []
          : [{ operand, op: 'all_gather', src: type, dst: 'R' }],
    };
  }
}

/** Tells whether a rule passes cuts on at the sizes of a call, over so many ranks. */
export function standsAt(ctx: TypedContext, rule: Rule, ranks: number): boolean {
  const product = new RowProduct(
    spaceOf([{ size: ranks, meaning: 'strict' }]),
    [plainRow(rule, 0)],
    [...ctx.inputs, ...ctx.outputs],
    { uneven: 'allow', patterns: 'any', evenStrides: true },
  );
  return product.take(0, 0) && product.complete();
}

function stridedOf(type: OperandType): Placement | undefined {
  const placement = type !== 'number' && isCut(type) ? placementOf(type) : undefined;
  return placement instanceof StridedShard ? placement : undefined;
}

function refusedMean(operands: readonly OperandType[], cut: readonly number[]): Conflict {
  return {
    rule: `mean over ${operands[cut[0]]}`,
    operands: [cut[0]],
    reason: 'the mean of each piece is not an addend of the mean of all',
    casts: [],
    fix: 'write the sum with outPartial, then divide by the number of all rows',
  };
}

function invariantMixed(operands: readonly OperandType[], invariant: readonly number[]): Conflict {
  const other = operands.findIndex((t) => t !== 'I' && t !== 'number');
  const type = operands[other];
  return {
    rule: `I with ${type}`,
    operands: [invariant[0], other].sort((a, b) => a - b),
    reason:
      'an invariant value meets one that each rank uses in its own way, so its gradient ' +
      'would not be summed',
    casts: invariant.map((operand) => ({ operand, op: 'convert', src: 'I', dst: 'R' })),
  };
}

function addendsWithPieces(
  operands: readonly OperandType[],
  addends: readonly number[],
  varying: readonly number[],
): Conflict {
  return {
    rule: `P with ${operands[varying[0]]}`,
    operands: [addends[0], varying[0]].sort((a, b) => a - b),
    reason: 'addends of a pending sum meet pieces',
    casts: addends.map((operand) => ({ operand, op: 'all_reduce', src: 'P', dst: 'R' })),
  };
}

function refusedAddends(
  { name }: OperatorRecord,
  operands: readonly OperandType[],
  addends: readonly number[],
): Conflict {
  const equal = operands.flatMap((t, i) => (t === 'R' ? [i] : []));
  const numbers = operands.flatMap((t, i) => (t === 'number' ? [i] : []));
  const counted =
    `the ranks' results would be added up, and what is equal on all of them counted once for ` +
    'each';
  if (equal.length > 0 && addends.length === 1 && operands.length === 2)
    return {
      rule: 'P with R',
      operands: [addends[0], equal[0]].sort((a, b) => a - b),
      reason: counted,
      casts: [{ operand: equal[0], op: 'convert', src: 'R', dst: 'P' }],
    };
  if (addends.length > 1)
    return {
      rule: 'P with P',
      operands: addends.slice(0, 2),
      reason: `${name} of addends is not the addends of the result`,
      casts: [{ operand: addends[1], op: 'all_reduce', src: 'P', dst: 'R' }],
    };
  return {
    rule: numbers.length > 0 ? 'P with a number' : equal.length > 0 ? 'P with R' : 'nonlinear(P)',
    operands: [addends[0]],
    reason: numbers.length > 0 ? counted : `${name} is not linear in this operand`,
    casts: [{ operand: addends[0], op: 'all_reduce', src: 'P', dst: 'R' }],
  };
}

function refusedCut(operands: readonly OperandType[], cut: readonly number[]): Conflict {
  const whole = operands.flatMap((t, i) => (t === 'R' ? [i] : []));
  const [first] = cut;
  const type = operands[first] as AxisType;
  const other = cut.find((i) => operands[i] !== type);
  if (other !== undefined)
    return {
      rule: `${type} with ${operands[other]}`,
      operands: [first, other],
      reason: 'Implicit redistribution occurred for operands that are cut on different dims',
      casts: [{ operand: other, op: 'all_gather', src: operands[other] as AxisType, dst: 'R' }],
    };
  if (whole.length > 0)
    return {
      rule: `R with ${type}`,
      operands: [whole[0], first].sort((a, b) => a - b),
      reason: 'the operand that every rank has whole would be sliced to match',
      casts: [],
      fix:
        'slice it with convert R→S(i) on the dim that matches, or gather the other with ' +
        'all_gather',
    };
  return {
    rule: `${type} not passed on`,
    operands: [first],
    reason:
      'Implicit redistribution occurred for an operand: the operator mixes rows of the dim ' +
      'that is cut',
    casts: [{ operand: first, op: 'all_gather', src: type, dst: 'R' }],
  };
}

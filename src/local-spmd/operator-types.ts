/**
 * Types of ordinary operators on one mesh axis: what a call of an operator is, given what its
 * operands are. In: a call bound to its record, one type for each tensor operand. Out: one type for
 * each result, or the conflict with the cast that solves it. Linearity and cuts come from the
 * sharding rules of the record; nothing here names an operator.
 */
import { type AxisType, chunksOf } from '../mesh/local-types/types.ts';
import { isIntegral } from '../ops/record/dtypes.ts';
import { functionalForm } from '../ops/record/in-place.ts';
import type { OperatorRecord, TypedContext } from '../ops/record/record.ts';
import type { Rule, RuleSlot, ShardSlot } from '../ops/record/rule.ts';

/**
 * Type of an operand: `number` is a tensor made of plain numbers, the same on every rank (`full`,
 * `arange`).
 */
export type OperandType = AxisType | 'number';

/**
 * What a dim that an axis cuts means to an operator. `manual`: nothing, operators act on the pieces
 * (V). `strict`: operators act on the whole value, and a cut must be one that the operator passes
 * on. `auto` and `explicit`: as `strict`, with redistributions that nobody wrote (`modes.ts`).
 * `lint`: pieces of whose cut it is known, so that what differs from the whole shows.
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
  /** The sum over a cut dim that the call leaves to a later cast (`outPartial`). */
  readonly pending?: true;
}

type TypedCall = { readonly typing: ResultTypes } | { readonly conflict: Conflict };

/** Equal calls have one context object, so a model's layers are typed once. */
const known = new WeakMap<TypedContext, Map<string, TypedCall>>();

/** Types of the results of a call, or why there are none. */
export function typeOperator(
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  meaning: Meaning,
): TypedCall {
  const key = `${record.name} ${meaning} ${operands.join()}`;
  let calls = known.get(ctx);
  if (calls === undefined) known.set(ctx, (calls = new Map<string, TypedCall>()));
  let typed = calls.get(key);
  if (typed === undefined)
    calls.set(key, (typed = inPlace(record, operands, lawOf(record, ctx, operands, meaning))));
  return typed;
}

function lawOf(
  record: OperatorRecord,
  ctx: TypedContext,
  stated: readonly OperandType[],
  meaning: Meaning,
): TypedCall {
  const operands = withoutGradient(ctx, stated);
  const everywhere = (type: OperandType): TypedCall => ({
    typing: { results: ctx.outputs.map(() => type) },
  });
  const at = (type: OperandType): number[] => operands.flatMap((t, i) => (t === type ? [i] : []));
  const kinds = new Set(operands);
  kinds.delete('number');
  if (kinds.size === 0) return everywhere('number');
  const [only] = kinds;
  if (kinds.size === 1 && (only === 'I' || only === 'R')) return everywhere(only);
  const varying = operands.flatMap((t, i) => (t === 'V' || isCut(t) ? [i] : []));
  if (kinds.has('I')) return { conflict: invariantMixed(operands, at('I')) };
  const addends = at('P');
  if (addends.length > 0 && varying.length > 0)
    return { conflict: addendsWithPieces(operands, addends, varying) };
  if (varying.length > 0 && (meaning === 'manual' || operands.includes('V')))
    return everywhere('V');
  const found = ruleFor(ctx, plainRules(record, ctx), operands);
  if (found !== undefined) return found;
  if (addends.length > 0) return { conflict: refusedAddends(record, operands, addends) };
  if (averages(ctx, plainRules(record, ctx), operands))
    return { conflict: refusedMean(operands, varying) };
  return { conflict: refusedCut(operands, varying) };
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
  return dimOf(type) !== undefined;
}

function dimOf(type: OperandType): number | undefined {
  return cutIn(type)?.dim;
}

function cutIn(type: OperandType): ReturnType<typeof chunksOf> {
  return type === 'number' ? undefined : chunksOf(type);
}

/** Changes of a call that types do not see: sizes that it writes, positions of random numbers. */
const UNSEEN: ReadonlySet<string> = new Set(['local-shape', 'groups', 'random-offset']);

/**
 * Rules under which each device runs the call itself: none that hides a collective in it, masks
 * rows, or counts those of others.
 */
export function plainRules(record: OperatorRecord, ctx: TypedContext): readonly Rule[] {
  return record
    .shard(ctx)
    .filter(
      (r) =>
        (r.collectives ?? []).length === 0 && (r.rewrite === undefined || UNSEEN.has(r.rewrite)),
    );
}

/** Results by the first rule that takes the operands as they are. */
function ruleFor(
  ctx: TypedContext,
  rules: readonly Rule[],
  operands: readonly OperandType[],
): TypedCall | undefined {
  for (const { inputs, outputs } of rules) {
    if (
      inputs.length !== operands.length ||
      !inputs.every((slot, i) => takes(ctx, slot, operands[i]))
    )
      continue;
    const results = outputs.map((slot) => givenBy(ctx, slot, inputs, operands));
    if (results.some((type) => type === undefined)) continue;
    const sums = results.includes('P') && !operands.includes('P');
    return {
      typing: { results: results as OperandType[], ...(sums ? { pending: true as const } : {}) },
    };
  }
  return undefined;
}

/** Whether the operator would leave an average of the ranks' results pending. */
function averages(
  ctx: TypedContext,
  rules: readonly Rule[],
  operands: readonly OperandType[],
): boolean {
  return rules.some(
    ({ inputs, outputs }) =>
      inputs.length === operands.length &&
      inputs.every((slot, i) => takes(ctx, slot, operands[i])) &&
      outputs.every((slot) => slot?.kind === 'partial' && slot.op === 'avg'),
  );
}

function refusedMean(operands: readonly OperandType[], cut: readonly number[]): Conflict {
  return {
    rule: `mean over ${operands[cut[0]]}`,
    operands: [cut[0]],
    reason: 'the mean of each piece is no addend of the mean of all',
    casts: [],
    fix: 'write the sum with outPartial, then divide by the number of all rows',
  };
}

function takes(ctx: TypedContext, slot: RuleSlot, type: OperandType): boolean {
  if (slot === null) return false;
  if (slot.kind === 'replicate') return type === 'R' || type === 'number';
  if (slot.kind === 'partial') return slot.op === 'sum' && type === 'P';
  const cut = cutIn(type);
  if (cut === undefined) return type === 'number';
  if (cut.dim !== slot.dim) return false;
  if (slot.inside !== null && slot.inside.dims.length > 0)
    return cut.chunks === insideOf(ctx, slot);
  return cut.chunks === 1 || slot.slicing !== 'contiguous';
}

/** Chunks that a slot's cut has a piece of each of. */
function insideOf(ctx: TypedContext, slot: ShardSlot): number {
  if (slot.inside === null) return 1;
  const { tensor, dims } = slot.inside;
  const { shape } = (tensor < ctx.inputs.length
    ? ctx.inputs[tensor]
    : ctx.outputs[tensor - ctx.inputs.length]) ?? { shape: [] };
  return dims.reduce((n, d) => n * (shape[d] ?? 1), 1);
}

/**
 * What a slot of a result is, a cut in as many chunks as the operands have beyond those of their
 * own slots.
 */
function givenBy(
  ctx: TypedContext,
  slot: RuleSlot,
  inputs: readonly RuleSlot[],
  operands: readonly OperandType[],
): OperandType | undefined {
  if (slot === null || slot.kind === 'replicate') return 'R';
  if (slot.kind === 'partial') return slot.op === 'sum' ? 'P' : undefined;
  const factors = operands.flatMap((type, i) => {
    const [own, cut] = [inputs[i], cutIn(type)];
    return own?.kind === 'shard' && cut !== undefined ? [cut.chunks / insideOf(ctx, own)] : [];
  });
  const [factor = 1] = factors;
  if (factors.some((f) => f !== factor)) return undefined;
  const chunks = factor * insideOf(ctx, slot);
  return chunks === 1 ? `S(${slot.dim})` : `_S(${slot.dim},${chunks})`;
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

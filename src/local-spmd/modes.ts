/**
 * Gives the meaning of an operator on one mesh axis under each mode: the types of its results, the
 * redistributions that the mode makes by itself, and whether the call is an error. `auto` is
 * DTensor: whatever the operands are, the cheapest rule is taken and its redistributions are
 * inserted. `explicit` is JAX with shardings in types: a slice or the reduction of a result is made
 * where there is only one possible meaning. `strict` inserts nothing. `manual` acts on pieces.
 */
import { checkKinds } from '../arguments.ts';
import type { CollectiveKind } from '../mesh/collective-kinds.ts';
import { type AxisType, chunksOf } from '../mesh/local-types/types.ts';
import { metaBytes, type OperatorRecord, type TypedContext } from '../ops/record/record.ts';
import { isStrided, type Rule, type RuleSlot } from '../ops/record/rule.ts';
import {
  type Conflict,
  type OperandType,
  plainRules,
  standsAt,
  typeOperator,
} from './operator-types.ts';

/** How a program says where its values are: by itself (`auto`), in types, or device by device. */
export type Mode = 'auto' | 'explicit' | 'strict' | 'manual';
/** Every mode, the most lenient first. */
export const MODES: readonly Mode[] = ['auto', 'explicit', 'strict', 'manual'];

/** A redistribution that a mode makes without being told. */
interface Implicit {
  /** Position of the operand; undefined of a result. */
  readonly operand?: number;
  readonly kind: CollectiveKind | 'slice' | 'to_partial';
  readonly from: string;
  readonly to: string;
}

/** The types of results under a mode and what it does for them, or why there are none. */
export type ModeTyping =
  | { readonly results: readonly OperandType[]; readonly implicit: readonly Implicit[] }
  | { readonly conflict: Conflict };

/**
 * Types of a call under a mode.
 *
 * @param ranks of the axis: an average over pieces is one of averages where they are of one size
 */
export function typeInMode(
  mode: Mode,
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  ranks: number,
): ModeTyping {
  checkKinds('typeInMode', {
    mode: [mode, 'string'],
    record: [record, ['name', 'aliases', 'schema']],
    ctx: [ctx, ['outputs', 'target', 'inputs']],
    operands: [operands, 'list'],
    ranks: [ranks, 'number'],
  });
  if (mode === 'auto') return auto(record, ctx, operands, ranks);
  if (mode === 'explicit') return explicitly(record, ctx, [ranks], [operands])[0];
  const [found] = typeOperator(record, ctx, [{ size: ranks, meaning: mode }], [operands]);
  if (!('typing' in found)) return found;
  if (found.typing.pending === true)
    return {
      conflict: {
        rule: 'sum over S',
        operands: operands.map((_, i) => i),
        reason: 'the sum over a cut dim is left to a later reduction, without saying so',
        casts: [],
        fix: 'say outPartial',
      },
    };
  return { results: found.typing.results, implicit: [] };
}

/** Data of a type, for systems that do not tell I from R. */
export function data(type: OperandType): OperandType {
  return type === 'I' ? 'R' : type;
}

const typeOfSlot = (slot: RuleSlot): string =>
  slot === null || slot.kind === 'replicate'
    ? 'R'
    : slot.kind === 'partial'
      ? slot.op === 'sum'
        ? 'P'
        : `P(${slot.op})`
      : `S(${slot.dim})`;

/**
 * Costs of a redistribution for a byte of the operand. Only their order decides: DTensor slices
 * where it can, exchanges before it gathers, gathers before it reduces, and reduces a pending sum
 * whole before it scatters one.
 */
const SLICE = 0.01;
const AS_ADDEND = 0.02;
const EXCHANGE = 0.6;
const GATHER = 1;
const REDUCE = 1.9;
const REDUCE_SCATTER = 2.2;

/** The redistribution that brings an operand to a slot; undefined where there is none. */
function moved(
  type: OperandType,
  slot: RuleSlot,
  bytes: number,
): { cost: number; kind?: Implicit['kind'] } | undefined {
  const [from, to] = [data(type), typeOfSlot(slot)];
  if (from === 'number') return slot?.kind === 'partial' ? undefined : { cost: 0 };
  if (slot?.kind === 'shard' && (slot.inside?.dims.length ?? 0) > 0) return undefined;
  if (from === to) return { cost: 0 };
  if (slot === null) return { cost: 0 };
  if (slot.kind === 'partial')
    return from === 'R' && slot.op !== 'product'
      ? { cost: bytes * AS_ADDEND, kind: 'to_partial' }
      : undefined;
  if (slot.kind === 'replicate')
    return from === 'P'
      ? { cost: bytes * REDUCE, kind: 'all_reduce' }
      : { cost: bytes * GATHER, kind: 'all_gather' };
  if (from === 'R') return { cost: bytes * SLICE, kind: 'slice' };
  if (from === 'P') return { cost: bytes * REDUCE_SCATTER, kind: 'reduce_scatter' };
  return chunksOf(from) === undefined ? undefined : { cost: bytes * EXCHANGE, kind: 'all_to_all' };
}

/** The cheapest rule, the redistributions of its operands made. */
function auto(
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  ranks: number,
): ModeTyping {
  const [strict] = typeOperator(
    record,
    ctx,
    [{ size: ranks, meaning: 'strict' }],
    [operands.map(data)],
  );
  if ('typing' in strict) return { results: strict.typing.results, implicit: [] };
  const whole: Rule = {
    inputs: operands.map(() => ({ kind: 'replicate' })),
    outputs: ctx.outputs.map((o) => (o === null ? null : { kind: 'replicate' })),
    origin: 'base',
  };
  let best: { cost: number; rule: Rule; implicit: Implicit[] } | undefined;
  for (const rule of [...plainRules(record, ctx), whole]) {
    if (rule.inputs.length !== operands.length) continue;
    let cost = 0;
    const implicit: Implicit[] = [];
    const fits = rule.inputs.every((slot, i) => {
      const step = moved(operands[i], slot, metaBytes(ctx.inputs[i]));
      if (step === undefined) return false;
      cost += step.cost;
      if (step.kind !== undefined)
        implicit.push({
          operand: i,
          kind: step.kind,
          from: String(data(operands[i])),
          to: typeOfSlot(slot),
        });
      return true;
    });
    if (fits && holds(ctx, rule, ranks) && (best === undefined || cost < best.cost))
      best = { cost, rule, implicit };
  }
  const chosen = best ?? { rule: whole, implicit: [] };
  return {
    // An average that is pending counts as a pending reduction; what it is divided by is no matter
    // of types.
    results: chosen.rule.outputs.map((slot): OperandType =>
      slot?.kind === 'partial' ? 'P' : (typeOfSlot(slot) as AxisType),
    ),
    implicit: chosen.implicit,
  };
}

/** Tells whether the rule stands at these sizes, and its pending results are sums or averages. */
function holds(ctx: TypedContext, rule: Rule, ranks: number): boolean {
  return (
    standsAt(ctx, rule, ranks) &&
    rule.outputs.every((slot) => slot?.kind !== 'partial' || slot.op === 'sum' || slot.op === 'avg')
  );
}

const NORMALISED = /softmax/;

/**
 * Operators whose results have the dims of their operands, with other sizes along some: the result
 * is cut as they are, where its size divides, and rows move between neighbours.
 */
const KEEPS_DIMS: Readonly<Record<string, Implicit['kind'] | 'nothing'>> = {
  'aten.flip': 'collective_permute',
  'aten.slice': 'collective_permute',
  'aten.narrow': 'collective_permute',
  'aten.split': 'collective_permute',
  'aten.split_with_sizes': 'collective_permute',
  'aten.cat': 'all_to_all',
  'aten.tril': 'nothing',
  'aten.triu': 'nothing',
  'aten.constant_pad_nd': 'nothing',
  'stablehlo.reverse': 'collective_permute',
  'stablehlo.slice': 'collective_permute',
  'stablehlo.concatenate': 'all_to_all',
  'stablehlo.pad': 'nothing',
};
/**
 * Operators that take operands of one sharding: nothing is sliced to match another. A `where` that
 * stretches an operand, or takes a number, brings all to one sharding, as every broadcast does.
 */
const ALIKE = /^(aten\.(where|cat|stack)|stablehlo\.(select|concatenate))\b/;
const STRETCHES = /^aten\.where\b/;
/** Reductions that go by a sort, which wants its dim whole. */
const SORTS = /^aten\.(median|nanmedian|mode|kthvalue|quantile)\b/;

/**
 * Types a call by JAX's rules of explicit shardings on all axes that have them. Each axis has its
 * own types; together the axes must cut dims that go together alike, and results evenly.
 *
 * @param ranks of each axis
 * @param operands by axis, one type for each tensor operand
 */
export function explicitly(
  record: OperatorRecord,
  ctx: TypedContext,
  ranks: readonly number[],
  operands: readonly (readonly OperandType[])[],
): ModeTyping[] {
  const alone = operands.map((types, a) => explicit(record, ctx, types, ranks[a]));
  const own = operands.map((types) => types.map(data));
  const cutting = own.filter((types) => types.some((type) => dimOf(type) !== undefined));
  if (cutting.length < 2 || alone.some((typing) => 'conflict' in typing)) return alone;
  const mixed = mixedDims(record, ctx, own);
  if (mixed !== undefined)
    return alone.map((typing, a) => (a === mixed.axis ? { conflict: mixed.conflict } : typing));
  return evenly(record, ctx, ranks, own, alone);
}

/**
 * The first two dims of operands that go together (both are rows of the sum, or the dim that a
 * product adds up) and are cut over other axes each.
 */
function mixedDims(
  record: OperatorRecord,
  ctx: TypedContext,
  own: readonly (readonly OperandType[])[],
): { readonly axis: number; readonly conflict: Conflict } | undefined {
  const cutBy = (operand: number, dim: number): number[] =>
    own.flatMap((types, a) => (dimOf(types[operand]) === dim ? [a] : []));
  for (const { inputs } of plainRules(record, ctx)) {
    const cuts = inputs.flatMap((slot, operand) => {
      if (slot?.kind !== 'shard' || operand >= own[0].length) return [];
      const axes = cutBy(operand, slot.dim);
      return axes.length === 0 ? [] : [{ operand, axes }];
    });
    for (const { operand, axes } of cuts.slice(1)) {
      const other = [
        ...axes.filter((a) => !cuts[0].axes.includes(a)),
        ...cuts[0].axes.filter((a) => !axes.includes(a)),
      ];
      if (other.length === 0) continue;
      return {
        axis: Math.max(...other),
        conflict: {
          rule: 'shardings differ',
          operands: [cuts[0].operand, operand],
          reason: 'dims that go together are cut over different axes',
          casts: [],
          fix: 'reshard one operand as the other',
        },
      };
    }
  }
  return undefined;
}

/**
 * Results that all axes together cut evenly. Where no axis moves anything, they are typed together:
 * a split dim is cut by the first axes, and the dims behind it by the others.
 */
function evenly(
  record: OperatorRecord,
  ctx: TypedContext,
  ranks: readonly number[],
  own: readonly (readonly OperandType[])[],
  alone: ModeTyping[],
): ModeTyping[] {
  const axes = ranks.map((size) => ({ size, meaning: 'strict' as const }));
  const isStill = alone.every((typing, a) => {
    const [strict] = typeOperator(record, ctx, [axes[a]], [own[a]]);
    return (
      'results' in typing &&
      'typing' in strict &&
      strict.typing.results.join() === typing.results.join()
    );
  });
  const together = isStill ? typeOperator(record, ctx, axes, own) : [];
  const typings = alone.map((typing, a): ModeTyping => {
    const found = together.at(a);
    if (found === undefined || 'conflict' in typing) return typing;
    return 'conflict' in found ? found : { ...typing, results: found.typing.results };
  });
  for (const [k, meta] of ctx.outputs.entries())
    for (const [dim, rows] of (meta?.shape ?? []).entries()) {
      const cut = typings.flatMap((typing, a) =>
        'results' in typing && dimOf(typing.results[k]) === dim ? [a] : [],
      );
      const pieces = cut.reduce((product, a) => product * ranks[a], 1);
      if (rows % pieces !== 0)
        typings[cut[cut.length - 1]] = unevenResult(own[cut[cut.length - 1]], dim, rows, pieces);
    }
  return typings;
}

function unevenResult(
  own: readonly OperandType[],
  dim: number,
  rows: number,
  pieces: number,
): ModeTyping {
  return {
    conflict: {
      rule: `S(${dim}) of ${rows} rows`,
      operands: own.flatMap((type, i) => (dimOf(type) === undefined ? [] : [i])),
      reason: `the result has ${rows} rows, which do not divide by ${pieces}`,
      casts: [],
      fix: 'reshard the operand first',
    },
  };
}

/** Types a call on one axis by JAX's rules of explicit shardings. */
function explicit(
  record: OperatorRecord,
  ctx: TypedContext,
  operands: readonly OperandType[],
  ranks: number,
): ModeTyping {
  const own = operands.map(data);
  const [strict] = typeOperator(record, ctx, [{ size: ranks, meaning: 'strict' }], [own]);
  const given = new Explicit(record, ctx, own, ranks);
  if (own.includes('P')) {
    if ('typing' in strict) return { results: strict.typing.results, implicit: [] };
    return given.refuse(
      strict.conflict.rule,
      'implicit communication of an unreduced operand',
      'reduce it first: reshard, or psum',
    );
  }
  if (!given.alike())
    return given.refuse(
      'shardings differ',
      `${record.name} takes operands of one sharding`,
      'reshard the others to it',
    );
  const rule = given.sliced();
  if (rule !== undefined) return given.by(rule);
  if ('typing' in strict) return { results: strict.typing.results, implicit: [] };
  return (
    given.normalised() ??
    given.reduced() ??
    given.kept() ??
    given.gathered() ??
    given.refuse(
      strict.conflict.rule,
      'the shardings of the operands give the result none',
      'state the sharding of the result, or reshard the operand',
    )
  );
}

/** A call whose operands have their shardings in their types. */
class Explicit {
  private readonly rules: readonly Rule[];
  private readonly cut: number;

  constructor(
    private readonly record: OperatorRecord,
    private readonly ctx: TypedContext,
    private readonly own: readonly OperandType[],
    private readonly ranks: number,
  ) {
    this.rules = plainRules(record, ctx);
    this.cut = own.findIndex((type) => dimOf(type) !== undefined);
  }

  refuse(rule: string, reason: string, fix: string): ModeTyping {
    const operands = this.own.flatMap((t, i) => (t === 'R' || t === 'number' ? [] : [i]));
    return { conflict: { rule, operands, reason, casts: [], fix } };
  }

  /**
   * Tells whether an operator that wants operands of one sharding has them; scalars go with any.
   */
  alike(): boolean {
    if (!ALIKE.test(this.record.name)) return true;
    const shapes = new Set(this.ctx.inputs.map(({ shape }) => shape.join()));
    const isStretched = shapes.size > 1 || this.ctx.inputs.length < 3;
    if (isStretched && STRETCHES.test(this.record.name)) return true;
    const rank = Math.max(...this.ctx.inputs.map(({ shape }) => shape.length));
    const types = this.own.filter((_, i) => this.ctx.inputs[i].shape.length === rank);
    const held = (type: OperandType): OperandType => (type === 'number' ? 'R' : data(type));
    return types.every((type) => held(type) === held(types[0]));
  }

  /** A rule whose slots the operands are, or become by a slice. */
  sliced(): Rule | undefined {
    return this.rules.find(
      (rule) =>
        rule.inputs.length === this.own.length &&
        rule.inputs.every((slot, i) => {
          const step = moved(this.own[i], slot, 1);
          return step !== undefined && (step.kind === undefined || step.kind === 'slice');
        }) &&
        rule.inputs.some((slot, i) => slot?.kind === 'shard' && this.own[i] === typeOfSlot(slot)) &&
        standsAt(this.ctx, rule, this.ranks) &&
        this.isOneSided(rule),
    );
  }

  /** A product over rows that one operand alone has cut gathers it instead of slicing the other. */
  private isOneSided(rule: Rule): boolean {
    const sums = rule.outputs.some((slot) => slot?.kind === 'partial');
    return (
      this.record.cls !== 'matmul' ||
      !sums ||
      rule.inputs.every((slot, i) => slot?.kind !== 'shard' || this.own[i] !== 'R')
    );
  }

  /** Results of a rule, with the reduction of those that it leaves pending. */
  by(rule: Rule): ModeTyping {
    const implicit = rule.inputs.flatMap((slot, i): Implicit[] =>
      this.own[i] === 'R' && slot?.kind === 'shard'
        ? [{ operand: i, kind: 'slice', from: 'R', to: typeOfSlot(slot) }]
        : [],
    );
    if (rule.outputs.some((slot) => slot?.kind === 'partial')) {
      if (this.record.cls === 'matmul')
        return this.refuse(
          'ambiguous',
          'the contraction over a cut dim is ambiguous: replicated or unreduced',
          'state the sharding of the result: replicated costs 1 all_reduce, unreduced none',
        );
      return {
        results: this.ctx.outputs.map(() => 'R'),
        implicit: [...implicit, { kind: 'all_reduce', from: 'P', to: 'R' }],
      };
    }
    if ([...rule.inputs, ...rule.outputs].some((slot) => slot?.kind === 'shard' && isStrided(slot)))
      return this.refuse(
        'reshape',
        'the cut lies behind a dim that is merged',
        'state the sharding of the result',
      );
    return { results: rule.outputs.map((slot) => typeOfSlot(slot) as OperandType), implicit };
  }

  /** A softmax along the cut stays cut. */
  normalised(): ModeTyping | undefined {
    if (this.cut < 0 || !NORMALISED.test(this.record.name)) return undefined;
    return {
      results: this.ctx.outputs.map(() => this.own[this.cut]),
      // The largest and the sum of each row.
      implicit: [
        { kind: 'all_reduce', from: 'P(max)', to: 'R' },
        { kind: 'all_reduce', from: 'P', to: 'R' },
      ],
    };
  }

  /** A reduction over the cut dim: the result is whole, whatever it takes to make it so. */
  reduced(): ModeTyping | undefined {
    const { record, ctx, cut } = this;
    const dim = cut < 0 ? undefined : dimOf(this.own[cut]);
    if (dim === undefined || record.cls !== 'reduction' || SORTS.test(record.name))
      return undefined;
    const { shape } = ctx.inputs[cut];
    const isGone = ctx.outputs.every(
      (meta) => meta === null || meta.shape.length < shape.length || meta.shape[dim] === 1,
    );
    if (!isGone) return undefined;
    return {
      results: ctx.outputs.map(() => 'R'),
      implicit: [{ kind: 'all_reduce', from: String(this.own[cut]), to: 'R' }],
    };
  }

  /** Dims that are those of the operands: the result is cut as they are. */
  kept(): ModeTyping | undefined {
    const { record, ctx, own, cut, ranks } = this;
    const kind = KEEPS_DIMS[record.name.split('.', 2).join('.')];
    const dim = cut < 0 ? undefined : dimOf(own[cut]);
    if (kind === undefined || dim === undefined) return undefined;
    const odd = ctx.outputs.find((meta) => meta !== null && meta.shape[dim] % ranks !== 0);
    if (odd !== undefined && odd !== null)
      return this.refuse(
        `${String(own[cut])} of ${odd.shape[dim]} rows`,
        `the result has ${odd.shape[dim]} rows, which do not divide by ${ranks}`,
        'reshard the operand first',
      );
    return {
      results: ctx.outputs.map(() => own[cut]),
      implicit:
        kind === 'nothing'
          ? []
          : own.flatMap((type, operand) =>
              type === own[cut] ? [{ operand, kind, from: String(type), to: String(type) }] : [],
            ),
    };
  }

  /** A product over rows that one operand has cut and the other has not: it is gathered. */
  gathered(): ModeTyping | undefined {
    const { record, ctx, own, ranks } = this;
    if (record.cls !== 'matmul') return undefined;
    const alone = own.findIndex((type, i) =>
      this.rules.some(
        ({ inputs, outputs }) =>
          outputs.some((slot) => slot?.kind === 'partial') &&
          inputs[i]?.kind === 'shard' &&
          typeOfSlot(inputs[i]) === type,
      ),
    );
    if (alone < 0) return undefined;
    const whole = own.map((type, i): OperandType => (i === alone ? 'R' : type));
    const made = explicit(record, ctx, whole, ranks);
    if ('conflict' in made) return made;
    const gather: Implicit = {
      operand: alone,
      kind: 'all_gather',
      from: String(own[alone]),
      to: 'R',
    };
    return { results: made.results, implicit: [gather, ...made.implicit] };
  }
}

function dimOf(type: OperandType): number | undefined {
  return type === 'number' ? undefined : chunksOf(type)?.dim;
}

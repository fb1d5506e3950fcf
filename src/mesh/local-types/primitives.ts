/**
 * The verbs of typed per-device code: two without communication (`convert` keeps the meaning of a
 * value and may slice it, `reinterpret` keeps its bytes and may change what they mean) and four
 * collectives. The table gives the row of a verb with the types before and after it and the verbs
 * of its gradient, or an error with the verb that was probably meant. Source: the calculus of the
 * package spmd_types; every transpose preserves the pairing of a value with its gradient.
 */
import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { type AxisType, cutOf, gradientType } from './types.ts';

export const PRIMITIVE_NAMES = [
  'convert',
  'reinterpret',
  'all_reduce',
  'all_gather',
  'reduce_scatter',
  'all_to_all',
] as const;
/** The name of a primitive on local types. */
export type PrimitiveName = (typeof PRIMITIVE_NAMES)[number];

/** One verb with the types that it takes and gives on its axis. */
export interface Primitive {
  readonly op: PrimitiveName;
  readonly src: AxisType;
  readonly dst: AxisType;
  /** It is seldom what is meant, and wants the word of the program (`expert: true`). */
  readonly expert: boolean;
}

/** `convert(I→R)`. */
export function primitiveText(input: Pick<Primitive, 'op' | 'src' | 'dst'>): string {
  checkKinds('primitiveText', { input: [input, ['op', 'src', 'dst']] });
  const { op, src, dst } = input;
  return `${op}(${src}→${dst})`;
}

type Cell = `${PrimitiveName} ${AxisType} ${AxisType}`;

interface Row {
  readonly expert?: true;
  /** The gradient's verbs, first applied first. */
  readonly gradient: readonly Cell[];
  /** For a row that wants the expert flag: its effect, and the verb that is usually meant. */
  readonly does?: string;
  readonly usual?: string;
}

/** The table, with V for every kind of cut. */
const TABLE: Readonly<Partial<Record<Cell, Row>>> = {
  'convert I R': { gradient: ['all_reduce P I'] },
  'convert R I': {
    expert: true,
    gradient: ['convert I P'],
    does: 'its gradient is kept by the first rank and zeros elsewhere',
    usual: 'keep R, or make the value I where it is made: all_reduce or all_gather with dst I',
  },
  'convert R V': { gradient: ['convert V P'] },
  'reinterpret R V': {
    expert: true,
    gradient: ['reinterpret V P'],
    does: 'every rank uses the same value as if it were its own piece',
    usual: 'convert R→S(i), which slices it',
  },
  'convert R P': { gradient: ['convert R P'] },
  'reinterpret R P': {
    expert: true,
    gradient: ['reinterpret R P'],
    does: 'every rank brings the whole value, so the sum is the value times the size of the axis',
    usual: 'convert R→P, which keeps the value',
  },
  'convert I V': { gradient: ['all_gather V I'] },
  'reinterpret I V': { gradient: ['reinterpret V P', 'all_reduce P I'] },
  'convert I P': {
    expert: true,
    gradient: ['convert R I'],
    does: 'all ranks but the first bring zeros, and the gradient counts once',
    usual: 'convert I→R, then convert R→P',
  },
  'reinterpret I P': {
    expert: true,
    gradient: ['reinterpret R P', 'all_reduce P I'],
    does: 'every rank brings the whole value, so the sum is the value times the size of the axis',
    usual: 'convert I→R, then convert R→P, which keeps the value',
  },
  'reinterpret I R': {
    expert: true,
    gradient: ['all_reduce P I'],
    does: 'it is convert I→R under a name that promises less',
    usual: 'convert I→R',
  },
  'reinterpret R I': {
    expert: true,
    gradient: ['convert I P'],
    does: 'its gradient is kept by the first rank and zeros elsewhere',
    usual: 'keep R, or make the value I where it is made: all_reduce or all_gather with dst I',
  },
  'all_gather V R': { gradient: ['reduce_scatter P V'] },
  'all_gather V I': { gradient: ['convert I V'] },
  'all_to_all V V': { gradient: ['all_to_all V V'] },
  'reinterpret V P': { gradient: ['reinterpret R V'] },
  'convert V P': {
    expert: true,
    gradient: ['convert R V'],
    does: 'it pads every piece with zeros to the whole, so that the sum is the pieces side by side',
    usual: 'reinterpret V→P if the pieces are addends; all_gather if the whole is wanted',
  },
  'all_reduce P R': { gradient: ['all_reduce P R'] },
  'all_reduce P I': { gradient: ['convert I R'] },
  'reduce_scatter P V': { gradient: ['all_gather V R'] },
};

/** Every row of the table, with V for every kind of cut. */
export const PRIMITIVES: readonly Primitive[] = Object.entries(TABLE).map(([cell, row]) =>
  ofCell(cell as Cell, row),
);

function ofCell(cell: Cell, row: Row | undefined): Primitive {
  const [op, src, dst] = cell.split(' ') as [PrimitiveName, AxisType, AxisType];
  return { op, src, dst, expert: row?.expert === true };
}

const varying = (type: AxisType): AxisType => (cutOf(type) === undefined ? type : 'V');
const cellOf = (op: PrimitiveName, src: AxisType, dst: AxisType): Cell =>
  `${op} ${varying(src)} ${varying(dst)}`;

interface PrimitiveOptions {
  /** Name of the mesh axis, for messages. */
  readonly axis?: string;
  /** The program knows what it does. */
  readonly expert?: boolean;
}

/**
 * The row of a verb.
 *
 * @throws E_SPMD_TYPE where the verb does not take these types, saying which verb does; where it
 *   does something else than is usually meant and `expert` is not set
 */
export function primitive(
  op: PrimitiveName,
  src: AxisType,
  dst: AxisType,
  options: PrimitiveOptions = {},
): Primitive {
  checkKinds('primitive', {
    op: [op, 'string'],
    src: [src, 'string'],
    dst: [dst, 'string'],
    options: [options, 'record', 'undefined'],
  });
  const { axis, expert = false } = options;
  const row = TABLE[cellOf(op, src, dst)];
  const on = axis === undefined ? '' : ` on ${axis}`;
  if (isNothing(op, src, dst)) return { op, src, dst, expert: false };
  const refused = misuse(op, src, dst, row);
  if (refused !== undefined)
    throw new ShardwrightError(
      'E_SPMD_TYPE',
      `${primitiveText({ op, src, dst })}${on}: ${refused.wrong}`,
      {
        hint: refused.fix,
      },
    );
  if (row?.expert === true && !expert)
    throw new ShardwrightError(
      'E_SPMD_TYPE',
      `${primitiveText({ op, src, dst })}${on} wants the flag expert: ${row.does}`,
      {
        hint: `the usual choice is ${row.usual}; if this is meant, write expert: true`,
      },
    );
  return { op, src, dst, expert: row?.expert === true };
}

/** A verb that leaves the type as it is: nothing, so that code for several types need not ask. */
function isNothing(op: PrimitiveName, src: AxisType, dst: AxisType): boolean {
  return src === dst && (op === 'convert' || (op === 'reinterpret' && cutOf(src) === undefined));
}

/** The fault of a verb, and the verb that was meant. */
interface Misuse {
  readonly wrong: string;
  readonly fix: string;
}

/** Why a verb does not take these types, and what was meant; undefined for a row of the table. */
function misuse(
  op: PrimitiveName,
  src: AxisType,
  dst: AxisType,
  row: Row | undefined,
): Misuse | undefined {
  if (!Object.hasOwn(MISUSES, op)) {
    const verbs = Object.keys(MISUSES).join(', ');
    return { wrong: `'${op}' is no verb of local types`, fix: `the verbs are ${verbs}` };
  }
  const known = MISUSES[op](src, dst, row !== undefined);
  if (known !== undefined || row !== undefined) return known;
  return { wrong: `${op} does not take ${src} to ${dst}`, fix: howTo(src, dst) };
}

/** Misuses of each verb that have words of their own. */
const MISUSES: Readonly<
  Record<PrimitiveName, (src: AxisType, dst: AxisType, isRow: boolean) => Misuse | undefined>
> = {
  convert: misusedConvert,
  reinterpret: misusedReinterpret,
  all_gather: misusedGather,
  all_reduce: misusedReduce,
  reduce_scatter: misusedScatter,
  all_to_all: misusedExchange,
};

function misusedConvert(src: AxisType, dst: AxisType): Misuse | undefined {
  const [from, to] = [cutOf(src), cutOf(dst)];
  if (src === 'P') {
    const verb = to !== undefined || dst === 'V' ? 'reduce_scatter' : 'all_reduce';
    return {
      wrong: 'a pending sum is completed by communication',
      fix: `use ${verb} with dst ${dst}`,
    };
  }
  if (from !== undefined && to !== undefined)
    return { wrong: 'it changes the cut, which moves data', fix: 'use all_to_all' };
  if (varying(src) === 'V' && (dst === 'R' || dst === 'I'))
    return { wrong: 'the pieces must be collected', fix: `use all_gather with dst ${dst}` };
  return undefined;
}

function misusedReinterpret(src: AxisType, dst: AxisType): Misuse | undefined {
  if (src === 'P')
    return {
      wrong: 'the meaning of addends that are used as values is undefined',
      fix: 'all_reduce first',
    };
  if (cutOf(src) !== undefined || cutOf(dst) !== undefined)
    return {
      wrong: 'bytes that keep their place say nothing of a cut',
      fix: 'use V in place of S(i), or convert',
    };
  if (src === 'V' && (dst === 'R' || dst === 'I'))
    return {
      wrong: 'cannot assert that varying values are equal',
      fix: `use all_reduce or all_gather with dst ${dst}`,
    };
  return undefined;
}

function misusedGather(src: AxisType, dst: AxisType, isRow: boolean): Misuse | undefined {
  if (varying(src) !== 'V')
    return { wrong: `src must be V or S(i), got ${src}`, fix: gathered(src) };
  if (isRow) return undefined;
  return {
    wrong: `dst must be R or I, got ${dst}`,
    fix: 'give dst: R, or I if duplicated work follows',
  };
}

function misusedReduce(src: AxisType, dst: AxisType, isRow: boolean): Misuse | undefined {
  if (src !== 'P')
    return {
      wrong: `src must be P, got ${src}`,
      fix:
        varying(src) === 'V'
          ? 'reinterpret V→P first'
          : 'leave the all_reduce out: the value is equal already',
    };
  if (isRow) return undefined;
  return {
    wrong: `dst must be R or I, got ${dst}`,
    fix: varying(dst) === 'V' ? 'use reduce_scatter' : 'give dst: R or I',
  };
}

function misusedScatter(src: AxisType, dst: AxisType, isRow: boolean): Misuse | undefined {
  if (src !== 'P')
    return {
      wrong: `src must be P, got ${src}`,
      fix: varying(src) === 'V' ? 'reinterpret V→P first' : 'use convert, which slices',
    };
  if (isRow) return undefined;
  return { wrong: `dst must be V or S(i), got ${dst}`, fix: `use all_reduce with dst ${dst}` };
}

function misusedExchange(src: AxisType, dst: AxisType): Misuse | undefined {
  const [from, to] = [cutOf(src), cutOf(dst)];
  if (from !== undefined && from === to)
    return { wrong: 'the cut stays on its dim', fix: 'leave it out' };
  if (varying(src) !== 'V' || varying(dst) !== 'V' || (from === undefined) !== (to === undefined))
    return {
      wrong: `src and dst must both be V, or both S(i), got ${src} and ${dst}`,
      fix: 'use S(i)→S(j) or V→V',
    };
  return undefined;
}

function gathered(src: AxisType): string {
  return src === 'P'
    ? 'use all_reduce for a pending sum'
    : 'leave the all_gather out: every rank has the value';
}

/** The verbs that take a value from one type to another. */
function howTo(src: AxisType, dst: AxisType): string {
  const direct = PRIMITIVES.filter((p) => p.src === varying(src) && p.dst === varying(dst));
  const found = direct.find((p) => !p.expert) ?? direct[0];
  return found === undefined ? 'go by way of R' : `use ${found.op} ${src}→${dst}`;
}

/**
 * The verbs of the gradient, in the order in which the gradient meets them. Cuts stay on their
 * dims; those of `all_to_all` change places.
 */
export function transposeOf(input: Pick<Primitive, 'op' | 'src' | 'dst'>): readonly Primitive[] {
  checkKinds('transposeOf', { input: [input, ['op', 'src', 'dst']] });
  const { op, src, dst } = input;
  if (isNothing(op, src, dst))
    return [{ op, src: gradientType(dst), dst: gradientType(src), expert: false }];
  const row = TABLE[cellOf(op, src, dst)];
  if (row === undefined) primitive(op, src, dst);
  const dim = cutOf(src) === undefined ? dst : src;
  return (row?.gradient ?? []).map((cell) => {
    const verb = ofCell(cell, TABLE[cell]);
    if (op === 'all_to_all') return { ...verb, src: dst, dst: src };
    if (cutOf(dim) === undefined) return verb;
    return {
      ...verb,
      src: verb.src === 'V' ? dim : verb.src,
      dst: verb.dst === 'V' ? dim : verb.dst,
    };
  });
}

/**
 * The verb that takes a value of one type to another and keeps its meaning: a collective where
 * there must be one.
 *
 * @throws E_SPMD_TYPE where no one verb does
 */
export function redistribution(
  src: AxisType,
  dst: AxisType,
  options: PrimitiveOptions = {},
): Primitive {
  checkKinds('redistribution', {
    src: [src, 'string'],
    dst: [dst, 'string'],
    options: [options, 'record', 'undefined'],
  });
  return primitive(verbBetween(src, dst), src, dst, options);
}

/** Name of that verb; `convert` also where there is none. */
export function verbBetween(src: AxisType, dst: AxisType): PrimitiveName {
  const equal = dst === 'R' || dst === 'I';
  if (varying(src) === 'V' && equal) return 'all_gather';
  if (src === 'P' && equal) return 'all_reduce';
  if (src === 'P' && varying(dst) === 'V') return 'reduce_scatter';
  return cutOf(src) !== undefined && cutOf(dst) !== undefined && src !== dst
    ? 'all_to_all'
    : 'convert';
}

/** Kind of the collective that a verb runs; undefined for those without communication. */
export function collectiveOf(
  op: PrimitiveName,
): Exclude<PrimitiveName, 'convert' | 'reinterpret'> | undefined {
  return op === 'convert' || op === 'reinterpret' ? undefined : op;
}

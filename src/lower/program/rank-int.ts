/**
 * Writes the integers of a per-device program that differ from rank to rank: sizes of uneven
 * shards, first rows, offsets. One program serves all ranks, so such an integer is a symbolic size
 * in it (`rows(10, dp)`), and a table gives the value of the symbol on each rank. Its example value
 * is that of rank 0, whose shards are never the short ones. An integer that is equal on all ranks
 * is a plain number.
 */
import { internalError } from '../../errors.ts';
import type { Arg, Dim } from '../../graph/types.ts';
import { isList } from '../../graph/value.ts';

/** An integer that is the same on all ranks, or one for each rank (place in the mesh). */
export type RankInt = number | PerRank;

interface PerRank {
  /** By rank; not all equal. */
  readonly values: readonly number[];
  /** Suggestion for the name of the symbol. */
  readonly text: string;
}

/** The plain number if all ranks agree. */
export function rankInt(values: readonly number[], text: string): RankInt {
  const [first] = values;
  return values.every((v) => v === first) ? first : { values, text };
}

export function atRank(value: RankInt, rank: number): number {
  return typeof value === 'number' ? value : value.values[rank];
}

/** Rank by rank. */
export function combine(
  parts: readonly RankInt[],
  text: string,
  f: (...values: readonly number[]) => number,
): RankInt {
  const varying = parts.find((p) => typeof p !== 'number');
  if (varying === undefined) return f(...parts.map((p) => atRank(p, 0)));
  return rankInt(
    varying.values.map((_, rank) => f(...parts.map((p) => atRank(p, rank)))),
    text,
  );
}

export function plus(a: RankInt, b: RankInt): RankInt {
  return combine([a, b], `${textOf(a)} + ${textOf(b)}`, (x, y) => x + y);
}

export function minus(a: RankInt, b: RankInt): RankInt {
  return combine([a, b], `${textOf(a)} - ${textOf(b)}`, (x, y) => x - y);
}

export function times(a: RankInt, b: number): RankInt {
  return combine([a], `${b}*(${textOf(a)})`, (x) => x * b);
}

export function sameInt(a: RankInt, b: RankInt): boolean {
  if (typeof a === 'number' || typeof b === 'number') return a === b;
  return a.values.every((v, rank) => v === b.values[rank]);
}

function textOf(a: RankInt): string {
  return typeof a === 'number' ? String(a) : a.text;
}

/** The symbols of one program. Equal integers share one symbol, whatever they were called. */
export class RankSymbols {
  private readonly byValues = new Map<string, string>();
  private readonly table = new Map<string, readonly number[]>();

  /** The value of each symbol on each rank. */
  get values(): ReadonlyMap<string, readonly number[]> {
    return this.table;
  }

  dim(value: RankInt): Dim {
    return typeof value === 'number'
      ? value
      : { sym: this.symbol(value), example: value.values[0] };
  }

  arg(value: RankInt): Arg {
    return typeof value === 'number'
      ? value
      : { kind: 'size', size: { sym: this.symbol(value), example: value.values[0] } };
  }

  /** Tells whether an argument differs from rank to rank. */
  varies(arg: Arg): boolean {
    if (isList(arg)) return arg.some((member) => this.varies(member));
    if (arg === null || typeof arg !== 'object') return false;
    if (arg.kind === 'slice')
      return [arg.start, arg.stop, arg.step].some((part) => this.varies(part));
    return arg.kind === 'size' && this.table.has(arg.size.sym);
  }

  private symbol({ values, text }: PerRank): string {
    const key = values.join();
    const known = this.byValues.get(key);
    if (known !== undefined) return known;
    let name = text;
    for (let i = 2; this.table.has(name); i++) name = `${text} ${i}`;
    if (!/^[A-Za-z0-9_.+\-*/%, <>!()]+$/.test(name))
      throw internalError(`'${name}' is not a size expression`);
    this.byValues.set(key, name);
    this.table.set(name, values);
    return name;
  }
}

/** An argument as one rank has it: symbols of the table replaced by their numbers. */
export function argAtRank(
  arg: Arg,
  symbols: ReadonlyMap<string, readonly number[]>,
  rank: number,
): Arg {
  if (isList(arg)) return arg.map((member) => argAtRank(member, symbols, rank));
  if (arg === null || typeof arg !== 'object') return arg;
  if (arg.kind === 'slice')
    return {
      kind: 'slice',
      start: argAtRank(arg.start, symbols, rank),
      stop: argAtRank(arg.stop, symbols, rank),
      step: argAtRank(arg.step, symbols, rank),
    };
  if (arg.kind !== 'size') return arg;
  const values = symbols.get(arg.size.sym);
  return values === undefined ? arg : values[rank];
}

/** A size as one rank has it. */
export function dimAtRank(
  dim: Dim,
  symbols: ReadonlyMap<string, readonly number[]>,
  rank: number,
): Dim {
  if (typeof dim === 'number') return dim;
  return symbols.get(dim.sym)?.[rank] ?? dim;
}

/**
 * Finds the loops that run as one kernel, as PyTorch's Inductor joins them: loops over the same
 * elements, one of which reads the values that the other writes, or that read the same; a reduction
 * over rows includes the loops before and after it over the same rows. Nothing is joined across
 * phases, nor where a kernel would wait for itself.
 */

import type { Call, CallGraph } from './calls.ts';

type Over = 'each' | 'rows' | 'columns';

/** Loops of one kernel, or one call of a library. */
interface Unit {
  /** Phase of the loops; undefined of what a library runs. */
  readonly phase: string | undefined;
  readonly count: number;
  rows: number;
  over: Over;
  /** Calls whose values it reads. */
  readonly inputs: Set<number>;
  readonly members: number[];
  /** Position of its first and last call. */
  first: number;
  last: number;
}

/** A number for each call: that of its kernel. */
export function joinedLoops({ calls, values, constants }: CallGraph): Int32Array {
  const joiner = new LoopJoiner(calls.length);
  calls.forEach((call, i) => {
    // What every kernel makes for itself brings none together.
    const read = call.uses
      .map(({ value }) => value)
      .filter((value) => value >= 0 && !constants.has(value));
    const sources = read.map((value) => values[value].call).filter((source) => source >= 0);
    joiner.add(call, i, read, sources);
  });
  return joiner.unitOf;
}

/** Takes call after call into a kernel. */
class LoopJoiner {
  readonly unitOf: Int32Array;
  private readonly units: Unit[] = [];
  /** The last loop of a phase that read a value. */
  private readonly lastReader = new Map<string, number>();

  constructor(calls: number) {
    this.unitOf = new Int32Array(calls).fill(-1);
  }

  /**
   * @param read values that it reads
   * @param sources calls that make them
   */
  add(call: Call, i: number, read: readonly number[], sources: readonly number[]): void {
    const { units, unitOf } = this;
    const home = this.homeOf(call, read, sources);
    const unit = home ?? units.push(unitAlone(call, i)) - 1;
    unitOf[i] = unit;
    const { members, inputs } = units[unit];
    members.push(i);
    for (const source of sources) inputs.add(source);
    if (call.form === undefined) return;
    if (home !== undefined) widen(units[unit], call.form.over, call.form.rows);
    units[unit].last = i;
    for (const source of sources) if (unitOf[source] !== unit) this.merge(unitOf[source], unit);
    for (const value of read) this.lastReader.set(`${call.phase}:${value}`, i);
  }

  /**
   * The kernel that a loop joins: the last one of those that it reads, else one that reads the
   * same.
   */
  private homeOf(
    call: Call,
    read: readonly number[],
    sources: readonly number[],
  ): number | undefined {
    const { units, unitOf } = this;
    const { form, phase } = call;
    if (form === undefined) return undefined;
    const readers = read.flatMap((value) => this.lastReader.get(`${phase}:${value}`) ?? []);
    const latest = (of: readonly number[]): number[] =>
      of.map((i) => unitOf[i]).sort((a, b) => b - a);
    return [...new Set([...latest(sources), ...latest(readers)])].find(
      (unit) =>
        units[unit].phase === phase &&
        isSameLoop(units[unit], form) &&
        sources.every((source) => unitOf[source] === unit || !this.waitsFor(unitOf[source], unit)),
    );
  }

  /**
   * Joins the kernel `from` to `to`, which reads it, where they loop over the same elements and
   * nothing runs between them.
   */
  private merge(from: number, to: number): void {
    const { unitOf } = this;
    const [a, b] = [this.units[from], this.units[to]];
    if (a.phase === undefined || a.phase !== b.phase || a.over === 'columns' || !isSameLoop(b, a))
      return;
    if (
      [...b.inputs].some(
        (input) =>
          unitOf[input] !== from && unitOf[input] !== to && this.waitsFor(unitOf[input], from),
      )
    )
      return;
    for (const member of a.members) unitOf[member] = to;
    b.members.push(...a.members);
    for (const input of a.inputs) b.inputs.add(input);
    widen(b, a.over, a.rows);
    b.first = Math.min(a.first, b.first);
    b.last = Math.max(a.last, b.last);
  }

  /** Tells whether a unit reads, over others, what `target` writes. */
  private waitsFor(unit: number, target: number): boolean {
    const { units, unitOf } = this;
    const seen = new Set<number>();
    const stack = [unit];
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
      if (next === target) return true;
      if (seen.has(next) || units[next].last < units[target].first) continue;
      seen.add(next);
      for (const input of units[next].inputs) stack.push(unitOf[input]);
    }
    return false;
  }
}

function unitAlone({ form, phase }: Call, i: number): Unit {
  const inputs = new Set<number>();
  if (form === undefined)
    return {
      phase: undefined,
      count: 0,
      rows: 0,
      over: 'each',
      inputs,
      members: [],
      first: i,
      last: i,
    };
  return {
    phase,
    count: form.count,
    rows: form.rows,
    over: form.over,
    inputs,
    members: [],
    first: i,
    last: i,
  };
}

function widen(unit: Unit, over: Over, rows: number): void {
  if (unit.over !== 'each' || over === 'each') return;
  unit.over = over;
  unit.rows = rows;
}

/**
 * Tells whether a loop fits a kernel: over the same elements in the same rows, or over the rows
 * that it reduces to.
 */
function isSameLoop(
  unit: { readonly over: Over; readonly count: number; readonly rows: number },
  loop: { readonly over: Over; readonly count: number; readonly rows: number },
): boolean {
  const isSame = unit.count === loop.count;
  if (unit.over === 'columns')
    return loop.over === 'columns'
      ? isSame && unit.rows === loop.rows
      : loop.over === 'each' && loop.count === unit.rows;
  // A sum across rows visits elements in another order than what made them.
  if (loop.over === 'columns') return false;
  if (loop.over === 'each') return isSame || (unit.over === 'rows' && loop.count === unit.rows);
  return isSame && (unit.over === 'each' || unit.rows === loop.rows);
}

/**
 * Finds the values that are written to memory. As Inductor does, a loop that another kernel needs
 * is computed again there rather than written, where it reads few tensors; as XLA does, where that
 * moves fewer bytes.
 */

import type { CallGraph, Use } from './calls.ts';

/** Tensors that a loop reads at most where it is made again (`realize_reads_threshold`). */
const READS_MADE_AGAIN = 4;

/** Part of a value in memory that is read, at most 1. */
interface Source {
  readonly value: number;
  readonly part: number;
}

/** The values in memory, and the values in memory that each other value is computed from. */
export class Memory {
  private readonly written: Set<number>;
  private readonly graph: CallGraph;
  /** For each value that is not in memory: the values that are read in its place. */
  private readonly known = new Map<number, readonly Source[]>();

  constructor(graph: CallGraph, unitOf: Int32Array) {
    this.graph = graph;
    this.written = new Set(graph.returned);
    const between = this.writeFirst(unitOf);
    // In program order: what a value is made of is decided before it.
    const ordered = [...between].sort(([a], [b]) => a - b);
    for (const [value, readers] of ordered)
      if (!this.isMadeAgain(value, readers.size)) this.written.add(value);
  }

  /** Tells whether a loop has to write a value. */
  isWritten(value: number): boolean {
    return this.written.has(value);
  }

  /** The values read from memory for a value that the kernel does not hold. */
  sources({ value, part }: Use): Source[] {
    return this.behind(value).map((source) => ({ ...source, part: source.part * part }));
  }

  /**
   * Writes what other phases, libraries and lookups read, and gives the other values that kernels
   * read of one another, with the readers of each.
   */
  private writeFirst(unitOf: Int32Array): ReadonlyMap<number, ReadonlySet<number>> {
    const { calls, values, constants } = this.graph;
    const between = new Map<number, Set<number>>();
    for (const [i, { form, phase, uses }] of calls.entries()) {
      uses.forEach(({ value }, k) => {
        const maker = value < 0 ? -1 : values[value].call;
        if (maker < 0 || calls[maker].form === undefined || this.written.has(value)) return;
        const { phase: before } = calls[maker];
        const isLookedUp = form?.lookups !== undefined && !form.reads(k);
        // XLA makes constants again in bodies that read them (`while_loop_constant_sinking.cc`).
        const isFar = phase !== before && !constants.has(value);
        if (form === undefined || isFar || isLookedUp) this.written.add(value);
        else if (unitOf[maker] !== unitOf[i] && form.reads(k))
          between.set(value, (between.get(value) ?? new Set()).add(unitOf[i]));
      });
    }
    return between;
  }

  /**
   * Tells whether the kernels that read a value make it themselves. XLA compares the bytes of both
   * ways (`priority_fusion.cc` by `gpu_performance_model.cc`, for kernels that wait for memory):
   * its sources in every reader; or its sources once, itself written once and read by each.
   */
  private isMadeAgain(value: number, readers: number): boolean {
    const sources = this.behind(value);
    const { isXla, values } = this.graph;
    if (!isXla) return sources.length <= READS_MADE_AGAIN;
    const read = sources.reduce((sum, { value: of, part }) => sum + part * values[of].bytes, 0);
    return readers * read <= read + (1 + readers) * values[value].bytes;
  }

  private behind(value: number): readonly Source[] {
    const before = this.known.get(value);
    if (before !== undefined && !this.written.has(value)) return before;
    const { calls, values } = this.graph;
    const maker = values[value].call;
    const form = maker < 0 ? undefined : calls[maker].form;
    if (form === undefined || this.written.has(value)) return [{ value, part: 1 }];
    // A sum is written to memory: computing it again for every reader would cost more.
    if (form.over !== 'each' || form.lookups !== undefined) {
      this.written.add(value);
      return [{ value, part: 1 }];
    }
    const found = new Map<number, Source>();
    calls[maker].uses.forEach((use, k) => {
      if (use.value < 0 || !form.reads(k)) return;
      for (const { value: of, part } of this.behind(use.value))
        if (!found.has(of)) found.set(of, { value: of, part: use.part * part });
    });
    const sources = [...found.values()];
    this.known.set(value, sources);
    return sources;
  }
}

/**
 * Finds the values that are written to memory. As Inductor does, a loop that another kernel needs
 * is computed again there rather than written, where it reads few tensors.
 */

import type { CallGraph, Use } from './calls.ts';

/** Tensors that a loop reads at most where it is made again (`realize_reads_threshold`). */
const READS_MADE_AGAIN = 4;

/** Part of a value in memory that is read, at most 1. */
export interface Source {
  readonly value: number;
  readonly part: number;
}

/** The values in memory, and the values in memory that each other value is computed from. */
export class Memory {
  private readonly written: Set<number>;
  private readonly graph: CallGraph;

  constructor(graph: CallGraph, unitOf: Int32Array) {
    this.graph = graph;
    this.written = new Set(graph.returned);
    const { calls, values } = graph;
    const between: number[] = [];
    for (const [i, { form, phase, uses }] of calls.entries()) {
      uses.forEach(({ value }, k) => {
        const maker = value < 0 ? -1 : values[value].call;
        if (maker < 0 || calls[maker].form === undefined || this.written.has(value)) return;
        const { form: made, phase: before } = calls[maker];
        const isLookedUp = form?.lookups !== undefined && !form.reads(k);
        if (form === undefined || phase !== before || isLookedUp) this.written.add(value);
        else if (unitOf[maker] === unitOf[i] || !form.reads(k)) return;
        else if (made?.over !== 'each' || made.lookups !== undefined) this.written.add(value);
        else between.push(value);
      });
    }
    for (const value of between)
      if (this.behind(value, 1).length > READS_MADE_AGAIN) this.written.add(value);
  }

  /** Tells whether a loop has to write a value. */
  isWritten(value: number): boolean {
    return this.written.has(value);
  }

  /** The values read from memory for a value that the kernel does not hold. */
  sources({ value, part }: Use): Source[] {
    return value < 0 ? [] : this.behind(value, part);
  }

  private behind(value: number, part: number, found: Source[] = []): Source[] {
    const { calls, values } = this.graph;
    const maker = values[value].call;
    const form = maker < 0 ? undefined : calls[maker].form;
    if (form === undefined || this.written.has(value)) {
      if (!found.some((source) => source.value === value)) found.push({ value, part });
      return found;
    }
    // Sums are not made twice.
    if (form.over !== 'each' || form.lookups !== undefined) {
      this.written.add(value);
      return this.behind(value, part, found);
    }
    calls[maker].uses.forEach((use, k) => {
      if (use.value >= 0 && form.reads(k) && found.length <= READS_MADE_AGAIN)
        this.behind(use.value, use.part * part, found);
    });
    return found;
  }
}

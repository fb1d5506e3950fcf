/**
 * Computes the part of each call's traffic that reaches memory. A kernel reads outside values once,
 * or once for each pass over rows that no cache keeps, and writes the values that are read outside.
 * A tensor that several calls of it read counts for the first.
 */

import type { CallTraffic } from '../../cost/compute.ts';
import type { Call, CallGraph, Use } from './calls.ts';
import type { Memory } from './written.ts';

/**
 * Bytes of a row up to which caches keep it between passes: an L2 of 50 MB, 8 rows in flight on
 * each of 132 multiprocessors.
 */
const KEPT_ROW_BYTES = 48 * 1024;

/** Traffic of each loop, by the name of its node; calls of libraries have none but their own. */
export function loopTraffic(
  graph: CallGraph,
  unitOf: Int32Array,
  memory: Memory,
): Map<string, CallTraffic> {
  const kernels = new Map<number, number[]>();
  graph.calls.forEach(({ form }, i) => {
    if (form === undefined) return;
    const members = kernels.get(unitOf[i]);
    if (members === undefined) kernels.set(unitOf[i], [i]);
    else members.push(i);
  });
  const traffic = new Map<string, CallTraffic>();
  for (const { node, own } of graph.calls) if (own !== undefined) traffic.set(node.name, own);
  for (const members of kernels.values())
    for (const [i, of] of new Kernel(graph, members, memory).traffic())
      traffic.set(graph.calls[i].node.name, of);
  return traffic;
}

/** Shares of the tensors of a call, while its kernel is walked. */
interface Shares {
  readonly inputs: number[];
  readonly outputs: number[];
  readonly cut: number[];
  kernels: number;
}

/** The loops of one kernel. */
class Kernel {
  private readonly graph: CallGraph;
  private readonly members: readonly number[];
  private readonly memory: Memory;
  private readonly count: number;
  /** Elements of a row; 1 where nothing is reduced. */
  private readonly width: number;
  private readonly shares: ReadonlyMap<number, Shares>;
  /** The pass in which the results of a call are known. */
  private readonly passes = new Map<number, number>();
  /** Part of a value that was read, by value and pass. */
  private readonly read = new Map<string, number>();
  private readonly visited = new Set<string>();

  constructor(graph: CallGraph, members: readonly number[], memory: Memory) {
    const forms = members.map((i) => graph.calls[i].form);
    this.graph = graph;
    this.members = members;
    this.memory = memory;
    this.count = Math.max(...forms.map((form) => form?.count ?? 0));
    const reduction = forms.find((form) => form?.over === 'rows');
    this.width = reduction === undefined ? 1 : this.count / reduction.rows;
    this.shares = new Map(
      members.map((i) => {
        const { uses, results } = graph.calls[i];
        return [
          i,
          {
            inputs: uses.map(() => 0),
            outputs: results.map(() => 0),
            cut: uses.map(() => 0),
            kernels: 0,
          },
        ];
      }),
    );
    for (const i of members) this.passes.set(i, this.passOf(graph.calls[i]));
  }

  traffic(): Iterable<[number, CallTraffic]> {
    let last = -1;
    for (const i of this.members) {
      const { results } = this.graph.calls[i];
      const { outputs } = this.of(i);
      results.forEach((value, k) => {
        if (value < 0 || !this.memory.isWritten(value)) return;
        outputs[k]++;
        last = i;
        this.visit(i, this.passes.get(i) ?? 0);
      });
    }
    if (last >= 0) this.of(last).kernels++;
    return [...this.shares].map(([i, { cut, ...shares }]) => [
      i,
      cut.some((share) => share > 0) ? { ...shares, cut } : shares,
    ]);
  }

  /** Runs a call in a pass, and before it what it needs. */
  private visit(i: number, pass: number): void {
    const key = `${i}:${pass}`;
    if (this.visited.has(key)) return;
    const isFirst = !this.visited.has(`${i}`);
    this.visited.add(key).add(`${i}`);
    const { form, uses } = this.graph.calls[i];
    if (form === undefined) return;
    const shares = this.of(i);
    uses.forEach((use, k) => {
      if (use.value < 0 || use.bytes === 0 || !form.reads(k)) return;
      const isOnce = !form.whole || form.once?.(k) === true;
      for (const at of isOnce ? [pass] : [pass - 1, pass]) this.take(i, k, use, at);
      if (!isFirst) return;
      if (form.statistics === undefined || form.once?.(k) === true) return;
      const bytes = this.memory
        .sources(use)
        .reduce((sum, { value, part }) => sum + part * this.bytes(value), 0);
      const reads = this.isLong(use.bytes) ? 2 : 1;
      shares.cut[k] = ((form.statistics + 1 - reads) * bytes) / use.bytes;
    });
    if (!isFirst) return;
    shares.outputs[0] += form.lookups ?? 0;
    if (form.sumsRows === true) shares.kernels++;
  }

  /** Gets an input of a call in a pass: from the kernel's own loops, or from memory. */
  private take(i: number, k: number, use: Use, pass: number): void {
    const { values } = this.graph;
    const maker = values[use.value].call;
    const known = this.passes.get(maker);
    // Values of rows stay where they are; elements are made again in each pass.
    if (known !== undefined)
      this.visit(maker, values[use.value].count === this.count ? Math.max(pass, known) : known);
    else this.of(i).inputs[k] += this.fetch(use, pass) / use.bytes;
  }

  /** Bytes of the sources of an input that were not read before. */
  private fetch(use: Use, pass: number): number {
    let bytes = 0;
    for (const { value, part } of this.memory.sources(use)) {
      const key = `${value}:${this.isLong(part * this.bytes(value)) ? pass : ''}`;
      const before = this.read.get(key) ?? 0;
      const after = Math.min(1, before + part);
      this.read.set(key, after);
      bytes += (after - before) * this.bytes(value);
    }
    return bytes;
  }

  /** The pass of a call's results: one more behind each reduction that they wait for. */
  private passOf({ form, uses }: Call): number {
    let pass = 0;
    for (const { value } of uses) {
      const maker = value < 0 ? -1 : this.graph.values[value].call;
      const before = this.passes.get(maker);
      if (before === undefined) continue;
      const other = this.graph.calls[maker].form;
      const waits = other?.over === 'rows' && !other.whole && form?.count === this.count;
      pass = Math.max(pass, before + (waits ? 1 : 0));
    }
    return pass + (form?.whole === true ? 1 : 0);
  }

  /** Tells whether rows of a tensor of so many bytes leave the caches between passes. */
  private isLong(bytes: number): boolean {
    return (bytes * this.width) / this.count > KEPT_ROW_BYTES;
  }

  private bytes(value: number): number {
    return this.graph.values[value].bytes;
  }

  private of(i: number): Shares {
    return this.shares.get(i) as Shares;
  }
}

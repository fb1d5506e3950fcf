/**
 * Rewrites tasks so that gathers and scatters overlap in chunks with the matrix products next to
 * them (asynchronous tensor parallelism).
 */

import { COMPUTE } from '../work/streams.ts';
import type { Buffer, Schedule, Task } from './schedule.ts';

/**
 * Asynchronous tensor parallelism as a pass: a gather whose one reader is a matrix product, and a
 * scatter whose one source is one, are taken apart with the product into as many chunks as the
 * group has members, so that a chunk is multiplied while the next one travels (Wang et al., ASPLOS
 * 2023; PyTorch's async TP). The member's own chunk needs no message.
 */
interface AsyncTensorOptions {
  /** Least seconds of a product, however small. */
  readonly matmulLaunchSeconds: number;
  /** Members of the group of some mesh dims. */
  groupSize(meshDims: readonly number[]): number;
}

const PRODUCTS = /(^|[._])(mm|addmm|bmm|baddbmm|matmul|linear|einsum|dot_general)([._]|$)/;

/** A product and the collective that is taken apart with it. */
interface Pair {
  readonly product: number;
  readonly collective: number;
  readonly gather: boolean;
}

export function asyncTensor(schedule: Schedule, options: AsyncTensorOptions): Schedule {
  const pairs = findPairs(schedule, options);
  if (pairs.length === 0) return schedule;
  const splitter = new Splitter(schedule, options);
  // Other tasks that a reader of a buffer must wait for.
  const later = new Map<number, number>();
  const replaced = new Map<number, readonly Task[]>();
  for (const pair of pairs) {
    const { chunks, result, last } = splitter.split(pair);
    later.set(result, last);
    // The gather stood before its product, the scatter after: both run where the product was.
    replaced.set(pair.product, chunks);
    replaced.set(pair.collective, []);
  }
  const own = new Set([...replaced.values()].flat().map((task) => task.id));
  const tasks = schedule.tasks.flatMap((task, at) => replaced.get(at) ?? [task]);
  return {
    ...schedule,
    buffers: splitter.buffers,
    tasks: tasks.map((task) => {
      if (own.has(task.id)) return task;
      const more = task.reads.flatMap((b) => later.get(b) ?? []);
      return more.length === 0 ? task : { ...task, reads: [...task.reads, ...more] };
    }),
  };
}

/** The chunks of a pair, and the token that readers of its result wait for. */
interface SplitPair {
  readonly chunks: readonly Task[];
  readonly result: number;
  readonly last: number;
}

/** Takes pairs apart, and makes the tokens that order their chunks. */
class Splitter {
  readonly buffers: Buffer[];
  /** The last id that a task has. */
  private id: number;

  constructor(
    private readonly schedule: Schedule,
    private readonly options: AsyncTensorOptions,
  ) {
    this.buffers = [...schedule.buffers];
    this.id = schedule.tasks.reduce((most, task) => Math.max(most, task.id), 0);
  }

  split({ product, collective, gather }: Pair): SplitPair {
    const [matmul, move] = [this.schedule.tasks[product], this.schedule.tasks[collective]];
    const n = this.options.groupSize(move.collective?.meshDims ?? []);
    const seconds = Math.max(
      matmul.seconds / n,
      Math.min(matmul.seconds, this.options.matmulLaunchSeconds),
    );
    const chunk = { ...move, seconds: move.seconds / (n - 1), kernels: 1 };
    const part = { ...matmul, seconds };
    return gather ? this.splitGather(part, chunk, n) : this.splitScatter(part, chunk, n);
  }

  /** Multiplies each chunk once it has arrived; the member's own is there. */
  private splitGather(matmul: Task, move: Task, n: number): SplitPair {
    const chunks: Task[] = [];
    const [result] = matmul.writes;
    const [moved] = move.writes;
    const others = matmul.reads.filter((b) => b !== moved);
    let arrived = -1;
    let multiplied = -1;
    for (let c = 0; c < n; c++) {
      if (c > 0) {
        const before = arrived;
        arrived = this.token(move, c);
        const reads = before < 0 ? move.reads : [...move.reads, before];
        const writes = before < 0 ? [moved, arrived] : [arrived];
        chunks.push(this.chunk(move, c, { reads, writes }));
      }
      multiplied = this.token(matmul, c);
      chunks.push(
        this.chunk(matmul, c, {
          reads: [...others, ...(c === 0 ? move.reads : [moved, arrived, result])],
          writes: c === 0 ? [result, multiplied] : [multiplied],
        }),
      );
    }
    return { chunks, result, last: multiplied };
  }

  /** Sends each chunk once it is multiplied; the member keeps its own. */
  private splitScatter(matmul: Task, move: Task, n: number): SplitPair {
    const chunks: Task[] = [];
    const [result] = matmul.writes;
    const [moved] = move.writes;
    let arrived = -1;
    let multiplied = -1;
    for (let c = 0; c < n; c++) {
      const before = multiplied;
      multiplied = this.token(matmul, c);
      chunks.push(
        this.chunk(matmul, c, {
          reads: c === 0 ? matmul.reads : [...matmul.reads, result, before],
          writes: c === 0 ? [result, multiplied] : [multiplied],
        }),
      );
      if (c === 0) continue;
      const sent = arrived;
      arrived = this.token(move, c);
      chunks.push(
        this.chunk(move, c, {
          reads: [...move.reads, multiplied, ...(sent < 0 ? [] : [sent])],
          writes: sent < 0 ? [moved, arrived] : [arrived],
        }),
      );
    }
    return { chunks, result: moved, last: arrived };
  }

  private chunk(task: Task, c: number, buffers: Pick<Task, 'reads' | 'writes'>): Task {
    return { ...task, id: ++this.id, name: `${task.name} [${c}]`, ...buffers };
  }

  /** A buffer without bytes that says that a chunk is done. */
  private token({ name }: Task, c: number): number {
    return (
      this.buffers.push({
        name: `${name} [${c}]`,
        bytes: 0,
        kind: 'communication',
        given: false,
        kept: false,
        weight: false,
      }) - 1
    );
  }
}

function findPairs({ tasks, buffers }: Schedule, options: AsyncTensorOptions): Pair[] {
  const readers = buffers.map((): number[] => []);
  const maker = new Int32Array(buffers.length).fill(-1);
  tasks.forEach((task, at) => {
    for (const b of task.reads) readers[b].push(at);
    for (const b of task.writes) maker[b] = at;
  });
  const waited = new Set(
    tasks.flatMap((task) => [...(task.afterStart ?? []), ...(task.afterEnd ?? [])]),
  );
  const taken = new Set<number>();
  const isProduct = (at: number): boolean => {
    const task = tasks[at];
    const plain =
      task.kind === 'compute' &&
      task.stream === COMPUTE &&
      task.writes.length === 1 &&
      task.kernels === 1;
    return plain && PRODUCTS.test(task.target ?? '') && !waited.has(task.id) && !taken.has(at);
  };
  const pairs: Pair[] = [];
  tasks.forEach((task, at) => {
    const work = task.collective;
    if (work === undefined || task.writes.length !== 1 || task.kernels !== 1 || waited.has(task.id))
      return;
    if (options.groupSize(work.meshDims) < 2) return;
    const [result] = task.writes;
    if (buffers[result].weight) return;
    const gather = work.kind === 'all_gather';
    if (!gather && work.kind !== 'reduce_scatter') return;
    if (gather) {
      const [product, ...others] = readers[result];
      if (product === undefined || others.length > 0 || buffers[result].kept || !isProduct(product))
        return;
      taken.add(product);
      pairs.push({ product, collective: at, gather });
      return;
    }
    const [source] = task.reads;
    const product = task.reads.length === 1 ? maker[source] : -1;
    if (product < 0 || readers[source].length !== 1 || buffers[source].kept || !isProduct(product))
      return;
    taken.add(product);
    pairs.push({ product, collective: at, gather });
  });
  return pairs;
}

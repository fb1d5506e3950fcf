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
  const buffers: Buffer[] = [...schedule.buffers];
  // Other tasks that a reader of a buffer must wait for.
  const later = new Map<number, number>();
  let id = schedule.tasks.reduce((most, task) => Math.max(most, task.id), 0);
  const token = (name: string): number =>
    buffers.push({
      name,
      bytes: 0,
      kind: 'communication',
      given: false,
      kept: false,
      weight: false,
    }) - 1;
  const replaced = new Map<number, Task[]>();
  for (const { product, collective, gather } of pairs) {
    const [matmul, move] = [schedule.tasks[product], schedule.tasks[collective]];
    const n = options.groupSize(move.collective?.meshDims ?? []);
    const seconds = Math.max(
      matmul.seconds / n,
      Math.min(matmul.seconds, options.matmulLaunchSeconds),
    );
    const step = { seconds: move.seconds / (n - 1), kernels: 1 };
    const chunks: Task[] = [];
    const [result] = matmul.writes;
    const [moved] = move.writes;
    let arrived = -1;
    let multiplied = -1;
    for (let c = 0; c < n; c++) {
      const at = (task: Task, more: Partial<Task>): Task => ({
        ...task,
        id: ++id,
        name: `${task.name} [${c}]`,
        ...more,
      });
      if (gather) {
        if (c > 0) {
          const before = arrived;
          arrived = token(`${move.name} [${c}]`);
          const first = before < 0;
          chunks.push(
            at(move, {
              ...step,
              reads: first ? move.reads : [...move.reads, before],
              writes: first ? [moved, arrived] : [arrived],
            }),
          );
        }
        const others = matmul.reads.filter((b) => b !== moved);
        const done = token(`${matmul.name} [${c}]`);
        chunks.push(
          at(matmul, {
            seconds,
            reads: [...others, ...(c === 0 ? move.reads : [moved, arrived, result])],
            writes: c === 0 ? [result, done] : [done],
          }),
        );
        multiplied = done;
      } else {
        const before = multiplied;
        multiplied = token(`${matmul.name} [${c}]`);
        chunks.push(
          at(matmul, {
            seconds,
            reads: c === 0 ? matmul.reads : [...matmul.reads, result, before],
            writes: c === 0 ? [result, multiplied] : [multiplied],
          }),
        );
        if (c === 0) continue;
        const sent = arrived;
        arrived = token(`${move.name} [${c}]`);
        chunks.push(
          at(move, {
            ...step,
            reads: [...move.reads, multiplied, ...(sent < 0 ? [] : [sent])],
            writes: sent < 0 ? [moved, arrived] : [arrived],
          }),
        );
      }
    }
    later.set(gather ? result : moved, gather ? multiplied : arrived);
    // The gather stood before its product, the scatter after: both run where the product was.
    replaced.set(product, chunks);
    replaced.set(collective, []);
  }
  const own = new Set([...replaced.values()].flat().map((task) => task.id));
  const tasks = schedule.tasks.flatMap((task, at) => replaced.get(at) ?? [task]);
  return {
    ...schedule,
    buffers,
    tasks: tasks.map((task) => {
      if (own.has(task.id)) return task;
      const more = task.reads.flatMap((b) => later.get(b) ?? []);
      return more.length === 0 ? task : { ...task, reads: [...task.reads, ...more] };
    }),
  };
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

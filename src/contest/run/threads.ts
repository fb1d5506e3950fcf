/**
 * Runs rounds of orders on the threads of the portfolio, with one seed for each member: this
 * thread, or worker threads. Both give the same reports; only the time differs.
 */
import {
  monotonicMilliseconds as milliseconds,
  nextTurn,
  startThread,
  threadsAtMost,
} from '../../platform/platform.ts';
import type { Model } from '../model/model.ts';
import { inSharedMemory, Member, type Orders, type Report } from './member.ts';

interface MemberThreads {
  /** One round: orders per member; resolves to the reports in the order of the members. */
  readonly round: (orders: readonly Orders[]) => Promise<Report[]>;
  readonly close: () => Promise<void>;
}

/** The conditions that end a round early. */
interface Clock {
  /** Milliseconds since the epoch; Infinity for no limit. */
  readonly deadline: number;
  /** Element 0 is set to 1 to stop all members. Lies in shared memory. */
  readonly control: Int32Array;
  /** The same, asked by lanes that this thread carries. */
  readonly stopped?: () => boolean;
}

/** `threads` worker threads, or this very thread when `threads` is 1. */
export function startThreads(
  model: Model,
  seeds: readonly number[],
  threads: number,
  clock: Clock,
): MemberThreads {
  return Math.min(threads, threadsAtMost()) <= 1
    ? alone(model, seeds, clock)
    : together(model, seeds, threads, clock);
}

function alone(model: Model, seeds: readonly number[], clock: Clock): MemberThreads {
  const stopped = (): boolean =>
    Atomics.load(clock.control, 0) !== 0 ||
    clock.stopped?.() === true ||
    milliseconds() > clock.deadline;
  const members = seeds.map((seed) => new Member(model, seed, stopped));
  return {
    round: async (orders) => {
      const reports: Report[] = [];
      for (let k = 0; k < members.length; k++) {
        reports.push(members[k].round(orders[k]));
        // Signals and timers get their turn between members.
        await nextTurn();
      }
      return reports;
    },
    close: () => Promise.resolve(),
  };
}

function together(
  model: Model,
  seeds: readonly number[],
  threads: number,
  clock: Clock,
): MemberThreads {
  const common = inSharedMemory(model);
  const count = Math.min(threads, seeds.length);
  const workers = Array.from({ length: count }, (_, w) => {
    const mine = seeds.flatMap((seed, member) => (member % count === w ? [{ member, seed }] : []));
    const workerData = {
      model: common,
      seeds: mine,
      control: clock.control,
      deadline: clock.deadline,
    };
    return startThread({ from: import.meta.url, file: './worker.mjs' }, workerData);
  });
  return {
    round: (orders) =>
      new Promise((resolve, reject) => {
        const reports = new Array<Report>(orders.length);
        let left = orders.length;
        workers.forEach((worker) => {
          worker.removeAllListeners();
          worker.on('error', reject);
          worker.on('exit', (code: number) =>
            reject(new Error(`internal: a search thread ended with code ${code}`)),
          );
          worker.on('message', ({ member, report }: { member: number; report: Report }) => {
            reports[member] = report;
            if (--left === 0) resolve(reports);
          });
        });
        orders.forEach((o, member) => workers[member % count].postMessage({ member, orders: o }));
      }),
    close: async () => {
      for (const worker of workers) worker.removeAllListeners();
      await Promise.all(workers.map((worker) => worker.terminate()));
    },
  };
}

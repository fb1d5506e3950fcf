/**
 * Who carries the lanes: this thread, or worker threads. Both give the same reports; only the time differs.
 */
import { milliseconds } from '../../clock.ts';
import { Worker } from 'node:worker_threads';
import { Lane, shared, type Orders, type Report } from './member.ts';
import type { Model } from '../model/model.ts';

export interface Crew {
  /** One round: orders per lane; resolves to the reports in the order of the lanes. */
  readonly round: (orders: readonly Orders[]) => Promise<Report[]>;
  readonly close: () => Promise<void>;
}

/** What ends a round early. */
export interface Clock {
  /** Milliseconds since the epoch; Infinity for no limit. */
  readonly deadline: number;
  /** Element 0 is set to 1 to stop all lanes. Lies in shared memory. */
  readonly control: Int32Array;
}

/** A crew of `threads` worker threads, or this very thread when `threads` is 1. */
export function crew(model: Model, seeds: readonly number[], threads: number, clock: Clock): Crew {
  return threads <= 1 ? alone(model, seeds, clock) : together(model, seeds, threads, clock);
}

function alone(model: Model, seeds: readonly number[], clock: Clock): Crew {
  const stopped = (): boolean => Atomics.load(clock.control, 0) !== 0 || milliseconds() > clock.deadline;
  const lanes = seeds.map((seed) => new Lane(model, seed, stopped));
  return {
    round: async (orders) => {
      const reports: Report[] = [];
      for (let k = 0; k < lanes.length; k++) {
        reports.push(lanes[k].round(orders[k]));
        // Signals and timers get their turn between lanes.
        await new Promise((resolve) => setImmediate(resolve));
      }
      return reports;
    },
    close: () => Promise.resolve(),
  };
}

function together(model: Model, seeds: readonly number[], threads: number, clock: Clock): Crew {
  const common = shared(model);
  const count = Math.min(threads, seeds.length);
  const workers = Array.from({ length: count }, (_, w) => {
    const mine = seeds.flatMap((seed, lane) => (lane % count === w ? [{ lane, seed }] : []));
    const workerData = { model: common, seeds: mine, control: clock.control, deadline: clock.deadline };
    return new Worker(new URL('./worker.mjs', import.meta.url), { workerData, execArgv: [] });
  });
  return {
    round: (orders) =>
      new Promise((resolve, reject) => {
        const reports = new Array<Report>(orders.length);
        let left = orders.length;
        workers.forEach((worker) => {
          worker.removeAllListeners();
          worker.on('error', reject);
          worker.on('exit', (code) => reject(new Error(`internal: a search thread ended with code ${code}`)));
          worker.on('message', ({ lane, report }: { lane: number; report: Report }) => {
            reports[lane] = report;
            if (--left === 0) resolve(reports);
          });
        });
        orders.forEach((o, lane) => workers[lane % count].postMessage({ lane, orders: o }));
      }),
    close: async () => {
      for (const worker of workers) worker.removeAllListeners();
      await Promise.all(workers.map((worker) => worker.terminate()));
    },
  };
}

/**
 * Lists the work of one plan in a step: the seconds of its kernels and of its moves, each with the
 * gaps between kernels in which it can run.
 */
import { secondsAt, type Site, type StepWork } from './step-work.ts';

/**
 * The moves of one place of the program. Gap `k` is before kernel `k`; the last is after all
 * kernels.
 */
interface SiteLoad {
  readonly site: Site;
  /** First and last gap in which it can run. */
  readonly from: number;
  readonly to: number;
  /** By stream, as its site prices it: in a bucket less than alone. */
  readonly seconds: Float64Array;
  /**
   * From its start to its end: its collectives and copies one after another. 0 where that is not
   * told of the place alone.
   */
  readonly latencySeconds: number;
}

export interface PlanLoads {
  /** By position. */
  readonly kernels: Float64Array;
  readonly moves: readonly SiteLoad[];
}

/**
 * Seconds that are taken back are doubles: what is left of nothing is below this share of a launch.
 */
const NOTHING = 1e-15;

export function planLoads(work: StepWork, choice: Int32Array): PlanLoads {
  const kernels = new Float64Array(work.order.count);
  const sums = new Map<Site, { seconds: Float64Array; latencySeconds: number }>();
  work.visit(choice, {
    kernel: (at, seconds) => (kernels[at] += seconds),
    move: (site, { parts, at }, sign) => {
      const lists = secondsAt(site, parts);
      let sum = sums.get(site);
      if (sum === undefined)
        sums.set(site, (sum = { seconds: new Float64Array(lists.length), latencySeconds: 0 }));
      for (let stream = 0; stream < lists.length; stream++)
        sum.seconds[stream] += sign * lists[stream][at];
      if (site.hasLatency) for (const list of parts.alone) sum.latencySeconds += sign * list[at];
    },
  });
  const moves = [...sums].flatMap(([site, { seconds, latencySeconds }]) =>
    seconds.every((s) => Math.abs(s) < NOTHING) && latencySeconds < NOTHING
      ? []
      : [{ site, from: site.after + 1, to: site.before, seconds, latencySeconds }],
  );
  return { kernels, moves };
}

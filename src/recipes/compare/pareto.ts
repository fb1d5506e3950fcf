/** A plan as it is compared: less of both is better. */
export interface ParetoPoint {
  readonly name: string;
  readonly seconds: number;
  readonly peakBytes: number;
  readonly fits: boolean;
}

/** Tells whether p is at least as good as q in both, and better in one. */
function dominates(p: ParetoPoint, q: Omit<ParetoPoint, 'fits'>): boolean {
  return (
    p.seconds <= q.seconds &&
    p.peakBytes <= q.peakBytes &&
    (p.seconds < q.seconds || p.peakBytes < q.peakBytes)
  );
}

/**
 * The fitting plan of least seconds that dominates a plan, of many plans: a search among steps. Of
 * the plans by seconds, bytes and name only those count that take fewer bytes than all before them:
 * the first of them within the bytes of a plan is the one of least seconds.
 */
export function dominators(
  points: readonly ParetoPoint[],
): (q: Omit<ParetoPoint, 'fits'>) => string | undefined {
  const sorted = points
    .filter((p) => p.fits)
    .sort(
      (a, b) => a.seconds - b.seconds || a.peakBytes - b.peakBytes || (a.name < b.name ? -1 : 1),
    );
  const steps: ParetoPoint[] = [];
  for (const p of sorted) if (p.peakBytes < (steps.at(-1)?.peakBytes ?? Infinity)) steps.push(p);
  return (q) => {
    let [from, to] = [0, steps.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (steps[middle].peakBytes <= q.peakBytes) to = middle;
      else from = middle + 1;
    }
    const step = steps.at(from);
    return from < steps.length && step !== undefined && dominates(step, q) ? step.name : undefined;
  };
}

/**
 * Names of the plans that fit and that no other fitting plan dominates, by memory, then seconds,
 * then name. Of plans that are equal in both, all are listed.
 */
export function paretoFront(points: readonly ParetoPoint[]): string[] {
  const dominator = dominators(points);
  return points
    .filter((q) => q.fits && dominator(q) === undefined)
    .sort(
      (a, b) => a.peakBytes - b.peakBytes || a.seconds - b.seconds || (a.name < b.name ? -1 : 1),
    )
    .map((p) => p.name);
}

/** A step of a front that is shown is this much shorter than the one before. */
const SHOWN_STEP = 0.01;

/**
 * The points of a front by memory that a reader can distinguish: each is faster by a hundredth than
 * the one before it; and the fastest.
 */
export function shownFront<T extends Pick<ParetoPoint, 'seconds'>>(front: readonly T[]): T[] {
  const shown: T[] = [];
  for (const [i, point] of front.entries()) {
    const last = shown.at(-1);
    if (last === undefined || point.seconds <= (1 - SHOWN_STEP) * last.seconds) shown.push(point);
    else if (i === front.length - 1 && point.seconds < last.seconds) shown.push(point);
  }
  return shown;
}

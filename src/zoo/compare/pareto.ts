/** A plan as it is compared: less of both is better. */
interface Point {
  readonly name: string;
  readonly seconds: number;
  readonly peakBytes: number;
  readonly fits: boolean;
}

/** Whether p is at least as good as q in both, and better in one. */
function dominates(p: Point, q: Point): boolean {
  return p.seconds <= q.seconds && p.peakBytes <= q.peakBytes && (p.seconds < q.seconds || p.peakBytes < q.peakBytes);
}

/**
 * Names of the plans that fit and that no other fitting plan dominates, by memory, then seconds, then name. Of plans that are
 * equal in both, all are listed.
 */
export function paretoFront(points: readonly Point[]): string[] {
  const fitting = points.filter((p) => p.fits);
  return fitting
    .filter((q) => !fitting.some((p) => dominates(p, q)))
    .sort((a, b) => a.peakBytes - b.peakBytes || a.seconds - b.seconds || (a.name < b.name ? -1 : 1))
    .map((p) => p.name);
}

/** The fitting plan of least seconds that dominates a plan. */
export function dominator(points: readonly Point[], q: Point): string | undefined {
  return points
    .filter((p) => p.fits && dominates(p, q))
    .sort((a, b) => a.seconds - b.seconds || a.peakBytes - b.peakBytes || (a.name < b.name ? -1 : 1))[0]?.name;
}

/**
 * Position of the knee: of points that trade two costs, the one nearest to the least of both, each
 * scaled to the range that occurs; the first of equals. Undefined when one of the costs does not
 * change.
 */
export function kneeOf(
  points: readonly (readonly [first: number, second: number])[],
): number | undefined {
  const [least, width] = [0, 1].reduce<[number[], number[]]>(
    ([lows, widths], side) => {
      const all = points.map((p) => p[side]);
      const low = all.reduce((a, b) => Math.min(a, b), Infinity);
      return [
        [...lows, low],
        [...widths, all.reduce((a, b) => Math.max(a, b), -Infinity) - low],
      ];
    },
    [[], []],
  );
  if (!width.every((w) => w > 0)) return undefined;
  let best = 0;
  let distance = Infinity;
  points.forEach((p, i) => {
    const d = Math.hypot((p[0] - least[0]) / width[0], (p[1] - least[1]) / width[1]);
    if (d < distance) {
      distance = d;
      best = i;
    }
  });
  return best;
}

import { mulberry32, type PlainProblem } from './support.ts';

export interface Layered {
  readonly plain: PlainProblem;
  readonly width: number;
}

/**
 * Layers of `width` variables: a random graph inside a layer, edges from each layer to the next,
 * and a skip stream from first variable to first variable. All layers have one set of tables unless
 * `odd` names layers that have another.
 */
export function layered(seed: number, layers: number, odd: readonly number[] = []): Layered {
  const next = mulberry32(seed);
  const int = (n: number): number => Math.floor(next() * n);
  const width = 2 + int(3);
  const sizes = Array.from({ length: width }, () => 2 + int(3));
  const inside: [number, number][] = [];
  for (let i = 0; i < width; i++)
    for (let j = i + 1; j < width; j++) if (j === i + 1 || next() < 0.3) inside.push([i, j]);
  const across: [number, number][] = [
    [0, 0],
    [width - 1, int(width)],
  ];
  const table = (k: number, l: number): number[] =>
    Array.from({ length: k * l }, () => (next() < 0.08 ? Infinity : int(50)));
  const kind = (): { unary: number[][]; inside: number[][]; across: number[][] } => ({
    unary: sizes.map((k) => Array.from({ length: k }, () => int(30))),
    inside: inside.map(([i, j]) => table(sizes[i], sizes[j])),
    across: across.map(([i, j]) => table(sizes[i], sizes[j])),
  });
  const kinds = [kind(), kind()];
  const unary: number[][] = [];
  const edges: [number, number, number[]][] = [];
  for (let l = 0; l < layers; l++) {
    const at = kinds[odd.includes(l) ? 1 : 0];
    unary.push(...at.unary);
    inside.forEach(([i, j], e) => edges.push([l * width + i, l * width + j, at.inside[e]]));
    if (l === 0) continue;
    across.forEach(([i, j], e) => edges.push([(l - 1) * width + i, l * width + j, at.across[e]]));
  }
  return { plain: { unary, edges }, width };
}

/**
 * Plain variable elimination in index order, without sharing, compression or reduction: the
 * reference.
 */
export function eliminatePlainly(plain: PlainProblem): number {
  let factors: { vars: number[]; at: (x: Map<number, number>) => number }[] = [
    ...plain.unary.map((u, i) => ({ vars: [i], at: (x: Map<number, number>) => u[x.get(i) ?? 0] })),
    ...plain.edges.map(([i, j, t]) => ({
      vars: [i, j],
      at: (x: Map<number, number>) => t[(x.get(i) ?? 0) * plain.unary[j].length + (x.get(j) ?? 0)],
    })),
  ];
  let constant = 0;
  for (let v = 0; v < plain.unary.length; v++) {
    const bucket = factors.filter((f) => f.vars.includes(v));
    const scope = [...new Set(bucket.flatMap((f) => f.vars))]
      .filter((u) => u !== v)
      .sort((a, b) => a - b);
    const strides = scope.map((_, k) =>
      scope.slice(k + 1).reduce((s, u) => s * plain.unary[u].length, 1),
    );
    const cells = scope.reduce((s, u) => s * plain.unary[u].length, 1);
    const least = new Float64Array(cells);
    for (let c = 0; c < cells; c++) {
      const x = new Map(
        scope.map((u, k) => [u, Math.floor(c / strides[k]) % plain.unary[u].length]),
      );
      let best = Infinity;
      for (let a = 0; a < plain.unary[v].length; a++) {
        x.set(v, a);
        best = Math.min(
          best,
          bucket.reduce((s, f) => s + f.at(x), 0),
        );
      }
      least[c] = best;
    }
    factors = factors.filter((f) => !f.vars.includes(v));
    if (scope.length === 0) constant += least[0];
    else
      factors.push({
        vars: scope,
        at: (x) => least[scope.reduce((s, u, k) => s + (x.get(u) ?? 0) * strides[k], 0)],
      });
  }
  return constant;
}

/** Small dense matrices, row-major: the textbook algorithms, for verification at small sizes. */

/**
 * L with L Lᵀ = A, from the lower triangle of A [n, n]; undefined when A is not positive definite.
 */
export function cholesky(a: Float64Array, n: number): Float64Array | undefined {
  const l = new Float64Array(n * n);
  for (let j = 0; j < n; j++) {
    let d = a[j * n + j];
    for (let k = 0; k < j; k++) d -= l[j * n + k] ** 2;
    if (!(d > 0)) return undefined;
    const root = Math.sqrt(d);
    l[j * n + j] = root;
    for (let i = j + 1; i < n; i++) {
      let s = a[i * n + j];
      for (let k = 0; k < j; k++) s -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = s / root;
    }
  }
  return l;
}

/**
 * Gaussian elimination with partial pivoting: the upper triangle, the sign of the row exchanges,
 * and B [n, width] alongside.
 */
function eliminate(
  a: Float64Array,
  n: number,
  b: Float64Array,
  width: number,
): { u: Float64Array; sign: number } {
  const u = Float64Array.from(a);
  let sign = 1;
  for (let c = 0; c < n; c++) {
    let p = c;
    for (let r = c + 1; r < n; r++) if (Math.abs(u[r * n + c]) > Math.abs(u[p * n + c])) p = r;
    if (p !== c) {
      sign = -sign;
      for (let k = 0; k < n; k++) [u[c * n + k], u[p * n + k]] = [u[p * n + k], u[c * n + k]];
      for (let k = 0; k < width; k++)
        [b[c * width + k], b[p * width + k]] = [b[p * width + k], b[c * width + k]];
    }
    if (u[c * n + c] === 0) continue;
    for (let r = c + 1; r < n; r++) {
      const f = u[r * n + c] / u[c * n + c];
      for (let k = c; k < n; k++) u[r * n + k] -= f * u[c * n + k];
      for (let k = 0; k < width; k++) b[r * width + k] -= f * b[c * width + k];
    }
  }
  return { u, sign };
}

/** X with A X = B, A [n, n] and B [n, width]; undefined when a pivot is zero. */
export function solve(
  a: Float64Array,
  b: Float64Array,
  n: number,
  width: number,
): Float64Array | undefined {
  const x = Float64Array.from(b);
  const { u } = eliminate(a, n, x, width);
  for (let r = n - 1; r >= 0; r--) {
    if (u[r * n + r] === 0) return undefined;
    for (let k = 0; k < width; k++) {
      let s = x[r * width + k];
      for (let c = r + 1; c < n; c++) s -= u[r * n + c] * x[c * width + k];
      x[r * width + k] = s / u[r * n + r];
    }
  }
  return x;
}

export function determinant(a: Float64Array, n: number): number {
  const { u, sign } = eliminate(a, n, new Float64Array(0), 0);
  let d = sign;
  for (let i = 0; i < n; i++) d *= u[i * n + i];
  return d;
}

/**
 * Q [m, k] and R [k, n] with k = min(m, n), by Householder reflections as LAPACK's geqrf signs
 * them.
 */
export function qr(a: Float64Array, m: number, n: number): [q: Float64Array, r: Float64Array] {
  const k = Math.min(m, n);
  const r = Float64Array.from(a);
  const vectors: { v: Float64Array; tau: number }[] = [];
  for (let c = 0; c < k; c++) {
    let rest = 0;
    for (let i = c + 1; i < m; i++) rest += r[i * n + c] ** 2;
    const alpha = r[c * n + c];
    const v = new Float64Array(m);
    v[c] = 1;
    let tau = 0;
    if (rest > 0) {
      const beta = -(alpha < 0 ? -1 : 1) * Math.sqrt(alpha * alpha + rest);
      tau = (beta - alpha) / beta;
      for (let i = c + 1; i < m; i++) v[i] = r[i * n + c] / (alpha - beta);
    }
    reflect(r, n, v, tau, c, m);
    vectors.push({ v, tau });
  }
  const q = new Float64Array(m * k);
  for (let i = 0; i < k; i++) q[i * k + i] = 1;
  for (let c = k - 1; c >= 0; c--) reflect(q, k, vectors[c].v, vectors[c].tau, c, m);
  return [
    q,
    Float64Array.from({ length: k * n }, (_, at) => (at % n >= Math.floor(at / n) ? r[at] : 0)),
  ];
}

/** x -= tau v (vᵀ x) on rows from `first`. */
function reflect(
  x: Float64Array,
  width: number,
  v: Float64Array,
  tau: number,
  first: number,
  rows: number,
): void {
  for (let j = 0; j < width; j++) {
    let s = 0;
    for (let i = first; i < rows; i++) s += v[i] * x[i * width + j];
    for (let i = first; i < rows; i++) x[i * width + j] -= tau * s * v[i];
  }
}

/**
 * Eigenvalues in rising order and eigenvectors in columns of a symmetric matrix [n, n], by cyclic
 * Jacobi rotations.
 */
export function symmetricEigen(
  a: Float64Array,
  n: number,
): [values: Float64Array, vectors: Float64Array] {
  const s = Float64Array.from(a);
  const v = Float64Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) off += s[i * n + j] ** 2;
    if (off < 1e-300) break;
    for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) rotate(s, v, n, p, q);
  }
  const order = Array.from({ length: n }, (_, i) => i).sort(
    (i, j) => s[i * n + i] - s[j * n + j] || i - j,
  );
  return [
    Float64Array.from(order, (i) => s[i * n + i]),
    Float64Array.from({ length: n * n }, (_, at) => v[Math.floor(at / n) * n + order[at % n]]),
  ];
}

function rotate(s: Float64Array, v: Float64Array, n: number, p: number, q: number): void {
  const g = s[p * n + q];
  if (g === 0) return;
  const theta = (s[q * n + q] - s[p * n + p]) / (2 * g);
  const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const d = t * c;
  const turn = (x: Float64Array, i: number, j: number): void => {
    const [u, w] = [x[i], x[j]];
    x[i] = c * u - d * w;
    x[j] = d * u + c * w;
  };
  for (let k = 0; k < n; k++) turn(s, k * n + p, k * n + q);
  for (let k = 0; k < n; k++) turn(s, p * n + k, q * n + k);
  for (let k = 0; k < n; k++) turn(v, k * n + p, k * n + q);
}

/**
 * LU with partial pivoting of a matrix [m, n]: both factors in one matrix, and the row exchanged
 * with each pivot row.
 */
export function luFactor(
  a: Float64Array,
  m: number,
  n: number,
): [lu: Float64Array, pivots: number[]] {
  const lu = Float64Array.from(a);
  const pivots: number[] = [];
  for (let c = 0; c < Math.min(m, n); c++) {
    let p = c;
    for (let r = c + 1; r < m; r++) if (Math.abs(lu[r * n + c]) > Math.abs(lu[p * n + c])) p = r;
    pivots.push(p);
    if (p !== c)
      for (let k = 0; k < n; k++) [lu[c * n + k], lu[p * n + k]] = [lu[p * n + k], lu[c * n + k]];
    if (lu[c * n + c] === 0) continue;
    for (let r = c + 1; r < m; r++) {
      const f = (lu[r * n + c] /= lu[c * n + c]);
      for (let k = c + 1; k < n; k++) lu[r * n + k] -= f * lu[c * n + k];
    }
  }
  return [lu, pivots];
}

/**
 * Permutation [m, m], unit lower [m, k] and upper [k, n] with P L U = A, from what `luFactor`
 * gives.
 */
export function luParts(
  lu: Float64Array,
  pivots: readonly number[],
  m: number,
  n: number,
): [p: Float64Array, l: Float64Array, u: Float64Array] {
  const k = Math.min(m, n);
  const order = Array.from({ length: m }, (_, i) => i);
  pivots.forEach((p, i) => ([order[i], order[p]] = [order[p], order[i]]));
  const p = new Float64Array(m * m);
  order.forEach((row, i) => (p[row * m + i] = 1));
  const at = (i: number, j: number): number => lu[i * n + j];
  const l = Float64Array.from({ length: m * k }, (_, x) => {
    const [i, j] = [Math.floor(x / k), x % k];
    return i === j ? 1 : i > j ? at(i, j) : 0;
  });
  const u = Float64Array.from({ length: k * n }, (_, x) =>
    x % n >= Math.floor(x / n) ? at(Math.floor(x / n), x % n) : 0,
  );
  return [p, l, u];
}

/**
 * X with T X = B for a triangle of T [n, n] and B [n, width]; a diagonal of ones where `unit` says
 * so.
 */
export function solveTriangle(
  t: Float64Array,
  b: Float64Array,
  n: number,
  width: number,
  upper: boolean,
  unit: boolean,
): Float64Array {
  const x = Float64Array.from(b);
  for (let step = 0; step < n; step++) {
    const r = upper ? n - 1 - step : step;
    for (let k = 0; k < width; k++) {
      let s = x[r * width + k];
      for (let c = upper ? r + 1 : 0; c < (upper ? n : r); c++)
        s -= t[r * n + c] * x[c * width + k];
      x[r * width + k] = unit ? s : s / t[r * n + r];
    }
  }
  return x;
}

/**
 * U [m, k], falling singular values [k] and Vᵀ [k, n] with k = min(m, n), by Jacobi rotations of
 * columns until they are orthogonal (Hestenes). `full` fills U and Vᵀ up to square matrices.
 */
export function singularValues(
  a: Float64Array,
  m: number,
  n: number,
  full: boolean,
): [u: Float64Array, s: Float64Array, vt: Float64Array] {
  if (m < n) {
    const [v, s, ut] = singularValues(transposed(a, m, n), n, m, full);
    const [rows, columns] = [full ? n : m, m];
    return [transposed(ut, columns, columns), s, transposed(v, n, rows)];
  }
  const w = Float64Array.from(a);
  const v = Float64Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));
  for (let sweep = 0; sweep < 60; sweep++) {
    let turned = false;
    for (let p = 0; p < n; p++)
      for (let q = p + 1; q < n; q++) turned = orthogonalised(w, v, m, n, p, q) || turned;
    if (!turned) break;
  }
  const norms = Array.from({ length: n }, (_, j) =>
    Math.hypot(...Array.from({ length: m }, (_i, i) => w[i * n + j])),
  );
  const order = norms.map((_, j) => j).sort((i, j) => norms[j] - norms[i] || i - j);
  const least = (norms[order[0]] ?? 0) * 1e-14;
  const columns: number[][] = [];
  // A column of norm zero has no direction of its own: any that is orthogonal to the others will
  // do.
  for (const j of order)
    columns.push(
      norms[j] > least ? Array.from({ length: m }, (_, i) => w[i * n + j] / norms[j]) : [],
    );
  const width = full ? m : n;
  while (columns.length < width) columns.push([]);
  completed(columns, m);
  return [
    Float64Array.from({ length: m * width }, (_, x) => columns[x % width][Math.floor(x / width)]),
    Float64Array.from(order, (j) => norms[j]),
    Float64Array.from({ length: n * n }, (_, x) => v[(x % n) * n + order[Math.floor(x / n)]]),
  ];
}

/**
 * Rotates columns p and q of W [m, n] (and of V) to be orthogonal; false where they are already.
 */
function orthogonalised(
  w: Float64Array,
  v: Float64Array,
  m: number,
  n: number,
  p: number,
  q: number,
): boolean {
  let [pp, qq, pq] = [0, 0, 0];
  for (let i = 0; i < m; i++) {
    const [x, y] = [w[i * n + p], w[i * n + q]];
    pp += x * x;
    qq += y * y;
    pq += x * y;
  }
  if (Math.abs(pq) <= 1e-15 * Math.sqrt(pp * qq)) return false;
  const zeta = (qq - pp) / (2 * pq);
  const t = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.sqrt(1 + zeta * zeta));
  const c = 1 / Math.sqrt(1 + t * t);
  for (const [x, rows] of [
    [w, m],
    [v, n],
  ] as const)
    for (let i = 0; i < rows; i++) {
      const [a, b] = [x[i * n + p], x[i * n + q]];
      x[i * n + p] = c * (a - t * b);
      x[i * n + q] = c * (t * a + b);
    }
  return true;
}

/** Fills empty columns with unit vectors orthogonal to all others. */
function completed(columns: number[][], m: number): void {
  columns.forEach((column, j) => {
    if (column.length > 0) return;
    let best: number[] = [];
    let size = -1;
    for (let e = 0; e < m; e++) {
      const candidate = Array.from({ length: m }, (_, i) => (i === e ? 1 : 0));
      for (let pass = 0; pass < 2; pass++)
        for (const other of columns) {
          const along = other.reduce((sum, x, i) => sum + x * candidate[i], 0);
          other.forEach((x, i) => (candidate[i] -= along * x));
        }
      const norm = Math.hypot(...candidate);
      if (norm > size) [best, size] = [candidate.map((x) => x / norm), norm];
    }
    columns[j] = best;
  });
}

function transposed(a: Float64Array, m: number, n: number): Float64Array {
  return Float64Array.from({ length: m * n }, (_, i) => a[(i % m) * n + Math.floor(i / m)]);
}

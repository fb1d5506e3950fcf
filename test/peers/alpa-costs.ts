/**
 * Alpa's communication costs on a mesh of two axes, with the constants that it adds to break ties.
 * Units are those of its alpha and beta; bytes are of the full tensor in float32.
 */

/**
 * Mesh axis that cuts each dim of a tensor, -1 for none, `ALL` for both axes as one. An axis cuts
 * at most one dim.
 */
export type Spec = readonly number[];

export const ALL = 2;

export interface AlpaMesh {
  readonly sizes: readonly [number, number];
  readonly alpha: readonly [number, number];
  readonly beta: readonly [number, number];
  /** Price of an all-gather where the test forces one. */
  readonly allGather?: number;
  /**
   * Price of a parameter that is kept whole: 2, or (end to end) an all-reduce of one byte over
   * every axis.
   */
  readonly replicated?: 'two' | 'all-reduce';
  /** Rules of the compiler pass instead of those of the Python solver. */
  readonly compiler?: true;
  /**
   * Axis on which the compiler pass bars everything but all-reduces, as data parallelism is forced
   * on it.
   */
  readonly forced?: number;
  /** The compiler pass may take all devices as one axis next to the two. */
  readonly mixed?: true;
}

/**
 * One axis of all devices, as data parallelism is forced: the more expensive start-up, the faster
 * link.
 */
export function flattened(mesh: AlpaMesh): AlpaMesh {
  const { sizes, alpha, beta } = mesh;
  const [a, b] = [Math.max(...alpha), Math.min(...beta)];
  return { ...mesh, sizes: [sizes[0] * sizes[1], 1], alpha: [a, a], beta: [b, b] };
}

export function bytesOf(shape: readonly number[]): number {
  return 4 * shape.reduce((a, b) => a * b, 1);
}

export interface Move {
  readonly kind: 'all-gather' | 'all-to-all';
  readonly dim: number;
  readonly axis: number;
  readonly cost: number;
}
const NO_WAY: Move = { kind: 'all-gather', dim: 0, axis: 0, cost: Infinity };

export class AlpaCosts {
  constructor(readonly mesh: AlpaMesh) {}

  allGather(bytes: number, axis: number): number {
    if (this.mesh.allGather === undefined && this.mesh.forced === axis) return Infinity;
    return this.mesh.allGather ?? this.trunc(bytes, axis, (n) => (n - 1) / n) + 0.1;
  }
  allReduce(bytes: number, axis: number): number {
    return this.trunc(bytes, axis, (n) => (2 * (n - 1)) / n) + 0.01;
  }

  /** The compiler pass's all-to-all, with its factor n/2 for what was measured on V100. */
  allToAll(bytes: number, axis: number): number {
    return this.mesh.forced === axis
      ? Infinity
      : this.trunc(bytes, axis, (n) => ((n - 1) / n / n) * (n / 2)) + 0.001;
  }
  /** All-reduce over an axis, or over both in turn. */
  allReduceOver(bytes: number, axis: number): number {
    return axis === ALL
      ? this.allReduce(bytes, 0) + this.allReduce(bytes, 1)
      : this.allReduce(bytes, axis);
  }
  size(axis: number): number {
    return axis === ALL ? this.mesh.sizes[0] * this.mesh.sizes[1] : this.mesh.sizes[axis];
  }

  get replicatedParameter(): number {
    return this.mesh.replicated === 'all-reduce'
      ? Math.trunc(this.allReduce(1, 0) + this.allReduce(1, 1))
      : 2;
  }

  /** Number of tiles of a spec. */
  tiles(spec: Spec): number {
    return spec.reduce((n, axis) => n * (axis < 0 ? 1 : this.size(axis)), 1);
  }

  /**
   * All-gathers of what the target does not shard the same way; slicing is free. An axis of one
   * device cuts nothing.
   */
  reshard(shape: readonly number[], from: Spec, to: Spec): number {
    if (this.mesh.compiler === true)
      return this.moves(shape, from, to).reduce((sum, move) => sum + move.cost, 0);
    let sum = 0;
    from.forEach((axis, dim) => {
      if (axis >= 0 && this.mesh.sizes[axis] > 1 && to[dim] !== axis)
        sum += this.allGather(bytesOf(shape), axis);
    });
    return sum;
  }

  /**
   * The compiler pass's steps from one spec to another; one step at infinite cost where it has no
   * way.
   */
  moves(shape: readonly number[], from: Spec, to: Spec): Move[] {
    const bytes = bytesOf(shape);
    const differ = from.map((_, d) => d).filter((d) => from[d] !== to[d]);
    if (differ.length === 0) return [];
    const flat = (spec: Spec): boolean => spec.includes(ALL);
    const cut = (spec: Spec): boolean => spec.some((axis) => axis >= 0);
    if (flat(from) !== flat(to) && cut(from) && cut(to)) return this.mixedMoves(bytes, from, to);
    if (differ.some((d) => from[d] >= 0 && to[d] >= 0)) return [NO_WAY];
    const gathered = differ.filter((d) => from[d] >= 0);
    const sliced = differ.length - gathered.length;
    if (gathered.length === 0) return [];
    if (sliced > 1 && gathered.length > 1) return [NO_WAY];
    if (sliced === 1 && gathered.length === 1) {
      if (this.mesh.sizes[0] > 1 && this.mesh.sizes[1] > 1) return [NO_WAY];
      return [
        {
          kind: 'all-to-all',
          dim: gathered[0],
          axis: from[gathered[0]],
          cost: this.allToAll(bytes, from[gathered[0]]),
        },
      ];
    }
    let part = bytes / this.tiles(from);
    return gathered.map((dim) => {
      const axis = from[dim];
      // The pass takes the one axis of a flattened mesh for axis 0.
      part *= this.mesh.sizes[axis === ALL ? 0 : axis];
      return { kind: 'all-gather', dim, axis, cost: this.allGather(part, axis === ALL ? 0 : axis) };
    });
  }

  /**
   * Between specs on two axes and on all devices as one: a free cut, one all-to-all, or the way
   * back.
   */
  private mixedMoves(bytes: number, from: Spec, to: Spec): Move[] {
    const forth = to.includes(ALL);
    const [grid, line] = forth ? [from, to] : [to, from];
    const part = bytes / this.size(ALL);
    const moves: Move[] = [];
    for (const [dim, axis] of grid.entries()) {
      const flat = line[dim] === ALL;
      if (axis === 1 && !flat)
        moves.push({ kind: 'all-to-all', dim, axis: 1, cost: this.allToAll(part, 1) });
      else if (axis < 0 && flat && !forth)
        moves.push({ kind: 'all-gather', dim, axis: 0, cost: this.allGather(part, 0) });
      else if (axis >= 0 && (axis === 0) !== flat) return [NO_WAY];
    }
    const sliced = grid.some((axis, dim) => axis < 0 && line[dim] === ALL);
    if (moves.length === 0 && !sliced && !forth)
      moves.push({
        kind: 'all-gather',
        dim: line.indexOf(ALL),
        axis: 1,
        cost: this.allGather(part, 1),
      });
    return moves.length > 1 ? [NO_WAY] : moves;
  }

  private trunc(bytes: number, axis: number, share: (n: number) => number): number {
    const { sizes, alpha, beta } = this.mesh;
    return Math.trunc(alpha[axis] + beta[axis] * share(sizes[axis]) * bytes);
  }
}

/**
 * Alpa's communication costs on a mesh of two axes, with the constants that it adds to break ties. Units are those of its
 * alpha and beta; bytes are of the full tensor in float32.
 */

/** Mesh axis that cuts each dim of a tensor, -1 for none. An axis cuts at most one dim. */
export type Spec = readonly number[];

export interface AlpaMesh {
  readonly sizes: readonly [number, number];
  readonly alpha: readonly [number, number];
  readonly beta: readonly [number, number];
  /** Price of an all-gather where the test forces one. */
  readonly allGather?: number;
  /** Price of a parameter that is kept whole: 2, or (end to end) an all-reduce of one byte over every axis. */
  readonly replicated?: 'two' | 'all-reduce';
}

/** One axis of all devices, as data parallelism is forced: the dearer start-up, the faster link. */
export function flattened(mesh: AlpaMesh): AlpaMesh {
  const { sizes, alpha, beta } = mesh;
  const [a, b] = [Math.max(...alpha), Math.min(...beta)];
  return { ...mesh, sizes: [sizes[0] * sizes[1], 1], alpha: [a, a], beta: [b, b] };
}

export function bytesOf(shape: readonly number[]): number {
  return 4 * shape.reduce((a, b) => a * b, 1);
}

export class AlpaCosts {
  constructor(readonly mesh: AlpaMesh) {}

  allGather(bytes: number, axis: number): number {
    return this.mesh.allGather ?? this.trunc(bytes, axis, (n) => (n - 1) / n) + 0.1;
  }
  allReduce(bytes: number, axis: number): number {
    return this.trunc(bytes, axis, (n) => (2 * (n - 1)) / n) + 0.01;
  }

  get replicatedParameter(): number {
    return this.mesh.replicated === 'all-reduce' ? Math.trunc(this.allReduce(1, 0) + this.allReduce(1, 1)) : 2;
  }

  /** Number of tiles of a spec. */
  tiles(spec: Spec): number {
    return spec.reduce((n, axis) => n * (axis < 0 ? 1 : this.mesh.sizes[axis]), 1);
  }

  /** All-gathers of what the target does not shard alike; slicing is free. An axis of one device cuts nothing. */
  reshard(shape: readonly number[], from: Spec, to: Spec): number {
    let sum = 0;
    from.forEach((axis, dim) => {
      if (axis >= 0 && this.mesh.sizes[axis] > 1 && to[dim] !== axis) sum += this.allGather(bytesOf(shape), axis);
    });
    return sum;
  }

  private trunc(bytes: number, axis: number, share: (n: number) => number): number {
    const { sizes, alpha, beta } = this.mesh;
    return Math.trunc(alpha[axis] + beta[axis] * share(sizes[axis]) * bytes);
  }
}

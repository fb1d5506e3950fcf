/** Reductions, scans and sorting as methods of traced tensors. */

import { checkKinds } from '../../arguments.ts';
import type { DType } from '../../graph/types.ts';
import { PointwiseTensor } from './pointwise.ts';

/** Values and the places along the dim that they came from. */
export interface Ranked<T> {
  readonly values: T;
  /** i64. */
  readonly indices: T;
}

/** Reductions, scans and order. Without dims a reduction is over all of them. */
export abstract class ReducedTensor extends PointwiseTensor {
  sum(dims?: number | readonly number[], keepdim = false): this {
    return dims === undefined
      ? this.op('aten.sum.default', [this])
      : this.op(
          'aten.sum.dim_IntList',
          keepdim ? [this, listOf(dims), true] : [this, listOf(dims)],
        );
  }
  mean(dims?: number | readonly number[], keepdim = false): this {
    return dims === undefined
      ? this.op('aten.mean.default', [this])
      : this.op('aten.mean.dim', keepdim ? [this, listOf(dims), true] : [this, listOf(dims)]);
  }
  prod(dim?: number, keepdim = false): this {
    return dim === undefined
      ? this.op('aten.prod.default', [this])
      : this.op('aten.prod.dim_int', [this, dim, keepdim]);
  }
  amax(dims: number | readonly number[] = [], keepdim = false): this {
    return this.op('aten.amax.default', [this, listOf(dims), keepdim]);
  }
  amin(dims: number | readonly number[] = [], keepdim = false): this {
    return this.op('aten.amin.default', [this, listOf(dims), keepdim]);
  }
  /** Largest values along a dim, and their positions. */
  max(dim: number, keepdim = false): Ranked<this> {
    const [values, indices] = this.ops('aten.max.dim', [this, dim, keepdim]);
    return { values, indices };
  }
  /** Smallest values along a dim, and their positions. */
  min(dim: number, keepdim = false): Ranked<this> {
    const [values, indices] = this.ops('aten.min.dim', [this, dim, keepdim]);
    return { values, indices };
  }
  argmax(dim?: number, keepdim = false): this {
    return this.op('aten.argmax.default', dim === undefined ? [this] : [this, dim, keepdim]);
  }
  argmin(dim?: number, keepdim = false): this {
    return this.op('aten.argmin.default', dim === undefined ? [this] : [this, dim, keepdim]);
  }
  any(dim?: number, keepdim = false): this {
    return dim === undefined
      ? this.op('aten.any.default', [this])
      : this.op('aten.any.dim', [this, dim, keepdim]);
  }
  all(dim?: number, keepdim = false): this {
    return dim === undefined
      ? this.op('aten.all.default', [this])
      : this.op('aten.all.dim', [this, dim, keepdim]);
  }
  /** The variance; it divides by n - `correction`, which is 1 by default, as PyTorch does. */
  var(
    dims?: number | readonly number[],
    options: { correction?: number; keepdim?: boolean } = {},
  ): this {
    return this.op(
      'aten.var.correction',
      dims === undefined ? [this] : [this, listOf(dims)],
      spread(options),
    );
  }
  std(
    dims?: number | readonly number[],
    options: { correction?: number; keepdim?: boolean } = {},
  ): this {
    return this.op(
      'aten.std.correction',
      dims === undefined ? [this] : [this, listOf(dims)],
      spread(options),
    );
  }
  logsumexp(dims: number | readonly number[], keepdim = false): this {
    return this.op('aten.logsumexp.default', [this, listOf(dims), keepdim]);
  }
  norm(order = 2, dims?: number | readonly number[], keepdim = false): this {
    const args = dims === undefined ? [this, order] : [this, order, listOf(dims), keepdim];
    return this.op('aten.linalg_vector_norm.default', args);
  }

  softmax(dim: number, dtype?: DType): this {
    return this.op(
      'aten.softmax.int',
      dtype === undefined ? [this, dim] : [this, dim, { kind: 'dtype', dtype }],
    );
  }
  logSoftmax(dim: number, dtype?: DType): this {
    return this.op(
      'aten.log_softmax.int',
      dtype === undefined ? [this, dim] : [this, dim, { kind: 'dtype', dtype }],
    );
  }

  cumsum(dim: number): this {
    return this.op('aten.cumsum.default', [this, dim]);
  }
  cumprod(dim: number): this {
    return this.op('aten.cumprod.default', [this, dim]);
  }
  sort(dim = -1, descending = false): Ranked<this> {
    const [values, indices] = this.ops('aten.sort.default', [this, dim, descending]);
    return { values, indices };
  }
  argsort(dim = -1, descending = false): this {
    return this.op('aten.argsort.default', [this, dim, descending]);
  }
  /** The `k` largest (or smallest) values along a dim, and their positions. */
  topk(k: number, dim = -1, largest = true): Ranked<this> {
    const [values, indices] = this.ops(
      'aten.topk.default',
      largest ? [this, k, dim] : [this, k, dim, false],
    );
    return { values, indices };
  }
}

export function listOf(dims: number | readonly number[]): readonly number[] {
  checkKinds('a call by dims', { dims: [dims, 'number', 'list'] });
  return typeof dims === 'number' ? [dims] : [...dims];
}

function spread({
  correction = 1,
  keepdim = false,
}: {
  correction?: number;
  keepdim?: boolean;
}): Record<string, number | boolean> {
  return keepdim ? { correction, keepdim } : { correction };
}

/**
 * Writes planned redistributions as nodes of the per-device program: the collectives that were
 * priced.
 */
import {
  isFree,
  type RedistributionPlan,
  type RedistributionStep,
} from '../cost/redistribution/plan.ts';
import { internalError } from '../errors.ts';
import { ref } from '../graph/value.ts';
import { Partial } from '../mesh/placements/partials/partial.ts';
import type { ReduceOp } from '../mesh/placements/placement.ts';
import { StridedShard } from '../mesh/placements/shards/strided.ts';
import type { Sharding } from '../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import { groupOf } from './program/collectives.ts';
import type { Emitter } from './program/emitter.ts';
import { type DimOrder, inRowMajor } from './program/memory-orders.ts';
import { coordinate, type Pieces } from './program/pieces.ts';
import type { Redistributed } from './program/program.ts';
import { combine, minus, type RankInt, rankInt, sameInt, times } from './program/rank-int.ts';

/** The steps that take a value from one sharding to another; undefined where there are none. */
export type Route = (value: number, from: number, to: number) => RedistributionPlan | undefined;

/**
 * Writes a redistribution plan as nodes of the per-device program: the steps that were priced, no
 * others, and of even pieces the copies that were priced, no others. Collectives work on dim 0, so
 * along another dim the pieces of the members are laid one after the other before, or put into
 * place after: one copy each, and none where pieces are one run in memory. Every step leaves its
 * value in the memory order that it has in the captured program, because kernels read strides.
 *
 * A cut into ceil chunks fills every piece but the last ones; pieces are padded with zeros to the
 * full chunk before a collective, which puts all padding at the end of the dim, where one slice
 * takes it off.
 */
export class RedistributionWriter {
  /** Steps that were written so far. */
  readonly moves: Redistributed[] = [];

  constructor(
    private readonly emit: Emitter,
    private readonly space: ShardingSpace,
    private readonly pieces: Pieces,
  ) {}

  /**
   * Name of the local value after the plan, in the memory order of the value before it.
   *
   * @param shape global
   * @param order memory order of the value; default row-major
   */
  write(
    plan: RedistributionPlan,
    value: string,
    shape: readonly number[],
    order: DimOrder = shape.map((_, d) => d),
  ): string {
    let now = value;
    let from = plan.from;
    for (const step of plan.steps) {
      now = this.step(step, from, now, shape, order);
      from = step.to;
      if (!isFree(step)) this.moves.push({ kind: step.kind, local: now });
    }
    return now;
  }

  private step(
    step: RedistributionStep,
    from: number,
    value: string,
    shape: readonly number[],
    order: DimOrder,
  ): string {
    const before = this.space.get(from);
    const after = this.space.get(step.to);
    switch (step.kind) {
      case 'relabel':
        return value;
      case 'to_partial':
        return this.operand(step, after, value);
      case 'slice':
        return this.cut(step, from, value, shape, order);
      case 'all_reduce':
        return step.groupSize === 1
          ? value
          : inRowMajor(this.emit, value, order, (rows) =>
              this.reduce(step, before, (op) =>
                this.emit.collective('all_reduce', rows, step.meshDims, [op]),
              ),
            );
      case 'reduce_scatter':
        return step.groupSize === 1
          ? value
          : inRowMajor(this.emit, value, order, (rows) =>
              this.reduceScatter(step, before, rows, this.rowsAfter(step, shape, order)),
            );
      case 'all_gather': {
        const { dim, rows } = this.rowsAfter(step, shape, order, before);
        return step.groupSize === 1
          ? value
          : inRowMajor(this.emit, value, order, (pieces) =>
              this.allGather(step, pieces, { dim, rows, chunks: chunksOf(before, step) }),
            );
      }
      case 'all_to_all':
        return step.groupSize === 1
          ? value
          : inRowMajor(this.emit, value, order, (rows) =>
              this.allToAll(
                step,
                rows,
                this.rowsAfter(step, shape, order, before),
                this.rowsAfter(step, shape, order),
              ),
            );
      case 'collective_permute':
        return inRowMajor(this.emit, value, order, (rows) =>
          this.emit.collective('collective_permute', rows, step.meshDims, [this.targets(step)]),
        );
    }
  }

  /** The own piece of a value that each device of a group has. */
  private cut(
    step: RedistributionStep,
    from: number,
    value: string,
    shape: readonly number[],
    order: DimOrder,
  ): string {
    const after = this.space.get(step.to);
    const dim = cutDim(after, step);
    if (hasStrides(this.space.get(from), dim) || hasStrides(after, dim))
      return inRowMajor(this.emit, value, order, (rows) =>
        this.sliceEvenly(step, after, rows, order.indexOf(dim)),
      );
    const old = this.pieces.of(from, dim, shape[dim]);
    const next = this.pieces.of(step.to, dim, shape[dim]);
    const part = this.slice(value, dim, minus(next.start, old.start), next.rows);
    return step.bytes === 0 || step.groupSize === 1
      ? part
      : inRowMajor(this.emit, part, order, (own) => this.contiguous(own));
  }

  /**
   * Place in memory of the dim that a step cuts or puts together, and its rows after the step.
   *
   * @param spec the sharding that cuts the dim; default the one after the step
   */
  private rowsAfter(
    step: RedistributionStep,
    shape: readonly number[],
    order: DimOrder,
    spec = this.space.get(step.to),
  ): DimRows {
    const dim = cutDim(spec, step);
    const { rows } = this.pieces.of(step.to, dim, shape[dim]);
    return { dim: order.indexOf(dim), rows };
  }

  /**
   * The own piece of a dim that all ranks hold equally much of: of every chunk that the cut strides
   * over.
   */
  private sliceEvenly(
    step: RedistributionStep,
    after: Sharding,
    value: string,
    dim: number,
  ): string {
    const [m] = step.meshDims;
    const { shape } = this.emit.type(value);
    const n = this.space.mesh.sizes[m];
    const chunks = chunksOf(after, step);
    const rows = combine(
      [shape[dim]],
      `rows of a piece of ${chunks * n}`,
      (size) => size / (chunks * n),
    );
    const coordinates = this.space.mesh.devices.map((_, rank) => coordinate(this.space, rank, m));
    const own = rankInt(coordinates, `coordinate(${this.space.mesh.names[m]})`);
    const start = combine([rows, own], `start(${this.space.mesh.names[m]})`, (size, c) => size * c);
    if (chunks === 1) {
      const part = this.slice(value, dim, start, rows);
      return step.bytes === 0 || n === 1 ? part : this.contiguous(part);
    }
    const split = [...shape.slice(0, dim), chunks, times(rows, n), ...shape.slice(dim + 1)];
    const parts = this.emit.call('aten.reshape.default', [ref(value), this.emit.ints(split)]);
    const piece = this.slice(parts, dim + 1, start, rows);
    const joined = [...shape.slice(0, dim), times(rows, chunks), ...shape.slice(dim + 1)];
    return this.emit.call('aten.reshape.default', [ref(piece), this.emit.ints(joined)]);
  }

  /** The piece of every member, put together along a dim. */
  private allGather(
    step: RedistributionStep,
    value: string,
    { dim, rows, chunks }: DimRows & { readonly chunks: number },
  ): string {
    const n = step.groupSize;
    const gather = (piece: string): string =>
      this.emit.collective('all_gather', piece, step.meshDims, [n]);
    const full = chunk(rows, n);
    const { shape } = this.emit.type(value);
    if (sameInt(shape[dim], full)) return this.joined(gather(value), dim, n, shape, chunks);
    // The padding is behind the last rows: it is cut off where these are in front.
    const front = this.padded(this.toFront(value, dim), 0, full);
    const whole = this.toFront(this.cutTo(gather(front), 0, rows), dim);
    return dim === 0 ? whole : this.rowMajor(whole);
  }

  /**
   * The pieces that `n` members sent, one after the other in dim 0, put together along a dim.
   *
   * @param shape of what one member sent
   * @param chunks of the dim, of which each member has a piece
   */
  private joined(
    value: string,
    dim: number,
    n: number,
    shape: readonly RankInt[],
    chunks = 1,
  ): string {
    if (dim === 0 && chunks === 1) return value;
    const rows = combine([shape[dim]], `rows of a piece of ${chunks}`, (size) => size / chunks);
    const pieces =
      chunks === 1 ? shape : [...shape.slice(0, dim), chunks, rows, ...shape.slice(dim + 1)];
    const split = this.view(value, [n, ...pieces]);
    // Members go right before the rows that they have one after the other.
    const at = pieces.length - (shape.length - dim);
    const dims = pieces.map((_, d) => d + 1);
    const turned = this.permuted(split, [...dims.slice(0, at), 0, ...dims.slice(at)]);
    const whole = [...shape.slice(0, dim), times(shape[dim], n), ...shape.slice(dim + 1)];
    return this.view(this.rowMajor(turned), whole);
  }

  /** The n chunks of a dim one after the other in dim 0, for the n members. */
  private apart(value: string, dim: number, n: number): string {
    if (dim === 0) return value;
    const { shape } = this.emit.type(value);
    const rows = chunk(shape[dim], n);
    const split = this.view(value, [...shape.slice(0, dim), n, rows, ...shape.slice(dim + 1)]);
    const others = shape.map((_, d) => (d < dim ? d : d + 1));
    const turned = this.rowMajor(this.permuted(split, [dim, ...others]));
    const [first, ...rest] = [...shape.slice(0, dim), rows, ...shape.slice(dim + 1)];
    return this.view(turned, [times(first, n), ...rest]);
  }

  /**
   * R to a pending reduction: of a sum the first rank of the mesh dim keeps the value and the
   * others have zeros.
   */
  private operand(step: RedistributionStep, after: Sharding, value: string): string {
    const [m] = step.meshDims;
    const p = after.placements[m];
    if (this.space.mesh.sizes[m] === 1) return value;
    if (!(p instanceof Partial)) throw internalError(`to_partial to ${p.text}`);
    if (p.op !== 'sum') return value;
    const others = rankInt(
      this.space.mesh.devices.map((_, rank) => (coordinate(this.space, rank, m) === 0 ? 0 : 1)),
      `not(first, ${this.space.mesh.names[m]})`,
    );
    const mask = this.emit.once(`others ${m}`, 'aten.full.default', [[], this.emit.int(others)], {
      kwargs: { dtype: { kind: 'dtype', dtype: 'b8' } },
    });
    return this.emit.call('aten.masked_fill.Scalar', [ref(value), ref(mask), 0]);
  }

  /**
   * A reduction of one kind; sums and averages together are one average, scaled to what the sum
   * dims want.
   */
  private reduce(
    step: RedistributionStep,
    before: Sharding,
    run: (op: ReduceOp) => string,
  ): string {
    const kinds = step.meshDims.map((m) => before.placements[m]);
    const ops = kinds.map((p) => (p instanceof Partial ? p.op : undefined));
    const [first] = ops;
    if (first === undefined) throw internalError(`${kinds[0].text} is not lowered`);
    if (ops.every((op) => op === first)) return run(first);
    const summed = this.space.mesh.sizeOf(step.meshDims.filter((_, i) => ops[i] === 'sum'));
    return this.emit.call('aten.mul.Scalar', [ref(run('avg')), summed]);
  }

  private reduceScatter(
    step: RedistributionStep,
    before: Sharding,
    value: string,
    { dim, rows }: DimRows,
  ): string {
    const n = step.groupSize;
    const whole = this.emit.type(value).shape[dim];
    const full = this.padded(value, dim, times(chunk(whole, n), n));
    const scattered = this.reduce(step, before, (op) =>
      this.emit.collective('reduce_scatter', this.apart(full, dim, n), step.meshDims, [op, n]),
    );
    return this.withoutPadding(scattered, [{ dim, rows }]);
  }

  /**
   * A cut of dim a becomes one of dim b: the n chunks of b go to the n members; what comes back is,
   * member by member, its rows of a for the own chunk of b.
   */
  private allToAll(step: RedistributionStep, value: string, a: DimRows, b: DimRows): string {
    const n = step.groupSize;
    const whole = this.emit.type(value).shape[b.dim];
    const ofB = chunk(whole, n);
    const full = this.padded(this.padded(value, a.dim, chunk(a.rows, n)), b.dim, times(ofB, n));
    const sent = this.emit.type(full).shape.map((size, d) => (d === b.dim ? ofB : size));
    const splits = this.emit.ints(Array<RankInt>(n).fill(sent[0]));
    const received = this.emit.collective('all_to_all', this.apart(full, b.dim, n), step.meshDims, [
      splits,
      splits,
    ]);
    return this.withoutPadding(this.joined(received, a.dim, n, sent), [a, b]);
  }

  /** The first rows of some dims, row by row. */
  private withoutPadding(value: string, dims: readonly DimRows[]): string {
    const own = dims.reduce((now, { dim, rows }) => this.cutTo(now, dim, rows), value);
    const isRun = own === value || dims.every(({ dim }) => dim === 0);
    return isRun ? own : this.rowMajor(own);
  }

  /** For each member of a group the member that it sends to; the same in every group. */
  private targets(step: RedistributionStep): number[] {
    const { mesh } = this.space;
    const sendsTo = new Map(step.pairs ?? []);
    let found: number[] | undefined;
    for (let rank = 0; rank < mesh.size; rank++) {
      const group = groupOf(mesh, step.meshDims, rank);
      const targets = group.map((member) => group.indexOf(sendsTo.get(member) ?? -1));
      if (targets.includes(-1)) throw internalError('a permutation leaves its group');
      if (found !== undefined && found.join() !== targets.join())
        throw internalError('a permutation differs between its groups');
      found = targets;
    }
    return found ?? [];
  }

  /**
   * A tensor of its own: the copy that is priced where pieces are not a run in memory, which lets
   * go of the whole.
   */
  private contiguous(value: string): string {
    return this.emit.call('aten.clone.default', [ref(value)], {
      kwargs: { memory_format: { kind: 'layout', word: 'contiguous_format' } },
    });
  }

  /** The value row by row: a copy where it does not lie so. */
  private rowMajor(value: string): string {
    return this.emit.call('aten.contiguous.default', [ref(value)]);
  }

  private view(value: string, shape: readonly RankInt[]): string {
    return this.emit.call('aten.view.default', [ref(value), this.emit.ints(shape)]);
  }

  private permuted(value: string, dims: readonly number[]): string {
    return this.emit.call('aten.permute.default', [ref(value), [...dims]]);
  }

  /** Changes a dim with dim 0. */
  private toFront(value: string, dim: number): string {
    return dim === 0 ? value : this.emit.call('aten.transpose.int', [ref(value), 0, dim]);
  }

  /** Zeros added at the end of a dim. */
  private padded(value: string, dim: number, size: RankInt): string {
    const { shape } = this.emit.type(value);
    if (sameInt(shape[dim], size)) return value;
    const pad: RankInt[] = new Array<RankInt>(2 * (shape.length - dim)).fill(0);
    pad[2 * (shape.length - 1 - dim) + 1] = minus(size, shape[dim]);
    return this.emit.call('aten.constant_pad_nd.default', [ref(value), this.emit.ints(pad), 0]);
  }

  /** The first rows of a dim. */
  private cutTo(value: string, dim: number, rows: RankInt): string {
    return sameInt(this.emit.type(value).shape[dim], rows)
      ? value
      : this.slice(value, dim, 0, rows);
  }

  private slice(value: string, dim: number, start: RankInt, rows: RankInt): string {
    const end = combine([start, rows], 'end of a slice', (s, r) => s + r);
    return this.emit.call('aten.slice.Tensor', [
      ref(value),
      dim,
      this.emit.int(start),
      this.emit.int(end),
    ]);
  }
}

/** A dim, counted from the slowest in memory, and its rows after a step. */
interface DimRows {
  readonly dim: number;
  readonly rows: RankInt;
}

/** Rows of a full chunk. */
function chunk(rows: RankInt, n: number): RankInt {
  return combine([rows], `chunk of ${n}`, (r) => Math.ceil(r / n));
}

/** Chunks of which the cut of a step takes a piece each: 1 of a plain shard. */
function chunksOf(spec: Sharding, step: RedistributionStep): number {
  const cut = spec.placements[step.meshDims[0]];
  return cut instanceof StridedShard ? cut.factor : 1;
}

function hasStrides(spec: Sharding, dim: number): boolean {
  return spec.placements.some((p) => p instanceof StridedShard && p.dim === dim);
}

/** Tensor dim that the mesh dims of a step cut. */
function cutDim(spec: Sharding, step: RedistributionStep): number {
  const { dim } = spec.placements[step.meshDims[0]];
  if (dim === undefined)
    throw internalError(`${step.kind} over mesh dims that cut nothing in ${spec.text}`);
  return dim;
}

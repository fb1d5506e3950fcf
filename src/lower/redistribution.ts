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
 * others. Collectives work on dim 0, so a dim is brought to the front before and taken back after.
 * A cut into ceil chunks fills every piece but the last ones; pieces are padded with zeros to the
 * full chunk before a collective, which puts all padding at the end of the dim, where one slice
 * takes it off. What collectives turn is copied at the end into the memory order that the value has
 * in the captured program: kernels read strides.
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
    let turned = false;
    for (const step of plan.steps) {
      now = this.step(step, from, now, shape, order);
      turned ||= this.turns(step, from, now, order);
      from = step.to;
      if (!isFree(step)) this.moves.push({ kind: step.kind, local: now });
    }
    if (!turned) return now;
    const restored = inRowMajor(this.emit, now, order, (rows) => this.rowMajor(rows));
    const last = this.moves.at(-1);
    if (last?.local === now) this.moves[this.moves.length - 1] = { ...last, local: restored };
    return restored;
  }

  /** Tells whether a step leaves its result in another memory order than that of its value. */
  private turns(step: RedistributionStep, from: number, result: string, order: DimOrder): boolean {
    if (isFree(step)) return false;
    // Dims of one element count too: the program at reduced sizes has the same calls.
    const rows = this.emit.type(result).shape.map((_, d) => d);
    const cut = this.space.get(step.kind === 'all_gather' ? from : step.to);
    const isIn = (made: DimOrder): boolean => made.join() === order.join();
    switch (step.kind) {
      case 'all_gather':
      case 'reduce_scatter': {
        // The dim that is cut changed places with dim 0.
        const dim = cutDim(cut, step);
        [rows[0], rows[dim]] = [dim, 0];
        return !isIn(rows);
      }
      case 'slice':
        return chunksOf(cut, step) > 1 && !isIn(rows);
      case 'all_to_all':
        return !isIn(rows);
      default:
        return false;
    }
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
      case 'slice': {
        const dim = cutDim(after, step);
        if (hasStrides(before, dim) || hasStrides(after, dim))
          return this.sliceEvenly(step, after, value, dim, order);
        const [old, next] = [
          this.pieces.of(from, dim, shape[dim]),
          this.pieces.of(step.to, dim, shape[dim]),
        ];
        const part = this.slice(value, dim, minus(next.start, old.start), next.rows);
        return step.bytes === 0 || step.groupSize === 1 ? part : this.copied(part, order);
      }
      case 'all_reduce':
        return step.groupSize === 1
          ? value
          : inRowMajor(this.emit, value, order, (rows) =>
              this.reduce(step, before, (op) =>
                this.emit.collective('all_reduce', rows, step.meshDims, [op]),
              ),
            );
      case 'reduce_scatter':
        return this.reduceScatter(step, before, after, value, shape);
      case 'all_gather': {
        const dim = cutDim(before, step);
        if (step.groupSize === 1) return value;
        const rows = this.pieces.of(step.to, dim, shape[dim]).rows;
        const front = this.toFront(this.padded(value, dim, chunk(rows, step.groupSize)), dim);
        const gathered = this.emit.collective('all_gather', front, step.meshDims, [step.groupSize]);
        return this.cutTo(
          this.toFront(this.interleaved(gathered, chunksOf(before, step), step.groupSize), dim),
          dim,
          rows,
        );
      }
      case 'all_to_all':
        return this.allToAll(step, from, value, shape);
      case 'collective_permute':
        return inRowMajor(this.emit, value, order, (rows) =>
          this.emit.collective('collective_permute', rows, step.meshDims, [this.targets(step)]),
        );
    }
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
    order: DimOrder,
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
      return step.bytes === 0 || n === 1 ? part : this.copied(part, order);
    }
    const split = [...shape.slice(0, dim), chunks, times(rows, n), ...shape.slice(dim + 1)];
    const parts = this.emit.call('aten.reshape.default', [ref(value), this.emit.ints(split)]);
    const piece = this.slice(parts, dim + 1, start, rows);
    const joined = [...shape.slice(0, dim), times(rows, chunks), ...shape.slice(dim + 1)];
    return this.emit.call('aten.reshape.default', [ref(piece), this.emit.ints(joined)]);
  }

  /**
   * Dim 0 holds what each of `n` members has of every chunk, member by member: chunk by chunk
   * instead.
   */
  private interleaved(value: string, chunks: number, n: number): string {
    if (chunks === 1) return value;
    const { shape } = this.emit.type(value);
    const rows = combine(
      [shape[0]],
      `rows of a piece of ${chunks * n}`,
      (size) => size / (chunks * n),
    );
    const rest = shape.slice(1);
    const split = this.emit.call('aten.view.default', [
      ref(value),
      this.emit.ints([n, chunks, rows, ...rest]),
    ]);
    const order = [1, 0, 2, ...rest.map((_, d) => d + 3)];
    const turned = this.emit.call('aten.permute.default', [ref(split), order]);
    return this.emit.call('aten.reshape.default', [ref(turned), this.emit.ints(shape)]);
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
    after: Sharding,
    value: string,
    shape: readonly number[],
  ): string {
    const dim = cutDim(after, step);
    if (step.groupSize === 1) return value;
    const { rows } = this.pieces.of(step.to, dim, shape[dim]);
    const whole = this.emit.type(value).shape[dim];
    const full = times(chunk(whole, step.groupSize), step.groupSize);
    const front = this.toFront(this.padded(value, dim, full), dim);
    const scattered = this.reduce(step, before, (op) =>
      this.emit.collective('reduce_scatter', front, step.meshDims, [op, step.groupSize]),
    );
    return this.cutTo(this.toFront(scattered, dim), dim, rows);
  }

  /**
   * A cut of dim a becomes one of dim b. With b in front, its n chunks go to the n members; what
   * comes back is, chunk by chunk, the rows of a of each member for the own chunk of b.
   */
  private allToAll(
    step: RedistributionStep,
    from: number,
    value: string,
    shape: readonly number[],
  ): string {
    const n = step.groupSize;
    const a = cutDim(this.space.get(from), step);
    const b = cutDim(this.space.get(step.to), step);
    if (n === 1) return value;
    const rowsA = this.pieces.of(step.to, a, shape[a]).rows;
    const rowsB = this.pieces.of(step.to, b, shape[b]).rows;
    const [chunkA, chunkB] = [chunk(rowsA, n), chunk(this.emit.type(value).shape[b], n)];
    const padded = this.padded(this.padded(value, a, chunkA), b, times(chunkB, n));
    const rank = shape.length;
    const dims = Array.from({ length: rank }, (_, d) => d);
    const order = [b, ...dims.filter((d) => d !== b)];
    const front = b === 0 ? padded : this.emit.call('aten.permute.default', [ref(padded), order]);
    const splits = this.emit.ints(Array<RankInt>(n).fill(chunkB));
    const received = this.emit.collective('all_to_all', front, step.meshDims, [splits, splits]);
    // [n * chunkB, .. chunkA ..] as [n, chunkB, .. chunkA ..]; then n goes before a, and the two
    // are one dim.
    const sizes = this.emit.type(received).shape;
    const split = this.emit.call('aten.view.default', [
      ref(received),
      this.emit.ints([n, chunkB, ...sizes.slice(1)]),
    ]);
    const place = (d: number): number => 1 + order.indexOf(d);
    const back = dims.flatMap((d) => (d === a ? [0, place(d)] : [place(d)]));
    const moved = this.rowMajor(this.emit.call('aten.permute.default', [ref(split), back]));
    const local = this.emit.type(value).shape;
    const joined = dims.map((d) => (d === a ? times(chunkA, n) : d === b ? chunkB : local[d]));
    const whole = this.emit.call('aten.reshape.default', [ref(moved), this.emit.ints(joined)]);
    return this.cutTo(this.cutTo(whole, a, rowsA), b, rowsB);
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

  /** A tensor of its own whose dims lie in this order. */
  private copied(value: string, order: DimOrder): string {
    return inRowMajor(this.emit, value, order, (rows) => this.contiguous(rows));
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

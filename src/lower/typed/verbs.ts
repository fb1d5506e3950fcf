/**
 * Writes the verbs of typed per-device code as nodes of the per-device program: the collective of
 * the verb, a slice, zeros, or nothing. The nodes are those that redistributions write
 * (`../redistribution.ts`): a stack of V pieces is a cut of a new dim 0.
 */
import type { RedistributionStep } from '../../cost/redistribution/plan.ts';
import { leads } from '../../cost/redistribution/pricing.ts';
import { internalError } from '../../errors.ts';
import { DTYPE_BYTES } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { type AxisType, cutOf, placementOf } from '../../mesh/local-types/types.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Sharding } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { product } from '../../product.ts';
import type { Emitter } from '../program/emitter.ts';
import type { DimOrder } from '../program/memory-orders.ts';
import { coordinate, type Pieces } from '../program/pieces.ts';
import { combine, type RankInt, rankInt } from '../program/rank-int.ts';
import type { RedistributionWriter } from '../redistribution.ts';

/** A value of the program, whole. */
interface WholeValue {
  /** Global sizes. */
  readonly shape: readonly number[];
  /** Its memory order, where a piece that is cut out of it is to be a tensor of its own. */
  readonly order?: DimOrder;
}

export class VerbWriter {
  constructor(
    private readonly emit: Emitter,
    private readonly space: ShardingSpace,
    private readonly pieces: Pieces,
    private readonly writer: RedistributionWriter,
  ) {}

  /** A verb of per-device code. */
  write(op: string, value: string, m: number, src: AxisType, dst: AxisType): string {
    if (op === 'reinterpret') return value;
    if (op === 'all_to_all' && src === 'V') return this.exchange(value, m);
    const stackIn = src === 'V';
    const stackOut = dst === 'V';
    const before = stackIn ? this.emit.call('aten.unsqueeze.default', [ref(value), 0]) : value;
    const from: AxisType = stackIn ? 'S(0)' : src;
    const to: AxisType = stackOut ? 'S(0)' : dst;
    const after = this.move(before, [m], from, to);
    return stackOut ? this.emit.call('aten.squeeze.dim', [ref(after), 0]) : after;
  }

  /** Sends a value along a mesh dim. */
  permute(value: string, m: number, targets: readonly number[]): string {
    return this.space.mesh.sizes[m] === 1
      ? value
      : this.emit.collective('collective_permute', value, [m], [[...targets]]);
  }

  /** The own coordinate on a mesh dim. */
  index(m: number): string {
    const own = this.coordinates(m);
    return this.emit.once(`index ${m}`, 'aten.full.default', [[], this.emit.int(own)], {
      kwargs: { dtype: { kind: 'dtype', dtype: 'i64' } },
      name: `index_${this.space.mesh.names[m]}`,
    });
  }

  /**
   * A local value from one type to another on some mesh dims, the whole value being what it is.
   *
   * @param base placements on the other mesh dims; default none
   * @param whole the value that the program redistributes; default what the local value makes with
   *   the first mesh dim alone, of which a slice is a view
   */
  move(
    value: string,
    among: readonly number[],
    src: AxisType,
    dst: AxisType,
    base?: Sharding,
    whole?: WholeValue,
  ): string {
    const { mesh } = this.space;
    const meshDims = among.filter((m) => mesh.sizes[m] > 1);
    const [from, to] = [this.id(meshDims, src, base), this.id(meshDims, dst, base)];
    const [first] = meshDims;
    if (from === to || first === undefined) return value;
    const { shape, order } = whole ?? { shape: this.wholeShape(value, first, src) };
    const cut = cutOf(src);
    if (cut !== undefined && dst === 'P') return this.padded(value, first, cut);
    const kind = stepKind(src, dst);
    // Addends are made on one mesh dim at a time, as a plan makes them.
    if (kind === 'to_partial' && meshDims.length > 1) {
      const rest = this.move(value, meshDims.slice(1), src, dst, base, whole);
      return this.move(
        rest,
        [first],
        src,
        dst,
        this.space.get(this.id(meshDims.slice(1), dst, base)),
        whole,
      );
    }
    const groupSize = mesh.sizeOf(meshDims);
    const { dtype } = this.emit.type(value);
    // A piece that is no run in memory is copied, as a plan prices it.
    const isView = order === undefined || leads({ shape, order }, cutOf(dst) ?? 0);
    const bytes =
      kind === 'slice' && !isView ? (product(shape) / groupSize) * DTYPE_BYTES[dtype] : 0;
    const step: RedistributionStep = { kind, meshDims, groupSize, bytes, seconds: 0, to };
    return this.writer.write(
      { from, to, seconds: 0, steps: [step], collectives: 0, peakBytes: 0, text: '' },
      value,
      shape,
      order,
    );
  }

  /** Rows of dim 0 to the members of the group, one each. */
  private exchange(value: string, m: number): string {
    const n = this.space.mesh.sizes[m];
    if (n === 1) return value;
    const splits = this.emit.ints(new Array<RankInt>(n).fill(1));
    return this.emit.collective('all_to_all', value, [m], [splits, splits]);
  }

  /** The own piece with zeros in the place of the others'. */
  private padded(value: string, m: number, dim: number): string {
    const { shape } = this.emit.type(value);
    const n = this.space.mesh.sizes[m];
    const own = this.coordinates(m);
    const before = combine(
      [shape[dim], own],
      `start(${this.space.mesh.names[m]})`,
      (rows, c) => rows * c,
    );
    const after = combine(
      [shape[dim], own],
      `rest(${this.space.mesh.names[m]})`,
      (rows, c) => rows * (n - 1 - c),
    );
    const pad: RankInt[] = new Array<RankInt>(2 * (shape.length - dim)).fill(0);
    pad[2 * (shape.length - 1 - dim)] = before;
    pad[2 * (shape.length - 1 - dim) + 1] = after;
    return this.emit.call('aten.constant_pad_nd.default', [ref(value), this.emit.ints(pad), 0]);
  }

  private coordinates(m: number): RankInt {
    const own = this.space.mesh.devices.map((_, rank) => coordinate(this.space, rank, m));
    return rankInt(own, `coordinate(${this.space.mesh.names[m]})`);
  }

  private id(meshDims: readonly number[], type: AxisType, base: Sharding | undefined): number {
    const own = placementOf(type);
    const placements = this.space.mesh.names.map((_, i) =>
      meshDims.includes(i) ? own : (base?.placements[i] ?? REPLICATE),
    );
    return this.space.intern(new Sharding(placements));
  }

  private wholeShape(value: string, m: number, src: AxisType): number[] {
    const n = this.space.mesh.sizes[m];
    return this.emit.type(value).shape.map((size, d) => {
      if (typeof size !== 'number') throw internalError(`${value} has pieces of several sizes`);
      return cutOf(src) === d ? size * n : size;
    });
  }

  /** Local shape of a whole value. */
  shape(sharding: number, shape: readonly number[]): RankInt[] {
    return this.pieces.shape(sharding, shape);
  }
}

function stepKind(src: AxisType, dst: AxisType): RedistributionStep['kind'] {
  const [from, to] = [cutOf(src), cutOf(dst)];
  if (from !== undefined && to !== undefined) return 'all_to_all';
  if (from !== undefined) return 'all_gather';
  if (src === 'P') return to === undefined ? 'all_reduce' : 'reduce_scatter';
  return dst === 'P' ? 'to_partial' : 'slice';
}

/**
 * Prices the redistributions of a planning problem: takes a tensor type and two shardings, gives
 * the cost that a preset adds to the objective.
 */

import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { product } from '../../product.ts';
import { quantizedSeconds } from './paths.ts';
import { type MovedType, movedType, type MovedValue } from './pricing.ts';
import type { Redistributor } from './redistribute.ts';

/** A tensor as redistributions of it are charged. */
export interface ChargedType extends MovedType {
  /** Present where a formula asks and the whole tensor does not lie row by row in memory. */
  readonly contiguous?: false;
}

/** A tensor of a program, as far as moving it costs. */
interface Moved extends MovedValue {
  readonly contiguous: boolean;
}

/**
 * Charges redistributions to the objective. Under most presets a redistribution is charged the
 * price of its steps, so charges and the `Redistributor` agree. A preset that copies another
 * planner literally charges by that planner's formula (`CollectiveModel.redistributionSeconds`),
 * whatever steps then run; placements that the other planner does not have are charged as they run,
 * and a redistribution that cannot run is refused under every preset.
 */
export class RedistributionCharges {
  /** By bytes and layout of the tensor, then by the pair of shardings. */
  private readonly known = new Map<string, Map<number, number>>();
  /** By sharding: whether it is S, R and P only, in mesh order. */
  private readonly plain: (boolean | undefined)[] = [];

  constructor(
    /** Finds the steps that run. */
    readonly redistributor: Redistributor,
  ) {}

  /** Tells whether some redistribution is charged by a formula and not by its steps. */
  get byFormula(): boolean {
    return this.redistributor.model.redistributionSeconds !== undefined;
  }

  /** The tensor as its redistributions are charged. */
  typeOf(value: Moved): ChargedType {
    const type = movedType(value);
    return this.byFormula && !value.contiguous ? { ...type, contiguous: false } : type;
  }

  /** Seconds of one redistribution; Infinity when it is refused. */
  seconds(type: ChargedType, from: number, to: number): number {
    return this.charge(type, from, to, this.redistributor.seconds(type, from, to));
  }

  /** Seconds from each source to each target, row by source. */
  matrix(type: ChargedType, fromIds: ArrayLike<number>, toIds: ArrayLike<number>): Float64Array {
    const out = this.redistributor.matrix(type, fromIds, toIds);
    if (!this.byFormula) return out;
    for (let i = 0; i < fromIds.length; i++)
      for (let j = 0; j < toIds.length; j++) {
        const at = i * toIds.length + j;
        out[at] = this.charge(type, fromIds[i], toIds[j], out[at]);
      }
    return out;
  }

  /** @param run seconds of the steps that run */
  private charge(type: ChargedType, from: number, to: number, run: number): number {
    const { space, model } = this.redistributor;
    if (model.redistributionSeconds === undefined || from === to || run === Infinity) return run;
    if (!this.isPlain(space, from) || !this.isPlain(space, to)) return run;
    const bytes = type.itemBytes * product(type.shape);
    const contiguous = type.contiguous ?? true;
    const key = `${bytes}${contiguous ? '' : 'n'}`;
    let pairs = this.known.get(key);
    if (pairs === undefined) this.known.set(key, (pairs = new Map<number, number>()));
    const pair = from * 2 ** 24 + to;
    let seconds = pairs.get(pair);
    if (seconds === undefined) {
      seconds = quantizedSeconds(
        model.redistributionSeconds(space.get(from), space.get(to), { bytes, contiguous }),
      );
      pairs.set(pair, seconds);
    }
    return seconds;
  }

  private isPlain(space: ShardingSpace, id: number): boolean {
    return (this.plain[id] ??=
      space.get(id).inMeshOrder &&
      space.get(id).placements.every((p) => p instanceof Shard || p === REPLICATE || isPending(p)));
  }
}

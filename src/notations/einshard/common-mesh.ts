/** Finds the coarsest mesh on which several einshard expressions fit. */

import { ShardwrightError } from '../../errors.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { Sharding } from '../../mesh/sharding/sharding.ts';
import type { Einshard } from './resolve.ts';
import { formatEinshard } from './syntax.ts';

/** Several expressions over the same devices, on one mesh. */
interface CommonMesh {
  readonly mesh: DeviceMesh;
  /** Sharding of each expression, in the order given. */
  readonly shardings: readonly Sharding[];
}

/**
 * The coarsest mesh that all expressions fit on. Every row-major mesh splits the devices at the
 * products of its leading sizes; the common mesh splits at all of them, which works if each such
 * product divides the next. A mesh dim that falls apart cuts its tensor dim with all its parts in
 * mesh order, so that every device keeps what it had.
 *
 * @param einshards all over the same number of devices
 * @throws E_EINSHARD naming two expressions whose meshes do not nest
 */
export function commonMesh(einshards: readonly Einshard[]): CommonMesh {
  const splits = new Map<number, Einshard | undefined>([[1, undefined]]);
  for (const einshard of einshards) {
    let product = 1;
    for (const { size } of einshard.axes) {
      product *= size;
      if (!splits.has(product)) splits.set(product, einshard);
    }
  }
  const products = [...splits.keys()].sort((a, b) => a - b);
  const sizes: number[] = [];
  for (let i = 1; i < products.length; i++) {
    if (products[i] % products[i - 1] !== 0)
      throw clash(
        splits.get(products[i - 1]),
        splits.get(products[i]),
        products[i - 1],
        products[i],
      );
    sizes.push(products[i] / products[i - 1]);
  }
  const mesh = new DeviceMesh(sizes.map((size, m) => ({ name: `m${m}`, size })));
  return { mesh, shardings: einshards.map((e) => shardingOn(e, products)) };
}

/** The placements of each mesh dim go to all the common dims between its two splits. */
function shardingOn({ axes, axisOfDim }: Einshard, products: readonly number[]): Sharding {
  const dimOfAxis = new Map(axisOfDim.map((axis, dim) => [axis, dim]));
  const out: Placement[] = [];
  let product = 1;
  axes.forEach(({ name, size }, a) => {
    product *= size;
    const dim = name === null ? undefined : dimOfAxis.get(a);
    while (products[out.length] < product) out.push(dim === undefined ? REPLICATE : Shard.of(dim));
  });
  return new Sharding(out);
}

function clash(
  a: Einshard | undefined,
  b: Einshard | undefined,
  low: number,
  high: number,
): ShardwrightError {
  const texts = [a, b].map((e) => (e === undefined ? '' : `'${formatEinshard(e.expression)}'`));
  return new ShardwrightError(
    'E_EINSHARD',
    `${texts.join(' and ')} do not fit on one mesh: one splits the devices in ${low} parts, ` +
      `the other in ${high}`,
    { hint: 'give all tensors of a program the same mesh; dims of size 1 do not count' },
  );
}

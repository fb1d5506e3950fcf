/**
 * The inverse of `scatter`: shards of virtual devices go in, the global tensor that they stand for
 * comes out.
 */

import { ShardwrightError } from '../../src/errors.ts';
import {
  elementsOf,
  operandNumber,
  pendingDims,
  reduceAll,
  type VirtualTensor,
} from '../../src/simulate/ranks/shards.ts';

/**
 * The global tensor that shards stand for: pending reductions done, pieces put together.
 *
 * @throws E_VERIFY when ranks that should agree do not, or an element is nowhere
 */
export function gather(tensor: VirtualTensor): Float64Array {
  const { space, shape, tiles } = tensor;
  const spec = space.get(tensor.sharding);
  const pending = pendingDims(spec, space);
  const count = space.mesh.sizeOf(pending);
  const size = shape.reduce((n, d) => n * d, 1);
  const held: (Float64Array | undefined)[] = new Array<undefined>(count).fill(undefined);
  elementsOf(spec, space, shape).forEach(({ shape: local, elements }, rank) => {
    const tile = tiles[rank];
    if (local.join() !== tile.shape.join())
      throw new ShardwrightError(
        'E_VERIFY',
        `rank ${rank} holds [${tile.shape.join(', ')}], ${spec.text} says [${local.join(', ')}]`,
      );
    const operand = (held[operandNumber(rank, pending, space)] ??= new Float64Array(size).fill(
      NaN,
    ));
    elements.forEach((e, i) => {
      const value = tile.masked?.[i] === 1 ? 0 : tile.data[i];
      if (!Number.isNaN(operand[e]) && operand[e] !== value)
        throw new ShardwrightError(
          'E_VERIFY',
          `ranks disagree on element ${e}: ${operand[e]} and ${value} on ${rank}`,
        );
      operand[e] = value;
    });
  });
  const kinds = pending.map((m) => spec.placements[m]);
  const out = new Float64Array(size);
  const operands = new Array<number>(count);
  for (let e = 0; e < size; e++) {
    for (let i = 0; i < count; i++) {
      const value = held[i]?.[e] ?? NaN;
      if (Number.isNaN(value))
        throw new ShardwrightError('E_VERIFY', `no rank holds element ${e} of operand ${i}`);
      operands[i] = value;
    }
    out[e] =
      count === 1
        ? operands[0]
        : reduceAll(
            kinds,
            pending.map((m) => space.mesh.sizes[m]),
            operands,
          );
  }
  return out;
}

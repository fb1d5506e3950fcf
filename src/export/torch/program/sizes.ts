/** Computes the size of a dim of a local tensor on a device. */
import { ShardwrightError } from '../../../errors.ts';
import type { Dim } from '../../../graph/types.ts';
import type { DeviceProgram } from '../../../lower/program/program.ts';

/** @throws E_UNSUPPORTED for a size that has no value */
export function sizeAt({ symbols }: DeviceProgram, dim: Dim, rank: number): number {
  if (typeof dim === 'number') return dim;
  const size = symbols.get(dim.sym)?.[rank] ?? dim.example;
  if (size === undefined)
    throw new ShardwrightError('E_UNSUPPORTED', `size '${dim.sym}' has no value`);
  return size;
}

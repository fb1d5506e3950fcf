/**
 * Finds the axes of GSPMD strings. These name no mesh: each shapes the device numbers in its own
 * way. The finest split that any string of a program makes is common to all; its factors are the
 * axes, major first.
 */

import { itemAt } from '../../../item-at.ts';
import { type GspmdSharding, tileDevices } from './gspmd.ts';

/** A run of device numbers: `size` steps of `stride`. */
export interface Factor {
  readonly size: number;
  readonly stride: number;
}

export interface Tiling {
  /** Per tile dim (tensor dims, then subgroups) its factors, major first. */
  readonly dims: readonly (readonly Factor[])[];
  readonly rank: number;
  readonly subgroups: readonly string[];
  readonly devices: number;
}

/** Factors of a tiled sharding; undefined where the devices follow no shape. */
export function tilingOf(sharding: Extract<GspmdSharding, { kind: 'tiled' }>): Tiling | undefined {
  const { tiles, rank, subgroups } = sharding;
  const devices = tileDevices(sharding.devices);
  const dims: Factor[][] = [];
  const steps = new Array<number>(tiles.length).fill(1);
  for (let d = tiles.length - 2; d >= 0; d--)
    steps[d] = itemAt(steps, d + 1) * itemAt(tiles, d + 1);
  for (let d = 0; d < tiles.length; d++) {
    const step = itemAt(steps, d);
    const along = Array.from({ length: itemAt(tiles, d) }, (_, i) => itemAt(devices, i * step));
    const factors = factorsOf(along);
    if (factors === undefined) return undefined;
    dims.push(factors);
  }
  // The number of a device must be the sum of what each tile dim contributes.
  for (let flat = 0; flat < devices.length; flat++) {
    let sum = 0;
    for (const [d, tile] of tiles.entries()) {
      const step = itemAt(steps, d);
      sum += itemAt(devices, (Math.floor(flat / step) % tile) * step);
    }
    if (sum !== devices[flat]) return undefined;
  }
  return { dims, rank, subgroups, devices: devices.length };
}

/**
 * Mixed radix of a sequence that starts at 0: factors major first; undefined where there is none.
 */
function factorsOf(values: readonly number[]): Factor[] | undefined {
  if (values[0] !== 0) return undefined;
  const factors: Factor[] = [];
  let done = 1;
  while (done < values.length) {
    const stride = itemAt(values, done);
    let size = 1;
    while (size * done < values.length && values[size * done] === size * stride) size++;
    while (size > 1 && (values.length / done) % size !== 0) size--;
    if (size < 2 || stride < 1 || !Number.isInteger(values.length / done)) return undefined;
    factors.unshift({ size, stride });
    done *= size;
  }
  for (let i = 0; i < values.length; i++) {
    let rest = i;
    let value = 0;
    for (const { size, stride } of factors.toReversed()) {
      value += (rest % size) * stride;
      rest = Math.floor(rest / size);
    }
    if (value !== values[i]) return undefined;
  }
  return factors;
}

/**
 * The axes that every factor is made of whole ones of, major first; undefined where two factors
 * cross.
 */
export function commonAxes(factors: readonly Factor[], devices: number): Factor[] | undefined {
  const cuts = new Set<number>([1, devices]);
  for (const { size, stride } of factors) cuts.add(stride).add(stride * size);
  const sorted = [...cuts].sort((a, b) => a - b);
  const axes: Factor[] = [];
  for (let i = 0; i + 1 < sorted.length; i++) {
    const [stride, next] = [itemAt(sorted, i), itemAt(sorted, i + 1)];
    if (next % stride !== 0) return undefined;
    axes.unshift({ size: next / stride, stride });
  }
  return axes;
}

/** Positions of the axes that make up the factors, in order. */
export function axesOf(factors: readonly Factor[], axes: readonly Factor[]): number[] {
  return factors.flatMap(({ size, stride }) =>
    axes.flatMap((axis, i) =>
      axis.stride >= stride && axis.stride * axis.size <= stride * size ? [i] : [],
    ),
  );
}

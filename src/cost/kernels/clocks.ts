/**
 * Takes a cluster and gives how much longer matrix work takes in a long step than in isolated
 * kernels, because clocks fall.
 */

import type { Cluster } from '../hardware/cluster.ts';
import { FITTED, type FittedConstants } from './fitted.ts';

/** The effect of a device's power on its clocks. */
interface Clocks {
  /** Clocks fall under sustained matrix work (devices of 500 W and more). */
  readonly powerLimited: boolean;
  /**
   * Power over that which the clocks were fitted at; below it, clocks follow the cube root of the
   * power.
   */
  readonly powerShare: number;
}

/**
 * Watts for 1,000 dense 16-bit TFLOPS by accelerator (data sheets): Blackwell devices are one
 * design at 444 to 560, and the GB300 is the reference.
 */
const WATTS: readonly (readonly [RegExp, number])[] = [
  [/^GB300/, 560],
  [/^GB200/, 480],
  [/^B300/, 489],
  [/^B200/, 1000 / 2.25],
];

export function clocksOf({ accelerator, powerShare }: Cluster): Clocks {
  const watts = WATTS.find(([name]) => name.test(accelerator))?.[1] ?? 560;
  return {
    powerLimited: /^(H100|H200|GB|B)/.test(accelerator),
    powerShare: powerShare ?? watts / 560,
  };
}

/** Time of matrix work under sustained load over that of isolated kernels, at least 1. */
export function clockTime(
  { powerLimited, powerShare }: Clocks,
  { hotMatmulTime }: FittedConstants = FITTED,
): number {
  return powerLimited ? hotMatmulTime / Math.cbrt(powerShare) : 1;
}

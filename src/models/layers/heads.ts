/** Checks that heads divide a width, and gives the width of one. */

import type { ConfigReader } from '../read-config.ts';

/** Width of a head. @throws E_TYPE with both numbers when the heads do not divide the width */
export function headsFit(
  config: ConfigReader,
  widthName: string,
  width: number,
  headsName: string,
  heads: number,
): number {
  if (width % heads !== 0)
    throw config.inconsistent(widthName, `is ${width}, no multiple of ${headsName} ${heads}`);
  return width / heads;
}

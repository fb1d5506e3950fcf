/** Lists the sizes of a microbatch that a sweep tries for sequences of some tokens. */

/** Always tried, whatever their tokens. */
const FEW = [1, 2, 4] as const;
/** The largest size, and the tokens of one beyond which only a few sequences are tried. */
const MOST_SEQUENCES = 64;
const MOST_TOKENS = 16_384;

/**
 * Sequences of a microbatch, ascending: powers of two up to 4, and up to 64 as long as they are no
 * more than 16,384 tokens. Short sequences want more of them: kernels of a few thousand tokens do
 * not fill a device.
 */
export function microbatchSizes(sequence: number): readonly number[] {
  const sizes: number[] = [...FEW];
  for (let n = 8; n <= MOST_SEQUENCES && n * sequence <= MOST_TOKENS; n *= 2) sizes.push(n);
  return sizes;
}

/** The product of sizes: the elements of a shape, the devices of mesh dims. 1 for no sizes. */
export function product(sizes: ArrayLike<number>): number {
  let n = 1;
  for (let i = 0; i < sizes.length; i++) n *= sizes[i];
  return n;
}

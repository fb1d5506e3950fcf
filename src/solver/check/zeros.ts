/** Costs with 0 for -0, which their content tells apart and their value does not. */

/** They are not copied where there is none: nothing here changes a cost. */
export function withoutNegativeZeros(costs: Float64Array): Float64Array {
  for (let k = 0; k < costs.length; k++)
    if (costs[k] === 0 && Object.is(costs[k], -0)) return costs.map((c) => c + 0);
  return costs;
}

/**
 * Measures of a prediction: rank correlation, regret, errors. Lists are parallel; all values
 * positive.
 */

/** Groups of fewer runs are not ranked. */
export const SMALLEST_GROUP = 5;

/** Ranks from 1, ties averaged. */
export function ranks(values: readonly number[]): number[] {
  const order = values.map((_, i) => i).sort((a, b) => values[a] - values[b]);
  const out = new Array<number>(values.length);
  for (let i = 0; i < order.length;) {
    let j = i;
    while (j < order.length && values[order[j]] === values[order[i]]) j++;
    for (let k = i; k < j; k++) out[order[k]] = (i + j + 1) / 2;
    i = j;
  }
  return out;
}

/** Spearman's rank correlation; undefined where one side is constant or there is one value only. */
export function spearman(
  predicted: readonly number[],
  measured: readonly number[],
): number | undefined {
  const a = ranks(predicted);
  const b = ranks(measured);
  const mean = (a.length + 1) / 2;
  let ab = 0;
  let aa = 0;
  let bb = 0;
  a.forEach((x, i) => {
    ab += (x - mean) * (b[i] - mean);
    aa += (x - mean) ** 2;
    bb += (b[i] - mean) ** 2;
  });
  return aa === 0 || bb === 0 ? undefined : ab / Math.sqrt(aa * bb);
}

/**
 * Measured time of the pick over the best measured time, minus 1; several picks of equal prediction
 * are averaged.
 */
export function regret(predicted: readonly number[], measured: readonly number[]): number {
  const least = Math.min(...predicted);
  const picks = measured.filter((_, i) => predicted[i] === least);
  return picks.reduce((a, b) => a + b, 0) / picks.length / Math.min(...measured) - 1;
}

/** Absolute relative errors. */
export function relativeErrors(
  predicted: readonly number[],
  measured: readonly number[],
): number[] {
  return predicted.map((p, i) => Math.abs(p / measured[i] - 1));
}

export function mean(values: readonly number[]): number | undefined {
  return values.length === 0 ? undefined : values.reduce((a, b) => a + b, 0) / values.length;
}

export function median(values: readonly number[]): number | undefined {
  if (values.length === 0) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * The value below which a share of the weight lies, linear between the middles of the values'
 * weights.
 *
 * @param values with weights above 0; at least one
 */
export function weightedQuantile(
  values: readonly { readonly value: number; readonly weight: number }[],
  share: number,
): number {
  const sorted = [...values].sort((a, b) => a.value - b.value);
  const total = sorted.reduce((sum, v) => sum + v.weight, 0);
  let before = 0;
  let last: { value: number; at: number } | undefined;
  for (const { value, weight } of sorted) {
    const at = (before + weight / 2) / total;
    if (at >= share) {
      if (last === undefined || at === last.at) return value;
      return last.value + ((value - last.value) * (share - last.at)) / (at - last.at);
    }
    last = { value, at };
    before += weight;
  }
  return sorted[sorted.length - 1].value;
}

/** Einsums by loops over all letters, on flat arrays: no rule of the library is used. */

export interface Flat {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Calls back with the place of each letter in turn. */
function everyPlace(
  letters: readonly string[],
  sizes: Readonly<Record<string, number>>,
  visit: (at: Record<string, number>) => void,
): void {
  const at: Record<string, number> = Object.fromEntries(letters.map((l) => [l, 0]));
  const total = sizeOf(letters.map((l) => sizes[l]));
  for (let n = 0; n < total; n++) {
    visit(at);
    for (let i = letters.length - 1; i >= 0; i--) {
      if (++at[letters[i]] < sizes[letters[i]]) break;
      at[letters[i]] = 0;
    }
  }
}

const offset = (
  letters: string,
  at: Readonly<Record<string, number>>,
  shape: readonly number[],
): number => [...letters].reduce((sum, l, d) => sum * shape[d] + at[l], 0);

function lettersAndSizes(operands: readonly string[], values: readonly Flat[]) {
  const sizes: Record<string, number> = {};
  operands.forEach((own, k) => [...own].forEach((l, d) => (sizes[l] = values[k].shape[d])));
  return { letters: Object.keys(sizes), sizes };
}

export function bruteEinsum(equation: string, values: readonly Flat[]): Flat {
  const [left, output] = equation.split('->');
  const operands = left.split(',');
  const { letters, sizes } = lettersAndSizes(operands, values);
  const shape = [...output].map((l) => sizes[l]);
  const data = new Float64Array(sizeOf(shape));
  everyPlace(letters, sizes, (at) => {
    const product = operands.reduce(
      (p, own, k) => p * values[k].data[offset(own, at, values[k].shape)],
      1,
    );
    data[offset(output, at, shape)] += product;
  });
  return { shape, data };
}

/**
 * Gradient of operand `k` under the gradient `g` of the result: the derivative of every product,
 * added up.
 */
export function bruteGradient(equation: string, k: number, values: readonly Flat[], g: Flat): Flat {
  const [left, output] = equation.split('->');
  const operands = left.split(',');
  const { letters, sizes } = lettersAndSizes(operands, values);
  const data = new Float64Array(values[k].data.length);
  everyPlace(letters, sizes, (at) => {
    const others = operands.reduce(
      (p, own, i) => (i === k ? p : p * values[i].data[offset(own, at, values[i].shape)]),
      1,
    );
    data[offset(operands[k], at, values[k].shape)] += g.data[offset(output, at, g.shape)] * others;
  });
  return { shape: values[k].shape, data };
}

/** Rows `from` to `to` of a dim. */
export function slice({ shape, data }: Flat, dim: number, from: number, to: number): Flat {
  const [outer, inner] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim + 1))];
  const out: number[] = [];
  for (let o = 0; o < outer; o++)
    for (let r = from; r < to; r++)
      out.push(...data.subarray((o * shape[dim] + r) * inner, (o * shape[dim] + r + 1) * inner));
  return { shape: shape.map((n, d) => (d === dim ? to - from : n)), data: Float64Array.from(out) };
}

/** Pieces side by side on a dim. */
export function join(pieces: readonly Flat[], dim: number): Flat {
  const { shape } = pieces[0];
  const [outer, inner] = [sizeOf(shape.slice(0, dim)), sizeOf(shape.slice(dim + 1))];
  const out: number[] = [];
  for (let o = 0; o < outer; o++)
    for (const p of pieces)
      out.push(...p.data.subarray(o * p.shape[dim] * inner, (o + 1) * p.shape[dim] * inner));
  return {
    shape: shape.map((n, d) => (d === dim ? pieces.reduce((s, p) => s + p.shape[dim], 0) : n)),
    data: Float64Array.from(out),
  };
}

export function scaled({ shape, data }: Flat, by: number): Flat {
  return { shape, data: data.map((v) => v * by) };
}

export function added(pieces: readonly Flat[]): Flat {
  return {
    shape: pieces[0].shape,
    data: pieces[0].data.map((_, i) => pieces.reduce((s, p) => s + p.data[i], 0)),
  };
}

export function furthest(a: Flat, b: Flat): number {
  if (a.shape.join() !== b.shape.join()) return Infinity;
  return a.data.reduce((worst, v, i) => Math.max(worst, Math.abs(v - b.data[i])), 0);
}

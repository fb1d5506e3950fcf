/**
 * Einstein summation as matrix products: each step permutes its operands to [batch, kept,
 * contracted], multiplies them as stacks of matrices and views the result back. Several operands
 * are contracted from the left.
 */

import { checkType } from '../../errors.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { sameSize, type Size, sizes, sizeText } from '../sizes/sizes.ts';
import { needTensor } from './core.ts';
import type { Tensor } from './tensor.ts';

interface Labelled {
  readonly tensor: Tensor;
  readonly letters: readonly string[];
}

/**
 * `einsum('bij,bjk->bik', a, b)`. Letters name dims; a letter that the result lacks is summed over.
 * Without `->` the result has the letters that occur once, in alphabetical order.
 *
 * @throws E_SHAPE for a malformed equation, a letter with two sizes, or an operand of another rank
 */
export function einsum(equation: string, ...operands: readonly Tensor[]): Tensor {
  checkType('einsum', 'equation', equation, 'string');
  const fail = (message: string): never => {
    throw refusal(
      'E_SHAPE',
      `einsum '${equation}': ${message}`,
      { source: sourcePosition() },
      {
        hint: "write one group of letters an operand, such as einsum('bij,bjk->bik', a, b).",
      },
    );
  };
  const [left, right, ...more] = equation.replaceAll(' ', '').split('->');
  if (more.length > 0 || !/^[A-Za-z,]*$/.test(left) || !/^[A-Za-z]*$/.test(right ?? ''))
    return fail('only letters, commas and one arrow are understood');
  const groups = left.split(',').map((group) => [...group]);
  if (groups.length !== operands.length)
    return fail(`${groups.length} groups for ${operands.length} operands`);
  operands.forEach((x, i) => needTensor(x, `operand ${i} of einsum`));
  const all = groups.flat();
  const output =
    right === undefined
      ? [...new Set(all)].filter((c) => all.filter((d) => d === c).length === 1).sort()
      : [...right];
  const sizeOf = new Map<string, Size>();
  groups.forEach((letters, i) => {
    const { shape } = operands[i];
    if (letters.length !== shape.length)
      fail(`operand ${i} has ${shape.length} dims for ${letters.length} letters`);
    letters.forEach((letter, d) => {
      if (letters.indexOf(letter) !== d)
        fail(`operand ${i} repeats '${letter}'; take its diagonal first`);
      const known = sizeOf.get(letter);
      if (known === undefined) sizeOf.set(letter, shape[d]);
      else if (!sameSize(known, shape[d]))
        fail(`'${letter}' has the sizes ${sizeText(known)} and ${sizeText(shape[d])}`);
    });
  });
  for (const letter of output)
    if (!sizeOf.has(letter)) fail(`the result names '${letter}', which no operand has`);
  if (new Set(output).size !== output.length) fail('the result repeats a letter');

  const labelled = groups.map((letters, i): Labelled => ({ letters, tensor: operands[i] }));
  let done = labelled[0];
  for (let i = 1; i < labelled.length; i++) {
    const wanted = new Set([...output, ...labelled.slice(i + 1).flatMap((l) => l.letters)]);
    done = contract(done, labelled[i], wanted, sizeOf);
  }
  const summed = sumOut(done, new Set(output));
  return permuted(summed, output).tensor;
}

/** Product of two operands; letters that nobody wants any more are summed over. */
function contract(
  first: Labelled,
  second: Labelled,
  wanted: ReadonlySet<string>,
  sizeOf: ReadonlyMap<string, Size>,
): Labelled {
  const a = sumOut(first, new Set([...wanted, ...second.letters]));
  const b = sumOut(second, new Set([...wanted, ...first.letters]));
  const shared = a.letters.filter((c) => b.letters.includes(c));
  const batch = shared.filter((c) => wanted.has(c));
  const inner = shared.filter((c) => !wanted.has(c));
  const rows = a.letters.filter((c) => !shared.includes(c));
  const columns = b.letters.filter((c) => !shared.includes(c));
  const extent = (letters: readonly string[]): Size =>
    sizes.product(letters.map((c) => sizeOf.get(c) ?? 1));
  const left = grouped(permuted(a, [...batch, ...rows, ...inner]), [batch, rows, inner], extent);
  const right = grouped(
    permuted(b, [...batch, ...inner, ...columns]),
    [batch, inner, columns],
    extent,
  );
  const letters = [...batch, ...rows, ...columns];
  const shape = letters.map((c) => sizeOf.get(c) ?? 1);
  const product = batch.length === 0 ? left.matmul(right) : left.bmm(right);
  return { letters, tensor: sameShape(product.shape, shape) ? product : product.reshape(shape) };
}

function sumOut({ tensor, letters }: Labelled, wanted: ReadonlySet<string>): Labelled {
  const dims = letters.flatMap((c, d) => (wanted.has(c) ? [] : [d]));
  return dims.length === 0
    ? { tensor, letters }
    : { tensor: tensor.sum(dims), letters: letters.filter((c) => wanted.has(c)) };
}

function permuted({ tensor, letters }: Labelled, order: readonly string[]): Labelled {
  const dims = order.map((c) => letters.indexOf(c));
  return dims.every((d, i) => d === i)
    ? { tensor, letters }
    : { tensor: tensor.permute(dims), letters: order };
}

/** The dims of each group as one; a matrix where there is no batch. */
function grouped(
  { tensor }: Labelled,
  groups: readonly (readonly string[])[],
  extent: (letters: readonly string[]) => Size,
): Tensor {
  const shape = groups.map(extent);
  const wanted = groups[0].length === 0 ? shape.slice(1) : shape;
  return sameShape(tensor.shape, wanted) ? tensor : tensor.reshape(wanted);
}

function sameShape(a: readonly Size[], b: readonly Size[]): boolean {
  return a.length === b.length && a.every((size, i) => sameSize(size, b[i]));
}

/**
 * Makes the einsum that computes the gradient of an operand: the same equation with the letters of
 * that operand and of the result swapped. Source: E. Yang, "Computing sharding with einsum".
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { type EinsumEquation, lettersOf, parseEinsum, repeats } from '../../ops/rules/equation.ts';

/** The gradient of one operand of an einsum, as an einsum. */
export interface EinsumGradient {
  /** `bo,oi->bi` for operand 0 of `bi,oi->bo`. */
  readonly equation: string;
  /** The operand at each position: the gradient of the result, or the operand of that position. */
  readonly operands: readonly ('gradient' | number)[];
}

/**
 * The einsum of the gradient of operand `k`: the gradient of the result takes its place.
 *
 * @throws E_SYNTAX for an equation that cannot be read; E_EINSUM where there is no operand `k`, or
 *   the swap is not the gradient: an operand repeats a letter (its gradient lies on a diagonal), or
 *   a letter is in one operand alone (it must be expanded)
 */
export function einsumBackward(equation: string, k: number): EinsumGradient {
  checkKinds('einsumBackward', { equation: [equation, 'string'], k: [k, 'number'] });
  const read = parseEinsum(equation);
  const { operands, output, text } = read;
  if (!Number.isInteger(k) || k < 0 || k >= operands.length)
    throw new ShardwrightError(
      'E_EINSUM',
      `einsum '${text}' has operands 0 to ${operands.length - 1}, not ${k}`,
    );
  const reason = unswappable(read);
  if (reason !== undefined)
    throw new ShardwrightError(
      'E_EINSUM',
      `the gradient of '${text}' is not an einsum: ${reason.message}`,
      {
        hint: reason.hint,
      },
    );
  const swapped = operands.map((letters, i) => (i === k ? output : letters));
  return {
    equation: `${swapped.join(',')}->${operands[k]}`,
    operands: operands.map((_, i) => (i === k ? 'gradient' : i)),
  };
}

/** Why swapping letters gives no gradient; undefined where it does. */
export function unswappable({
  operands,
  output,
}: EinsumEquation): { message: string; hint: string } | undefined {
  for (const letter of lettersOf(operands)) {
    if (operands.some((o) => repeats(o, letter)))
      return {
        message: `repeated letter ${letter}`,
        hint: 'take the diagonal first; its gradient is a diagonal scatter.',
      };
    if (!output.includes(letter) && operands.filter((o) => o.includes(letter)).length === 1)
      return {
        message: `letter ${letter} unpaired`,
        hint: `sum over ${letter} first; the gradient of the sum is an expand over ${letter}.`,
      };
  }
  return undefined;
}

/**
 * Scalars of jaxpr text, as an equation writes the numbers that it takes: the patterns that find
 * them, and their values.
 */

import type { DType } from '../../../graph/types.ts';
import type { LiteralValue } from './syntax.ts';

export const LITERAL = /^-?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|inf|nan|True|False)/;
/** `2j` and `(1-2j)`, with `inf` and `nan` for a part. */
export const COMPLEX =
  /^(?:\((-?[\w.]+(?:e[-+]\d+)?)([-+][\w.]+(?:e[-+]\d+)?)j\)|(-?[\d.]+(?:e[-+]?\d+)?|-?inf|-?nan)j)(?=:c)/;
/** The value of such a word at an element type. */
export function scalarValue(word: string, dtype: DType): LiteralValue {
  const complex = COMPLEX.exec(`${word}:c`);
  if (complex !== null)
    return `(${complex[1] ?? '0'}, ${(complex[2] ?? complex[3] ?? '').replace('+', '')})`;
  if (word === 'True' || word === 'False') return word === 'True';
  if (word.endsWith('inf')) return word.startsWith('-') ? -Infinity : Infinity;
  if (word.endsWith('nan')) return NaN;
  const integer = /^[iu]\d+$/.test(dtype);
  if (integer && /^-?\d+$/.test(word))
    return Number.isSafeInteger(Number(word)) ? Number(word) : BigInt(word);
  return Number(word);
}

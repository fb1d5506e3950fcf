/** Words what a comparison did to a padded vocabulary, in one sentence. */

import type { Comparison } from '../../recipes/compare/comparison.ts';
import { countText } from '../../units.ts';

/** One sentence on a padded vocabulary in a comparison; nothing where no padding was asked for. */
export function comparedPaddingText({
  padding,
  question,
}: Pick<Comparison, 'padding' | 'question'>): string[] {
  if (padding === undefined) return [];
  const { multiple, vocabulary, byTensor } = padding;
  const rows = byTensor.map(
    ({ tensor, rows, parameters }) =>
      `${countText(rows)} at tp ${tensor} (of the parameters padding: ${countText(parameters)})`,
  );
  const how =
    question === undefined
      ? `to a multiple of ${multiple} times the most tensor ranks of any plan, so that one ` +
        'graph serves all of them'
      : `to a multiple of ${multiple} x tp of each mesh`;
  return [
    `The vocabulary of ${countText(vocabulary)} is padded ${how}: ${rows.join(', ')}. The ` +
      'padded classes take part in the softmax, as in Megatron-LM.',
  ];
}

/**
 * Heads that classify a sequence or each of its tokens, as in Hugging Face's
 * `GenericForSequenceClassification` and `GenericForTokenClassification`.
 */

import type { DType } from '../../graph/types.ts';
import { spec, type TensorSpec } from '../../trace/record/spec.ts';
import { crossEntropy } from '../../trace/tensor/functional.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { ConfigReader } from '../read-config.ts';

/** The classes that a head tells the last hidden state apart by. */
export interface Classes {
  readonly of: 'sequence' | 'token';
  /** Columns of the head. */
  readonly labels: number;
  /** A sequence with one label has a number for it, and the loss is the mean squared error. */
  readonly regression: boolean;
}

/** Ends of the names of classes that classify. */
export const CLASSIFYING = ['ForSequenceClassification', 'ForTokenClassification'] as const;

export const LAST_TOKEN =
  'the last token of each sequence is pooled: sequences are taken to have no padding';

/**
 * The classes of a config whose class name classifies; undefined for another class.
 *
 * @throws E_UNSUPPORTED for a loss that is not built
 */
export function classesOf(config: ConfigReader, className = ''): Classes | undefined {
  const [sequence, token] = CLASSIFYING.map((end) => className.endsWith(end));
  if (!sequence && !token) return undefined;
  const labels = config.entries('id2label') ?? config.size('num_labels', 2);
  config.known('label2id', 'id2label', 'num_labels');
  const problem = config.text('problem_type') ?? (labels === 1 ? 'regression' : SINGLE);
  if (token) return { of: 'token', labels, regression: false };
  config.checkKnown('problem_type', problem, ['regression', SINGLE]);
  if (problem === 'regression' && labels !== 1)
    throw config.inconsistent(
      'problem_type',
      `is 'regression' with ${labels} labels`,
      'a regression is built with one label.',
      'E_UNSUPPORTED',
    );
  return { of: 'sequence', labels, regression: problem === 'regression' };
}

const SINGLE = 'single_label_classification';

interface InputSizes {
  readonly batch: number;
  readonly seq: number;
  readonly training: boolean;
  readonly dtype: DType;
}

/** Ids [batch, length]; labels a sequence or a token. */
export function classifierInputs(
  { of, regression }: Classes,
  { batch, seq, training, dtype }: InputSizes,
): Readonly<Record<string, TensorSpec>> {
  const ids = spec([batch, seq], 'i64');
  if (!training) return { input_ids: ids };
  if (of === 'token') return { input_ids: ids, labels: ids };
  return { input_ids: ids, labels: spec([batch], regression ? dtype : 'i64') };
}

/**
 * The loss, or the logits without labels.
 *
 * @param logits [batch, labels] of a sequence, [batch, length, labels] of tokens
 */
export function classified(
  logits: Tensor,
  labels: Tensor | undefined,
  { of, labels: width, regression }: Classes,
): Readonly<Record<string, Tensor>> {
  if (labels === undefined) return { logits };
  if (regression) {
    const off = logits.view(-1).sub(labels);
    return { loss: off.mul(off).mean() };
  }
  // Hugging Face computes the loss of tokens in float32, that of sequences as the logits are.
  const rows = (of === 'token' ? logits.to('f32') : logits).view(-1, width);
  return { loss: crossEntropy(rows, labels.view(-1)) };
}

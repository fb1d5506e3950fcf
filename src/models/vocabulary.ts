/**
 * Vocabularies padded to a multiple that every tensor rank holds an equal, aligned part of, as
 * Megatron-LM pads (`--make-vocab-size-divisible-by`, `_vocab_size_with_padding`). Tables, output
 * layer and logits have the padded rows; token ids and labels stay below the real vocabulary. The
 * padded classes take part in the softmax of the loss, as they do there.
 */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import { parseMesh } from '../mesh/devices/mesh.ts';
import { countText } from '../units.ts';
import type { ModelConfig } from './families.ts';

/** The padding that is asked for: a multiple of `multiple` for each of `tensor` ranks. */
export interface VocabularyPad {
  /** 128 as a rule; 1 pads nothing, whatever the ranks. */
  readonly multiple: number;
  /** Ranks over which the vocabulary is cut, 1 by default. */
  readonly tensor?: number;
}

/** The padding that was done; recorded in the request of a plan. */
export interface VocabularyPadding {
  readonly multiple: number;
  readonly tensor: number;
  /** Rows that the config states. */
  readonly vocabulary: number;
  /** Rows that are built, `vocabulary` and the padding. */
  readonly rows: number;
  /** Parameters of the rows above `vocabulary`, of all tables. */
  readonly parameters: number;
}

/** Multiples and ranks beyond this are a slip of the keyboard. */
const MOST = 2 ** 20;
const MOST_ROWS = 2 ** 31 - 1;

/**
 * Rows of a vocabulary table that every tensor rank can hold an equal, aligned part of: the next
 * multiple of `multiple` * `tensor`.
 *
 * @throws E_USAGE for sizes that are not whole numbers from 1, or too large
 */
export function paddedVocabulary(rows: number, tensor: number, multiple = 128): number {
  checkKinds('paddedVocabulary', {
    rows: [rows, 'number'],
    tensor: [tensor, 'number'],
    multiple: [multiple, 'number'],
  });
  const step = multiple * tensor;
  const isSize = (size: number, most: number): boolean =>
    Number.isSafeInteger(size) && size >= 1 && size <= most;
  const padded = Math.ceil(rows / step) * step;
  if (
    !isSize(rows, MOST_ROWS) ||
    !isSize(tensor, MOST) ||
    !isSize(multiple, MOST) ||
    padded > MOST_ROWS
  )
    throw new ShardwrightError(
      'E_USAGE',
      `a vocabulary of ${rows} rows padded to ${multiple} x ${tensor}`,
      {
        hint: 'multiples and ranks are whole numbers from 1, such as 128 x 8.',
      },
    );
  return padded;
}

/**
 * The padding of a model, undefined for a multiple of 1.
 *
 * @throws E_USAGE as `paddedVocabulary`, and for a model without a vocabulary
 */
export function vocabularyPadding(
  config: ModelConfig,
  options: VocabularyPad,
): VocabularyPadding | undefined {
  checkKinds('vocabularyPadding', {
    config: [config, 'config'],
    options: [options, ['multiple']],
  });
  const { multiple, tensor = 1 } = options;
  const { shape, rowParameters } = config.architecture;
  const { vocabulary } = shape;
  if (multiple === 1) return undefined;
  if (vocabulary === 0 || rowParameters === undefined)
    throw new ShardwrightError('E_USAGE', `a ${config.type} model has no vocabulary to pad`, {
      hint: 'leave out --pad-vocab.',
    });
  const rows = paddedVocabulary(vocabulary, tensor, multiple);
  return { multiple, tensor, vocabulary, rows, parameters: (rows - vocabulary) * rowParameters };
}

/** The padding in a sentence, for notes of graphs and plans. */
export function paddingText({
  multiple,
  tensor,
  vocabulary,
  rows,
  parameters,
}: VocabularyPadding): string {
  const step = `${multiple} x ${tensor} tensor ${tensor === 1 ? 'rank' : 'ranks'}`;
  if (rows === vocabulary)
    return `the vocabulary of ${countText(vocabulary)} is a multiple of ${step}: nothing is padded`;
  return (
    `the vocabulary of ${countText(vocabulary)} is padded to ${countText(rows)}, a multiple of ` +
    `${step}: ${countText(parameters)} parameters are padding, and the padded classes take ` +
    'part in the softmax, as in Megatron-LM'
  );
}

/**
 * The suffix of a count of parameters, `, of them padding: 36,096`; empty where nothing is padded.
 */
export function ofThemPadding(parameters = 0): string {
  return parameters === 0 ? '' : `, of them padding: ${countText(parameters)}`;
}

/**
 * Names that the mesh dim of tensor parallelism goes by: PyTorch and Megatron-LM, JAX, model
 * parallelism of old.
 */
const TENSOR_NAMES = ['tp', 'tensor', 'model', 'mp'] as const;

/**
 * Size of the mesh dim of tensor parallelism: the first there is of `tp`, `tensor`, `model`, `mp`;
 * 1 without any.
 */
export function tensorRanks(mesh: string): number {
  const { names, sizes } = parseMesh(mesh);
  const name = TENSOR_NAMES.find((known) => names.includes(known));
  return name === undefined ? 1 : sizes[names.indexOf(name)];
}

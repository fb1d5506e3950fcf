/** Traces the programs of a model that serves: a prompt, and one new token behind a cache. */

import { ShardwrightError } from '../../errors.ts';
import type { DType, Graph } from '../../graph/types.ts';
import { dtypeNamed } from '../../models/build.ts';
import type { ModelConfig } from '../../models/families.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { trace } from '../../trace/trace.ts';

/** One pass: a prompt of `tokens` with nothing held, or one token of each of `batch` sequences. */
export interface PassSizes {
  readonly batch: number;
  readonly tokens: number;
  /** Tokens of each sequence that the cache holds. */
  readonly held: number;
}

/** The dtype of weights and activations: that of the config where it has 16 bits, else bf16. */
function servedDtype({ statedDtype }: ModelConfig): DType {
  const stated = statedDtype === undefined ? 'bf16' : dtypeNamed(statedDtype);
  return stated === 'f16' ? 'f16' : 'bf16';
}

/** @throws E_UNSUPPORTED for a model that has no program with a cache */
export function passProgram(
  config: ModelConfig,
  { batch, tokens, held }: PassSizes,
  layers: number,
  table: OperatorTable,
): Graph {
  const { architecture } = config;
  if (architecture.caches !== true || config.lora !== undefined)
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `${config.type}${config.lora === undefined ? '' : ' with adapters'} has no program with a ` +
        'cache of keys and values',
      { hint: 'decoders of the Llama kind have one: llama, qwen, mistral, gemma, deepseek ...' },
    );
  const { inputs, run } = architecture.program({
    batch,
    seq: tokens,
    held,
    dtype: servedDtype(config),
    training: false,
    layers,
    attentionInOneCall: true,
  });
  const options = { checkTwice: false, proxy: false, positions: false, training: false };
  return trace((given) => run(given), inputs, { name: config.type, table, ...options });
}

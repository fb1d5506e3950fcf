/**
 * Finds the layers that Megatron cuts in another way than a plan does; each is a loss. Source:
 * megatron.core.tensor_parallel (ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding).
 */
import type { ExportLoss } from '../../backend/target.ts';
import type { Style, StyledModule } from './styles.ts';

const LAYOUT: readonly (readonly [module: RegExp, style: Style])[] = [
  [
    /(^|\.)(q_proj|k_proj|v_proj|wq|wk|wv|c_attn|query|key|value|gate_proj|up_proj|w1|w3|c_fc|fc1|lm_head|output)$/,
    'colwise',
  ],
  [/(^|\.)(o_proj|wo|down_proj|w2|fc2|c_proj)$/, 'rowwise'],
  [/(^|\.)(embed_tokens|wte|tok_embeddings|word_embeddings)$/, 'embedding_rowwise'],
];

export function layoutLosses(modules: readonly StyledModule[], degree: number): ExportLoss[] {
  if (degree === 1) return [];
  return modules.flatMap(({ path, style }) => {
    const known = LAYOUT.find(([module]) => module.test(path));
    if (known === undefined)
      return [{ item: path, planned: style, instead: 'Megatron knows no layer of that name' }];
    return known[1] === style
      ? []
      : [{ item: path, planned: style, instead: `Megatron has it ${known[1]}` }];
  });
}

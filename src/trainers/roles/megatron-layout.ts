/**
 * Finds the layers that Megatron cuts in another way than a plan does; each is a loss. Source:
 * megatron.core.tensor_parallel (ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding).
 */
import type { ExportLoss, ExportSource } from '../../backend/target.ts';
import type { PlanRoles } from './roles.ts';
import { recipeLosses, type Style, type StyledModule, tensorStyles } from './styles.ts';
import type { ZeroStage } from './zero-stage.ts';

const LAYOUT: readonly (readonly [module: RegExp, style: Style])[] = [
  [
    /(^|\.)(q_proj|k_proj|v_proj|wq|wk|wv|c_attn|query|key|value|gate_proj|up_proj|w1|w3|c_fc|fc1|lm_head|output)$/,
    'colwise',
  ],
  [/(^|\.)(o_proj|wo|down_proj|w2|fc2|c_proj)$/, 'rowwise'],
  [/(^|\.)(embed_tokens|wte|tok_embeddings|word_embeddings)$/, 'embedding_rowwise'],
];

/**
 * The parts of a plan that a trainer which cuts layers as Megatron does lays out in another way.
 *
 * @param zero the stage of ZeRO that the trainer has for parameters that are whole
 */
export function trainerLosses(
  roles: PlanRoles,
  source: ExportSource,
  trainer: string,
  zero: ZeroStage['stage'] = 0,
): ExportLoss[] {
  const { modules, losses } = tensorStyles(roles, source);
  return [
    ...recipeLosses(roles, source, zero),
    ...losses,
    ...(roles.degree('tensor') === 1 ? [] : layoutLosses(modules, trainer)),
  ];
}

function layoutLosses(modules: readonly StyledModule[], trainer: string): ExportLoss[] {
  return modules.flatMap(({ path, style }) => {
    const known = LAYOUT.find(([module]) => module.test(path));
    if (known === undefined)
      return [{ item: path, planned: style, instead: `${trainer} knows no layer of that name` }];
    return known[1] === style
      ? []
      : [{ item: path, planned: style, instead: `${trainer} has it ${known[1]}` }];
  });
}

/**
 * `--target megatron` writes arguments of Megatron-LM, one in a line, into `megatron.args`.
 * Megatron has its own layout of every layer; each other placement of the plan is a loss. Source:
 * the argument parser of megatron-core 0.16.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type { ExportResult, ExportSource, ExportTarget } from '../../backend/target.ts';
import { trainerLosses } from '../roles/megatron-layout.ts';
import { modelShape } from '../roles/model-shape.ts';
import { refuseUnsafe } from '../roles/refuse-unsafe.ts';
import { type PlanRoles, planRoles } from '../roles/roles.ts';
import { zeroStage } from '../roles/zero-stage.ts';

function write(source: ExportSource): ExportResult {
  const roles = planRoles(source);
  refuseUnsafe(source, roles, 'Megatron-LM');
  const losses = trainerLosses(roles, source, 'Megatron', 1);
  const head = [...headLines(source, 'megatron'), ...lossLines(losses)];
  const args = [...parallelArguments(source, roles), ...modelArguments(source, roles)];
  return {
    files: [
      { name: 'megatron.args', text: [...head.map((line) => `# ${line}`), ...args, ''].join('\n') },
    ],
    losses,
    notes: [
      'The optimizer, the data and the tokenizer are yours to add; what the graph does not ' +
        'tell of the model is left out.',
    ],
  };
}

/** Degrees of parallelism, and how the batch is cut. */
function parallelArguments(source: ExportSource, roles: PlanRoles): string[] {
  const { degree, batch } = roles;
  const args: string[] = [
    `--tensor-model-parallel-size ${degree('tensor')}`,
    '--pipeline-model-parallel-size 1',
  ];
  if (roles.sequenceParallel) args.push('--sequence-parallel');
  if (degree('context') > 1) args.push(`--context-parallel-size ${degree('context')}`);
  if (degree('expert') > 1) args.push(`--expert-model-parallel-size ${degree('expert')}`);
  if (degree('fsdp') > 1)
    args.push(
      '--use-megatron-fsdp',
      '--data-parallel-sharding-strategy optim_grads_params',
      '--use-distributed-optimizer',
    );
  else if (zeroStage(roles, source).stage > 0) args.push('--use-distributed-optimizer');
  if (degree('fsdp') > 1 && degree('data') > 1)
    args.push(`--num-distributed-optimizer-instances ${degree('data')}`);
  if (batch !== undefined) {
    const data = degree('data') * degree('fsdp');
    args.push(`--micro-batch-size ${Math.max(1, Math.floor(batch.sequences / data))}`);
    args.push(`--global-batch-size ${batch.sequences}`, `--seq-length ${batch.tokens}`);
    args.push(`--max-position-embeddings ${batch.tokens}`);
  }
  return args;
}

/** Sizes and form of the model, as far as the graph tells them. */
function modelArguments(source: ExportSource, roles: PlanRoles): string[] {
  const shape = modelShape(source, roles);
  const args: string[] = [];
  const stated: readonly (readonly [string, number | undefined])[] = [
    ['--num-layers', shape.layers],
    ['--hidden-size', shape.hidden],
    ['--ffn-hidden-size', shape.feedForward],
    ['--num-attention-heads', shape.heads],
  ];
  for (const [name, value] of stated) if (value !== undefined) args.push(`${name} ${value}`);
  if (shape.keyHeads !== undefined && shape.keyHeads !== shape.heads)
    args.push('--group-query-attention', `--num-query-groups ${shape.keyHeads}`);
  if (shape.gated)
    args.push(
      '--swiglu',
      '--normalization RMSNorm',
      '--position-embedding-type rope',
      '--disable-bias-linear',
      '--untie-embeddings-and-output-weights',
    );
  if (shape.is16Bit) args.push('--bf16');
  if (source.plan.request.checkpoint === 'full')
    args.push(
      '--recompute-granularity full',
      '--recompute-method uniform',
      '--recompute-num-layers 1',
    );
  return args;
}

export const megatronTarget: ExportTarget = {
  name: 'megatron',
  summary: 'arguments of Megatron-LM, where the plan is its layout',
  triedWith: ['megatron-core 0.16.1'],
  write,
};

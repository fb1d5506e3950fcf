/**
 * Writes arguments of Megatron-LM for a layout, `megatron.args`, one argument in a line, with a
 * list of where Megatron would run another layout. The arguments of the model, the data and the
 * optimizer are not among them. Source: the argument parser of megatron-core 0.16.
 */

import { isPolicy, modulesOf } from '../../step/checkpoints.ts';
import {
  differences,
  hasEqualStages,
  type LaunchedLayout,
  type LaunchFile,
  type LaunchForms,
  launchHead,
  type LaunchLoss,
} from '../layout/launched-layout.ts';
import { stageText } from '../layout/stage-cuts.ts';

/** A part of the layers is recomputed by `--recompute-method block`. */
const MEGATRON_FORMS: LaunchForms = {
  schedules: ['1f1b', 'interleaved'],
  otherSchedule: (chunks) => (chunks > 1 ? 'interleaved 1F1B' : '1F1B'),
  recomputes: (checkpoint) => checkpoint === 'full' || !isPolicy(checkpoint),
  someUnits: true,
  pairsMicrobatches: true,
  gathersOnce: false,
};

const CONTEXTS = { ring: 'p2p', cp: 'all_gather', ulysses: 'a2a' } as const;

export function megatronLaunch(layout: LaunchedLayout): LaunchFile {
  const { args, losses } = megatronArguments(layout);
  const head = launchHead(layout, 'Megatron-LM').map((line) => `# ${line}`);
  return {
    trainer: 'Megatron-LM',
    file: 'megatron.args',
    text: [...head, ...args, ''].join('\n'),
    losses,
  };
}

/** The arguments of Megatron-Core for a layout, each with its values. */
export function megatronArguments(layout: LaunchedLayout): {
  readonly args: readonly string[];
  readonly losses: readonly LaunchLoss[];
} {
  const { sizes, mode, tuning } = layout;
  const { pp, cp, tp, ep, etp = 1, dp_replicate: replicas } = sizes;
  const losses = [...layout.losses, ...differences(layout, MEGATRON_FORMS)];
  const args = [`--tensor-model-parallel-size ${tp}`, `--pipeline-model-parallel-size ${pp}`];
  if (layout.sequenceParallel) args.push('--sequence-parallel');
  if (cp > 1)
    args.push(`--context-parallel-size ${cp}`, `--cp-comm-type ${CONTEXTS[layout.context]}`);
  if (ep > 1) args.push(`--expert-model-parallel-size ${ep}`);
  if (ep > 1 || etp !== tp) args.push(`--expert-tensor-parallel-size ${etp}`);
  args.push(...stageArguments(layout), ...stateArguments(layout));
  if (mode === 'hsdp') args.push(`--num-distributed-optimizer-instances ${replicas}`);
  args.push(`--micro-batch-size ${tuning.microbatch}`, `--global-batch-size ${layout.globalBatch}`);
  args.push(`--seq-length ${layout.sequence}`, `--max-position-embeddings ${layout.sequence}`);
  args.push(...recomputeArguments(layout, losses));
  if (layout.pairsMicrobatches) args.push('--overlap-moe-expert-parallel-comm');
  return { args, losses };
}

function stageArguments(layout: LaunchedLayout): string[] {
  const { sizes, tuning, stageLayers } = layout;
  if (sizes.pp === 1) return [];
  if (hasEqualStages(layout))
    return tuning.chunks > 1 ? [`--num-layers-per-virtual-pipeline-stage ${stageLayers[0]}`] : [];
  return [`--pipeline-model-parallel-layout ${stageText(stageLayers)}`];
}

function stateArguments({ mode }: LaunchedLayout): string[] {
  if (mode === 'dp') return [];
  if (mode === 'zero1') return ['--use-distributed-optimizer'];
  const strategy = mode === 'zero2' ? 'optim_grads' : 'optim_grads_params';
  return [
    '--use-distributed-optimizer',
    '--use-megatron-fsdp',
    `--data-parallel-sharding-strategy ${strategy}`,
    '--ckpt-format fsdp_dtensor',
  ];
}

function recomputeArguments(
  { tuning, unitsAgain, stageLayers }: LaunchedLayout,
  losses: LaunchLoss[],
): string[] {
  const { checkpoint } = tuning;
  if (checkpoint === 'none') return [];
  const modules = modulesOf(checkpoint);
  if (modules.length > 0) {
    if (unitsAgain !== undefined)
      losses.push({
        planned: `${modules.join(' and ')} recomputed in ${unitsAgain} units`,
        instead: 'in all layers',
      });
    if (modules.includes('act'))
      losses.push({
        planned: 'activation functions recomputed',
        instead: 'whole dense feed-forward layers (mlp)',
      });
    const names = new Set(modules.map((m) => (m === 'act' ? 'mlp' : m)));
    return ['--recompute-granularity selective', `--recompute-modules ${[...names].join(' ')}`];
  }
  if (unitsAgain === undefined)
    return [
      '--recompute-granularity full',
      '--recompute-method uniform',
      '--recompute-num-layers 1',
    ];
  // `block` recomputes so many layers of every stage.
  const each = Math.ceil(unitsAgain / stageLayers.length);
  if (each * stageLayers.length !== unitsAgain)
    losses.push({
      planned: `${unitsAgain} units recomputed`,
      instead: `${each} layers of each of ${stageLayers.length} stages`,
    });
  return [
    '--recompute-granularity full',
    '--recompute-method block',
    `--recompute-num-layers ${each}`,
  ];
}

/**
 * The record of a PyTorch program with `fully_shard`, `parallelize_module` and `context_parallel`.
 * Source: `torch.distributed` of PyTorch 2.13.
 */
import { EAGER } from '../framework.ts';
import type { TrainerRuns } from '../runs.ts';
import type { Trainer } from '../trainer.ts';

export const FSDP2_RUNS: TrainerRuns = {
  source:
    'PyTorch 2.13: torch.distributed.fsdp.fully_shard (a mesh of one or two dims, ' +
    'reshard_after_forward), tensor.parallel, tensor.experimental.context_parallel ' +
    '(allgather or alltoall), utils.checkpoint (selective by operator)',
  dims: ['cp', 'tp'],
  modes: ['dp', 'fsdp', 'hsdp'],
  contexts: ['cp', 'ring'],
  sequenceParallel: [true, false],
  schedules: [],
  policies: ['none', 'operators', 'full'],
  modules: [],
  gathersOnce: [true, false],
  pairsMicrobatches: false,
};

export const fsdp2 = {
  id: 'fsdp2',
  title: 'PyTorch FSDP2',
  release: 'PyTorch 2.13',
  software: { fsdp2: EAGER },
  profile: 'fsdp2',
  adapters: 'PEFT: docs/source/accelerate/fsdp.md',
  runs: FSDP2_RUNS,
} as const satisfies Trainer;

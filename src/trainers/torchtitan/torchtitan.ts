/** The record of torchtitan. Sources: `JobConfig` of 0.2.1, `torchtitan.config` of 0.3.0. */
import { EAGER } from '../framework.ts';
import { torchtitanCuts } from '../layout/stage-cuts.ts';
import type { RunLayout, TrainerRuns } from '../runs.ts';
import type { Trainer } from '../trainer.ts';
import { TORCHTITAN_EDITS } from './edits.ts';
import { torchtitanLaunch } from './launch.ts';
import { readTorchtitanPython, readTorchtitanToml } from './read.ts';
import { torchtitanTarget } from './target.ts';

/** Parameters are always cut over the ranks of a cut sequence (the mesh `dp_shard_cp`). */
function refuses({
  sizes: { cp },
  kind: { mode },
}: RunLayout): ReturnType<NonNullable<TrainerRuns['refuses']>> {
  if (cp === 1 || mode !== 'dp') return undefined;
  return { setting: `zero=0 with cp=${cp}`, nearest: ['zero=3', 'cp=1'] };
}

const RUNS: TrainerRuns = {
  source:
    'torchtitan 0.3.0: config/configs.py (ParallelismConfig), distributed/pipeline_parallel.py, ' +
    'distributed/activation_checkpoint.py, models/llama3/parallelize.py; schedules: PyTorch 2.13 ' +
    '(get_schedule_class)',
  // Experts are whole: ParallelismConfig has no expert tensor parallelism since 0.3.
  dims: ['pp', 'cp', 'tp', 'ep'],
  // Replicas go through `fully_shard` too. It has no stages of its own: gathered parameters that
  // are kept (`fsdp_reshard_after_forward = "never"`) come nearest to ZeRO-2.
  modes: ['dp', 'fsdp', 'hsdp'],
  contexts: ['cp'],
  sequenceParallel: [true, false],
  schedules: ['1f1b', 'gpipe', 'interleaved'],
  policies: ['none', 'operators', 'full'],
  modules: [],
  gathersOnce: [true, false],
  pairsMicrobatches: false,
  // Embedding and head count as a layer each. More than two chunks of a device are asked for by
  // the layers of a chunk, of which there must be a number that makes so many.
  cuts: (parts, layers, chunks) => {
    const counted = layers + 2;
    if (chunks > 2 && Math.ceil(counted / Math.ceil(counted / parts)) !== parts) return undefined;
    const found = torchtitanCuts(parts, layers, 1, 1);
    return 'fault' in found ? undefined : found;
  },
  refuses,
};

/** `JobConfig` of 0.2, which has expert tensor parallelism and passes keys on in a ring. */
const RUNS_TOML: TrainerRuns = {
  ...RUNS,
  source: 'torchtitan 0.2.1: config/job_config.py',
  dims: ['pp', 'cp', 'tp', 'ep', 'etp'],
  contexts: ['cp', 'ring'],
};

export const torchtitan = {
  id: 'torchtitan',
  title: 'torchtitan',
  release: 'torchtitan 0.3.0',
  software: {
    torchtitan: {
      ...EAGER,
      microbatchOfEachStage: { until: 2025 },
      // `compile.components` has the loss: logits and their gradient stay in 16 bits.
      compiledLoss: { since: 2025, logitBytes: 4 },
    },
  },
  profile: 'torchtitan',
  adapters: 'torchtitan 0.3.0: components/lora.py',
  runs: RUNS,
  reads: 'torchtitan TOML and Python',
  formats: [
    {
      name: 'torchtitan',
      isIn: (text) =>
        /\bParallelismConfig\b|\.parallelism\.\w+\s*=|\btorchtitan\b.*\bimport\b/.test(text),
      read: ({ text, setting: { file, configuration } }) =>
        readTorchtitanPython(text, file, configuration),
    },
    {
      name: 'torchtitan',
      isIn: (text) =>
        /^\s*(\[\s*(parallelism|training|job)\s*\]|(parallelism|training)(\.\w+\s*=|\s*=\s*\{))/m.test(
          text,
        ),
      read: ({ text, setting: { file } }) => readTorchtitanToml(text, file),
      runs: RUNS_TOML,
      edits: TORCHTITAN_EDITS,
    },
  ],
  writeLaunch: torchtitanLaunch,
  target: torchtitanTarget,
} as const satisfies Trainer;

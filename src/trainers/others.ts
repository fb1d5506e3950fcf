/**
 * Trainers of published runs whose configurations are neither read nor written: their software is
 * priced. Sources: their documentation, and the Llama 3 report (arXiv:2407.21783, section 3.3).
 */
import { EAGER, MASTER } from './framework.ts';
import { FSDP2_RUNS } from './fsdp2/fsdp2.ts';
import { MEGATRON_CORE } from './megatron/megatron.ts';
import { RUNS_ALL } from './runs.ts';
import type { Trainer } from './trainer.ts';

export const others = [
  {
    id: 'nemo-automodel',
    title: 'NeMo AutoModel',
    software: {
      /**
       * Its recipes load weights in 16 bits and run Adam on them, moments in 16 bits too; FSDP2
       * scatters gradients in float32.
       */
      'nemo-automodel': {
        ...MEGATRON_CORE,
        tensorOverlap: 1,
        // Its loss is PyTorch's.
        memory: { ...EAGER.memory, groupedKeys: true, sharesInExperts: true },
        state: { parameter: 2, gradient: 2, optimizer: 4 },
      },
    },
    profile: 'nemo-automodel',
    runs: {
      ...FSDP2_RUNS,
      source: 'the recipes of NeMo AutoModel',
      dims: ['pp', 'cp', 'tp', 'ep'],
      schedules: ['1f1b', 'interleaved'],
    },
  },
  {
    id: 'alpa',
    title: 'Alpa',
    software: { alpa: { ...EAGER, fusedProjections: true } },
    profile: 'alpa',
    runs: { ...RUNS_ALL, source: 'Alpa (arXiv:2201.12023) plans placements and stages itself' },
  },
  {
    id: 'llm-foundry',
    title: 'LLM Foundry',
    software: {
      // Its loss is fused; its fp8, of Composer, came before scales of present values.
      'llm-foundry': {
        ...EAGER,
        fusedProjections: true,
        gradientBytes: 2,
        fp8Recipe: 'delayed',
        // FlashAttention's loss (`loss_fn: fused_crossentropy`): logits and their gradient in
        // 16 bits.
        memory: { ...EAGER.memory, logitBytes: 4 },
      },
    },
    profile: 'llm-foundry',
    runs: {
      ...FSDP2_RUNS,
      source: 'the FSDP settings of Composer (sharding_strategy, activation_checkpointing)',
      dims: [],
      policies: ['none', 'full'],
    },
  },
  {
    id: 'nanotron',
    title: 'Nanotron',
    software: {
      nanotron: {
        ...EAGER,
        fusedProjections: true,
        gradientBytes: 4,
        state: MASTER,
      },
    },
    profile: 'nanotron',
    runs: {
      ...FSDP2_RUNS,
      source: 'config/parallelism_config.py of Nanotron',
      dims: ['pp', 'cp', 'tp', 'ep'],
      modes: ['dp', 'zero1'],
      contexts: ['ring'],
      schedules: ['1f1b', 'gpipe'],
      policies: ['none', 'full'],
    },
  },
  {
    id: 'llama3-herd',
    title: 'the trainer of Llama 3',
    software: {
      'llama3-herd': {
        ...EAGER,
        vendorKernels: true,
        fusedPointwise: true,
        // FSDP cuts optimizer states and gradients, and what is sent on is freed (section 3.3.2).
        memory: { groupedKeys: true, cutsGradients: true },
      },
    },
    profile: 'llama3-herd',
    runs: {
      ...FSDP2_RUNS,
      source: 'section 3.3.2 of the Llama 3 report',
      dims: ['pp', 'cp', 'tp'],
      contexts: ['cp'],
      schedules: ['1f1b', 'interleaved'],
    },
  },
] as const satisfies readonly Trainer[];

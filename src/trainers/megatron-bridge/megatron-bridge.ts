/**
 * The record of Megatron-Bridge, whose configurations have the settings of Megatron-Core. Sources:
 * `ConfigContainer` and the performance recipes of Megatron-Bridge.
 */
import { MASTER } from '../framework.ts';
import { MEGATRON_RUNS } from '../megatron/megatron.ts';
import { megatronYaml } from '../nemo/launch.ts';
import { MEGATRON_YAML, NEMO } from '../nemo/nemo.ts';
import type { Trainer } from '../trainer.ts';

export const megatronBridge = {
  id: 'megatron-bridge',
  title: 'Megatron-Bridge',
  release: 'Megatron-Bridge 0.5.1',
  software: {
    /**
     * All of its performance recipes sum gradients in 16 bits (`grad_reduce_in_fp32 = False`); none
     * for the measured models recomputes layers: cheap modules, or nothing (published_runs.json).
     */
    'megatron-bridge': {
      ...NEMO,
      gradientBytes: 2,
      state: { ...MASTER, gradient: 2 },
      // Transformer Engine's loss writes the gradient over the logits
      // (`cross_entropy_fusion_impl = "te"` in the performance recipes). Its runs have no room for
      // more than their tensors: segments of the allocator grow (`expandable_segments`).
      memory: { ...NEMO.memory, logitBytes: 2, heldShare: 1 },
      silentRecompute: ['none', 'modules'],
      // Blackwell recipes, by the notes of releases 0.5 and 0.5.1.
      wholeGraphs: { since: 26.06, devices: /^(GB|B)/ },
      // HybridEP.
      expertTokensOnceSince: 26,
      expertOverlap: true,
      offloadsActivations: /^GB/,
    },
  },
  profile: 'megatron-bridge',
  adapters: 'Megatron-Bridge: peft/lora.py',
  runs: MEGATRON_RUNS,
  reads: 'Megatron-Bridge YAML',
  formats: [MEGATRON_YAML],
  writeLaunch: (layout) => megatronYaml(layout, 'Megatron-Bridge', 'bridge.yaml'),
} as const satisfies Trainer;

/**
 * Trainers of published runs whose configurations are neither read nor written: their software is
 * priced. Sources: their documentation, and the Llama 3 report (arXiv:2407.21783, section 3.3).
 */
import { EAGER, MASTER } from './framework.ts';
import type { Trainer } from './trainer.ts';

export const others = [
  {
    id: 'alpa',
    title: 'Alpa',
    software: { alpa: { ...EAGER, fusedProjections: true } },
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
      },
    },
  },
  {
    id: 'nanotron',
    title: 'Nanotron',
    software: {
      nanotron: { ...EAGER, fusedProjections: true, gradientBytes: 4, state: MASTER },
    },
  },
  {
    id: 'llama3-herd',
    title: 'the trainer of Llama 3',
    software: { 'llama3-herd': { ...EAGER, vendorKernels: true, fusedPointwise: true } },
  },
] as const satisfies readonly Trainer[];

import { expect, it } from 'vitest';

import { builtinOperators } from '../../../src/ops/builtin.ts';
import { CoreSolver } from '../../../src/sweep/rank/rank-price.ts';

/** One narrow layer: its data ranks cost a multiple of what its program does. */
const CONFIG = JSON.stringify({
  model_type: 'llama',
  hidden_size: 128,
  intermediate_size: 256,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  vocab_size: 512,
  torch_dtype: 'bfloat16',
});

it('a program whose data ranks cost more than itself is placed with a proof', async () => {
  const solver = new CoreSolver(
    {
      model: 'tiny',
      config: CONFIG,
      devices: 4,
      cluster: 'dgx-h100',
      sequence: 64,
      globalBatch: 4,
      cost: 'nccl',
    },
    builtinOperators(),
  );
  const sizes = { pp: 1, dp_replicate: 1, dp_shard: 2, cp: 1, tp: 2, ep: 1 };
  // Shares that are not shares: what data ranks cost is then far above what the program does.
  const visible = { microbatch: 1, step: 354 };
  const data = {
    ...{ sizes, visible, once: false, microbatches: 1 },
    ...({ mode: 'dp', context: 'cp' } as const),
  };
  const result = await solver.price({
    microbatch: 2,
    axes: [{ name: 'tp', size: 2 }],
    data,
  } as const);
  if (result.status !== 'priced') throw new Error(result.reason);
  expect(result.core.proof?.status).toBe('optimal');
  expect(result.core.proof?.objective).toBeGreaterThan(0);
});

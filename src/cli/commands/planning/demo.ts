/** `demo`: plans a bundled model without any argument. */

import { fileURLToPath } from 'node:url';
import type { CliIo } from '../../output/io.ts';
import { planCommand } from './plan.ts';
import { unwatched } from '../../thread/run-control.ts';

/** The bundled graph: 2 layers of Llama-3 8B at batch 16 x 8192, forward and backward, as PyTorch 2.13 wrote it. */
export const DEMO_MODEL = fileURLToPath(new URL('../../../../examples/llama3-8b-2l-b16.fx.txt.gz', import.meta.url));

export async function demoCommand(options: { program?: boolean; json?: boolean }, io: CliIo): Promise<number> {
  if (options.json !== true)
    io.stdout('$ shardwright plan examples/llama3-8b-2l-b16.fx.txt.gz --mesh dp=8,tp=8 --cluster dgx-h100\n');
  return planCommand(
    DEMO_MODEL,
    {
      mesh: 'dp=8,tp=8',
      cluster: 'dgx-h100',
      role: [],
      tie: [],
      pin: [],
      cost: 'alpha-beta',
      solver: 'auto',
      seed: '0',
      uneven: 'allow',
      unknown: 'refuse',
      sharing: true,
      inputs: 'free',
      outputs: 'free',
      objective: 'time',
      recipes: true,
      ...options,
    },
    io,
    unwatched(),
  );
}

/**
 * `demo`: plans a bundled model without any argument, and says what can be done with its plan.
 */

import { fileURLToPath } from 'node:url';

import { readFlags } from '../../input/flags/flag.ts';
import type { CliIo } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { unwatched } from '../../thread/run-control.ts';
import { type DemoOptions, PLAN_COMMAND } from './flags.ts';
import { planCommand } from './plan.ts';
import { nextText } from './plan-cache.ts';

/**
 * The bundled graph: 2 layers of Llama-3 8B at batch 16 x 8192, forward and backward, as PyTorch
 * 2.13 wrote it.
 */
const DEMO_MODEL = fileURLToPath(
  new URL('../../../../examples/llama3-8b-2l-b16.fx.txt.gz', import.meta.url),
);

export async function demoCommand(options: DemoOptions, io: CliIo): Promise<number> {
  const mesh = 'dp=8,tp=8';
  const cluster = 'dgx-h100';
  if (options.json !== true)
    io.stdout(
      `$ shardwright plan examples/llama3-8b-2l-b16.fx.txt.gz --mesh ${mesh} --cluster ` +
        `${cluster}\n`,
    );
  const defaults = await readFlags(PLAN_COMMAND, { mesh, cluster, sharing: true, recipes: true });
  const code = await planCommand(DEMO_MODEL, { ...defaults, ...options }, io, unwatched());
  if (options.json !== true && options.output === undefined)
    io.stdout(
      `\n${nextText([
        ['demo -o plan', 'keep this plan in a folder'],
        ['plan llama-3.1-8b --devices 16xH100', 'plan a model by name'],
      ])}\n`,
      paintScreen,
    );
  return code;
}

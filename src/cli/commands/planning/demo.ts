/**
 * `demo`: plans a bundled model without any argument, and says what can be done with its plan.
 */

import { fileURLToPath } from 'node:url';

import { tableText } from '../../../units.ts';
import { readFlags } from '../../input/flags/flag.ts';
import type { CliIo } from '../../output/io.ts';
import { unwatched } from '../../thread/run-control.ts';
import { type DemoOptions, PLAN_COMMAND } from './flags.ts';
import { planCommand } from './plan.ts';

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
  if (options.json !== true) io.stdout(`\n${nextText(options.output)}\n`);
  return code;
}

/** The commands that go on from the demo: with its plan folder, or to one. */
function nextText(folder: string | undefined): string {
  const commands: readonly (readonly [string, string])[] =
    folder === undefined
      ? [
          ['demo -o plan', 'keep this plan in a folder'],
          ['plan llama-3.1-8b --devices 16xH100', 'plan a model by name on its best mesh'],
        ]
      : [
          [`verify ${folder}`, 'run it with numbers on 64 virtual devices'],
          [`export ${folder} --target torch --check -o program`, 'a PyTorch program and its check'],
          [`report ${folder} -o report.html`, 'a page with all figures'],
        ];
  return tableText(
    commands.map(([command, what], i) => [i === 0 ? 'next' : '', `shardwright ${command}`, what]),
  );
}

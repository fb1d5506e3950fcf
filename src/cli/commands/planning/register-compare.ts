/** Registers `compare` and `zoo` and their flags with the command line. */

import type { Command } from 'commander';
import type { CliSession } from '../flags/session.ts';
import { FLAG, INPUT_DIMS, collect, modelFlags, sizeFlags } from '../flags/flags.ts';

// Commands and their flags: plans side by side. Each loads its code when it runs.

export function registerCompare(program: Command, session: CliSession): void {
  sizeFlags(modelFlags(program.command('compare [model]')))
    .summary('the zoo and the optimum on every mesh of some devices')
    .description(
      'Prices the plans that people write by hand and the optimum on every mesh, and says which is best and why the others are not. A model by name is compared over pipeline stages too, from its layers.\n\nExamples:\n  $ shardwright compare llama-3.1-70b --devices 256 --cluster dgx-h100 --seq 8192 --global-batch 512\n  $ shardwright compare model.fx.txt.gz --devices 64 --cluster dgx-h100 --plans fsdp,dp+tp,optimum',
    )
    .option('--devices <n>', 'number of devices')
    .option(...FLAG.cluster)
    .option(
      '--plans <names>',
      'plans of the zoo, and optimum, separated by commas; of a model by name sizes of expert groups may stand in them, as in fsdp+tp+sp+ep4+etp2; etp: every one that cuts its experts (default: all, of those that cut experts what may be worth it)',
    )
    .option('--max-dims <n>', 'most dims of a mesh: 1, 2 or 3', '3')
    .option(...FLAG.memory)
    .option(...FLAG.optimizer)
    .option(...FLAG.cost)
    .option(...FLAG.calibration)
    .option(...FLAG.collectives)
    .option('--gap <fraction>', 'relative gap of the optimum that is good enough', '0')
    .option(...FLAG.unknown)
    .option(...FLAG.timeLimit)
    .option('--global-batch <n>', 'sequences of one step, for a model by name (default: one a device)')
    .option('--threads <n>', 'threads that price, for a model by name (default: one a core, at most 8)')
    .option('--resume <file>', 'keep what was priced in a file, and go on from it, for a model by name')
    .option('--slice <i/n>', 'only the i-th of n parts of the meshes')
    .option(...INPUT_DIMS.batch, collect, [])
    .option(...INPUT_DIMS.sequence, collect, [])
    .option('--merge <file>', 'put together what --slice --json wrote; repeatable', collect, [])
    .option(...FLAG.quiet)
    .action(async (path: string | undefined, options) => {
      const { compareCommand } = await import('./compare.ts');
      session.exit = await compareCommand(
        path,
        options as Parameters<typeof compareCommand>[1],
        session.io,
        session.control,
      );
    });
}

export function registerZoo(program: Command, session: CliSession): void {
  const zooCommand = program
    .command('zoo')
    .summary('the plans that people write by hand, and what is wrong with one')
    .description('Lists the zoo, or lints a plan of it.\n\nExample:\n  $ shardwright zoo list --mesh dp=2,tp=4');
  zooCommand
    .command('list')
    .summary('every plan: axes, what it shards, its collectives')
    .description('Lists the plans that compare and audit take.\n\nExample:\n  $ shardwright zoo list --mesh dp=2,tp=4')
    .option('--mesh <dims>', 'only plans with as many axes, with their process groups')
    .option('--cluster <name>', 'node design whose hosts are counted', 'dgx-h100')
    .option(...FLAG.json)
    .action(async (options) => {
      const { zooListCommand } = await import('../catalogue/zoo.ts');
      session.exit = zooListCommand(options as Parameters<typeof zooListCommand>[0], session.io);
    });
  modelFlags(zooCommand.command('lint <model>'))
    .summary('what is wrong with a plan on a mesh')
    .description(
      'Checks a plan of the zoo against the sizes of a model; exit 5 where it has an error.\n\nExample:\n  $ shardwright zoo lint model.fx.txt.gz --plan dp+tp --mesh dp=8,tp=8',
    )
    .requiredOption('--plan <name>', 'plan of the zoo')
    .requiredOption('--mesh <dims>', 'sizes of its axes, outermost first; one may be -1 with --devices')
    .option('--cluster <name>', 'node design whose hosts are counted', 'dgx-h100')
    .option('--devices <n>', 'number of devices')
    .option('--batch <n>', 'global batch (default: that of the graph)')
    .option('--seq <n>', 'tokens of a sequence (default: those of the graph)')
    .option('--microbatch <n>', 'sequences of a microbatch and data rank (default: 1)')
    .option(
      '--pad-vocab <n>',
      'pad the vocabulary of a model name or config to a multiple of n x tp (default: 1, none)',
    )
    .action(async (path: string, options) => {
      const { zooLintCommand } = await import('../catalogue/zoo.ts');
      session.exit = await zooLintCommand(path, options as Parameters<typeof zooLintCommand>[1], session.io);
    });
}

/** Registers `compare` and `recipes` and their flags with the command line. */

import type { Command } from 'commander';
import type { CliSession } from '../flags/session.ts';
import { FLAG, INPUT_DIMS, collect, modelFlags, sizeFlags } from '../flags/flags.ts';

// Commands and their flags: plans side by side. Each loads its code when it runs.

export function registerCompare(program: Command, session: CliSession): void {
  sizeFlags(modelFlags(program.command('compare [model]')))
    .summary('the recipes and the optimum on every mesh of some devices')
    .description(
      'Prices the recipes and the optimum on every mesh. Says which is best, and why each other one is slower. For a model by name it tries pipeline stages too.\n\nExamples:\n  $ shardwright compare llama-3.1-70b --devices 256 --cluster dgx-h100 --seq 8192 --global-batch 512\n  $ shardwright compare model.fx.txt.gz --devices 64 --cluster dgx-h100 --plans fsdp,dp+tp,optimum',
    )
    .option('--devices <n>', 'number of devices')
    .option(...FLAG.cluster)
    .option(
      '--plans <names>',
      'recipes to compare, and optimum, comma separated. For a model by name, suffixes set expert-parallel sizes (fsdp+tp+sp+ep4+etp2); etp selects all with expert tensor parallelism. Default: all; of those with etp, only promising ones',
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

export function registerRecipes(program: Command, session: CliSession): void {
  const recipes = program
    .command('recipes')
    .alias('zoo')
    .summary('the recipes that people know by name, and the faults of one')
    .description('Lists the recipes, or lints one.\n\nExample:\n  $ shardwright recipes list --mesh dp=2,tp=4');
  recipes
    .command('list')
    .summary('every recipe: axes, shards, collectives')
    .description(
      'Lists the recipes that compare and audit take.\n\nExample:\n  $ shardwright recipes list --mesh dp=2,tp=4',
    )
    .option('--mesh <dims>', 'only recipes with as many axes, with their process groups')
    .option('--cluster <name>', 'node design whose hosts are counted', 'dgx-h100')
    .option(...FLAG.json)
    .action(async (options) => {
      const { listRecipes } = await import('../catalogue/recipes.ts');
      session.exit = listRecipes(options as Parameters<typeof listRecipes>[0], session.io);
    });
  modelFlags(recipes.command('lint <model>'))
    .summary('the faults of a recipe on a mesh')
    .description(
      'Checks a recipe against the sizes of a model; exit 5 where it has an error.\n\nExample:\n  $ shardwright recipes lint model.fx.txt.gz --plan dp+tp --mesh dp=8,tp=8',
    )
    .requiredOption('--plan <name>', 'name of the recipe')
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
      const { lintRecipe } = await import('../catalogue/recipes.ts');
      session.exit = await lintRecipe(path, options as Parameters<typeof lintRecipe>[1], session.io);
    });
}

/** Registers `hardware`, `models`, `recipes` and `rules` with the command line. Each loads its code when it runs. */

import type { Command } from 'commander';
import { addCommand } from '../flags/add-command.ts';
import type { CliSession } from '../flags/session.ts';
import {
  HARDWARE_COMMAND,
  MODEL_SHOW_COMMAND,
  RULES_COMMAND,
  RECIPE_LINT_COMMAND,
  RECIPE_LIST_COMMAND,
} from './flags.ts';

export function registerHardware(program: Command, session: CliSession): void {
  const hardware = program
    .command('hardware')
    .summary('the node designs that --cluster takes, with sources')
    .description('Lists the built-in node designs.\n\nExample:\n  $ shardwright hardware show dgx-h100');
  const list = {
    usage: 'list',
    summary: 'every node design',
    description: 'Lists the node designs that --cluster takes.\n\nExample:\n  $ shardwright hardware list',
  };
  addCommand(hardware, session, list, HARDWARE_COMMAND, async (options, { io }) =>
    (await import('./hardware.ts')).hardwareListCommand(options, io),
  );
  const show = {
    usage: 'show <name>',
    summary: 'every constant of one, with its unit and source',
    description:
      'Prints the constants of a node design, or of a JSON file of your own.\n\nExample:\n  $ shardwright hardware show dgx-h100',
  };
  addCommand(hardware, session, show, HARDWARE_COMMAND, async (options, { io }, name: string) =>
    (await import('./hardware.ts')).hardwareShowCommand(name, options, io),
  );
}

export function registerModels(program: Command, session: CliSession): void {
  const models = program.command('models').summary('the models that are known by name');
  const list = {
    usage: 'list',
    summary: 'names, families, parameters',
    description: 'Lists the models that every command takes by name.\n\nExample:\n  $ shardwright models list',
  };
  addCommand(models, session, list, HARDWARE_COMMAND, async (options, { io }) =>
    (await import('./models.ts')).listModels(options, io),
  );
  const show = {
    usage: 'show <name>',
    summary: 'one model: sizes, parameters, where its config is from',
    description:
      'Shows one model.\n\nExamples:\n  $ shardwright models show llama-3.1-8b\n  $ shardwright models show gpt2 --pad-vocab 128',
  };
  addCommand(models, session, show, MODEL_SHOW_COMMAND, async (options, { io }, name: string) =>
    (await import('./models.ts')).showModel(name, options, io),
  );
}

export function registerRecipes(program: Command, session: CliSession): void {
  const recipes = program
    .command('recipes')
    .alias('zoo')
    .summary('the recipes that people know by name, and the faults of one')
    .description('Lists the recipes, or lints one.\n\nExample:\n  $ shardwright recipes list --mesh dp=2,tp=4');
  const list = {
    usage: 'list',
    summary: 'every recipe: axes, shards, collectives',
    description:
      'Lists the recipes that compare and audit take.\n\nExample:\n  $ shardwright recipes list --mesh dp=2,tp=4',
  };
  addCommand(recipes, session, list, RECIPE_LIST_COMMAND, async (options, { io }) =>
    (await import('./recipes.ts')).listRecipes(options, io),
  );
  const lint = {
    usage: 'lint <model>',
    summary: 'the faults of a recipe on a mesh',
    description:
      'Checks a recipe against the sizes of a model; exit 5 where it has an error.\n\nExample:\n  $ shardwright recipes lint model.fx.txt.gz --plan dp+tp --mesh dp=8,tp=8',
  };
  addCommand(recipes, session, lint, RECIPE_LINT_COMMAND, async (options, { io }, model: string) =>
    (await import('./recipes.ts')).lintRecipe(model, options, io),
  );
}

export function registerRules(program: Command, session: CliSession): void {
  const texts = {
    usage: 'rules',
    summary: 'the sharding rules of operators, tried by execution',
    description:
      'Lists the sharding rules of operators at their sample calls; with --check runs them on simulated ranks, by brute force over every placement of inputs and results, and lists the rules that are wrong and the ones that are missing.\n\nExamples:\n  $ shardwright rules --op mm\n  $ shardwright rules --op aten.softmax.int --check\n  $ shardwright rules --ops my-operators.ts --check',
  };
  addCommand(program, session, texts, RULES_COMMAND, async (options, { io }) =>
    (await import('./rules.ts')).rulesCommand(options, io),
  );
}

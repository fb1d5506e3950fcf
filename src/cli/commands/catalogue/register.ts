/**
 * Registers `hardware`, `models`, `recipes` and `rules` with the command line. Each loads its code
 * when it runs.
 */

import { command, commandGroup } from '../flags/add-command.ts';
import {
  HARDWARE_COMMAND,
  HARDWARE_IMPORT_COMMAND,
  MODEL_SHOW_COMMAND,
  RECIPE_LINT_COMMAND,
  RECIPE_LIST_COMMAND,
  RULES_COMMAND,
} from './flags.ts';

export const registerHardware = commandGroup(
  {
    usage: 'hardware',
    summary: 'the node designs that --cluster takes, with sources',
    description:
      'Lists the built-in node designs (a host with its devices and links), prints the ' +
      'constants of one, or makes a cluster file of your own measurements.\n\n' +
      'Examples:\n  $ shardwright hardware\n  $ shardwright hardware show dgx-h100',
  },
  [
    command({
      usage: 'list',
      isDefault: true,
      summary: 'every node design',
      description:
        'Lists the node designs that --cluster takes.\n\nExample:\n  $ shardwright hardware list',
      flags: HARDWARE_COMMAND,
      run: async (options, { io }) =>
        (await import('./hardware.ts')).hardwareListCommand(options, io),
    }),
    command({
      usage: 'show <name>',
      summary: 'every constant of one, with its unit and source',
      description:
        'Prints the constants of a node design, or of a JSON file of your own.\n\nExample:\n' +
        '  $ shardwright hardware show dgx-h100',
      flags: HARDWARE_COMMAND,
      run: async (options, { io }, name: string) =>
        (await import('./hardware.ts')).hardwareShowCommand(name, options, io),
    }),
    command({
      usage: 'import <files...>',
      summary: 'a cluster file of your own measurements',
      description:
        'Makes a cluster file of output of nccl-tests (all_reduce_perf and its siblings), ' +
        'nvidia-smi topo -m, ib_write_bw, calibrations, tables of collectives and cluster files: ' +
        'what was measured takes the place of what is published.\n\nExample:\n' +
        '  $ shardwright hardware import all_reduce.txt topo.txt ib.txt --base dgx-h100 ' +
        '-o cluster.json',
      flags: HARDWARE_IMPORT_COMMAND,
      run: async (options, { io }, ...files: string[]) =>
        (await import('./hardware-import.ts')).hardwareImportCommand(files, options, io),
    }),
  ],
);

export const registerModels = commandGroup(
  {
    usage: 'models',
    summary: 'the models that are known by name',
    description:
      'Lists the models that are known by name, or prints one.\n\nExamples:\n' +
      '  $ shardwright models\n  $ shardwright models show llama-3.1-8b',
  },
  [
    command({
      usage: 'list',
      isDefault: true,
      summary: 'names, families, parameters',
      description:
        'Lists the models that every command takes by name.\n\nExample:\n' +
        '  $ shardwright models list',
      flags: HARDWARE_COMMAND,
      run: async (options, { io }) => (await import('./models.ts')).listModels(options, io),
    }),
    command({
      usage: 'show <name>',
      summary: 'sizes, parameters and source of one model',
      description:
        'Prints the sizes and parameters of one model, and where its config comes from.\n\n' +
        'Examples:\n  $ shardwright models show llama-3.1-8b\n' +
        '  $ shardwright models show gpt2 --pad-vocab 128',
      flags: MODEL_SHOW_COMMAND,
      run: async (options, { io }, name: string) =>
        (await import('./models.ts')).showModel(name, options, io),
    }),
  ],
);

export const registerRecipes = commandGroup(
  {
    usage: 'recipes',
    summary: 'the recipes that people know by name, and the faults of one',
    description:
      'Lists the recipes, or lints one.\n\nExamples:\n  $ shardwright recipes\n' +
      '  $ shardwright recipes list --mesh dp=2,tp=4',
  },
  [
    command({
      usage: 'list',
      isDefault: true,
      summary: 'every recipe: axes, shards, collectives',
      description:
        'Lists the recipes that compare and audit take.\n\nExample:\n' +
        '  $ shardwright recipes list --mesh dp=2,tp=4',
      flags: RECIPE_LIST_COMMAND,
      run: async (options, { io }) => (await import('./recipes.ts')).listRecipes(options, io),
    }),
    command({
      usage: 'lint <model>',
      summary: 'the faults of a recipe on a mesh',
      description:
        'Checks a recipe against the sizes of a model; exit 5 where it has an error.\n\n' +
        'Example:\n' +
        '  $ shardwright recipes lint model.fx.txt.gz --plan dp+tp --mesh dp=8,tp=8',
      flags: RECIPE_LINT_COMMAND,
      run: async (options, { io }, model: string) =>
        (await import('./recipes.ts')).lintRecipe(model, options, io),
    }),
  ],
  'zoo',
);

export const registerRules = command({
  usage: 'rules',
  summary: 'the sharding rules of operators, tried by execution',
  description:
    'Lists the sharding rules of operators at their sample calls; with --check runs them on ' +
    'simulated ranks, by brute force over every placement of inputs and results, and lists ' +
    'the rules that are wrong and the ones that are missing.\n\nExamples:\n  $ shardwright ' +
    'rules --op mm\n  $ shardwright rules --op aten.softmax.int --check\n  $ shardwright ' +
    'rules --ops my-operators.ts --check',
  flags: RULES_COMMAND,
  run: async (options, { io }) => (await import('./rules.ts')).rulesCommand(options, io),
});

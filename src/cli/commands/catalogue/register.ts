/** Registers `hardware` and `models` and their flags with the command line. */

import type { Command } from 'commander';
import { FLAG } from '../flags/flags.ts';
import type { CliSession } from '../flags/session.ts';

// Commands and their flags: what is built in. Each loads its code when it runs.

export function registerHardware(program: Command, session: CliSession): void {
  const hardwareCommand = program
    .command('hardware')
    .summary('the node designs that --cluster takes, with sources')
    .description('Lists the built-in node designs.\n\nExample:\n  $ shardwright hardware show dgx-h100');
  hardwareCommand
    .command('list')
    .summary('every node design')
    .description('Lists the node designs that --cluster takes.\n\nExample:\n  $ shardwright hardware list')
    .option(...FLAG.json)
    .action(async (options) => {
      const { hardwareListCommand } = await import('./hardware.ts');
      session.exit = hardwareListCommand(options as Parameters<typeof hardwareListCommand>[0], session.io);
    });
  hardwareCommand
    .command('show <name>')
    .summary('every constant of one, with its unit and source')
    .description(
      'Prints the constants of a node design, or of a JSON file of your own.\n\nExample:\n  $ shardwright hardware show dgx-h100',
    )
    .option(...FLAG.json)
    .action(async (name: string, options) => {
      const { hardwareShowCommand } = await import('./hardware.ts');
      session.exit = hardwareShowCommand(name, options as Parameters<typeof hardwareShowCommand>[1], session.io);
    });
}

export function registerModels(program: Command, session: CliSession): void {
  const models = program.command('models').summary('the models that are known by name');
  models
    .command('list')
    .summary('names, families, parameters')
    .description('Lists the models that every command takes by name.\n\nExample:\n  $ shardwright models list')
    .option(...FLAG.json)
    .action(async (options) => {
      const { listModels } = await import('./models.ts');
      session.exit = listModels(options as Parameters<typeof listModels>[0], session.io);
    });
  models
    .command('show <name>')
    .summary('one model: sizes, parameters, where its config is from')
    .description(
      'Shows one model.\n\nExamples:\n  $ shardwright models show llama-3.1-8b\n  $ shardwright models show gpt2 --pad-vocab 128',
    )
    .option(
      '--pad-vocab <n>',
      'count it with the vocabulary padded to a multiple of n, such as 128, and the padding apart (default: 1, none)',
    )
    .option(...FLAG.json)
    .action(async (name: string, options) => {
      const { showModel } = await import('./models.ts');
      session.exit = showModel(name, options as Parameters<typeof showModel>[1], session.io);
    });
}

/** Takes command-line arguments, runs the command that they name and resolves to the exit code. */

import { Command, CommanderError } from 'commander';

import { VERSION } from '../version.ts';
import {
  registerHardware,
  registerModels,
  registerRecipes,
  registerRules,
} from './commands/catalogue/register.ts';
import { registerComplete, registerCompletion } from './commands/completion/register.ts';
import type { AddCommand } from './commands/flags/add-command.ts';
import { groupedHelp } from './commands/flags/help-groups.ts';
import type { CliSession } from './commands/flags/session.ts';
import { unknownCommand, usageError } from './commands/flags/usage-errors.ts';
import {
  registerAudit,
  registerCompare,
  registerDemo,
  registerInference,
  registerPlan,
  registerTune,
  registerVerify,
} from './commands/planning/register.ts';
import { registerCheck, registerInspect, registerTrace } from './commands/reading/register.ts';
import { registerBatch, registerServe } from './commands/serve/register.ts';
import {
  registerDraw,
  registerEinshard,
  registerEinsum,
  registerLayout,
  registerRedistribute,
  registerSolve,
  registerValidate,
} from './commands/tools/register.ts';
import {
  registerCheckPlan,
  registerDiff,
  registerDoctor,
  registerExplain,
  registerExport,
  registerReport,
  registerSimulate,
} from './commands/written-plan/register.ts';
import { type Defaults, readDefaults, type Surroundings, surroundings } from './input/defaults.ts';
import { type CliIo, type CliStreams, EXIT, printer, reportError } from './output/io.ts';
import { type RunControl, unwatched } from './thread/run-control.ts';

/** The commands in the order of the help text, under its headings. */
const COMMANDS: Readonly<Record<string, readonly AddCommand[]>> = {
  'Plan a model:': [
    registerDemo,
    registerPlan,
    registerCompare,
    registerTune,
    registerInference,
    registerAudit,
    registerVerify,
  ],
  'Use a plan:': [
    registerCheckPlan,
    registerReport,
    registerExplain,
    registerSimulate,
    registerDoctor,
    registerDiff,
    registerExport,
  ],
  'Look at a program:': [registerInspect, registerTrace, registerCheck],
  'Parts of the planner by themselves:': [
    registerRedistribute,
    registerEinsum,
    registerEinshard,
    registerDraw,
    registerLayout,
    registerSolve,
    registerRules,
    registerValidate,
  ],
  'What is built in:': [
    registerHardware,
    registerModels,
    registerRecipes,
    registerServe,
    registerCompletion,
  ],
  'For programs:': [registerBatch],
};

/** The command without its commands. */
function mainCommand(io: CliIo): Command {
  return groupedHelp(new Command('shardwright'))
    .description(
      'Plans the sharding of every tensor of a training graph over a device mesh, at the ' +
        'least time, with proof.',
    )
    .version(VERSION)
    .exitOverride()
    .showSuggestionAfterError(true)
    .configureOutput({
      writeOut: io.stdout,
      writeErr: (text) => io.stderr(text),
      // Errors are printed below, as all others are.
      outputError: () => undefined,
    })
    .addHelpText(
      'after',
      '\nTo begin with:\n  $ shardwright demo\n  $ shardwright tune my_config.toml --devices ' +
        '16xH100\n  $ shardwright compare llama-3.1-8b --devices 64xH100\n' +
        '  $ shardwright plan llama-3.2-1b --devices 8xH100\n\n' +
        'Exit codes: 0 ok, 1 a defect of Shardwright, 2 usage or bad input, 3 nothing fits, 4 ' +
        'stopped above the gap that was asked for, 5 findings: a plan ' +
        'that differs from its files, a proof that proves nothing, wrong rules, 129, 130 and 143 ' +
        'a signal before the first answer\n',
    );
}

/**
 * Runs the command line; resolves to the exit code. Solver and report code is loaded only by the
 * commands that need it.
 *
 * @param place whose defaults hold for flags; without one none do
 */
export async function runCli(
  argv: readonly string[],
  streams: CliStreams,
  control: RunControl = unwatched(),
  place?: Surroundings,
): Promise<number> {
  const io = printer(streams);
  const flagsOf: CliSession['flagsOf'] = new Map();
  const defaults = (): Defaults =>
    place === undefined ? new Map() : readDefaults(place, [...flagsOf.values()]);
  const session: CliSession = {
    io,
    control,
    flagsOf,
    defaults,
    // The working folder may be another one by then.
    runCli: (next, to) =>
      runCli(next, to, unwatched(), place === undefined ? undefined : surroundings()),
    exit: EXIT.ok,
  };
  const json = argv.includes('--json');
  const program = mainCommand(io);
  for (const [heading, commands] of Object.entries(COMMANDS)) {
    program.commandsGroup(heading);
    for (const register of commands) register(program, session);
  }

  registerComplete(program, session);

  try {
    const unknown = unknownCommand(program, argv);
    if (unknown !== undefined) throw unknown;
    await program.parseAsync(argv, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return EXIT.ok;
      // Help that was printed because no command was given.
      if (error.code === 'commander.help') return EXIT.usage;
      return reportError(usageError(error), io, json);
    }
    return reportError(error, io, json);
  }
  return session.exit;
}

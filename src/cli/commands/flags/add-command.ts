/**
 * Adds a command to the command line: its name, its help and its flags as records. Its code is
 * loaded when it runs.
 */

import { type Command, Option } from 'commander';

import { type Defaults, withDefaults } from '../../input/defaults.ts';
import { withDevicesOf } from '../../input/flags/devices-flag.ts';
import { type Flag, type Flags, type Given, readFlags } from '../../input/flags/flag.ts';
import { addFullHelp } from './help-groups.ts';
import type { CliSession } from './session.ts';
import { excessError, missingOf } from './usage-errors.ts';

/** One call of a command. */
interface Call extends Pick<CliSession, 'io' | 'control' | 'runCli'> {
  /** Names of the values whose flags are on the command line; the others have their defaults. */
  readonly given: readonly string[];
}

/** The texts around the flags in the help of a command. */
interface CommandTexts {
  /** Its name and its arguments: `explain <plan> <node>`. */
  readonly usage: string;
  readonly summary: string;
  readonly description: string;
}

/** Adds a command, or a group of commands, below a parent. */
export type AddCommand = (parent: Command, session: CliSession) => void;

interface CommandRecord<F extends Flags> extends CommandTexts {
  readonly flags: F;
  /** The command that its group runs where none is named. */
  readonly isDefault?: boolean;
  /** Gets the values of the flags, and the arguments in their order; resolves to the exit code. */
  readonly run: (options: Given<F>, call: Call, ...args: string[]) => number | Promise<number>;
}

/** A command of the command line. */
export function command<F extends Flags>({
  usage,
  summary,
  description,
  flags,
  isDefault = false,
  run,
}: CommandRecord<F>): AddCommand {
  return (parent, session) => {
    const added = parent.command(usage, { isDefault }).summary(summary).description(description);
    for (const flag of Object.values(flags)) added.addOption(optionOf(flag));
    addFullHelp(added);
    session.flagsOf.set(added, flags);
    const asked = (): ReturnType<typeof withDefaults> => textsOf(added, flags, session.defaults());
    added.exitOverride((error) => {
      if (error.code === 'commander.excessArguments') throw excessError(added, isDefault);
      if (!/missingArgument|unknownOption/.test(error.code)) throw error;
      throw missingOf(added, flags, asked().texts) ?? error;
    });
    added.action(async () => {
      const { texts, used } = asked();
      const missing = missingOf(added, flags, texts);
      if (missing !== undefined) throw missing;
      if (used.length > 0 && texts['quiet'] !== true)
        session.io.stderr(`defaults: ${used.join(', ')}\n`);
      const options = await readFlags(flags, texts);
      const given = Object.keys(texts).filter((key) => added.getOptionValueSource(key) === 'cli');
      session.exit = await run(
        options,
        { io: session.io, control: session.control, runCli: session.runCli, given },
        ...added.args.flat(),
      );
    });
  };
}

/** The texts of the flags of a command line, with the defaults of its place. */
function textsOf(
  command: Command,
  flags: Flags,
  defaults: Defaults,
): ReturnType<typeof withDefaults> {
  const own: Readonly<Record<string, string | boolean | readonly string[] | undefined>> =
    command.opts();
  const texts = withDevicesOf(flags, own);
  const isGiven = (key: string): boolean =>
    command.getOptionValueSource(key) === 'cli' || texts[key] !== own[key];
  const { texts: all, used } = withDefaults(flags, texts, defaults, isGiven);
  return { texts: withDevicesOf(flags, all, !isGiven('devices')), used };
}

/** A command that only groups others, such as `hardware`; `usage` is its name. */
export function commandGroup(
  { usage, summary, description }: Omit<CommandTexts, 'description'> & Partial<CommandTexts>,
  members: readonly AddCommand[],
  alias?: string,
): AddCommand {
  return (parent, session) => {
    const added = parent.command(usage).summary(summary);
    if (description !== undefined) added.description(description);
    if (alias !== undefined) added.alias(alias);
    for (const add of members) add(added, session);
  };
}

/** The flag as commander has it: texts only, which `readFlags` reads. */
function optionOf({ usage, help, initial, isList }: Flag<unknown>): Option {
  const option = new Option(usage, help);
  if (initial !== undefined) option.default(initial);
  if (isList === true)
    option.argParser((item, before: readonly string[] = []) => [...before, item]);
  return option;
}

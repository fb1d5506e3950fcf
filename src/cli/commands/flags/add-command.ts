/** Adds a command to the command line: its name, its help and its flags as records. Its code is loaded when it runs. */

import { Option, type Command } from 'commander';
import { readFlags, type Flag, type Flags, type Given } from '../../input/flags/flag.ts';
import type { CliSession } from './session.ts';

/** One call of a command. */
interface Call extends Pick<CliSession, 'io' | 'control'> {
  /** Names of the values whose flags stand on the command line; the others have their defaults. */
  readonly given: readonly string[];
}

/** What stands around the flags in the help text. */
interface CommandTexts {
  /** Its name and its arguments: `explain <plan> <node>`. */
  readonly usage: string;
  readonly summary: string;
  readonly description: string;
}

/**
 * Adds a command below `parent`.
 *
 * @param run gets the values of the flags, and the arguments in their order; resolves to the exit code
 */
export function addCommand<F extends Flags, A extends readonly (string | undefined)[]>(
  parent: Command,
  session: CliSession,
  { usage, summary, description }: CommandTexts,
  flags: F,
  run: (options: Given<F>, call: Call, ...args: A) => number | Promise<number>,
): void {
  const command = parent.command(usage).summary(summary).description(description);
  for (const flag of Object.values(flags)) command.addOption(optionOf(flag));
  command.action(async () => {
    const texts = command.opts<Record<string, string | boolean | readonly string[]>>();
    const options = await readFlags(flags, texts);
    const given = Object.keys(texts).filter((key) => command.getOptionValueSource(key) === 'cli');
    session.exit = await run(
      options,
      { io: session.io, control: session.control, given },
      ...(command.processedArgs as unknown as A),
    );
  });
}

/** The flag as commander has it: texts only, which `readFlags` reads. */
function optionOf({ usage, help, initial, isList, isRequired }: Flag<unknown>): Option {
  const option = new Option(usage, help).makeOptionMandatory(isRequired === true);
  if (initial !== undefined) option.default(initial);
  if (isList === true) option.argParser((item, before: readonly string[] = []) => [...before, item]);
  return option;
}

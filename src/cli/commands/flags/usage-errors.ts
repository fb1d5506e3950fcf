/**
 * Mistakes on a command line in the words of all other errors: what is missing, all at once, with a
 * command that works; and what the parser refuses, with the nearest name.
 */

import type { Command, CommanderError } from 'commander';

import { didYouMean, ShardwrightError } from '../../../errors.ts';
import { type Flags, longName } from '../../input/flags/flag.ts';

/**
 * The error for an argument or flag that is missing, with an example of a complete command.
 *
 * @returns E_USAGE
 */
export function missingError(
  command: string,
  missing: readonly string[],
  example: string | undefined,
): ShardwrightError {
  const last = missing.at(-1) ?? '';
  const list = missing.length < 2 ? last : `${missing.slice(0, -1).join(', ')} and ${last}`;
  return new ShardwrightError(
    'E_USAGE',
    `${command} needs ${list}`,
    example === undefined ? {} : { hint: `for example: ${example}` },
  );
}

/**
 * Everything that a command cannot do without and that is not on its command line; undefined where
 * nothing is missing. An unknown option comes first: it may be what is missing, misspelt.
 *
 * @param texts of the flags that are there
 */
export function missingOf(
  command: Command,
  flags: Flags,
  texts: Readonly<Record<string, unknown>>,
): ShardwrightError | undefined {
  const unknown = command.args.find((arg) => /^-./.test(arg));
  if (unknown !== undefined) return unknownOption(unknown, command);
  const operands = command.registeredArguments.flatMap((argument, i) =>
    argument.required && command.args[i] === undefined ? [`<${argument.name()}>`] : [],
  );
  const names = Object.entries(flags).flatMap(([key, { isRequired }]) =>
    isRequired === true && texts[key] === undefined ? [longName(key)] : [],
  );
  const missing = [...operands, ...names];
  if (missing.length === 0) return undefined;
  return missingError(nameOf(command), missing, exampleWith(command, texts));
}

/** Words that a shell takes as they are. */
const PLAIN = /^[\w./@:=,+-]+$/;

/** The first example of a command with the user's argument, devices, mesh and switches in it. */
function exampleWith(
  command: Command,
  texts: Readonly<Record<string, unknown>>,
): string | undefined {
  const words = firstExample(command.description())?.split(' ');
  if (words === undefined) return undefined;
  const isPlain = (word: unknown): word is string => typeof word === 'string' && PLAIN.test(word);
  const [operand] = command.args;
  const at = 1 + nameOf(command).split(' ').length;
  if (isPlain(operand) && words[at]?.startsWith('-') === false) words[at] = operand;
  const isTyped = (key: string): boolean => command.getOptionValueSource(key) === 'cli';
  const switches = Object.keys(texts).filter((key) => texts[key] === true && isTyped(key));
  const example = [...words, ...switches.map(longName)].join(' ');
  const { devices, mesh } = texts;
  if (isPlain(mesh)) return example.replace('--devices 8xH100', `--mesh ${mesh} --cluster h100`);
  return isPlain(devices) ? example.replace(/--devices \d+/, `--devices ${devices}`) : example;
}

/**
 * More words than a command takes.
 *
 * @param isDefault the command is the one that its group runs where none is named: the first word
 *   was meant to name another
 */
export function excessError(command: Command, isDefault: boolean): ShardwrightError {
  const { args, registeredArguments: taken } = command;
  const [first = ''] = args;
  if (isDefault && command.parent !== null) return noCommand(command.parent, first);
  const names = taken.map((argument) => `<${argument.name()}>`).join(' ');
  const takes = taken.length === 0 ? 'no argument' : `${names} alone`;
  const more = args.slice(taken.length).map((arg) => `'${arg}'`);
  const left = `${more.join(', ')} ${more.length === 1 ? 'is' : 'are'} left over`;
  return new ShardwrightError('E_USAGE', `${nameOf(command)} takes ${takes}, and ${left}`, {
    hint: 'put a name with blanks in it between quotes.',
  });
}

/**
 * The error for a first word, or a word behind the name of a group, that names no command: also
 * where help is asked for, which the parser would answer with the help of all commands.
 */
export function unknownCommand(
  program: Command,
  argv: readonly string[],
): ShardwrightError | undefined {
  let group = program;
  for (const word of argv[0] === 'help' ? argv.slice(1) : argv) {
    if (word.startsWith('-') || group.commands.length === 0) return undefined;
    const named = group.commands.find(
      (member) => member.name() === word || member.aliases().includes(word),
    );
    if (named === undefined) return word === 'help' ? undefined : noCommand(group, word);
    group = named;
  }
  return undefined;
}

function noCommand(group: Command, word: string): ShardwrightError {
  const names = group.commands.map((member) => member.name());
  const near = didYouMean(word, names);
  const isTop = group.parent === null;
  const all = isTop
    ? `\`${group.name()} --help\` lists the commands.`
    : `its commands are ${names.join(', ')}.`;
  return new ShardwrightError(
    'E_USAGE',
    isTop ? `unknown command '${word}'` : `${nameOf(group)} has no command '${word}'`,
    {
      hint: near.length > 0 ? `did you mean ${near.map((name) => `'${name}'`).join(' or ')}?` : all,
    },
  );
}

/** The name of a command with those of the groups that it is in: `models show`. */
export function nameOf(command: Command): string {
  const { parent } = command;
  const isTop = parent === null || parent.parent === null;
  return isTop ? command.name() : `${nameOf(parent)} ${command.name()}`;
}

/** The first command of the examples in a help text. */
function firstExample(description: string): string | undefined {
  return /^ *\$ (.+)$/m.exec(description)?.[1];
}

function unknownOption(given: string, command: Command): ShardwrightError {
  const known = command.options.map(({ long }) => long ?? '');
  const name = given.replace(/=.*$/s, '').replace(/^-+/, '');
  const near = known.includes(`--${name}`) ? [`--${name}`] : didYouMean(`--${name}`, known);
  return new ShardwrightError(
    'E_USAGE',
    `unknown option '${given}'`,
    near.length === 0 ? {} : { hint: `did you mean ${near.map((n) => `'${n}'`).join(' or ')}?` },
  );
}

/** The error of the parser as an error with a code and a hint. */
export function usageError({ message }: CommanderError): ShardwrightError {
  const [, option = '', form = option] =
    /option '(?:-\w, )?((--[\w-]+)[^']*)' argument missing/.exec(message) ?? [];
  if (option !== '')
    return new ShardwrightError('E_USAGE', `${form} has no value`, { hint: `write ${option}.` });
  const [, what = message, near] =
    /^([^]*?)\s*\(Did you mean (?:one of )?([^]*?)\?\)\s*$/.exec(message) ?? [];
  const hint =
    near === undefined
      ? {}
      : {
          hint: `did you mean ${near
            .split(', ')
            .map((n) => `'${n}'`)
            .join(' or ')}?`,
        };
  return new ShardwrightError('E_USAGE', what.replace(/^error: /, ''), hint);
}

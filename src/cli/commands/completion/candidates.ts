/**
 * The words that may come next on a command line: commands, flags, the words that a flag takes,
 * names of models and clusters, or files. The last word may be begun or empty.
 */
import type { Command } from 'commander';

import { type Flags, longName } from '../../input/flags/flag.ts';
import type { CliSession } from '../flags/session.ts';

/** A word that may come next, with what it is. */
interface Candidate {
  readonly word: string;
  readonly about: string;
}

interface Candidates {
  readonly words: readonly Candidate[];
  /** A file may come next, too. */
  readonly files: boolean;
}

type Names = () => Promise<readonly string[]>;
const clusters: Names = async () => {
  const { acceleratorNames, clusterNames } = await import('../../../cost/hardware/load-cluster.ts');
  return [...clusterNames(), ...acceleratorNames()];
};
const models: Names = async () =>
  (await import('../../../models/registry.ts')).modelEntries().map(({ name }) => name);
const recipes: Names = async () =>
  (await import('../../../recipes/registry.ts')).NAMED_RECIPES.map(({ name }) => name);
const trainers: Names = async () => (await import('../../../trainers/trainers.ts')).TRAINER_NAMES;
const targets: Names = async () =>
  (await import('../../../export/targets.ts')).EXPORT_TARGETS.map(({ name }) => name);
const shells: Names = async () => Object.keys((await import('./scripts.ts')).COMPLETION_SCRIPTS);

/** Names of what is built in, by the value of a flag and by the argument that may be one. */
const NAMES: Readonly<Record<string, Names>> = {
  cluster: clusters,
  'hardware show name': clusters,
  model: models,
  'model|plan': models,
  'models show name': models,
  recipe: recipes,
  plans: recipes,
  for: trainers,
  framework: trainers,
  target: targets,
  shell: shells,
};

/**
 * @param program with all commands
 * @param words after the name of the program; the last one is completed
 */
export async function candidatesFor(
  program: Command,
  { flagsOf }: Pick<CliSession, 'flagsOf'>,
  words: readonly string[],
): Promise<Candidates> {
  const begun = words.at(-1) ?? '';
  const { command, operands, given, open } = readLine(program, flagsOf, words.slice(0, -1));
  const flags = flagsOf.get(command) ?? {};
  const starts = ({ words: all, files }: Candidates): Candidates => ({
    words: all.filter(({ word }) => word.startsWith(begun)),
    files,
  });
  if (open !== undefined) return starts(await valuesOf(open, flags, begun));
  if (begun.startsWith('-'))
    return starts({ words: flagWords(command, flags, given), files: false });
  const members = command.createHelp().visibleCommands(command);
  if (members.length > 0 && operands === 0)
    return starts({
      words: members.map((one) => ({ word: one.name(), about: one.summary() })),
      files: false,
    });
  const argument = command.registeredArguments[operands]?.name();
  if (argument === undefined) return { words: [], files: false };
  const place = [command.parent?.name(), command.name(), argument].join(' ');
  const names = NAMES[argument] ?? NAMES[place];
  const known = (await names?.()) ?? [];
  const about = argument.replace(/\|.*/, '');
  return starts({
    words: known.map((word) => ({ word, about })),
    files: argument !== 'shell' && NAMES[place] === undefined,
  });
}

/** The command of the words, its arguments so far, its flags, and the flag that wants a value. */
function readLine(
  program: Command,
  flagsOf: CliSession['flagsOf'],
  words: readonly string[],
): {
  readonly command: Command;
  readonly operands: number;
  readonly given: ReadonlySet<string>;
  readonly open: string | undefined;
} {
  let command = program;
  let operands = 0;
  let open: string | undefined;
  const given = new Set<string>();
  for (const word of words) {
    if (open !== undefined) open = undefined;
    else if (/^-./.test(word)) {
      const option = command.options.find(({ long, short }) => long === word || short === word);
      const key = option?.attributeName();
      if (key === undefined) continue;
      const flag = (flagsOf.get(command) ?? {})[key];
      if (flag?.isList !== true) given.add(option?.long ?? word);
      if (flag?.read !== undefined && option?.required === true) open = key;
    } else {
      const member = operands > 0 ? undefined : command.commands.find((c) => c.name() === word);
      if (member === undefined) operands++;
      else command = member;
    }
  }
  return { command, operands, given, open };
}

function flagWords(command: Command, flags: Flags, given: ReadonlySet<string>): Candidate[] {
  const own = Object.entries(flags).map(([key, { usage, help }]) => ({
    word: usage.includes('--no-') ? longName(key).replace('--', '--no-') : longName(key),
    about: /^[^(;,:]{0,60}/.exec(help)?.[0].trim() ?? '',
  }));
  const help = command.options
    .filter(({ long }) => long === '--help-all')
    .map(({ description }) => ({ word: '--help-all', about: description }));
  return [...own, ...help, { word: '--help', about: 'help' }].filter(
    ({ word }) => !given.has(word),
  );
}

/** The words that a flag takes: of a fixed list, names of what is built in, or files. */
async function valuesOf(key: string, flags: Flags, begun: string): Promise<Candidates> {
  const { usage = '', read } = flags[key] ?? {};
  if (key === 'devices') return { words: await devicesOfKind(begun), files: false };
  const words = read?.words ?? (await NAMES[key]?.()) ?? [];
  return {
    words: words.map((word) => ({ word, about: key })),
    files: key === 'cluster' || /<(file|dir|[\w-]+\.\w+)>/.test(usage),
  };
}

/** The accelerators that may follow `16x`, in the letters that were begun: `16xH100`. */
async function devicesOfKind(begun: string): Promise<Candidate[]> {
  const [, amount, letters = ''] = /^(\d+x)(.*)$/.exec(begun) ?? [];
  if (amount === undefined) return [];
  const { acceleratorNames } = await import('../../../cost/hardware/load-cluster.ts');
  return acceleratorNames().map((name) => ({
    word: amount + (/[a-z]/.test(letters) ? name : name.toUpperCase()),
    about: 'devices',
  }));
}

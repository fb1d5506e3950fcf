/**
 * Long help texts: `--help` has the flags that people use, `--help-all` every flag, both under
 * headings by one list for all commands. A list that fits on a screen stays as it is.
 */
import { type Command, CommanderError, Help, Option } from 'commander';

import { nameOf } from './usage-errors.ts';

/** Headings in their order, with the flags below them. */
const GROUPS: Readonly<Record<string, string>> = {
  'Devices and their prices':
    'mesh cluster devices cost for framework compiled fp8 calibration collectives like',
  'What is sought':
    'plan plans objective recipe overlap frontier range optimizer gradients accumulate edits ' +
    'max-regret max-dims global-batch layout',
  Placements: 'pin inputs outputs maps uneven cut strided unknown sharing copies',
  'Peak memory': 'memory headroom risk activations checkpoint',
  'Pipeline stages': 'pp schedule microbatches virtual',
  'Questions about whole runs': 'tokens price carbon within spend equal sweep',
  'The check': 'tolerance replan shrink',
  Solver: 'solver gap time-limit seed explain-solver',
  'Long comparisons': 'threads resume slice list merge',
  'A model file':
    'format ignore-shardings role tie input ops select size train-step optimizer-step ' +
    'batch-dim sequence-dim',
  'A model by name or config': 'batch seq dtype layers training forward pad-vocab lora microbatch',
  Output: 'program emit verbose recipes cache emit-ilp output keep json quiet help help-all',
};
/** The flags that `--help` lists for a command with too many for one screen. */
const OFTEN =
  'mesh cluster devices for recipe overlap layout plan plans edits max-regret pin ' +
  'memory pp tokens price batch seq global-batch tolerance time-limit verbose output json help ' +
  'help-all';
/** The flags that `--help` also lists for some commands. */
const ALSO: Readonly<Record<string, string>> = {
  tune: 'model run',
  inference: 'prompt generate requests first-token each-token weights kv-cache',
  inspect: 'format input ops select size dtype layers training forward',
  check: 'mode type format input ops size',
  lint: 'format ops',
};
/** The most flags that `--help` lists, besides `--help` and `--help-all`. */
const SCREEN = 15;
/** Commands that were called with `--help-all`. */
const full = new WeakSet<Command>();

const FLAGS = Object.entries(GROUPS).flatMap(([heading, flags]) =>
  flags.split(' ').map((flag) => ({ flag, heading: `${heading}:` })),
);
/** The place of a flag in the list above; -1 for a flag that is not in it, which comes first. */
const placeOf = (item: Command | Option): number =>
  'long' in item
    ? FLAGS.findIndex(({ flag }) => `--${flag}` === item.long || `--no-${flag}` === item.long)
    : -1;

/** Most options in one list as their records have them, and in one list in the order above. */
const LIST = 12;
const SHORT = 18;

/** Adds `--help-all` where `--help` does not have every flag. */
export function addFullHelp(command: Command): void {
  if (command.options.length <= SCREEN) return;
  command.addOption(new Option('--help-all', 'every flag of this command'));
  command.on('option:help-all', () => {
    full.add(command);
    command.outputHelp();
    throw new CommanderError(0, 'commander.helpDisplayed', '(outputHelp)');
  });
  command.addHelpText('after', () => {
    if (full.has(command)) return '';
    const often = oftenOf(command);
    const left = command.options.filter((option) => !often(option)).length;
    return `\n${left} more flags: shardwright ${nameOf(command)} --help-all\n`;
  });
}

/** Tells whether the long help text of a command lists an option in its short form, too. */
function oftenOf(command: Command): (option: Option) => boolean {
  const names = new Set(`${OFTEN} ${ALSO[command.name()] ?? ''}`.split(' '));
  return ({ long }) => names.has((long ?? '').replace(/^--/, ''));
}

/** Gives the command, and those that are added to it, help texts in groups. */
export function groupedHelp(program: Command): Command {
  const plain = new Help();
  return program.configureHelp({
    visibleOptions(command) {
      const all = plain.visibleOptions(command);
      if (command.options.length <= SCREEN || full.has(command)) return all;
      return all.filter(oftenOf(command));
    },
    groupItems<T extends Command | Option>(
      unsorted: T[],
      visible: T[],
      groupOf: (item: T) => string,
    ) {
      const [first] = visible;
      if (first === undefined || visible.length <= LIST || !('long' in first))
        return plain.groupItems(unsorted, visible, groupOf);
      const groups = new Map<string, T[]>();
      const inOrder = [...visible].sort((a, b) => placeOf(a) - placeOf(b));
      if (visible.length <= SHORT) return new Map([[groupOf(first), inOrder]]);
      for (const item of inOrder) {
        const heading = FLAGS[placeOf(item)]?.heading ?? groupOf(item);
        groups.set(heading, [...(groups.get(heading) ?? []), item]);
      }
      return groups;
    },
    // Aliases are earlier spellings: they work, and help shows none.
    subcommandTerm: (command) => plain.subcommandTerm(withoutAliases(command)),
    commandUsage: (command) => plain.commandUsage(withoutAliases(command)),
    // A command to copy stays on its line.
    boxWrap: (text, width) =>
      text
        .split('\n')
        .map((line) => (line.startsWith('  $ ') ? line : plain.boxWrap(line, width)))
        .join('\n'),
  });
}

function withoutAliases(command: Command): Command {
  return Object.assign(Object.create(command) as Command, { _aliases: [] });
}

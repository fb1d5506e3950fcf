import { describe, expect, it } from 'vitest';

import { FULL } from '../support/full.ts';
import { cli } from './support.ts';

/** Help texts are lists that a person can read: short, or in groups. */

/** Lists of a help text: what stands under each heading, by its first word. */
async function lists(...words: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const { code, out } = await cli(...words);
  expect(code).toBe(0);
  const found = new Map<string, string[]>();
  let list: string[] = [];
  for (const line of out.split('\n')) {
    if (/^[A-Z].*:$/.test(line)) found.set(line, (list = []));
    const [, item] = /^ {2}(?:-\w, )?(--[\w-]+|\w+)/.exec(line) ?? [];
    if (item !== undefined) list.push(item);
  }
  return found;
}

function flagsOf(groups: ReadonlyMap<string, readonly string[]>): string[] {
  return [...groups].flatMap(([heading, items]) => (heading.startsWith('Example') ? [] : items));
}

describe('help', () => {
  it('of the program lists its commands in groups', async () => {
    const groups = await lists('--help');
    expect([...groups.keys()]).toEqual(
      expect.arrayContaining(['Plan a model:', 'Use a plan:', 'Look at a program:']),
    );
    for (const [heading, items] of groups) expect(items.length, heading).toBeLessThanOrEqual(8);
  });

  it.each(['plan', 'verify', 'audit', 'compare', 'inspect', 'recipes lint'])(
    'of %s has its flags in groups of at most 12, each flag in one',
    async (command) => {
      const groups = await lists(...command.split(' '), '--help-all');
      expect(
        groups.get('Options:') ?? [],
        'without a heading in src/cli/commands/flags/help-groups.ts',
      ).toEqual([]);
      const flags = [...groups].flatMap(([heading, items]) =>
        heading.startsWith('Example') ? [] : items,
      );
      expect(flags.length).toBeGreaterThan(12);
      expect(new Set(flags).size).toBe(flags.length);
      for (const [heading, items] of groups) expect(items.length, heading).toBeLessThanOrEqual(12);
    },
  );

  it('of plan begins with the devices and ends with what is written; a command to copy stays on its line', async () => {
    const groups = [...(await lists('plan', '--help-all'))].filter(
      ([heading]) => !heading.startsWith('Example'),
    );
    expect(groups[0]).toEqual([
      'Devices and their prices:',
      [
        '--mesh',
        '--cluster',
        '--devices',
        '--cost',
        '--for',
        '--compiled',
        '--calibration',
        '--collectives',
      ],
    ]);
    expect(groups.at(-1)![0]).toBe('Output:');
    const { out } = await cli('plan', '--help-all');
    expect(out).toMatch(/^ {2}\$ shardwright plan .* --collectives nccl-table\.txt$/m);
    expect(out).not.toContain('(default: [])');
  });

  it('of a command with few flags is one list', async () => {
    expect([...(await lists('report', '--help')).keys()]).toEqual(['Examples:', 'Options:']);
  });

  it.each([
    ...['plan', 'compare', 'audit', 'verify', 'tune', 'inference', 'inspect', 'check'],
    'recipes lint',
  ])(
    'of %s is one list of at most 15 flags besides --help and --help-all, which has the others',
    async (command) => {
      const words = command.split(' ');
      const some = (await lists(...words, '--help')).get('Options:')!;
      const all = flagsOf(await lists(...words, '--help-all'));
      expect(some.length).toBeLessThanOrEqual(17);
      expect(all).toEqual(expect.arrayContaining([...some]));
      const { out } = await cli(...words, '--help');
      expect(out).toContain(
        `\n${all.length - some.length} more flags: shardwright ${command} --help-all\n`,
      );
    },
  );

  it.runIf(FULL)('of every other command needs no --help-all', async () => {
    const long = /^ {2}(?:plan|compare|audit|verify|tune|inference|inspect|check|help) /;
    const { out } = await cli('--help');
    const others = out
      .split('\n')
      .filter((line) => /^ {2}[a-z-]+ {2}|^ {2}[a-z-]+ \[/.test(line) && !long.test(line))
      .map((line) => /[a-z-]+/.exec(line)![0]);
    expect(others.length).toBeGreaterThan(15);
    for (const command of others)
      expect(flagsOf(await lists(command, '--help')).length, command).toBeLessThanOrEqual(17);
  });

  it.each([
    [['help', 'pln'], "unknown command 'pln'", "did you mean 'plan'?"],
    [['sweeep', '--help'], "unknown command 'sweeep'", '`shardwright --help` lists the commands.'],
    [['models', 'shwo', '--help'], "models has no command 'shwo'", "did you mean 'show'?"],
    [['help', 'hardware', 'buy'], "hardware has no command 'buy'", 'its commands are '],
  ])('of %j is an error that names what there is', async (words, what, hint) => {
    const { code, err } = await cli(...words);
    expect(code).toBe(2);
    expect(err).toContain(`E_USAGE ${what}\n`);
    expect(err).toContain(hint);
  });
});

import { describe, expect, it } from 'vitest';

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
      const all = ['plan', 'verify', 'audit', 'compare'].includes(command) ? '-all' : '';
      const groups = await lists(...command.split(' '), `--help${all}`);
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

  it.each(['plan', 'compare', 'audit', 'verify'])(
    'of %s is one list of at most 17 flags and says how many more --help-all has',
    async (command) => {
      const some = (await lists(command, '--help')).get('Options:')!;
      const all = [...(await lists(command, '--help-all'))].flatMap(([heading, items]) =>
        heading.startsWith('Example') ? [] : items,
      );
      expect(some.length).toBeLessThanOrEqual(17);
      expect(all).toEqual(expect.arrayContaining([...some]));
      expect(all.length).toBeGreaterThan(40);
      const { out } = await cli(command, '--help');
      expect(out).toContain(
        `\n${all.length - some.length} more flags: shardwright ${command} --help-all\n`,
      );
    },
  );
});

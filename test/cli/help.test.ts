import { describe, expect, it } from 'vitest';

import { cli } from './support.ts';

/** Help texts are lists that a person can read: short, or in groups. */

/** Lists of a help text: what stands under each heading, by its first word. */
async function lists(...words: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const { code, out } = await cli(...words, '--help');
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
    const groups = await lists();
    expect([...groups.keys()]).toEqual(
      expect.arrayContaining(['Plan a model:', 'Use a plan:', 'Look at a program:']),
    );
    for (const [heading, items] of groups) expect(items.length, heading).toBeLessThanOrEqual(8);
  });

  it.each(['plan', 'verify', 'audit', 'compare', 'inspect', 'recipes lint'])(
    'of %s has its flags in groups of at most 12, each flag in one',
    async (command) => {
      const groups = await lists(...command.split(' '));
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
    const groups = [...(await lists('plan'))].filter(([heading]) => !heading.startsWith('Example'));
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
    const { out } = await cli('plan', '--help');
    expect(out).toMatch(/^ {2}\$ shardwright plan .* --collectives nccl-table\.txt$/m);
    expect(out).not.toContain('(default: [])');
  });

  it('of a command with few flags is one list', async () => {
    expect([...(await lists('report')).keys()]).toEqual(['Examples:', 'Options:']);
  });
});

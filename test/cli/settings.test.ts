import { describe, expect, it } from 'vitest';

import { cli, fixture } from './support.ts';

/**
 * DESIGN, section 6: what a plan was made with is printed with it, and which of it nobody asked
 * for.
 */

const ON = ['--mesh', 'x=8', '--cluster', 'dgx-h100', '--no-recipes'] as const;

/** The lines of what was asked and of what is a default. */
async function settings(...argv: readonly string[]): Promise<readonly string[]> {
  const { out, err } = await cli('plan', '-v', ...argv);
  // The first screen breaks them at 80 columns; below it each is one line.
  const details = out.slice(out.indexOf('\nmodel '));
  const lines = details.split('\n').filter((line) => /^(asked|defaults) {2}/.test(line));
  expect(lines.length, err).toBeGreaterThan(0);
  return lines;
}

// What the driver reports of an H100, 81,559 MiB, without the 5 % that are held back.
const BUDGET = /budget 75\.7 GiB for peak memory, the 79\.6 GiB of a device less 5\.00 % headroom/;

describe('the settings of a plan', () => {
  it('float32 weights: adam keeps a weight, a gradient and two moments of 4 bytes', async () => {
    const [line, ...more] = await settings(fixture('mlp'), ...ON);
    expect(more).toEqual([]);
    expect(line).toMatch(/^defaults {3}gap 0; optimizer adam, 16 bytes a parameter in f32; /);
    expect(line).toMatch(BUDGET);
    expect(line).toMatch(/; cost nccl; solver auto$/);
  });

  it('16-bit weights: adamw-mixed keeps 2 + 2 bytes beside a float32 master and two float32 moments', async () => {
    const [line] = await settings(fixture('llama3-8b-2l'), ...ON);
    expect(line).toContain('optimizer adamw-mixed, 16 bytes a parameter in bf16; ');
  });

  it('what was asked stands apart from what was not, a gap of 0 too', async () => {
    const lines = await settings(
      fixture('mlp'),
      ...ON,
      '--gap',
      '0',
      '--optimizer',
      'sgd',
      '--memory',
      '1GiB',
      '--cost',
      'alpha-beta',
      '--time-limit',
      '60',
    );
    expect(lines).toEqual([
      'asked      gap 0; optimizer sgd, 12 bytes a parameter in f32; budget 1.00 GiB per device for peak memory; cost alpha-beta; time limit 60.0 s',
      'defaults   solver auto',
    ]);
    expect(await settings(fixture('mlp'), ...ON, '--solver', 'propagate')).toContain(
      'asked      solver propagate',
    );
  });

  it('the headroom is asked for, and states alone are by name', async () => {
    const [asked] = await settings(
      fixture('mlp'),
      ...ON,
      '--headroom',
      '10%',
      '--activations',
      'report',
    );
    expect(asked).toBe(
      'asked      budget 71.7 GiB for states alone, the 79.6 GiB of a device less 10.0 % headroom; activations report',
    );
  });

  it('the gap that is good enough under a budget on peak memory is another default', async () => {
    const [asked, line] = await settings(fixture('mlp'), ...ON, '--activations', 'constraint');
    expect(asked).toBe('asked      activations constraint');
    expect(line).toMatch(/^defaults {3}gap 1\.00 %; /);
  });

  it('a forward pass has no optimizer, and one that was asked for has no state', async () => {
    const [line] = await settings(fixture('mlp', 'export.readable'), ...ON);
    expect(line).toContain('; no optimizer, no gradient is returned; ');
    const [asked] = await settings(fixture('mlp', 'export.readable'), ...ON, '--optimizer', 'adam');
    expect(asked).toBe('asked      optimizer adam without state, no gradient is returned');
  });
});

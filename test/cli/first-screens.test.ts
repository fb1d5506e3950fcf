import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

import { describe, expect, it, test } from 'vitest';

import { printer } from '../../src/cli/output/io.ts';
import { paintDiff, paintScreen } from '../../src/cli/output/paint.ts';
import { runCli } from '../../src/cli/program.ts';
import { brokenCell, narrowTable } from '../../src/report/text/narrow-table.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { cli, fixture } from './support.ts';

/** What a person meets first: 80 columns, the answer in words, colours on a terminal alone. */

const FEW = ['--seq', '1024', '--threads', '1', '--quiet'];
const SMALL = ['compare', 'gpt2', '--cluster', 'h100', '--global-batch', '16', ...FEW];
const NAMED = ['compare', 'llama-3.2-1b', '--cluster', 'h100', ...FEW];
const PLANS = ['--plans', 'dp,fsdp,zero1'];

/** A line that goes on past 80 columns has no blank to break it at. */
const tooLong = (out: string): string[] =>
  out.split('\n').filter((line) => line.length > 80 && !/^(?:\S+\s+)?\S+$/.test(line));

describe('first screens have 80 columns', () => {
  it.each<[string, readonly string[], readonly RegExp[]]>([
    [
      'compare of a model',
      [...SMALL, '--devices', '8', ...PLANS, '--tokens', '1T'],
      [/^best {7}\S+ on \S+, of /m, /^do {9}cut the batch over dp=8$/m, /^run {8}1T tokens in /m],
    ],
    [
      'compare with a layout',
      [...SMALL, '--devices', '8', ...PLANS, '--layout', 'tp=4,dp=2'],
      [/^yours {6}\S+ on /m, /^set {8}/m],
    ],
    [
      'compare of several numbers of devices',
      [...SMALL, '--devices', '8,16', ...PLANS],
      [/^answer {5}most tokens a second: 16 devices of h100$/m, /^cluster .* best plan /m],
    ],
    [
      'compare where nothing fits',
      [...NAMED, '--devices', '2', '--plans', 'dp', '--memory', '2GiB'],
      [/^best {7}no plan fits the budget of 2\.00 GiB/m, /^next {7}ask for more --devices/m],
    ],
    [
      'compare of a graph',
      ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100', '--quiet'],
      [/^proof {6}optimal on its mesh/m, /^\* +optimum /m, /^more {7}-v prints /m],
    ],
    [
      'audit',
      [
        ...['audit', fixture('mlp-loss'), '--plan', 'recipe:fsdp+tp', '--mesh', 'dp=2,tp=2'],
        ...['--cluster', 'dgx-h100', '--quiet'],
      ],
      [/^answer {5}recipe:fsdp\+tp is .* slower than the best plan/m],
    ],
  ])(
    '%s',
    async (_, argv, says) => {
      const { code, out, err } = await cli(...argv);
      expect([0, 3], err).toContain(code);
      expect(tooLong(out)).toEqual([]);
      for (const words of says) expect(out).toMatch(words);
    },
    60_000,
  );

  it('simulate; -v prints its notes', async () => {
    const folder = join(temporaryFolder(), 'plan');
    const mesh = ['--mesh', 'dp=4', '--cluster', 'dgx-h100', '--no-recipes', '-o', folder];
    expect((await cli('plan', fixture('mlp-loss'), ...mesh)).code).toBe(0);
    const { out } = await cli('simulate', folder);
    expect(tooLong(out)).toEqual([]);
    const notes = Number(/-v prints (\d+) notes?/.exec(out)?.[1]);
    expect((await cli('simulate', folder, '-v')).out.split(/^note /m)).toHaveLength(2);
    expect(notes).toBeGreaterThan(0);
  });
});

describe('what asks for an action stands on the first screen', () => {
  it('a faster plan that may not fit, and what makes it the answer', async () => {
    const asked = [...NAMED, '--devices', '8', ...PLANS, '--memory', '13GiB'];
    const { out } = await cli(...asked);
    const [, share] = /^risk {7}[^]*?--risk\s+(\d+)%/m.exec(out) ?? [];
    expect(out, 'a riskier plan at this budget').toMatch(/^risk {7}/m);
    expect((await cli(...asked, '--risk', `${share}%`)).out).not.toContain(`--risk ${share}%`);
  }, 60_000);

  it('idle devices', async () => {
    const { out } = await cli(...NAMED, '--devices', '6', '--plans', 'fsdp', '--global-batch', '6');
    expect(out).toMatch(/^ {11}idle: .*2 idle$/m);
  }, 60_000);

  test.each([
    ['--objective serial', ['--objective', 'serial'], '--objective serial chooses by'],
    ['no known plan', ['--no-recipes'], 'no known plan was priced to choose from'],
  ])('why a step was not looked for: %s', async (_, flags, why) => {
    const mesh = ['--mesh', 'dp=4', '--cluster', 'dgx-h100'];
    const { out } = await cli('plan', fixture('mlp-loss'), ...mesh, ...flags);
    expect(out.replace(/\s+/g, ' ')).toContain(`not looked for: ${why}`);
  });
});

describe('colours', () => {
  const streams = (colours?: { readonly stdout: boolean; readonly stderr: boolean }) => {
    const said = { out: '', err: '' };
    return {
      said,
      to: {
        stdout: (text: string) => void (said.out += text),
        stderr: (text: string) => void (said.err += text),
        isTerminal: false,
        ...(colours === undefined ? {} : { colours }),
      },
    };
  };
  const ARGV = ['compare', fixture('mlp-loss'), '--devices', '4', '--cluster', 'dgx-h100'];

  it('mark the recommended row and the labels, and change no column', async () => {
    const [painted, plain] = [streams({ stdout: true, stderr: true }), streams()];
    await runCli([...ARGV, '--quiet'], painted.to);
    await runCli([...ARGV, '--quiet'], plain.to);
    expect(plain.said.out).not.toContain('\u001b');
    expect(stripVTControlCharacters(painted.said.out)).toBe(plain.said.out);
    expect(painted.said.out).toMatch(/^\u001b\[1m\u001b\[32m\* {2}optimum /m);
    expect(painted.said.out).toMatch(/^\+ {2}\S+/m);
    expect(painted.said.out).toMatch(/^\u001b\[1mmemory\u001b\[22m {5}/m);
  });

  it('of a name that steers terminals are ours alone', () => {
    const { said, to } = streams({ stdout: true, stderr: true });
    const evil = '\u001b[31m\u009b31m';
    printer(to).stdout(`memory     ${evil}; fits with 57 %\n`, paintScreen);
    expect(stripVTControlCharacters(said.out)).toBe(
      'memory     \\u001b[31m\\u009b31m; fits with 57 %\n',
    );
    expect(said.out).toMatch(/\u001b\[1m\u001b\[31mfits with 57 %/);
  });

  it('mark errors and warnings, on stderr', async () => {
    const { said, to } = streams({ stdout: false, stderr: true });
    await runCli(['inspect', 'no-such-file.fx.txt'], to);
    expect(said.err).toMatch(/^\u001b\[1m\u001b\[31mE_\w+\u001b/);
  });

  it('of a diff: what goes and what comes', () => {
    expect(paintDiff('-a = 1')).toBe('\u001b[31m-a = 1\u001b[39m');
    expect(paintDiff('+  b: 2')).toBe('\u001b[32m+  b: 2\u001b[39m');
    expect(paintDiff('not priced a: b')).toBe('\u001b[1mnot priced\u001b[22m a: b');
  });

  it('leave JSON alone', async () => {
    const { said, to } = streams({ stdout: true, stderr: true });
    await runCli([...ARGV, '--json', '--quiet'], to);
    expect(() => JSON.parse(said.out) as unknown).not.toThrow();
  });
});

describe('narrow tables', () => {
  it('break words, never numbers, and keep every character', () => {
    const cells = [
      ['plan', 'mesh', 'step'],
      ['hsdp+tp+sp+ep', 'dp_replicate=4,dp_shard=8,tp=2 ep=16', '123 ms'],
    ];
    const table = narrowTable(cells, [2], 40);
    expect(Math.max(...table.split('\n').map((line) => line.length))).toBeLessThanOrEqual(40);
    for (const cell of ['hsdp+tp+sp+ep', '123 ms', 'ep=16']) expect(table).toContain(cell);
    expect(brokenCell('dp_replicate=4,dp_shard=8,tp=2', 16)).toEqual([
      'dp_replicate=4,',
      'dp_shard=8,tp=2',
    ]);
    expect(brokenCell('abcdefghij', 4).join('')).toBe('abcdefghij');
  });
});

import { describe, expect, it } from 'vitest';

import { FULL } from '../../../support/full.ts';
import { cli, type CliRun, fixture } from '../../support.ts';

/** The rows of a first screen by their labels, each with its lines joined. */
function rowsOf(text: string): ReadonlyMap<string, readonly string[]> {
  const rows = new Map<string, string[]>();
  let label = '';
  for (const line of text.split('\n')) {
    const [, own = '', rest = ''] = /^(.{11})(.*)$/.exec(line) ?? [];
    if (own.trim() !== '') rows.set((label = own.trim()), []);
    const texts = rows.get(label);
    if (rest.startsWith('  ') && texts !== undefined && texts.length > 0)
      texts[texts.length - 1] += ` ${rest.trim()}`;
    else texts?.push(rest);
  }
  return rows;
}

async function screen(...args: readonly string[]): Promise<ReturnType<typeof rowsOf>> {
  const run = await cli('plan', ...args, '--cluster', 'dgx-h100', '--quiet');
  expect([0, 4], run.err).toContain(run.code);
  return rowsOf(run.out);
}

const LLAMA = [fixture('llama3-8b-2l-b16'), '--mesh', 'dp=8,tp=8'] as const;

describe('the first screen of a plan', () => {
  const each = [
    ['mlp', 'dp=4,tp=2'],
    ['gpt2-2l', 'x=8'],
    ['gpt2-2l', 'dp=4,tp=2'],
    ['llama-tiny', 'dp=2,tp=2'],
  ] as const;
  it.each(FULL ? each : each.slice(0, 2))(
    'of %s on %s is 80 columns wide, and answers each question once',
    async (model, mesh) => {
      const run = await cli('plan', fixture(model), '--mesh', mesh, '--cluster', 'dgx-h100');
      expect(run.code, run.err).toBe(0);
      expect(run.out.split('\n').filter((line) => line.length > 80)).toEqual([]);
      const labels = run.out
        .split('\n')
        .flatMap((line) => /^(\S[^ ]*(?: [^ ]+)?) {2}/.exec(line)?.[1] ?? []);
      const asked = ['plan', 'do', 'step time', 'memory', 'beats', 'proof', 'defaults', 'more'];
      expect(labels.map((label) => label.trim())).toEqual(asked);
    },
  );

  it('says in words what the recipes are known for', async () => {
    const data = async (
      model: string,
      mesh: string,
      recipe: string,
    ): Promise<readonly string[]> => {
      const asked = ['--mesh', mesh, '--recipe', recipe, '--no-recipes'];
      return (await screen(fixture(model), ...asked)).get('do') ?? [];
    };
    expect(await data('mlp-loss', 'dp=2,tp=2', 'dp+tp')).toEqual([
      expect.stringMatching(
        /^cut the batch over dp=2 and features \(\d+ % of the data\) or sums .* over tp=2/,
      ),
      'cut fc2 by columns over tp=2',
      'cut fc1.bias in parts over tp=2',
      'cut fc1 by rows over tp=2',
      'keep all other weights whole',
    ]);
    if (!FULL) return;
    expect(await data('llama3-8b-2l-b16', 'dp=8,tp=8', 'dp+tp')).toEqual([
      expect.stringMatching(
        /^cut the batch over dp=8 and features \(\d+ % of the data\) over tp=8/,
      ),
      'keep input_layernorm, post_attention_layernorm and norm whole',
      'cut o_proj and down_proj by columns over tp=8',
      'cut all other weights by rows over tp=8',
    ]);
    expect(await data('llama3-8b-2l-b16', 'dp=8,cp=8', 'dp+cp')).toEqual([
      'cut the batch over dp=8 and the sequence over cp=8',
      'keep all weights whole',
    ]);
  });

  it('names each part of the data once, with all mesh dims that cut it', async () => {
    const asked = ['--mesh', 'dp_replicate=2,dp_shard=2', '--recipe', 'hsdp', '--no-recipes'];
    const [first] = (await screen(fixture('mlp-loss'), ...asked)).get('do') ?? [];
    expect(first).toBe('cut the batch over dp_replicate=2 and dp_shard=2');
  });

  it('names what is gathered before it is used', async () => {
    const asked = ['--mesh', 'dp=2', '--recipe', 'fsdp', '--no-recipes'];
    const rows = await screen(fixture('mlp-loss'), ...asked);
    expect(rows.get('do')).toEqual([
      'cut the batch over dp=2',
      'keep all weights in parts over dp=2, gathered for each use',
    ]);
  });

  /** The whole text of a plan beside its recipes, which two tests read. */
  let known: Promise<CliRun> | undefined;
  const whole = (): Promise<CliRun> =>
    (known ??= cli('plan', ...LLAMA, '--cluster', 'dgx-h100', '-v'));

  it('costs no more than any recipe, and says why the others do not fit', async () => {
    const run = await whole();
    expect(run.code).toBe(0);
    expect(run.out).toContain('optimal (gap 0)');
    expect(run.out).not.toContain('not held');
    expect(run.out).toMatch(/data parallel \(dp\+tp\) .*the batch of 16 .* cannot be cut 64 ways/);
    const seconds = { ms: 1e-3, s: 1, µs: 1e-6 };
    const rows = [
      ...run.out.matchAll(
        /^(?:replicated|FSDP|data parallel|Megatron).*?  +(?:>= )?([\d.]+) (ms|s|µs)/gm,
      ),
    ];
    expect(rows.length).toBeGreaterThanOrEqual(5);
    const [, own, ownUnit] = /^step time {2}([\d.]+) (ms|s|µs)/m.exec(run.out) ?? [];
    for (const [, value, unit] of rows)
      expect(Number(value) * seconds[unit as 'ms']).toBeGreaterThanOrEqual(
        Number(own) * seconds[ownUnit as 'ms'] * 0.995,
      );
  });

  /** `test/simulate/least-seconds.test.ts` compares the rows with simulations of their own. */
  it('beats the known plan of the shortest step, which -v lists with the others', async () => {
    const run = await whole();
    const [beats = ''] = rowsOf(run.out).get('beats') ?? [];
    const [, name = '', seconds] = /^(.*) takes (\S+ \S+) \(\+/.exec(beats) ?? [];
    const scale = { s: 1e3, ms: 1 };
    const rows = [
      ...run.out.matchAll(
        /^((?:replicated|data parallel|FSDP)\b.*?) {2,}(>= )?([\d.]+) (m?s) {2}/gm,
      ),
    ].map(([, recipe, least, value, unit]) => ({
      recipe,
      isAtLeast: least !== undefined,
      ms: Number(value) * scale[unit as 'ms'],
    }));
    expect(rows.length).toBeGreaterThan(7);
    // Of plans that print the same, any.
    const least = Math.min(...rows.map(({ ms }) => ms));
    expect(Number(seconds?.split(' ')[0])).toBe(least);
    expect(rows).toContainEqual({ recipe: name, isAtLeast: false, ms: least });
    // Slower ones are listed with a lower bound.
    expect(rows.some(({ isAtLeast }) => isAtLeast)).toBe(true);
  });

  it('says with -v what it left out', async () => {
    const [short, long] = await Promise.all([
      cli('plan', fixture('mlp'), '--mesh', 'x=8', '--cluster', 'dgx-h100'),
      cli('plan', fixture('mlp'), '--mesh', 'x=8', '--cluster', 'dgx-h100', '-v'),
    ]);
    expect(short.out).toMatch(/^more {7}-v prints .* all placements, \d+\s+notes$/m);
    expect(short.out).not.toMatch(/^note|^parameter/m);
    expect(long.out).toMatch(/^parameter .*placement \(x\)$/m);
    expect(long.out).toMatch(/^note {2}/m);
  });
});

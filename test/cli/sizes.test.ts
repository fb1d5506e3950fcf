import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Inspection } from '../../src/cli/commands/reading/inspect.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { RangeEnd } from '../../src/plan/questions/size-range.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { MLP } from '../../src/trace/nn/feed-forward.ts';
import { dim, spec } from '../../src/trace/record/spec.ts';
import { trace } from '../../src/trace/trace.ts';
import { cli, fixture } from './support.ts';

/**
 * Programs that leave sizes open: planned at sizes that are given, and judged over the range that
 * they state.
 */

const dynamic = (form: string): string =>
  fixture('mlp-dynamic', 'export.readable').replace('readable.txt', form);
const MESH = ['--mesh', 'd=8', '--cluster', 'dgx-h100', '--no-recipes', '--quiet'];
const log = fileURLToPath(
  new URL('../fixtures/torch/logs/mlp-recompile-dynamic.log.gz', import.meta.url),
);

async function json<T>(...argv: string[]): Promise<T> {
  const run = await cli(...argv, '--json');
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as T;
}

describe('--size', () => {
  it.each(['readable.txt', 'pt2'])(
    'the FLOPs of an export with an open batch, %s: linear in it',
    async (form) => {
      for (const [size, flops] of [
        [8, 786_432],
        [64, 8 * 786_432],
      ]) {
        const found = await json<Inspection>('inspect', dynamic(form), '--size', `s77=${size}`);
        expect(found.flops.forward).toBe(flops);
        expect(found.notes.join()).toContain(`s77 = ${size}`);
      }
    },
  );

  it('planned at batch 8 it is the plan of the export with batch 8', async () => {
    const open = await json<Plan>('plan', dynamic('readable.txt'), ...MESH, '--size', 's77=8');
    const fixed = await json<Plan>('plan', fixture('mlp', 'export.readable'), ...MESH);
    expect(open.objective).toEqual(fixed.objective);
    expect(open.nodes).toEqual(fixed.nodes);
    expect(open.memory).toEqual(fixed.memory);
  });

  it('--size fixes the batch of a joint graph, drops its input, and gives the FLOPs of the fixed graph', async () => {
    const select = ['--select', '0/1 Joint graph 1', '--size', 's77=8'];
    const found = await json<Inspection>('inspect', log, ...select);
    expect(found.flops).toEqual({ forward: 786_432, backward: 1_048_576, total: 1_835_008 });
    const plan = await json<Plan>('plan', log, ...MESH, ...select);
    expect(plan.proof.status).toBe('optimal');
    expect(plan.nodes.map((n) => n.name)).not.toContain('primals_3');
  });

  const ON_TWO = ['--mesh', 'd=2', '--cluster', 'dgx-h100', '--quiet'];
  const COMMANDS: readonly (readonly [string, ...string[]])[] = [
    ['inspect'],
    ['verify', ...ON_TWO],
    ['compare', '--devices', '2', '--cluster', 'dgx-h100', '--quiet', '--plans', 'dp'],
    ['audit', ...ON_TWO, '--plan', 'recipe:fsdp', '--edits', '0'],
    ['check', '--mode', 'auto', '--mesh', 'd=2'],
  ];

  it.each(COMMANDS)(
    '%s takes open sizes at their examples or as they are given, also where they are inputs',
    async (command, ...flags) => {
      /** Without the times that it took, and what it says of the sizes. */
      const ask = async (...argv: string[]): Promise<string> => {
        const answer = await json<unknown>(command, ...argv, ...flags);
        return JSON.stringify(answer, (key, value: unknown) =>
          /^(solveSeconds|notes|assumptions|name|format|.*Hash)$/.test(key) ? undefined : value,
        );
      };
      const example = await ask(dynamic('pt2'));
      expect(await ask(dynamic('pt2'), '--size', 's77=8')).toBe(example);
      // What is allowed does not hang on the size.
      if (command !== 'check')
        expect(await ask(dynamic('pt2'), '--size', 's77=16')).not.toBe(example);
      const joint = [log, '--select', '0/1 Joint graph 1'];
      expect(await ask(...joint, '--size', 's77=8')).not.toContain('s77');
    },
  );

  it.each(COMMANDS.slice(1))('%s names the flag where a size has no example', async (...argv) => {
    const [command, ...flags] = argv;
    const run = await cli(command, dynamic('readable.txt'), ...flags);
    expect([run.code, run.err]).toEqual([2, expect.stringContaining('--size NAME=VALUE')]);
  });

  it('refuses what the program does not admit, and says what is missing', async () => {
    const ask = (...argv: string[]) => cli('plan', '-v', dynamic('pt2'), ...MESH, ...argv);
    const outside = await ask('--size', 's77=1000');
    expect([outside.code, outside.err]).toEqual([
      2,
      expect.stringContaining('E_RANGE s77 = 1000: the program admits 2 to 512'),
    ]);
    const unknown = await ask('--size', 'batch=8');
    expect([unknown.code, unknown.err]).toEqual([
      2,
      expect.stringContaining("leaves no size 'batch' open"),
    ]);
    const text = await ask('--size', 's77=many');
    expect([text.code, text.err]).toEqual([2, expect.stringContaining('not a whole number')]);
    const missing = await cli('plan', '-v', dynamic('readable.txt'), ...MESH);
    expect([missing.code, missing.err]).toEqual([2, expect.stringContaining('--size NAME=VALUE')]);
  });
});

describe("dim('batch') planned for a stated range", () => {
  let root = '';
  let model = '';
  beforeAll(() => {
    root = mkdtempSync(join(tmpdir(), 'shardwright-sizes-'));
    const net = new MLP('net', [4096, 16_384, 4096]);
    const graph = trace(({ x }) => net.forward(x), {
      x: spec([dim('batch', { min: 8, max: 65_536, multiple: 8 }), 4096]),
    });
    model = join(root, 'mlp.swg');
    writeFileSync(model, printGraph(graph));
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  type Ranged = Plan & { readonly ends: readonly RangeEnd[] };

  it('without --size at the example, and the plan says so', async () => {
    const plan = await json<Plan>('plan', model, ...MESH);
    expect(plan.assumptions.join()).toContain('batch = 8 (of multiples of 8 from 8 to 65536)');
  });

  it('--range: the plan at both ends, beside the best plan of each end', async () => {
    for (const size of [8, 65_536]) {
      const { ends, ...plan } = await json<Ranged>(
        'plan',
        model,
        ...MESH,
        '--size',
        `batch=${size}`,
        '--range',
      );
      expect(ends.map((end) => end.sizes)).toEqual([{ batch: 8 }, { batch: 65_536 }]);
      const own = ends.find((end) => end.sizes.batch === size);
      // At its own size it is the best, and costs there what the plan says.
      expect(own).toMatchObject({
        seconds: plan.objective.seconds,
        bestSeconds: plan.objective.seconds,
        regret: 0,
      });
      for (const end of ends) {
        const direct = await json<Plan>(
          'plan',
          model,
          ...MESH,
          '--size',
          `batch=${end.sizes.batch}`,
        );
        expect(end.bestSeconds).toBe(direct.objective.seconds);
        expect(end.regret).toBeCloseTo(1 - direct.objective.seconds / (end.seconds ?? NaN), 12);
      }
      // A few rows are worth cutting the weights for, many rows are cut themselves: neither plan is
      // best at both ends.
      expect(Math.max(...ends.map((end) => end.regret ?? 0))).toBeGreaterThan(0.2);
    }
    const text = await cli('plan', '-v', model, ...MESH, '--range');
    expect(text.out).toMatch(/batch = 65536 .* to save/);
  });

  it('an end that the plan cannot stand at is said', async () => {
    const graph = trace(({ x }) => x.relu(), {
      x: spec([dim('n', { min: 2, max: 4096, example: 4096 }), 4096]),
    });
    const model = join(root, 'small.swg');
    writeFileSync(model, printGraph(graph));
    const ask = async (...argv: string[]) =>
      (await json<Ranged>('plan', model, ...MESH, '--uneven', 'forbid', '--range', ...argv)).ends;
    // 2 rows cannot be cut 8 ways. Another plan exists for them, unless the cut is pinned.
    const free = await ask();
    expect(free[0]).toMatchObject({
      sizes: { n: 2 },
      seconds: null,
      regret: null,
      refused: expect.stringContaining('S(0)') as string,
    });
    expect(free[0].bestSeconds).toBeGreaterThan(0);
    expect(free[1]).toMatchObject({ sizes: { n: 4096 }, regret: 0 });
    const pinned = await ask('--pin', 'relu=S(0)');
    expect(pinned[0]).toMatchObject({
      seconds: null,
      bestSeconds: null,
      refused: expect.stringContaining('S(0)') as string,
    });
  });

  it('the plan folder keeps the sizes that were planned', async () => {
    const folder = join(root, 'plan');
    expect((await cli('plan', '-v', model, ...MESH, '--size', 'batch=64', '-o', folder)).code).toBe(
      0,
    );
    expect(readFileSync(join(folder, 'graph.swg'), 'utf8')).toContain(
      'in %x: f32[64, 4096] input "x"',
    );
    expect((await cli('explain', folder, 'net.fc1.weight')).code).toBe(0);
  });
});

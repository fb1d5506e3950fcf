import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Inspection } from '../../src/cli/commands/reading/inspect.ts';
import { cli } from './support.ts';

/** `--training` of files and programs: the backward pass that AOTAutograd would give. */

let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const torch = (name: string): string =>
  fileURLToPath(new URL(`../fixtures/torch/${name}.readable.txt.gz`, import.meta.url));

async function inspected(...argv: string[]): Promise<Inspection> {
  const run = await cli('inspect', ...argv, '--json');
  expect(run.code, run.err).toBe(0);
  return JSON.parse(run.out) as Inspection;
}

describe('--training', () => {
  it.each(['mlp', 'mlp-loss'])('%s: the work of the joint graph of PyTorch', async (name) => {
    const own = await inspected(torch(`${name}/export`), '--training');
    const joint = await inspected(torch(`${name}/joint`));
    expect(own.flops).toEqual(joint.flops);
    expect(own.notes.join()).toContain('The backward pass is derived');
  });

  it('leaves a graph that has its backward pass as it is', async () => {
    const joint = torch('mlp/joint');
    expect(await inspected(joint, '--training')).toEqual(await inspected(joint));
  });

  it('gives a loss its gradients, and their update with --optimizer-step', async () => {
    const file = join(folder, 'loss.fx.txt');
    writeFileSync(
      file,
      `class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[8, 4]", w: "f32[4, 4]"):
        mm: "f32[8, 4]" = torch.ops.aten.mm.default(x, w)
        relu: "f32[8, 4]" = torch.ops.aten.relu.default(mm)
        sum_1: "f32[]" = torch.ops.aten.sum.default(relu)
        return sum_1
`,
    );
    const trained = ['--role', 'w=parameter', '--training'];
    const { ops } = await inspected(file, ...trained);
    expect(ops).toMatchObject({ 'aten.threshold_backward.default': 1, 'aten.mm.default': 2 });
    const step = ['--optimizer-step', 'sgd'];
    const bare = await cli('inspect', file, '--role', 'w=parameter', ...step);
    expect([bare.code, bare.err]).toEqual([2, expect.stringContaining('returns no gradient')]);
    const stepped = await inspected(file, ...trained, ...step);
    expect(stepped.nodes).toBeGreaterThan(11);
    const none = await cli('inspect', file, '--training');
    expect([none.code, none.err]).toEqual([2, expect.stringContaining('no parameter to train')]);
  });
});

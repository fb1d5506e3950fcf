import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, test } from 'vitest';

import { cli } from '../cli/support.ts';

/**
 * Heads of attention that do not divide over the devices: gloo processes by the exported program,
 * and one process by the program before it was cut.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const folder = mkdtempSync(join(tmpdir(), 'shardwright-heads-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Grouped attention, and attention of as many heads with its gradients. */
function program(heads: number, keyHeads: number): string {
  const [q, k] = [heads, keyHeads].map((n) => `"f64[2, ${n}, 8, 4]"`);
  const inputs = [
    `q: ${q}`,
    `k: ${k}`,
    `v: ${k}`,
    ...['x', 'y', 'z', 'g'].map((n) => `${n}: ${q}`),
  ];
  const flash = 'torch.ops.aten._scaled_dot_product_flash_attention_for_cpu';
  return [
    'class m(torch.nn.Module):',
    `    def forward(self, ${inputs.join(', ')}):`,
    `        few: ${q} = torch.ops.aten.scaled_dot_product_attention.default(q, k, v, None, 0.0, True, enable_gqa = True)`,
    `        attn = ${flash}.default(x, y, z, 0.0, True)`,
    `        out: ${q} = attn[0]`,
    `        lse: "f64[2, ${heads}, 8]" = attn[1]`,
    `        back = ${flash}_backward.default(g, x, y, z, out, lse, 0.0, True)`,
    ...['dx', 'dy', 'dz'].map((name, i) => `        ${name}: ${q} = back[${i}]`),
    '        return (few, out, dx, dy, dz)',
  ].join('\n');
}

test.each([
  [2, 9, 3],
  [4, 14, 2],
  [4, 7, 1],
])(
  'on %i processes %i query heads and %i key heads give what one process gives',
  async (processes, heads, keyHeads) => {
    const at = join(folder, `${processes}-${heads}`);
    mkdirSync(at);
    const file = join(at, 'heads.fx.txt');
    writeFileSync(file, program(heads, keyHeads));
    const pins = ['few', 'out', 'dx'].flatMap((name) => ['--pin', `${name}=S(1)`]);
    const options = ['--no-recipes', '--mesh', `tp=${processes}`, '--cluster', 'dgx-h100'];
    const plan = await cli('plan', '-v', file, ...options, ...pins, '-o', at);
    expect(plan.code, plan.err).toBe(0);
    const written = await cli('export', at, '--target', 'torch', '--check', '-o', at);
    expect(written.code, written.err).toBe(0);
    const run = ['-m', 'torch.distributed.run', '--log-dir', at, '--standalone'];
    const { stdout, stderr } = spawnSync(
      python,
      [...run, '--nproc-per-node', String(processes), join(at, 'check.py')],
      { encoding: 'utf8', env: { ...process.env, OMP_NUM_THREADS: '1' } },
    );
    const line = stdout.split('\n').find((row) => row.startsWith('{'));
    expect(line, stderr).toBeDefined();
    const answer = JSON.parse(line ?? '{}') as { worst: number };
    expect(answer).toMatchObject({ compared: 5, failed: [] });
    expect(answer.worst).toBeLessThan(1e-12);
  },
);

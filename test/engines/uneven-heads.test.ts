import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, test } from 'vitest';

import { cli } from '../cli/support.ts';
import { startChecks } from './support/checks.ts';

/**
 * Heads of attention that do not divide over the devices, and key heads that fewer mesh dims cut
 * than query heads: gloo processes by the exported program, and one process by the program before it
 * was cut.
 */
const checked = startChecks();
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
    `        grouped = ${flash}.default(q, k, v, 0.0, True)`,
    `        oq: ${q} = grouped[0]`,
    `        lq: "f64[2, ${heads}, 8]" = grouped[1]`,
    `        groups = ${flash}_backward.default(g, q, k, v, oq, lq, 0.0, True)`,
    ...[q, k, k].map((type, i) => `        b${'qkv'[i]}: ${type} = groups[${i}]`),
    `        attn = ${flash}.default(x, y, z, 0.0, True)`,
    `        out: ${q} = attn[0]`,
    `        lse: "f64[2, ${heads}, 8]" = attn[1]`,
    `        back = ${flash}_backward.default(g, x, y, z, out, lse, 0.0, True)`,
    ...['dx', 'dy', 'dz'].map((name, i) => `        ${name}: ${q} = back[${i}]`),
    '        return (few, bq, bk, bv, out, dx, dy, dz)',
  ].join('\n');
}

test.each([
  ['tp=2', 9, 3, 'R'],
  ['tp=4', 14, 2, 'R'],
  ['tp=4', 7, 1, 'R'],
  ['a=2,b=2', 8, 2, 'S(1)R'],
  ['a=2,b=2', 12, 4, 'S(1)R'],
  ['a=2,b=2', 6, 2, 'S(1)R'],
] as const)(
  'on %s %i query heads and %i key heads that are %s give what one process gives',
  async (mesh, heads, keyHeads, keys) => {
    const processes = mesh
      .split('=')
      .slice(1)
      .reduce((n, size) => n * parseInt(size), 1);
    const at = join(folder, `${mesh}-${heads}`);
    mkdirSync(at);
    const file = join(at, 'heads.fx.txt');
    writeFileSync(file, program(heads, keyHeads));
    const cut = mesh.includes(',') ? 'S(1)S(1)' : 'S(1)';
    const pinned = [
      ...['few', 'out', 'dx', 'bq'].map((name) => `${name}=${cut}`),
      ...['k', 'v'].map((name) => `${name}=${keys}`),
    ];
    const pins = pinned.flatMap((pin) => ['--pin', pin]);
    const options = ['--no-recipes', '--mesh', mesh, '--cluster', 'dgx-h100'];
    const plan = await cli('plan', '-v', file, ...options, ...pins, '-o', at);
    expect(plan.code, plan.err).toBe(0);
    const written = await cli('export', at, '--target', 'torch', '--check', '-o', at);
    expect(written.code, written.err).toBe(0);
    const answer = await checked(at, processes);
    expect(answer).toMatchObject({ compared: 8, failed: [] });
    expect(answer.worst).toBeLessThan(1e-12);
  },
);

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

import { afterAll, describe, expect, it, test } from 'vitest';

import type { Node } from '../../src/graph/types.ts';
import { tensorType } from '../../src/graph/value.ts';
import { flat, fromFlat, NDArray } from '../../src/ndarray/array.ts';
import { standIn } from '../../src/simulate/interpreter/stand-in.ts';
import { cli } from './support.ts';

/** Operators that nobody knows, and programs that take no time. */

const folder = mkdtempSync(join(tmpdir(), 'unknown-'));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const ON = ['--cluster', 'dgx-h100', '--quiet'] as const;
const MESH = ['--mesh', 'dp=2,tp=2', ...ON] as const;

/**
 * Two unknown calls: one with a list, a number and a keyword, whose result is like no operand; one
 * in the middle of a chain.
 */
const model = file(
  'odd.fx.txt',
  `class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 16]", arg1_1: "f32[16, 16]"):
        mm: "f32[8, 16]" = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = None
        odd: "f32[8, 4]" = torch.ops.mine.odd.default(mm, 3, [mm, arg1_1], scale = 2.0)
        half: "f32[8, 16]" = torch.ops.mine.half.default(mm);  mm = None
        sum_1: "f32[8]" = torch.ops.aten.sum.dim_IntList(odd, [1]);  odd = None
        mm_1: "f32[8, 16]" = torch.ops.aten.mm.default(half, arg1_1);  half = arg1_1 = None
        return (sum_1, mm_1)
`,
);

describe('--unknown replicate', () => {
  const flag = ['--unknown', 'replicate'] as const;

  it('plans, and the plan is verified, simulated, reported and audited', async () => {
    const out = join(folder, 'plan');
    const planned = await cli(
      'plan',
      '-v',
      model,
      ...MESH,
      ...flag,
      '--pin',
      'mm=S(0)S(1)',
      '-o',
      out,
    );
    expect(planned.code, planned.err).toBe(0);
    for (const given of [
      [out],
      [model, ...MESH, ...flag, '--pin', 'mm=S(0)S(1)'],
      [out, '--no-shrink'],
    ]) {
      const run = await cli('verify', ...given, '--json');
      expect(run.code, run.err).toBe(0);
      const report = JSON.parse(run.out) as {
        mismatches: unknown[];
        standIns: string[];
        collectives: Record<string, number>;
      };
      expect(report.mismatches).toEqual([]);
      expect(report.standIns).toEqual(['mine.half.default', 'mine.odd.default']);
      // What is cut before an unknown call is put together for it.
      expect(report.collectives.all_gather).toBeGreaterThan(0);
    }
    for (const argv of [
      ['simulate', out],
      ['report', out, '--format', 'md'],
      ['explain', out, 'odd'],
    ])
      expect((await cli(...argv)).code, argv[0]).toBe(0);
    const audit = await cli(
      'audit',
      model,
      '--plan',
      'recipe:fsdp',
      '--mesh',
      'd=4',
      ...ON,
      ...flag,
    );
    expect(audit.code, audit.err).toBe(0);
  });

  it('is a flag of compare too, as its own error says', async () => {
    const refused = await cli('compare', model, '--devices', '4', ...ON);
    expect(refused.code).toBe(2);
    expect(refused.err).toContain('--unknown replicate');
    const compared = await cli('compare', model, '--devices', '4', ...ON, ...flag);
    expect(compared.code, compared.err).toBe(0);
    expect(compared.out).toContain('optimum');
  });

  it('does not plan a program of nothing else', async () => {
    const only = file(
      'only.fx.txt',
      `class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 16]"):
        half: "f32[8, 16]" = torch.ops.mine.half.default(arg0_1);  arg0_1 = None
        return (half,)
`,
    );
    const run = await cli('plan', '-v', only, ...MESH, ...flag);
    expect(run.code).toBe(2);
    expect(run.err).toContain(
      'E_UNKNOWN_OP no operator of only has rules, so there is nothing to plan',
    );
  });

  test.each(['jaxpr.txt', 'shardy.mlir'])(
    'plans a manual region (%s) on its own mesh alone',
    async (name) => {
      const fixture = join(
        import.meta.dirname,
        '..',
        'fixtures',
        'jax',
        'shard-map-mlp',
        `${name}.gz`,
      );
      const text = file(`region-${name}`, gunzipSync(readFileSync(fixture)).toString());
      for (const more of [[], flag]) {
        const run = await cli('plan', '-v', text, '--mesh', 'p=2,q=4', ...ON, ...more);
        expect(run.code).toBe(2);
        expect(run.err).toContain('is per device over data=2, and the mesh is p=2,q=4');
      }
    },
  );
});

it('the error of an unknown operator shows a rules file that does, as it stands', async () => {
  const refused = await cli('plan', '-v', model, ...MESH);
  expect(refused.code).toBe(2);
  const [, text] = /rules\.json with this in it[^{]*(\{.*\})/.exec(refused.err) ?? [];
  const rules = file('rules.json', text ?? '');
  const planned = await cli('plan', model, ...MESH, '--ops', rules, '--json');
  expect(planned.code, planned.err).toBe(0);
  const plan = JSON.parse(planned.out) as {
    proof: { status: string };
    nodes: { name: string; outputs: string[] }[];
  };
  expect(plan.proof.status).toBe('optimal');
  expect(plan.nodes.find((n) => n.name === 'odd')?.outputs).toEqual(['RR']);
  // A rule that is added takes effect.
  file('rules.json', (text ?? '').replace('"R -> R"', '"S(0) -> S(0)"'));
  const cut = await cli('plan', '-v', model, ...MESH, '--ops', rules, '--pin', 'half=S(0)R');
  expect(cut.code, cut.err).toBe(0);
});

it('a stand-in hangs on every element of every operand', () => {
  const node: Node = {
    name: 'y',
    kind: 'call',
    target: 'mine.odd.default',
    kwargs: { z: { kind: 'value', name: 'b' } },
    args: [{ kind: 'value', name: 'a' }, [{ kind: 'value', name: 'b' }], 3],
    type: tensorType('f32', [2, 2]),
    meta: {},
  };
  const run = (a: readonly number[], b: readonly number[]): number[] => {
    const values: Record<string, NDArray> = {
      a: fromFlat([a.length], Float64Array.from(a)),
      b: fromFlat([b.length], Float64Array.from(b)),
    };
    const made = standIn(node, (name) => values[name]);
    return made instanceof NDArray ? [...flat(made)] : [];
  };
  const [a, b] = [
    [0.1, 0.2, 0.3],
    [0.4, 0.5],
  ];
  const whole = run(a, b);
  expect(new Set(whole).size).toBe(4);
  const changed = [
    ...a.map((_, i) =>
      run(
        a.map((x, k) => (k === i ? x + 0.1 : x)),
        b,
      ),
    ),
    ...b.map((_, i) =>
      run(
        a,
        b.map((x, k) => (k === i ? x + 0.1 : x)),
      ),
    ),
    run(a.slice(0, 2), b),
    run([0.2, 0.1, 0.3], b),
  ];
  for (const other of changed)
    other.forEach((x, i) => expect(Math.abs(x - whole[i])).toBeGreaterThan(1e-6));
  for (const x of whole) expect(x > 0 && x < 1).toBe(true);
});

describe('a program that takes no time', () => {
  const views = file(
    'views.fx.txt',
    `class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 16]"):
        permute: "f32[16, 8]" = torch.ops.aten.permute.default(arg0_1, [1, 0]);  arg0_1 = None
        return (permute,)
`,
  );
  const out = join(folder, 'views');
  const compared = join(folder, 'views.json');

  it('has no figure that is not a number', async () => {
    const plan = await cli('plan', '-v', views, ...MESH, '--overlap', '-o', out);
    expect(plan.out).toContain('+0 %');
    writeFileSync(compared, (await cli('compare', views, '--devices', '4', ...ON, '--json')).out);
    const runs = [
      plan,
      await cli('plan', '-v', views, ...MESH, '--frontier', '3'),
      await cli('compare', views, '--devices', '4', ...ON),
      await cli('audit', views, '--plan', out, '--quiet'),
      await cli('simulate', out),
      await cli('diff', out, out),
      ...(await Promise.all(
        ['html', 'md', 'csv', 'json'].map((format) => cli('report', out, '--format', format)),
      )),
      await cli('report', compared),
    ];
    for (const run of runs) {
      expect(run.code, run.err).toBe(0);
      expect(/.{0,60}NaN.{0,20}/.exec(run.out + run.err)?.[0]).toBeUndefined();
    }
    // In JSON such a number is null.
    const audit = JSON.parse(
      (await cli('audit', views, '--plan', out, '--quiet', '--json')).out,
    ) as object;
    expect(audit).toMatchObject({ seconds: 0, optimumSeconds: 0, regret: 0, provenRegret: 0 });
  });
});

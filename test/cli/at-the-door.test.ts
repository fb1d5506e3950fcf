import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { refusal } from '../support/thrown.ts';
import { cli, fixture } from './support.ts';

/**
 * What no plan can be made of is refused before work begins, with a code and the edit that fixes
 * it.
 */

let root = '';
beforeAll(() => void (root = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const file = (name: string, content: string | Uint8Array): string => {
  const path = join(root, name);
  writeFileSync(path, content);
  return path;
};

const MLP = fixture('mlp');
const SEVEN = 'a=2,b=2,c=2,d=2,e=2,f=2,g=2';
const WHOLE = {
  peakFlopsPerSecond: { bf16: 1e14, fp32: 1e14 },
  memoryBytes: 24e9,
  memoryBytesPerSecond: 1e12,
  devicesPerHost: 4,
  intra: { bytesPerSecond: 25e9, latencySeconds: 1e-6 },
  inter: { bytesPerSecond: 5e9, latencySeconds: 5e-6 },
};

describe('a mesh of more than six dims', () => {
  it.each(['plan', 'verify', 'audit'])(
    'is refused by %s, before the model is read',
    async (command) => {
      const run = await cli(
        command,
        '/nowhere.txt',
        '--mesh',
        SEVEN,
        '--cluster',
        'dgx-h100',
        ...(command === 'audit' ? ['--plan', 'given'] : []),
      );
      expect([run.code, run.out]).toEqual([2, '']);
      expect(run.err).toMatch(
        /^E_MESH the mesh a=2,.* has 7 dims, plans have at most 6\n {2}hint: make one dim of two/,
      );
    },
  );

  it('is refused by the library, also where all its dims are of one device', () => {
    const error = refusal(() =>
      prepare(load('torch/mlp/joint.expanded'), request('a=1,b=1,c=1,d=1,e=1,f=1,g=1'), TABLE),
    );
    expect([error.code, error.message]).toEqual(['E_MESH', expect.stringContaining('has 7 dims')]);
  });
});

describe('prices of a cluster that no plan can be made with', () => {
  it.each<[string, object, RegExp]>([
    [
      'a peak of 1e-300',
      { peakFlopsPerSecond: { bf16: 1e-300, fp32: 1e-300 } },
      />=1[^]*peakFlopsPerSecond\.bf16/,
    ],
    [
      'a peak of 1e300',
      { peakFlopsPerSecond: { fp32: 1e300 } },
      /<=1e\+24[^]*peakFlopsPerSecond\.fp32/,
    ],
    [
      'a link of 1e-9 bytes a second',
      { intra: { bytesPerSecond: 1e-9, latencySeconds: 0 } },
      /intra\.bytesPerSecond/,
    ],
    [
      'a latency of 1e300 s',
      { inter: { bytesPerSecond: 1e9, latencySeconds: 1e300 } },
      /inter\.latencySeconds/,
    ],
    ['a share of 1e-300', { matmulCap: 1e-300 }, /matmulCap/],
    ['memory beyond exact integers', { memoryBytes: 1e300 }, /memoryBytes/],
    ['hosts of 2^53 devices', { devicesPerHost: 2 ** 53 - 1 }, /devicesPerHost/],
    [
      '1e18 bytes reserved',
      { reservedBytes: 1e18 },
      /909495 TiB of a device are reserved and its memory is 22\.4 GiB/,
    ],
    [
      'all of it reserved',
      { reservedBytes: 24e9 },
      /22\.4 GiB of a device are reserved and its memory is 22\.4 GiB/,
    ],
  ])('%s', (_, changed, says) => {
    for (const cluster of [
      { ...WHOLE, ...changed },
      { base: 'dgx-h100', memoryBytes: 24e9, ...changed },
    ]) {
      const error = refusal(() => loadCluster(JSON.stringify(cluster)));
      expect(error.code).toBe('E_CLUSTER');
      expect(error.message).toMatch(says);
      expect(error.details.hint).toBeDefined();
    }
  });

  it('and the limits themselves are taken', () => {
    const { memoryBytes, reservedBytes } = loadCluster(
      JSON.stringify({ ...WHOLE, reservedBytes: 24e9 - 1 }),
    );
    expect(memoryBytes - reservedBytes).toBe(1);
    expect(
      loadCluster(JSON.stringify({ ...WHOLE, peakFlopsPerSecond: { bf16: 1 } })).peakFlopsPerSecond
        .bf16,
    ).toBe(1);
  });
});

describe('sizes of tensors', () => {
  const fx = (type: string): string =>
    `class G(torch.nn.Module):\n    def forward(self, x: "${type}"):\n        y: "${type}" = torch.ops.aten.relu.default(x);  x = None\n        return (y,)\n`;

  it.each(['nan', 'inf', '-inf', 'Infinity', '1e400', '8.0'])(
    'f32[%s, 8] is said to not be a size, in any text',
    async (size) => {
      const run = await cli('inspect', file('m.fx.txt', fx(`f32[${size}, 8]`)));
      expect(run.code).toBe(2);
      expect(run.err).toMatch(/^\S*m\.fx\.txt:2:\d+: E_TYPE '.*' (in f32\[.*\] )?is not a size/);
      expect(run.err).toContain(
        'hint: a size is an integer of at least 0 or an expression in symbols',
      );
    },
  );

  it('names that only begin like a number are symbols', async () => {
    for (const name of ['nans', 'info', 's0', 'e4'])
      expect((await cli('inspect', file('m.fx.txt', fx(`f32[${name}, 8]`)))).err).not.toContain(
        'is not a size',
      );
  });

  it('a tensor whose bytes are not an exact integer is refused, one of 2^53 - 8 is not', async () => {
    // 4 * (2^51 - 2) = 2^53 - 8.
    expect((await cli('inspect', file('m.fx.txt', fx('f32[2251799813685246]')))).code).toBe(0);
    const run = await cli(
      'inspect',
      file('m.fx.txt', fx('f32[9007199254740991, 9007199254740991]')),
    );
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toMatch(/E_LIMIT a tensor of f32\[.*\] has 3\.2e\+32 bytes, more than 2\^53/);
  });

  it('so are parameters whose bytes sum to more', () => {
    // 8 of 2^50 bytes each are 2^53.
    const lines = Array.from(
      { length: 8 },
      (_, k) => `  in %p${k}: f32[281474976710656] parameter "p${k}"`,
    );
    const graph = parseGraph(
      `swgraph 1\ngraph @big {\n${lines.join('\n')}\n  out %p0 output 0\n}\n`,
    );
    lintGraph(graph);
    const error = refusal(() => prepare(graph, request('d=1'), TABLE));
    expect([error.code, error.message]).toEqual([
      'E_LIMIT',
      expect.stringMatching(/have 9\.0e\+15 bytes, more than 2\^53$/),
    ]);
  });
});

describe('--time-limit', () => {
  it('counts from the first byte: one that is over when the model is read ends there, exit 4', async () => {
    const run = await cli(
      'plan',
      '-v',
      MLP,
      '--mesh',
      'd=2',
      '--cluster',
      'dgx-h100',
      '--time-limit',
      '1e-9',
    );
    expect([run.code, run.out]).toEqual([4, '']);
    expect(run.err).toMatch(
      /^E_TIME_LIMIT the time limit of .* came while the program was read, before the solver began\n {2}hint: raise --time-limit/,
    );
  });
});

describe('text that is not UTF-8', () => {
  const TEXT = 'class G(torch.nn.Module):\n';
  const little = Buffer.from(TEXT, 'utf16le');
  const big = Buffer.from(little).swap16();
  it.each<[string, Uint8Array, string]>([
    ['UTF-16 of a Windows shell', Buffer.concat([Buffer.of(0xff, 0xfe), little]), 'UTF-16'],
    ['UTF-16, big end first', Buffer.concat([Buffer.of(0xfe, 0xff), big]), 'UTF-16'],
    ['UTF-16 without a mark', little, 'UTF-16'],
    ['UTF-16 without a mark, big end first', big, 'UTF-16'],
    [
      'UTF-32',
      Buffer.concat([
        Buffer.of(0xff, 0xfe, 0, 0),
        Buffer.from([...TEXT].flatMap((c) => [c.charCodeAt(0), 0, 0, 0])),
      ]),
      'UTF-32',
    ],
  ])('%s says what it is, as a model, a problem and a cluster', async (_, bytes, name) => {
    const path = file('t.json', bytes);
    for (const argv of [
      ['inspect', path],
      ['inspect', path, '--format', 'fx'],
      ['solve', path],
      ['plan', MLP, '--mesh', 'd=2', '--cluster', path],
    ]) {
      const run = await cli(...argv);
      expect([run.code, run.out]).toEqual([2, '']);
      expect(run.err).toContain(
        `t.json: E_ENCODING the text is ${name}, UTF-8 is needed\n  hint: save it as UTF-8`,
      );
    }
  });
});

describe('nesting of a hundred thousand levels', () => {
  const LEVELS = 100_000;
  const deep = (open: string, close: string, inner = ''): string =>
    open.repeat(LEVELS) + inner + close.repeat(LEVELS);
  const lists = deep('[', ']');
  const objects = deep('{"a":', '}', '1');
  const fx = (arg: string): string =>
    `class G(torch.nn.Module):\n    def forward(self, x: "f32[8]"):\n        y: "f32[8]" = torch.ops.aten.view.default(x, ${arg});  x = None\n        return (y,)\n`;
  const on = ['--mesh', 'd=2', '--cluster', 'dgx-h100', '--no-recipes'] as const;
  it.each<[string, string, (path: string) => string[]]>([
    ['JSON as a model', objects, (p) => ['inspect', p]],
    ['a list as a problem', lists, (p) => ['solve', p]],
    [
      'a list in a problem',
      `{"problem":{"name":"x","nodes":{"intervals":[],"costs":${lists}}}}`,
      (p) => ['solve', p],
    ],
    [
      'a cluster',
      `{"base":"dgx-h100","sources":${objects}}`,
      (p) => ['plan', MLP, '--mesh', 'd=2', '--cluster', p],
    ],
    ['a plan', `{"version":1,"model":"x","objective":${lists},"proof":1}`, (p) => ['report', p]],
    ['a comparison', `{"devices":1,"pareto":${lists}}`, (p) => ['compare', '--merge', p]],
    ['rules', `{"operators":${lists}}`, (p) => ['plan', MLP, ...on, '--ops', p]],
    [
      'a calibration',
      `{"version":1,"device":${lists}}`,
      (p) => ['plan', MLP, ...on, '--calibration', p],
    ],
    [
      'an einshard program',
      `{"devices":2,"tensors":${lists}}`,
      (p) => ['einshard', '--program', p],
    ],
    ['arguments in FX text', fx(deep('[', ']', '8')), (p) => ['inspect', p]],
    [
      'types in MLIR',
      `module {\n func.func @main(%a: ${deep('tuple<', '>', 'f32')}) {\n }\n}\n`,
      (p) => ['inspect', p],
    ],
    [
      'calls in a jaxpr',
      `{ lambda ; a:f32[8]. let b:f32[8] = ${deep('pjit[jaxpr={ lambda ; c:f32[8]. let d:f32[8] = ', '] }')} a in (b,) }`,
      (p) => ['inspect', p],
    ],
    [
      'tuples in HLO',
      `HloModule m\n\nENTRY %main (a: f32[4]) -> f32[4] {\n  %a = ${deep('(', ')', 'f32[4]')} parameter(0)\n}\n`,
      (p) => ['inspect', p],
    ],
    [
      'tuples in graph text',
      `swgraph 1\ngraph @g {\n  in %p: ${deep('(', ')', 'f32[8]')} parameter "p"\n  out %p output 0\n}\n`,
      (p) => ['inspect', p],
    ],
  ])('%s', async (_, text, argv) => {
    const run = await cli(...argv(file('deep.json', text)), '--json');
    expect([run.code, run.err]).toEqual([2, '']);
    const { error } = JSON.parse(run.out) as { error: { code: string } };
    expect(error.code).toMatch(/^E_(?!INTERNAL)[A-Z_]+$/);
  });

  it.each([lists, objects])('a field of a request in a plan', async (value) => {
    const { out } = await cli('plan', MLP, ...on, '--json');
    const text = out.replace('"request":{', () => `"request":{"more":${value},`);
    const run = await cli('report', file('deep.json', text));
    expect(run.err).toMatch(/^\S*deep\.json:1:\d+: E_LIMIT more than 256 levels/);
    expect(run.code).toBe(2);
  });
});

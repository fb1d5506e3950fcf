import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { type ExportSource, exportSource } from '../../src/backend/target.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { exportFiles } from '../../src/export/export.ts';
import { HELPERS } from '../../src/export/torch/program/helpers.ts';
import { torchTarget } from '../../src/export/torch/target.ts';
import { importGraph, type Plan } from '../../src/index.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { gatheredWeights } from './running-plans.ts';
import { TRACED } from './traced-models.ts';

/** Slow devices beside fast links: tiny models get plans that cut. */
const PAPER = JSON.stringify({
  id: 'paper',
  peakFlopsPerSecond: { fp64_tc: 1e9, fp64: 1e9, fp32: 1e9, bf16: 1e9 },
  matmulCap: 1,
  memoryBytes: 1e9,
  reservedBytes: 0,
  memoryBytesPerSecond: 1e8,
  memoryEfficiency: 1,
  devicesPerHost: 8,
  intra: { bytesPerSecond: 1e8, latencySeconds: 1e-7 },
  inter: { bytesPerSecond: 1e8, latencySeconds: 1e-7 },
  baseLatencySeconds: 1e-7,
  launchSeconds: 0,
  matmulLaunchSeconds: 0,
});
const table = builtinOperators();

interface Row {
  readonly kind: string;
  readonly meshDims: readonly string[];
  readonly bytes: number;
  readonly node: string;
  readonly members?: readonly { readonly node: string; readonly bytes: number }[];
}

/** The collectives of a call: of a bucket several. */
function membersOf(row: Row): Row[] {
  return row.members?.map(({ node, bytes }) => ({ ...row, node, bytes })) ?? [row];
}

const made = new Map<string, ReturnType<typeof planAndExport>>();
/** Each plan is made once. */
function exported(
  name: string,
  mesh: string,
  latencySeconds = 1e-7,
): ReturnType<typeof planAndExport> {
  const key = `${name} ${mesh} ${latencySeconds}`;
  const known = made.get(key) ?? planAndExport(name, mesh, latencySeconds);
  made.set(key, known);
  return known;
}

async function planAndExport(
  name: string,
  mesh: string,
  latencySeconds = 1e-7,
): Promise<{
  readonly plan: Plan;
  readonly source: ExportSource;
  readonly files: Map<string, string>;
}> {
  const graph = importGraph(
    readFileSync(new URL(`../fixtures/running/${name}.fx.txt.gz`, import.meta.url)),
  );
  const cluster = JSON.stringify({
    ...(JSON.parse(PAPER) as object),
    baseLatencySeconds: latencySeconds,
  });
  // Parameters are cut beside the batch, so that they are gathered and their gradients are
  // scattered.
  const pins =
    latencySeconds < 1e-4
      ? []
      : gatheredWeights(
          mesh.includes(',') ? 'S(0)[1]S(0)[0]' : 'S(0)',
          mesh.includes(',') ? 'S(0)S(0)' : 'S(0)',
        );
  const result = await leastCostPlan(graph, { ...DEFAULT_REQUEST, mesh, cluster, pins }, { table });
  if (result.status !== 'planned') throw new Error('there is no plan');
  const source = exportSource({ plan: result.plan, program: result.graph }, table);
  const { files, losses } = exportFiles(source, 'torch');
  expect(losses).toEqual([]);
  return {
    plan: result.plan,
    source,
    files: new Map(files.map(({ name: file, text }) => [file, text])),
  };
}

/** Names that a function reads before they are there, or after they were dropped. */
function unbound(program: string, name: string): string[] {
  const start = program.indexOf(`\ndef ${name}(`) + 1;
  const [head, ...lines] = program.slice(start).split('\n');
  const live = new Set(
    [
      'here',
      'torch',
      'aten',
      'primals',
      'saved',
      'tangents',
      ...program.matchAll(/^def (\w+)\(/gm),
    ].map((m) => (typeof m === 'string' ? m : m[1])),
  );
  const faults: string[] = [];
  expect(head).toContain(name);
  for (const line of lines) {
    if (line !== '' && !line.startsWith(' ')) break;
    const code = line.replace(/ {2}#.*$/, '').replace(/"[^"]*"/g, '""');
    const unpacked = /^ {8}(\w+),$/.exec(code);
    if (unpacked !== null) live.add(unpacked[1]);
    const [, target, value, dropped] = /^ {4}(\w+) = (.*?)(?:; del (.*))?$/.exec(code) ?? [];
    const read = value ?? /^ {4}return (.*)$/.exec(code)?.[1] ?? '';
    for (const [word] of read.matchAll(/(?<![\w.])[a-z]\w*(?!\w*=)/g))
      if (!live.has(word) && word !== 'float') faults.push(word);
    if (target !== undefined) live.add(target);
    for (const word of dropped?.split(', ') ?? [])
      if (!live.delete(word)) faults.push(`del ${word}`);
  }
  return faults;
}

describe.each([
  ['mlp', 'dp=2,tp=2'],
  ['llama-sdpa', 'dp=2,tp=4'],
  ['dropout', 'dp=2,tp=2'],
  ['resnet', 'dp=4'],
])('%s on %s as a PyTorch program', (name, mesh) => {
  test('every value is there where it is read, and dropped once', async () => {
    const { files } = await exported(name, mesh);
    const program = files.get('program.py') ?? '';
    expect(unbound(program, 'forward')).toEqual([]);
    expect(unbound(program, 'backward')).toEqual([]);
  });

  test('the collectives are those of the plan: kind, mesh dims and bytes', async () => {
    const { plan, files } = await exported(name, mesh);
    const { collectives } = JSON.parse(files.get('collectives.json') ?? '') as {
      collectives: Row[];
    };
    const sizes = new Map(parseMesh(mesh).dims.map((dim) => [dim.name, dim.size]));
    const planned = [...plan.nodes, ...plan.outputs].flatMap(({ redistributions }) =>
      redistributions.flatMap((move) =>
        move.collectives.filter((c) => c.meshDims.some((d) => (sizes.get(d) ?? 1) > 1)),
      ),
    );
    const text = (c: { kind: string; meshDims: readonly string[]; bytes: number }): string =>
      `${c.kind} ${c.meshDims.join()} ${c.bytes}`;
    const rest = collectives.flatMap(membersOf).map(text);
    for (const c of planned) {
      const at = rest.indexOf(text(c));
      expect(at, text(c)).toBeGreaterThanOrEqual(0);
      rest.splice(at, 1);
    }
    const inside = plan.nodes.filter((node) => (node.internalSeconds ?? 0) > 0);
    if (inside.length === 0) expect(rest).toEqual([]);
    else expect(rest.length).toBeGreaterThanOrEqual(inside.length);
  });
});

test('equal plans give equal bytes', async () => {
  const [a, b] = [await planAndExport('mlp', 'dp=2,tp=2'), await planAndExport('mlp', 'dp=2,tp=2')];
  expect([...a.files]).toEqual([...b.files]);
});

test('placements read back from the files are those of the plan', async () => {
  const { plan, files } = await exported('llama-sdpa', 'dp=2,tp=4');
  const list = [...files].map(([name, text]) => ({ name, text }));
  const { parameters } = torchTarget.readBack?.(list, parseMesh('dp=2,tp=4')) ?? {};
  expect([...(parameters ?? [])]).toEqual(
    plan.parameters.map(({ name, placement }) => [name, placement]),
  );
  expect(plan.parameters.some(({ placement }) => placement.includes('S('))).toBe(true);
});

/**
 * Names of collectives, in the order in which `program.py` calls them; those of a bucket after it.
 */
function called(program: string): string[] {
  const names: string[] = [];
  let list: string[] = [];
  for (const line of program.slice(program.indexOf('\ndef forward(')).split('\n')) {
    const unpacked = /^ {8}(\w+), {2}#/.exec(line);
    const own =
      /^ {4}(\w+) = (?:reordered\()?(?:all_reduce|all_gather|reduce_scatter|all_to_all|permute)\(/.exec(
        line,
      );
    if (line === '    (') list = [];
    if (unpacked !== null) list.push(unpacked[1]);
    if (own !== null) names.push(own[1]);
    if (/^ {4}\) = \w+_coalesced\(/.test(line)) names.push(...list);
  }
  return names;
}

describe('the order of the simulated step', () => {
  const json = (
    files: Map<string, string> | readonly { name: string; text: string }[],
  ): { order: string; seconds: number; peakBytes: number; collectives: Row[] } =>
    JSON.parse(
      new Map(files instanceof Map ? files : files.map(({ name, text }) => [name, text])).get(
        'collectives.json',
      ) ?? '',
    ) as ReturnType<typeof json>;

  test('slow starts: gathers and sums travel in buckets, which both files state', async () => {
    const { source, files } = await exported('mlp', 'dp=4', 3e-3);
    const { order, seconds, collectives } = json(files);
    expect(order).toBe('simulated');
    const listed = json(exportFiles(source, 'torch', { order: 'program' }).files);
    expect(seconds).toBeLessThan(0.65 * listed.seconds);
    expect(listed.collectives.every(({ members }) => members === undefined)).toBe(true);
    expect([collectives.length, listed.collectives.length]).toEqual([6, 10]);
    const text = ({ node, kind, meshDims, bytes }: Row): string =>
      `${node} ${kind} ${meshDims.join()} ${bytes}`;
    expect(collectives.flatMap(membersOf).map(text).sort()).toEqual(
      listed.collectives.map(text).sort(),
    );
    const buckets = collectives.filter(({ members }) => members !== undefined);
    expect(buckets.map(({ kind, members }) => `${kind} of ${members?.length}`)).toEqual([
      'all_gather of 4',
      'reduce_scatter of 2',
    ]);
    for (const { bytes, members = [] } of buckets)
      expect(bytes).toBe(members.reduce((sum, one) => sum + one.bytes, 0));
    const program = files.get('program.py') ?? '';
    expect(program).toContain('order  simulated, ');
    expect(program).toMatch(/10 collectives are 6 calls: 6 of them, [\d.]+ KiB, are in 2 buckets/);
    expect(program).toMatch(
      /\) = reduce_scatter_coalesced\(here, \[\w+, \w+\], "sum", 4, "dp"\); del .* {2}# a bucket of 2, [\d.]+ KiB/,
    );
    expect(called(program)).toEqual(collectives.flatMap(membersOf).map(({ node }) => node));
    for (const name of ['forward', 'backward']) expect(unbound(program, name)).toEqual([]);
  });

  test('a bucket over two mesh dims in an order that PyTorch has not: the parts of each member change places', async () => {
    const { files } = await exported('mlp', 'dp=2,tp=2', 3e-3);
    const program = files.get('program.py') ?? '';
    expect(program).toMatch(
      /\) = all_gather_coalesced\(here, \[\w+, \w+, \w+, \w+\], 4, "dp,tp"\)/,
    );
    expect(program).toMatch(
      /\) = reduce_scatter_coalesced\(here, \[(?:reordered\(\w+, \(0, 2, 1, 3,\)\),? ?){4}\], "sum", 4, "dp,tp"\)/,
    );
    expect(
      [...program.matchAll(/ = reordered\((?:\w+|wait\(\w+\)), \(0, 2, 1, 3,\)\)/g)].length,
    ).toBe(5);
    for (const name of ['forward', 'backward']) expect(unbound(program, name)).toEqual([]);
  });

  test('buckets of no bytes are none, and the order of the program has none', async () => {
    const { source } = await exported('mlp', 'dp=4', 3e-3);
    const { order, collectives } = json(
      exportFiles(source, 'torch', { order: 'simulated', bucketBytes: 0 }).files,
    );
    expect(order).toBe('simulated');
    expect(collectives.every(({ members }) => members === undefined)).toBe(true);
    expect(() => exportFiles(source, 'torch', { order: 'program', bucketBytes: 1e6 })).toThrow(
      /calls collectives one by one, and --bucket is given/,
    );
  });

  test('other targets, and plans of which nothing is simulated', async () => {
    const { source } = await exported('mlp', 'dp=4', 3e-3);
    for (const target of ['jax', 'torch-dtensor', 'einshard']) {
      expect(() => exportFiles(source, target, { order: 'program' })).toThrow(
        `--target ${target} takes no --order`,
      );
      expect(() => exportFiles(source, target, { bucketBytes: 0 })).toThrow(
        `--target ${target} takes no --bucket`,
      );
    }
    const { memory: _, ...plan } = source.plan;
    const bare = exportSource({ plan, program: source.program }, table);
    expect(() => exportFiles(bare, 'torch', { order: 'simulated' })).toThrow(
      /the plan states no memory/,
    );
    const { files, notes } = exportFiles(bare, 'torch');
    expect(notes).toEqual(['order  program: the plan states no memory, so nothing is simulated']);
    expect(json(files).order).toBe('program');
  });

  test('a program with loops keeps its order, and says why', async () => {
    const graph = TRACED.looped();
    const planned = await leastCostPlan(
      graph,
      { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: PAPER },
      { table },
    );
    if (planned.status !== 'planned') throw new Error('there is no plan');
    const looped = exportSource({ plan: planned.plan, program: graph }, table);
    const { files, notes } = exportFiles(looped, 'torch');
    expect(json(files).order).toBe('program');
    expect(notes?.[0]).toMatch(
      /order {2}program, .*it has loops or branches, whose runs are simulated as one/,
    );
    expect(() => exportFiles(looped, 'torch', { order: 'simulated' })).toThrow(
      /it has loops or branches/,
    );
  });
});

test.each(['looped', 'iterated'])(
  'what %s starts from is read before it is dropped, and by its loop alone',
  async (name) => {
    const graph = TRACED[name]();
    const asked = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: PAPER };
    const planned = await leastCostPlan(graph, asked, { table });
    if (planned.status !== 'planned') throw new Error('there is no plan');
    const source = exportSource({ plan: planned.plan, program: graph }, table);
    const program = exportFiles(source, 'torch').files.find((f) => f.name === 'program.py')!.text;
    expect(program).toMatch(/^ {4}first_\w+ = \[.*\]; del \w/m);
    expect(unbound(program, 'forward')).toEqual([]);
  },
);

test('inputs that were captured in another memory order than row by row are laid in it', async () => {
  const graph = importGraph(`class m(torch.nn.Module):
    def forward(self, x: "f64[4, 8, 6, 6][288, 1, 48, 8]", y: "f64[4, 8, 6, 6]", z: "f64[4, 8][1, 4]"):
        a: "f64[4, 8, 6, 6][288, 1, 48, 8]" = torch.ops.aten.mul.Tensor(x, y)
        b: "f64[4, 8][1, 4]" = torch.ops.aten.relu.default(z)
        return (a, b)`);
  const request = { ...DEFAULT_REQUEST, mesh: 'tp=2', cluster: PAPER };
  const result = await leastCostPlan(graph, request, { table });
  if (result.status !== 'planned') throw new Error('no plan');
  const { files } = torchTarget.write(
    exportSource({ plan: result.plan, program: result.graph }, table),
  );
  const program = files.find(({ name }) => name === 'program.py')?.text ?? '';
  expect(program.match(/\w+ = laid\(.*\)$/gm)).toEqual([
    'x = laid(x, (0, 2, 3, 1))',
    'z = laid(z, (1, 0))',
  ]);
});

test('the helpers of a program are the functions of the Python file that holds them', () => {
  const text = readFileSync(new URL('../../data/export/torch-helpers.py', import.meta.url), 'utf8');
  expect([...text.matchAll(/^def (\w+)/gm)].map(([, name]) => name)).toEqual(HELPERS);
});

test('numbers that backends refuse are exchanged as bytes, and summed as wider ones', async () => {
  const graph = importGraph(`class m(torch.nn.Module):
    def forward(self, x: "i16[8, 6]"):
        a: "i16[8, 6]" = torch.ops.aten.clone.default(x)
        s: "i16[6]" = torch.ops.aten.sum.dim_IntList(x, [0], False, dtype = torch.int16)
        b: "i16[6]" = torch.ops.aten.neg.default(s)
        return (a, b)`);
  const pins = Object.entries({ x: 'S(0)', a: 'R', s: 'P(sum)', b: 'R' }).map(([node, spec]) => ({
    node,
    spec,
  }));
  const request = { ...DEFAULT_REQUEST, mesh: 'tp=2', cluster: 'dgx-h100', pins };
  const result = await leastCostPlan(graph, request, { table });
  if (result.status !== 'planned') throw new Error('there is no plan');
  const source = exportSource({ plan: result.plan, program: result.graph }, table);
  const { files } = exportFiles(source, 'torch');
  const program = files.find(({ name }) => name === 'program.py')?.text ?? '';
  const calls = [...program.matchAll(/ = (exchanged|widened)\((\w+), here/g)];
  expect(calls.map(([, around, helper]) => [around, helper])).toEqual([
    ['exchanged', 'all_gather'],
    ['widened', 'all_reduce'],
  ]);
});

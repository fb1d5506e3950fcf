import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { exportPlan } from '../../src/export/export.ts';
import { exportSource } from '../../src/export/target.ts';
import { torchTarget } from '../../src/export/torch/target.ts';
import { DEFAULT_REQUEST, builtinOperators, importGraph, shard, type Plan } from '../../src/index.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';

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

const made = new Map<string, ReturnType<typeof planAndExport>>();
/** Each plan is made once. */
function exported(name: string, mesh: string): ReturnType<typeof planAndExport> {
  const key = `${name} ${mesh}`;
  const known = made.get(key) ?? planAndExport(name, mesh);
  made.set(key, known);
  return known;
}

async function planAndExport(
  name: string,
  mesh: string,
): Promise<{ readonly plan: Plan; readonly files: Map<string, string> }> {
  const graph = importGraph(readFileSync(new URL(`../fixtures/running/${name}.fx.txt.gz`, import.meta.url)));
  const result = await shard(graph, { ...DEFAULT_REQUEST, mesh, cluster: PAPER }, { table });
  if (result.status !== 'planned') throw new Error('there is no plan');
  const { files, losses } = exportPlan(exportSource({ plan: result.plan, program: result.graph }, table), 'torch');
  expect(losses).toEqual([]);
  return { plan: result.plan, files: new Map(files.map(({ name: file, text }) => [file, text])) };
}

/** Names that a function reads before they are there, or after they were dropped. */
function unbound(program: string, name: string): string[] {
  const start = program.indexOf(`\ndef ${name}(`) + 1;
  const [head, ...lines] = program.slice(start).split('\n');
  const live = new Set(['here', 'torch', 'aten', 'primals', 'saved', 'tangents', ...program.matchAll(/^def (\w+)\(/gm)].map((m) => (typeof m === 'string' ? m : m[1]))); // prettier-ignore
  const faults: string[] = [];
  expect(head).toContain(name);
  for (const line of lines) {
    if (line !== '' && !line.startsWith(' ')) break;
    const code = line.replace(/ {2}#.*$/, '').replace(/"[^"]*"/g, '""');
    const unpacked = /^ {8}(\w+),$/.exec(code);
    if (unpacked !== null) live.add(unpacked[1]);
    const [, target, value, dropped] = /^ {4}(\w+) = (.*?)(?:; del (.*))?$/.exec(code) ?? [];
    const read = value ?? /^ {4}return (.*)$/.exec(code)?.[1] ?? '';
    for (const [word] of read.matchAll(/(?<![\w.])[a-z]\w*(?!\w*=)/g)) if (!live.has(word) && word !== 'float') faults.push(word); // prettier-ignore
    if (target !== undefined) live.add(target);
    for (const word of dropped?.split(', ') ?? []) if (!live.delete(word)) faults.push(`del ${word}`);
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
      collectives: { kind: string; meshDims: string[]; bytes: number; node: string; inside?: string }[];
    };
    const sizes = new Map(parseMesh(mesh).dims.map((dim) => [dim.name, dim.size]));
    const planned = [...plan.nodes, ...plan.outputs].flatMap(({ redistributions }) =>
      redistributions.flatMap((move) =>
        move.collectives.filter((c) => c.meshDims.some((d) => (sizes.get(d) ?? 1) > 1)),
      ),
    );
    const text = (c: { kind: string; meshDims: readonly string[]; bytes: number }): string =>
      `${c.kind} ${c.meshDims.join()} ${c.bytes}`;
    const rest = collectives.map(text);
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
  expect([...(parameters ?? [])]).toEqual(plan.parameters.map(({ name, placement }) => [name, placement]));
  expect(plan.parameters.some(({ placement }) => placement.includes('S('))).toBe(true);
});

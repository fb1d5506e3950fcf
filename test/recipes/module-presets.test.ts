import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { toMeshView } from '../../src/mesh/sharding/mesh-view.ts';
import { parsePlacement, parseSharding } from '../../src/mesh/sharding/parse.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import type { PlannedRedistribution } from '../../src/plan/record/types.ts';
import {
  fullyShard,
  type ModuleKind,
  modulePreset,
  parallelizeModule,
} from '../../src/recipes/module-presets.ts';
import { input, parameter, trace } from '../../src/trace/trace.ts';
import { load, placed, planFor, TABLE } from '../plan/support.ts';

const TP4 = parseMesh('tp=4');
const STYLES = { fc1: 'colwise', fc2: 'rowwise' } as const;

/**
 * Collectives by kind and pass, as the plan runs them: a copy that is reused is not counted again.
 */
async function counts(
  graph: Graph,
  pins: readonly { node: string; spec: string }[],
  io: string,
): Promise<Record<'forward' | 'backward', Record<string, number>>> {
  const plan = await planFor(graph, 'tp=4', { inputs: io, outputs: io, pins });
  const out = { forward: {} as Record<string, number>, backward: {} as Record<string, number> };
  const add = (pass: 'forward' | 'backward', list: readonly PlannedRedistribution[]): void => {
    for (const r of list)
      for (const c of r.collectives) out[pass][c.kind] = (out[pass][c.kind] ?? 0) + 1;
  };
  // The forward pass of this program ends with the node that makes its output.
  const last = plan.nodes.findIndex((n) => n.name === 'addmm_1');
  plan.nodes.forEach((n, i) => add(i <= last ? 'forward' : 'backward', n.redistributions));
  for (const o of plan.outputs)
    add(o.role === 'output' ? 'forward' : 'backward', o.redistributions);
  for (const { node, spec } of pins.filter((p) => p.node.startsWith('fc')))
    expect(placed(plan, node)).toBe(spec);
  return out;
}

describe('the MLP, colwise then rowwise, on tp=4', () => {
  const graph = load('torch/mlp/joint.expanded');
  const pins = parallelizeModule(graph, TP4, STYLES);

  test("colwise and rowwise give the placements of Megatron's MLP", () => {
    expect(pins).toEqual([
      { node: 'fc1.weight', spec: 'S(0)' },
      { node: 'fc1.bias', spec: 'S(0)' },
      { node: 'fc2.weight', spec: 'S(1)' },
      { node: 'fc2.bias', spec: 'R' },
    ]);
  });

  test('forward one all-reduce, backward nothing', async () => {
    expect(await counts(graph, pins, 'R')).toEqual({ forward: { all_reduce: 1 }, backward: {} });
  });

  test('sequence-sharded input and output: two all-gathers and one reduce-scatter in all', async () => {
    // DTensor redistributes the input once, by an operation of its own, and the backward pass reads
    // its result. Here that operation is a copy of the input, in the layout that the style wants.
    const path = fileURLToPath(
      new URL('../fixtures/torch/mlp/joint.expanded.txt.gz', import.meta.url),
    );
    const text = gunzipSync(readFileSync(path)).toString();
    const first = text.indexOf('addmm:');
    const copy =
      'taken: "f32[8, 128][128, 1]cpu" = torch.ops.aten.clone.default(primals_5)\n        ';
    const prepared = (
      text.slice(0, first) +
      copy +
      text.slice(first).replaceAll('primals_5', 'taken')
    ).replace(/;\s+t_6 = taken = None/, '');
    const withCopy = importGraph(Buffer.from(prepared), {
      infer: (node, typeOf) => inferCall(TABLE, node, typeOf),
    });
    const { desiredInput } = modulePreset('colwise', {
      kind: 'linear',
      inputRank: 2,
      weight: [256, 128],
    });
    const all = [...pins, { node: 'taken', spec: desiredInput.text }];
    expect(await counts(withCopy, all, 'S(0)')).toEqual({
      forward: { all_gather: 1, reduce_scatter: 1 },
      backward: { all_gather: 1 },
    });
  });
});

test('the same on a traced MLP (forward)', async () => {
  const graph = trace(
    (t) =>
      t.x
        .matmul(t['net1.weight'].t())
        .add(t['net1.bias'])
        .relu()
        .matmul(t['net2.weight'].t())
        .add(t['net2.bias']),
    {
      x: input([64, 128]),
      'net1.weight': parameter([256, 128]),
      'net1.bias': parameter([256]),
      'net2.weight': parameter([32, 256]),
      'net2.bias': parameter([32]),
    },
  );
  const pins = parallelizeModule(graph, TP4, { net1: 'colwise', net2: 'rowwise' });
  expect(pins.map((p) => `${p.node} ${p.spec}`)).toEqual([
    'net1.weight S(0)',
    'net1.bias S(0)',
    'net2.weight S(1)',
    'net2.bias R',
  ]);
  const plan = await planFor(graph, 'tp=4', { inputs: 'R', outputs: 'R', pins });
  const moved = [...plan.nodes, ...plan.outputs]
    .flatMap((n) => n.redistributions)
    .flatMap((r) => r.collectives);
  expect(moved.map((c) => c.kind)).toEqual(['all_reduce']);
});

describe('module styles', () => {
  const preset = (style: Parameters<typeof modulePreset>[0], kind: ModuleKind): string => {
    const p = modulePreset(style, {
      kind,
      inputRank: kind === 'embedding' ? 2 : 3,
      weight: [16, 8],
    });
    const { weight, bias } = p.parameters;
    return `weight ${weight.text} bias ${bias.text} in ${p.desiredInput.text} computes ${p.computedOutput.text} out ${p.output.text} local ${p.useLocalOutput}`;
  };
  test.each([
    ['colwise', 'linear', 'weight S(0) bias S(0) in R computes S(2) out S(2) local true'],
    ['colwise', 'embedding', 'weight S(1) bias S(0) in R computes S(2) out S(2) local true'],
    ['rowwise', 'linear', 'weight S(1) bias R in S(2) computes P(sum) out R local true'],
    [
      'rowwise',
      'embedding',
      'weight S(0) bias R in R computes MaskP(sum, [16, 8], 0) out R local true',
    ],
    ['sequence-parallel', 'norm', 'weight R bias R in S(1) computes S(1) out S(1) local false'],
  ] as const)('%s of a %s module', (style, kind, expected) => {
    expect(preset(style, kind)).toBe(expected);
  });

  test('layouts of input and output can be stated', () => {
    const sequence = parsePlacement('S(1)');
    const shape = { kind: 'linear', inputRank: 3, weight: [16, 8] } as const;
    const column = modulePreset('colwise', shape, { input: sequence });
    expect([column.input.text, column.desiredInput.text]).toEqual(['S(1)', 'R']);
    const row = modulePreset('rowwise', shape, { output: sequence });
    expect([row.computedOutput.text, row.output.text]).toEqual(['P(sum)', 'S(1)']);
  });

  test('styles that a module does not have', () => {
    expect(() => preset('colwise', 'norm')).toThrow("style 'colwise' is not for a norm module");
    expect(() => preset('sequence-parallel', 'linear')).toThrow('is not for a linear module');
    expect(() => modulePreset('colwise', { kind: 'linear', inputRank: 0, weight: [1, 1] })).toThrow(
      '0-D tensor',
    );
  });
});

describe('parallelize_module', () => {
  test('a whole model by patterns', () => {
    const graph = load('torch/gpt2-2l/joint.expanded');
    const pins = parallelizeModule(graph, parseMesh('tp=2'), {
      'model.transformer.h.*.ln_1': 'sequence-parallel',
    });
    expect(pins.map((p) => `${p.node}=${p.spec}`)).toEqual(
      [0, 1].flatMap((l) => [
        `model.transformer.h.${l}.ln_1.weight=R`,
        `model.transformer.h.${l}.ln_1.bias=R`,
      ]),
    );
    const embedding = parallelizeModule(graph, parseMesh('tp=2'), {
      'model.transformer.wpe': 'rowwise',
    });
    // GPT-2 stores its linear weights [in, out].
    const mlp = parallelizeModule(graph, parseMesh('tp=2'), {
      'model.transformer.h.0.mlp.c_fc': 'colwise',
      'model.transformer.h.0.mlp.c_proj': 'rowwise',
    });
    expect(mlp.map((p) => p.spec)).toEqual(['S(1)', 'S(0)', 'S(0)', 'R']);
    expect(embedding).toEqual([{ node: 'model.transformer.wpe.weight', spec: 'S(0)' }]);
  });

  test('parallelizeModule refuses larger meshes, unknown modules and conflicting styles', () => {
    const graph = load('torch/mlp/joint.expanded');
    expect(() => parallelizeModule(graph, parseMesh('dp=2,tp=2'), STYLES)).toThrow(
      'wants a mesh of one dim',
    );
    expect(() => parallelizeModule(graph, TP4, { fc3: 'colwise' })).toThrow(
      "'fc3' names no module",
    );
    expect(() => parallelizeModule(graph, TP4, { fc1: 'colwise', '*': 'rowwise' })).toThrow(
      "module 'fc1' is colwise by 'fc1' and rowwise by '*'",
    );
    expect(() => parallelizeModule(graph, TP4, { fc1: 'sequence-parallel' })).toThrow(
      'is not for a linear module',
    );
  });
});

describe('fully_shard', () => {
  test('cuts after tensor parallelism; HSDP leaves the replicate dim', () => {
    const mesh = parseMesh('dp=2,tp=2');
    const view = toMeshView(fullyShard(parseSharding('RS(0)', mesh), mesh, 'dp'), mesh, [8, 4]);
    expect('placements' in view && view.placements.map((p) => p.text).join('')).toBe(
      '_S(0, 2)S(0)',
    );
    expect(fullyShard(parseSharding('RS(1)', mesh), mesh, 'dp').text).toBe('S(0)S(1)');
    const hsdp = parseMesh('replicate=2,shard=4');
    expect(fullyShard(parseSharding('RR', hsdp), hsdp, 'shard').text).toBe('RS(0)');
    expect(() => fullyShard(parseSharding('S(0)R', mesh), mesh, 'dp')).toThrow('is S(0) already');
  });
});

import { readFileSync } from 'node:fs';

import { beforeAll, describe, expect, test } from 'vitest';

import { type ExportSource, exportSource, refuseLosses } from '../../src/backend/target.ts';
import type { ShardwrightError } from '../../src/errors.ts';
import { einshardTarget } from '../../src/export/einshard.ts';
import { exportFiles } from '../../src/export/export.ts';
import { EXPORT_TARGETS } from '../../src/export/targets.ts';
import { torchDtensorTarget } from '../../src/export/torch-dtensor.ts';
import { importGraph } from '../../src/import/import.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { plannedProgram } from '../../src/plan/record/planned.ts';
import { hfTarget } from '../../src/trainers/accelerate/target.ts';
import { autoparallelTarget } from '../../src/trainers/autoparallel/target.ts';
import { deepspeedTarget } from '../../src/trainers/deepspeed/target.ts';
import { maxtextTarget } from '../../src/trainers/maxtext/target.ts';
import { megatronTarget } from '../../src/trainers/megatron/target.ts';
import { planRoles } from '../../src/trainers/roles/roles.ts';
import { torchtitanTarget } from '../../src/trainers/torchtitan/target.ts';
import { TABLE } from '../plan/support.ts';
import { refusal } from '../support/thrown.ts';
import {
  CONFIG_RECORD,
  configFiles,
  type ConfigRecord,
  RUN_RECORD,
  runFiles,
  type RunRecord,
} from './config-record.ts';
import { hashOf } from './jax-record.ts';
import { solvedSource } from './programs.ts';
import {
  fsdpSource,
  megatronSource,
  tablesSource,
  vocabularySource,
  wideSource,
  zeroSource,
} from './recipe-plans.ts';

const INFER = { infer: inferCall.bind(undefined, TABLE) };

let tp: ExportSource;
let fsdp: ExportSource;
beforeAll(async () => {
  tp = await megatronSource();
  fsdp = await fsdpSource();
});

const COLUMNS = [
  'self_attn.q_proj',
  'self_attn.k_proj',
  'self_attn.v_proj',
  'mlp.gate_proj',
  'mlp.up_proj',
];
const ROWS = ['self_attn.o_proj', 'mlp.down_proj'];
const text = (target: typeof megatronTarget, source: ExportSource, name: string): string =>
  target.write(source).files.find((file) => file.name === name)?.text ?? '';

describe('column and row parallel over tp, data parallel over dp', () => {
  test('the roles of the mesh dims', () => {
    const roles = planRoles(tp);
    expect(roles.roles).toEqual(['data', 'tensor']);
    expect(roles.batch).toEqual({ sequences: 2, tokens: 32 });
  });

  test('torch-dtensor: styles folded over both layers', () => {
    const python = text(torchDtensorTarget, tp, 'parallelize.py');
    for (const module of COLUMNS)
      expect(python).toContain(`"model.model.layers.*.${module}": ColwiseParallel(),`);
    for (const module of ROWS)
      expect(python).toContain(`"model.model.layers.*.${module}": RowwiseParallel(),`);
  });

  test('hf: the same keys without the wrapper', () => {
    const plan = JSON.parse(text(hfTarget, tp, 'tp_plan.json')) as Record<string, string>;
    const wanted = Object.fromEntries(
      [...COLUMNS.map((m) => [m, 'colwise']), ...ROWS.map((m) => [m, 'rowwise'])].map(
        ([m, style]) => [`model.layers.*.${m}`, style],
      ),
    );
    // transformers keeps the rules of its own plan that it is told nothing about, here those of the
    // tables.
    const whole = { 'model.embed_tokens': 'replicate', lm_head: 'replicate' };
    expect(plan).toEqual({ ...wanted, ...whole });
    const config = { tp_size: 2, fsdp_size: 1, dp_replicate_size: 2, tp_plan: plan };
    expect(JSON.parse(text(hfTarget, tp, 'distributed_config.json'))).toEqual(config);
  });

  test('deepspeed gets a column and a row partition', () => {
    const config = JSON.parse(text(deepspeedTarget, tp, 'ds_config.json')) as {
      tensor_parallel: {
        autotp_size: number;
        partition_config: { layer_specs: { patterns: string[]; partition_type: string }[] };
      };
    };
    const { autotp_size, partition_config } = config.tensor_parallel;
    expect(autotp_size).toBe(2);
    const typeOf = (name: string): string[] =>
      partition_config.layer_specs.flatMap((s) =>
        s.patterns.some((p) => new RegExp(p).test(name)) ? [s.partition_type] : [],
      );
    expect(typeOf('model.model.layers.1.mlp.up_proj.weight')).toEqual(['column']);
    expect(typeOf('model.model.layers.1.mlp.down_proj.weight')).toEqual(['row']);
    expect(typeOf('model.model.layers.1.mlpxup_proj.weight')).toEqual([]);
  });

  test('megatron, torchtitan and maxtext get the degrees of the plan', () => {
    const args = text(megatronTarget, tp, 'megatron.args').split('\n');
    for (const arg of [
      '--tensor-model-parallel-size 2',
      '--num-layers 2',
      '--hidden-size 64',
      '--num-query-groups 2',
      '--global-batch-size 2',
      '--micro-batch-size 1',
    ])
      expect(args).toContain(arg);
    const toml = text(torchtitanTarget, tp, 'torchtitan.toml');
    expect(toml).toContain(
      'data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 1\ntensor_parallel_degree = 2\n',
    );
    const yaml = text(maxtextTarget, tp, 'maxtext.yml');
    expect(yaml).toContain('ici_data_parallelism: 2\n');
    expect(yaml).toContain('ici_tensor_parallelism: 2\n');
  });

  test('nothing of it is lost', () => {
    for (const target of [
      megatronTarget,
      torchtitanTarget,
      maxtextTarget,
      hfTarget,
      deepspeedTarget,
      torchDtensorTarget,
    ])
      expect(target.write(tp).losses, target.name).toEqual([]);
  });
});

describe('the real packages', () => {
  test('read these very files: torchtitan 0.3, megatron-core 0.16, DeepSpeed 0.19, Accelerate 1.15', () => {
    const record = JSON.parse(readFileSync(CONFIG_RECORD, 'utf8')) as ConfigRecord;
    const hint =
      'run SHARDWRIGHT_RECORD=1 npm run test:engines -- test/engines/export-configs.test.ts';
    expect(hashOf(configFiles(tp)), hint).toBe(record.files);
    expect(record.answers).toMatchObject({
      torchtitan: { made: { tp: 2, dp_replicate: 2, dp_shard: 1, world: 4 } },
      'megatron-core': {
        made: {
          tp: 2,
          layers: 2,
          groups: [
            [0, 1],
            [2, 3],
          ],
        },
      },
      deepspeed: { made: { batch: 1, stage: 0, autotp: 2 } },
      accelerate: { made: { processes: 4 } },
    });
  });

  test('transformers and torchtitan ran these very plans on four processes, transformers with the parameters cut as planned', async () => {
    const record = JSON.parse(readFileSync(RUN_RECORD, 'utf8')) as RunRecord;
    const hint =
      'run SHARDWRIGHT_RECORD=1 npm run test:engines -- test/engines/recipe-runs.test.ts';
    expect(hashOf(await runFiles()), hint).toBe(record.files);
    expect(record.torchtitan).toEqual({ version: '0.3.0', steps: 2, gradients: 45 });
    const sources = [tp, await vocabularySource()];
    record.transformers.made.forEach(({ parts }, k) => {
      for (const { name, placement } of sources[k].plan.parameters)
        expect(parts[name.slice('model.'.length)], name).toBe(placement.includes('S') ? 2 : 1);
    });
  });
});

/** A parameter of that name, in every text that is Python, JSON, YAML or MLIR. */
describe('names are data', () => {
  const evil = 'a"]);\nimport os #';
  const named = (): ExportSource => {
    const rename = (name: string | undefined): string | undefined =>
      name?.endsWith('norm.weight') === true ? `${evil}${name}` : name;
    const nodes = tp.program.nodes.map((n) =>
      n.meta.roleName === undefined
        ? n
        : { ...n, meta: { ...n.meta, roleName: rename(n.meta.roleName) ?? '' } },
    );
    const parameters = tp.plan.parameters.map((p) => ({ ...p, name: rename(p.name) ?? '' }));
    return { ...tp, plan: { ...tp.plan, parameters }, program: { ...tp.program, nodes } };
  };

  test.each(EXPORT_TARGETS.filter(({ name }) => name !== 'torch'))('$name', (target) => {
    for (const { name, text: written } of target.write(named()).files) {
      // Quotes and line ends of the name are escaped wherever it stands.
      expect(written).not.toContain(evil);
      expect(written.split('\n').filter((line) => line.trim().startsWith('import os #'))).toEqual(
        [],
      );
      if (name.endsWith('.json')) expect(() => JSON.parse(written) as unknown).not.toThrow();
    }
  });
});

describe('FSDP', () => {
  test('parameters that are gathered before they are used are fully sharded', () => {
    expect(planRoles(fsdp).roles).toEqual(['fsdp']);
    expect(text(megatronTarget, fsdp, 'megatron.args')).toContain(
      '--data-parallel-sharding-strategy optim_grads_params',
    );
    expect(JSON.parse(text(deepspeedTarget, fsdp, 'ds_config.json'))).toMatchObject({
      zero_optimization: { stage: 3 },
    });
    expect(text(torchDtensorTarget, fsdp, 'parallelize.py')).toContain(
      'fully_shard(model, mesh=shards)',
    );
    expect(text(torchtitanTarget, fsdp, 'torchtitan.toml')).toContain(
      'data_parallel_shard_degree = 2',
    );
  });
});

describe('losses', () => {
  /** Row parallel where Megatron cuts columns. */
  const turned = (): ExportSource => ({
    ...tp,
    program: {
      ...tp.program,
      nodes: tp.program.nodes.map((n) =>
        n.meta.roleName?.endsWith('layers.1.mlp.up_proj.weight') === true
          ? { ...n, meta: { ...n.meta, roleName: 'model.model.layers.1.mlp.other.weight' } }
          : n,
      ),
    },
  });

  test('a layer that Megatron does not know is refused, and written with the loss at the top when allowed', () => {
    expect(() => exportFiles(turned(), 'megatron')).toThrow(/E_EXPORT_LOSS|model\.model\.layers/);
    const { files, losses } = exportFiles(turned(), 'megatron', { allowLossy: true });
    expect(losses.length).toBe(1);
    expect(files[0].text).toContain(
      '# LOSS model.model.layers.*.mlp.other: planned colwise; Megatron knows no layer of that name',
    );
  });

  test('a weight that no style cuts is a loss of every target that writes styles', () => {
    const name = 'model.model.layers.1.mlp.up_proj.weight';
    const thick: ExportSource = {
      ...tp,
      program: {
        ...tp.program,
        nodes: tp.program.nodes.map((n) =>
          n.meta.roleName === name && n.type.kind === 'tensor'
            ? { ...n, type: { ...n.type, shape: [...n.type.shape, 1] } }
            : n,
        ),
      },
    };
    for (const target of [torchDtensorTarget, hfTarget, deepspeedTarget, megatronTarget])
      expect(target.write(thick).losses, target.name).toContainEqual(
        expect.objectContaining({
          item: name,
          instead: expect.stringMatching(/^no style cuts dim/) as string,
        }),
      );
  });

  test('layers that differ are written out', () => {
    const python = text(torchDtensorTarget, turned(), 'parallelize.py');
    expect(python).toContain('"model.model.layers.*.mlp.up_proj": ColwiseParallel()');
    expect(python).toContain('"model.model.layers.*.mlp.other": ColwiseParallel()');
  });
});

describe('a recipe that the trainer would not run', () => {
  test('is not written, whatever is allowed', async () => {
    const cases = [
      [await tablesSource(), 'tp=2 cuts the embedding or the head and no weight of a layer'],
      [await wideSource(), '2 key and value heads do not divide over tensor parallelism of 4'],
    ] as const;
    for (const target of ['megatron', 'torchtitan', 'hf', 'deepspeed', 'maxtext']) {
      expect(() => exportFiles(tp, target, { allowLossy: true })).not.toThrow();
      for (const [source, why] of cases)
        expect(() => exportFiles(source, target, { allowLossy: true })).toThrow(why);
    }
  });

  test('names the nearest plan of as many devices, over which all heads divide', async () => {
    const hint = (source: ExportSource): unknown => {
      try {
        return exportFiles(source, 'megatron', { allowLossy: true });
      } catch (error) {
        return (error as ShardwrightError).details.hint;
      }
    };
    const wide = await wideSource();
    expect(wide.mesh.size).toBe(4);
    expect(hint(wide)).toContain('--mesh dp=2,tp=2 --recipe dp+tp');
  });
});

describe('what targets state is read back', () => {
  test.each([einshardTarget, torchDtensorTarget])('$name: every parameter', (target) => {
    for (const source of [tp, fsdp]) {
      const { files, losses } = target.write(source);
      const lost = new Set(losses.map(({ item }) => item));
      const read = target.readBack?.(files, source.mesh);
      for (const { name, placement } of source.plan.parameters)
        if (!lost.has(name)) expect(read?.parameters?.get(name), name).toBe(placement);
    }
  });

  test('autoparallel: every node, by its name', () => {
    const { files, losses } = autoparallelTarget.write(tp);
    expect(losses).toEqual([]);
    const read = autoparallelTarget.readBack?.(files, tp.mesh);
    expect([...(read?.nodes?.keys() ?? [])]).toEqual(tp.plan.nodes.map(({ name }) => name));
    for (const node of tp.plan.nodes)
      expect(read?.nodes?.get(node.name)).toEqual({ inputs: node.inputs, outputs: node.outputs });
  });

  test('two exports of one plan are the same bytes', () => {
    for (const name of [
      'torch-dtensor',
      'autoparallel',
      'torchtitan',
      'megatron',
      'deepspeed',
      'hf',
      'maxtext',
      'einshard',
    ])
      expect(exportFiles(tp, name, { allowLossy: true }).files).toEqual(
        exportFiles(tp, name, { allowLossy: true }).files,
      );
  });
});

describe('optimizer states that are cut where parameters are whole', () => {
  test('are a stage of ZeRO where a target has one, and a loss by name where it has not', async () => {
    const zero = await zeroSource();
    expect(planRoles(zero).roles).toEqual(['data']);
    const config = JSON.parse(text(deepspeedTarget, zero, 'ds_config.json')) as {
      zero_optimization: { stage: number };
    };
    expect([1, 2]).toContain(config.zero_optimization.stage);
    expect(text(megatronTarget, zero, 'megatron.args')).toContain('--use-distributed-optimizer');
    for (const target of [torchtitanTarget, hfTarget, maxtextTarget])
      expect(
        target.write(zero).losses.map((l) => l.item),
        target.name,
      ).toContain('optimizer states');
    for (const plain of [tp, fsdp])
      expect(deepspeedTarget.write(plain).losses.map((l) => l.item)).not.toContain(
        'optimizer states',
      );
  });
});

/** A scan of JAX over two layers, `tanh(x @ w)`. */
const SCAN = `module @scan {
  func.func public @main(%w: tensor<2x8x8xf32> {shardwright.role = "parameter"},
      %x: tensor<16x8xf32>) -> tensor<16x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%ws = %w, %n = %c, %h = %x)
        : tensor<2x8x8xf32>, tensor<i32>, tensor<16x8xf32>
    cond {
      %two = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %n, %two, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %z = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.dynamic_slice %ws, %n, %z, %z, sizes = [1, 8, 8]
        : (tensor<2x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
      %2 = stablehlo.reshape %1 : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
      %3 = stablehlo.dot_general %h, %2, contracting_dims = [1] x [0]
        : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
      %4 = stablehlo.tanh %3 : tensor<16x8xf32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %5 = stablehlo.add %n, %one : tensor<i32>
      stablehlo.return %ws, %5, %4 : tensor<2x8x8xf32>, tensor<i32>, tensor<16x8xf32>
    }
    return %0#2 : tensor<16x8xf32>
  }
}`;

test.each([
  [16, 'R', 'fsdp'],
  [2, 'S(1)', 'tensor'],
])('a loop of JAX over %i rows reads its weights in %s: %s', async (rows, read, role) => {
  const graph = importGraph(SCAN.replaceAll('tensor<16x', `tensor<${rows}x`), INFER);
  const pins = [
    { node: 'w', spec: 'S(2)' },
    { node: 'x', spec: rows > 2 ? 'S(0)' : 'R' },
  ];
  const { program, plan } = await solvedSource(graph, 'd=2', pins);
  const { listed } = plannedProgram(program, plan, TABLE);
  const source = exportSource({ plan, program, graph: listed }, TABLE);
  const products = plan.nodes.filter(({ target }) => target === 'stablehlo.dot_general');
  expect(products.map(({ inputs }) => inputs[1])).toEqual([read]);
  expect(planRoles(source).roles).toEqual([role]);
});

test('a refusal lists twenty losses, and counts the rest', () => {
  const losses = Array.from({ length: 23 }, (_, i) => ({
    item: `item ${i}`,
    planned: 'S(0)',
    instead: 'it is whole',
  }));
  const { code, message } = refusal(() => refuseLosses(hfTarget, losses, tp.program));
  expect(code).toBe('E_EXPORT_LOSS');
  const lines = message.split('\n');
  expect([lines[0], lines.length]).toEqual([
    `${hfTarget.name} cannot say 23 things of this plan`,
    22,
  ]);
  expect(lines.at(-2)).toBe('item 19: planned S(0); it is whole');
  expect(lines.at(-1)).toBe('and 3 more');
});

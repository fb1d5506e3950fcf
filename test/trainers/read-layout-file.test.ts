import { describe, expect, it } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { parseLayout } from '../../src/sweep/layout/parse-layout.ts';
import { readLayoutFile } from '../../src/trainers/read-layout-file.ts';
import { layoutModel } from './layout-model.ts';

const read = (
  text: string,
  devices: number,
  model: { layers?: number; routed?: boolean } = {},
): ReturnType<typeof readLayoutFile> =>
  readLayoutFile(text, {
    file: 'job',
    devices,
    model: layoutModel(model),
  });

function refusal(text: string, devices: number): string {
  try {
    read(text, devices);
  } catch (error) {
    if (error instanceof ShardwrightError)
      return `${error.headline} -> ${error.details.hint ?? ''}`;
  }
  return 'no error';
}

const MEGATRON = `#!/bin/bash
TP=8
MODEL_ARGS=(
    --num-layers 126
    --seq-length 8192 # tokens
)
torchrun --nproc_per_node 8 pretrain_gpt.py \${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size 9 --num-layers-per-virtual-pipeline-stage 2 \\
    --context-parallel-size 2 --cp-comm-type a2a --sequence-parallel \\
    --micro-batch-size 1 --global-batch-size=1152 \\
    --use-distributed-optimizer --recompute-activations --bf16 \\
    --tp-comm-overlap --lr 8e-5
`;

const BRIDGE = `
dataset: { context_parallel_size: null, sequence_length: 4096 }
ddp:
  data_parallel_sharding_strategy: no_shard
  use_distributed_optimizer: true
  use_megatron_fsdp: false
mixed_precision: { bf16: true, fp8: hybrid }
model:
  context_parallel_size: 1
  expert_model_parallel_size: 64
  expert_tensor_parallel_size: 1
  fp8: null
  overlap_moe_expert_parallel_comm: true
  pipeline_model_parallel_size: 8
  recompute_granularity: selective
  recompute_modules: [mla_up_proj, mlp]
  sequence_parallel: true
  tensor_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
train: { global_batch_size: 16384, micro_batch_size: 1 }
`;

const TITAN = `
[training]
local_batch_size = 2
seq_len = 8192   # tokens
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = 'selective'
selective_ac_option = "op"
`;

const TITAN_PYTHON = `
from torchtitan.config import ParallelismConfig, TrainingConfig

def llama3_405b():
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=8, seq_len=8_192),
        parallelism=ParallelismConfig(pipeline_parallel_degree=8, tensor_parallel_degree=8,
            pipeline_parallel_schedule="Interleaved1F1B"),
        activation_checkpoint=FullAC.Config(),
    )
`;

const DEEPSPEED = `{ "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": { "enabled": true },
  "zero_optimization": { "stage": 3, "overlap_comm": true, "offload_optimizer": { "device": "cpu", "pin_memory": true } } }`;

const ACCELERATE = `
distributed_type: FSDP
fsdp_config: { fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_activation_checkpointing: true }
mixed_precision: bf16
num_processes: 16
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
`;

describe("the layout of a trainer's configuration", () => {
  it('Megatron-LM: arguments in a script, with its variables', () => {
    const found = read(MEGATRON, 1152, { layers: 126 });
    expect(found.text).toBe(
      'pp=9,vp=7,dp=8,cp=2,tp=8,sp=1,mbs=1,zero=1,recompute=core_attn,context=ulysses,gradients=fp32,dtype=bf16',
    );
    expect(found).toMatchObject({
      format: 'Megatron-LM arguments',
      sequence: 8192,
      globalBatch: 1152,
    });
    expect(found.notPriced.map((n) => n.key)).toEqual(['processes', '--tp-comm-overlap']);
    expect(parseLayout(found.text, 1152)).toMatchObject({
      sizes: { pp: 9, dp_shard: 8, cp: 2, tp: 8 },
      kind: { mode: 'zero1', context: 'ulysses', sequenceParallel: true },
      tuning: { chunks: 7, schedule: 'interleaved', checkpoint: 'core_attn' },
      dtype: 'bf16',
    });
  });

  it('Megatron-LM: gradients are summed in float32 beside bf16, unless it is told otherwise', () => {
    const base = '--tensor-model-parallel-size 2 --micro-batch-size 1 --bf16';
    expect(read(base, 8).text).toContain('gradients=fp32,dtype=bf16');
    expect(read(`${base} --grad-reduce-in-bf16`, 8).text).toContain('gradients=bf16,dtype=bf16');
    expect(read(base.replace('--bf16', '--accumulate-allreduce-grads-in-fp32'), 8).text).toContain(
      'gradients=fp32',
    );
    expect(read(base.replace('--bf16', '--fp16'), 8).text).not.toContain('gradients');
    const dump = BRIDGE.replace('use_megatron_fsdp: false', 'grad_reduce_in_fp32: true');
    expect(read(dump, 1024, { layers: 64, routed: true })).toMatchObject({
      text: expect.stringContaining('gradients=fp32') as string,
      notPriced: [],
    });
  });

  it('Megatron-LM: experts are cut as tensor ranks are, where nothing is said of them', () => {
    const text =
      '--tensor-model-parallel-size 4 --expert-model-parallel-size 8 --sequence-parallel --micro-batch-size 1';
    expect(read(text, 64, { routed: true }).text).toContain('ep=8,etp=4');
    expect(
      read(`${text} --expert-tensor-parallel-size 1`, 64, { routed: true }).text,
    ).not.toContain('etp');
    expect(read(text, 64).text).not.toContain('etp');
  });

  it('experts with tensor parallelism lie on a sequence that is cut too: Megatron-LM refuses all else, others are priced so', () => {
    const args =
      '--tensor-model-parallel-size 4 --expert-model-parallel-size 8 --micro-batch-size 1';
    expect(() => read(args, 64, { routed: true })).toThrow(
      /sequence_parallel: found false with tensor_model_parallel_size 4, wanted true/,
    );
    expect(read(args, 64).text).toContain('tp=4,sp=0');
    const titan = TITAN.replace('[activation', 'enable_sequence_parallel = false\n[activation');
    expect(read(titan, 64).text).toContain('tp=8,sp=0');
    const found = read(titan, 64, { routed: true });
    expect(found.text).toContain('tp=8,sp=1');
    expect(found.notPriced.at(-1)).toMatchObject({ key: 'sequence parallelism', value: 'off' });
  });

  it('Megatron-LM: FSDP counts by its strategy, and only where it is used', () => {
    const base =
      '--tensor-model-parallel-size 2 --data-parallel-sharding-strategy optim_grads_params';
    expect(read(base, 16).text).toContain('zero=0');
    expect(
      read(`${base} --use-megatron-fsdp --num-distributed-optimizer-instances 2`, 16).text,
    ).toContain('dp_replicate=2,dp=4,tp=2,sp=0,mbs=1,zero=3');
  });

  it('NeMo and Megatron-Bridge: a dump of the configuration', () => {
    const found = read(BRIDGE, 1024, { layers: 64, routed: true });
    expect(found.text).toBe(
      'pp=8,vp=4,dp=64,tp=2,sp=1,ep=64,mbs=1,zero=1,recompute=mla_up_proj+mlp,pair=1,dtype=fp8',
    );
    expect(found).toMatchObject({ sequence: 4096, globalBatch: 16384 });
    expect(found.notPriced).toEqual([]);
    expect(
      read(BRIDGE.replace('mla_up_proj, mlp', 'mlp, mhc'), 1024, { layers: 64, routed: true }),
    ).toMatchObject({
      text: 'pp=8,vp=4,dp=64,tp=2,sp=1,ep=64,mbs=1,zero=1,recompute=mlp,pair=1,dtype=fp8',
      notPriced: [
        { key: 'model.recompute_modules', value: 'mlp mhc', why: 'priced without recomputing mhc' },
      ],
    });
    expect(parseLayout(found.text, 1024).tuning).toMatchObject({
      paired: true,
      checkpoint: 'mla_up_proj+mlp',
      chunks: 4,
    });
  });

  it('a TOML file of torchtitan gives layout, sequence and batch', () => {
    const found = read(TITAN, 64);
    expect(found.text).toBe(
      'dp=8,tp=8,sp=1,mbs=2,zero=3,recompute=operators,gradients=fp32,states=fp32,dtype=bf16',
    );
    expect(found).toMatchObject({ sequence: 8192, globalBatch: 16 });
    expect(found.notPriced.map((n) => n.key)).toEqual(['parallelism.enable_async_tensor_parallel']);
    // Its own defaults: every second layer, eight sequences of 2,048 tokens, parameters cut over
    // all ranks.
    const bare = read('[training]\nsteps = 10\n', 8);
    expect(bare).toMatchObject({
      text: 'dp=8,mbs=8,zero=3,recompute=full,gradients=fp32,states=fp32,dtype=bf16',
      sequence: 2048,
      globalBatch: 64,
    });
    expect(bare.notPriced).toMatchObject([
      { value: '2', why: 'every layer is recomputed, not every n-th' },
    ]);
  });

  it('torchtitan: a section of TOML, its names with dots and its table in one line are the same', () => {
    const rest = '[training]\nlocal_batch_size = 1\n';
    const section = `[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_shard_degree = -1\n${rest}`;
    const dots =
      'parallelism.tensor_parallel_degree = 2\nparallelism.data_parallel_shard_degree = -1\n' +
      'training.local_batch_size = 1\n';
    const table = `parallelism = { tensor_parallel_degree = 2, data_parallel_shard_degree = -1 }\n${rest}`;
    expect(read(section, 16).text).toContain('dp=8,tp=2');
    const quoted = section
      .replace('[parallelism]', '["parallelism"]')
      .replace('tensor_parallel_degree', "'tensor_parallel_degree'");
    const long = `job.description = """\n[parallelism]\ntensor_parallel_degree = 4\n"""\n${section}`;
    const spaced = section.replace('[parallelism]', '[ parallelism ]');
    for (const text of [dots, table, spaced, quoted, long])
      expect(read(text, 16)).toEqual(read(section, 16));
  });

  it('torchtitan: Python, two stages a rank where the schedule is interleaved', () => {
    const found = read(TITAN_PYTHON, 512, { layers: 128 });
    expect(found.text).toBe(
      'pp=8,vp=2,stages=8+9+8x13+7,dp=8,tp=8,sp=1,mbs=1,zero=3,recompute=full,schedule=interleaved,gradients=fp32,states=fp32,dtype=bf16',
    );
    expect(found).toMatchObject({ sequence: 8192, globalBatch: 64 });
  });

  it('torchtitan: Python with names, brackets and lists; what cannot be read is refused', () => {
    const job = (inside: string): string => `TP = 4\nconfig = ParallelismConfig(${inside})\n`;
    expect(read(job('tensor_parallel_degree=TP, data_parallel_shard_degree=-1'), 8).text).toContain(
      'dp=2,tp=4',
    );
    expect(
      read(job('module_fqns_per_model_part=[["a", "b"], ["c"]], tensor_parallel_degree=2'), 8),
    ).toMatchObject({
      text: expect.stringContaining('tp=2') as string,
      notPriced: [
        { key: 'parallelism.module_fqns_per_model_part', why: 'layers lie in equal parts' },
      ],
    });
    expect(read('config.parallelism.tensor_parallel_degree = TP\nTP = 2\n', 8).text).toContain(
      'tp=2',
    );
    for (const inside of [
      'tensor_parallel_degree=int(os.environ["TP"])',
      'tensor_parallel_degree=OTHER',
      'tensor_parallel_degree=2 * TP',
    ])
      expect(refusal(job(inside), 8)).toMatch(
        /^job: E_INPUT parallelism\.tensor_parallel_degree: found '.*', wanted a number/,
      );
  });

  it('torchtitan: stages whose modules are named, in both languages; other modules have no price', () => {
    const parts = (...layers: readonly number[]): string[][] => {
      let at = 0;
      const named = layers.map((n) => Array.from({ length: n }, () => `layers.${at++}`));
      return named.map((part, k) => [
        ...(k === 0 ? ['tok_embeddings'] : []),
        ...part,
        ...(k === layers.length - 1 ? ['norm', 'output'] : []),
      ]);
    };
    const python = (list: string[][]): string =>
      `config = ParallelismConfig(pipeline_parallel_degree=2, module_fqns_per_model_part=${JSON.stringify(list)})\n`;
    const toml = (list: string[][]): string =>
      `[parallelism]\npipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [\n${list.map((part) => `  ${JSON.stringify(part).replaceAll('"', "'")},\n`).join('')}]\n`;
    const listed = (text: string): ReturnType<typeof read>['notPriced'] =>
      read(text, 8).notPriced.filter(({ key }) => key.startsWith('parallelism.'));
    for (const write of [python, toml]) {
      expect(read(write(parts(15, 17)), 8).text).toContain('pp=2,stages=15+17,');
      expect(listed(write(parts(15, 17)))).toEqual([]);
      expect(read(write(parts(0, 11, 11, 10)), 8).text).toContain('pp=2,vp=2,stages=0+11x2+10,');
      expect(read(write(parts(16, 16)), 8).text).toMatch(/^pp=2,dp=4,/);
      expect(refusal(write(parts(15, 16)), 8)).toContain(
        'module_fqns_per_model_part: found 31 layers, wanted 32',
      );
      expect(refusal(write(parts(15, 16, 1)), 8)).toContain(
        'module_fqns_per_model_part: found 3 parts, wanted a multiple of pipeline_parallel_degree 2',
      );
      // The vision tower has no price, nor has a norm without its head.
      const others = [
        [
          ['vision', 'tok_embeddings', 'layers.0'],
          ['layers.1', 'norm', 'output'],
        ],
        [['tok_embeddings', 'layers.0', 'norm'], ['output']],
      ];
      for (const other of others)
        expect(listed(write(other))).toMatchObject([
          { key: 'parallelism.module_fqns_per_model_part', why: 'layers lie in equal parts' },
        ]);
    }
  });

  it('torchtitan: a Python file of several configurations has them by name, with those that they are made from', () => {
    const registry = `
def base() -> Trainer.Config:
    return Trainer.Config(training=TrainingConfig(local_batch_size=2, seq_len=8192), activation_checkpoint=FullAC.Config())

def wide() -> Trainer.Config:
    config = base()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config(filter_fqns=["lm_head"])])
    config.parallelism.tensor_parallel_degree = 4
    return config

def helper(x):
    return x
`;
    const named = (configuration?: string): ReturnType<typeof readLayoutFile> =>
      readLayoutFile(registry, {
        file: 'job.py',
        devices: 8,
        model: layoutModel(),
        ...(configuration === undefined ? {} : { configuration }),
      });
    expect(named('base')).toMatchObject({
      text: 'dp=8,mbs=2,zero=3,recompute=full,gradients=fp32,states=fp32,dtype=bf16',
      sequence: 8192,
    });
    expect(named('wide')).toMatchObject({
      text: 'dp=2,tp=4,sp=1,mbs=2,zero=3,recompute=full,gradients=fp32,states=fp32,dtype=fp8:rowwise',
      sequence: 8192,
    });
    expect(() => named()).toThrow('found 2 configurations, wanted one: base, wide');
    expect(() => named('wode')).toThrow("no configuration 'wode'");
    expect(() => named('helper')).toThrow("no configuration 'helper'");
  });

  it('torchtitan: the dtypes of states, products and sums', () => {
    const dtypes = (more: string, parallelism = ''): string =>
      read(`[training]\nlocal_batch_size = 1\n${more}[parallelism]\n${parallelism}`, 8).text.split(
        'recompute=full,',
      )[1];
    expect(dtypes('')).toBe('gradients=fp32,states=fp32,dtype=bf16');
    const narrow = 'dtype = "bfloat16"\nmixed_precision_reduce = "bfloat16"\n';
    expect(dtypes(narrow)).toBe('gradients=bf16,states=bf16,dtype=bf16');
    expect(dtypes('mixed_precision_param = "float32"\n')).toContain('states=fp32,dtype=f32');
    expect(dtypes('[optimizer]\nimplementation = "fused_opt_states_bf16"\n')).toContain(
      'states=fp32:bf16',
    );
    // Without FSDP 0.2 has no mixed precision next to tensor ranks.
    const whole = 'data_parallel_shard_degree = 1\n';
    const replicas = `${whole}data_parallel_replicate_degree = 8\n`;
    const states = 'dtype = "bfloat16"\n';
    expect(dtypes(states, replicas)).toBe('gradients=bf16,states=bf16,dtype=bf16');
    expect(dtypes('', replicas)).toBe('gradients=fp32,states=fp32,dtype=bf16');
    expect(dtypes('', `${whole}tensor_parallel_degree = 8\n`)).toContain('dtype=f32');
    expect(refusal('[training]\ndtype = "float16"\n', 8)).toContain(
      "job:2:1: E_INPUT training.dtype: found 'float16', wanted float32 or bfloat16",
    );
  });

  it('torchtitan: settings of other sections that may change a step are listed', () => {
    const text = `[job]\ndescription = "x"\n[optimizer]\nname = "Muon"\nlr = 1e-4\n[experimental]\ncustom = "y"\n[checkpoint]\nenable = true\n[training]\nsteps = 3\nfuture = 2\n`;
    expect(read(text, 8).notPriced.map(({ key }) => key)).toEqual([
      'optimizer.name',
      'experimental.custom',
      'training.future',
      'activation_checkpoint.selective_ac_option',
    ]);
  });

  it('torchtitan: fp8 by its recipe', () => {
    const job = (more: string): string =>
      `[training]\nsteps = 1\n[model]\nconverters = ["quantize.linear.${more}`;
    expect(read(job('float8"]\n'), 8).text).toContain('dtype=fp8:current');
    expect(
      read(job('float8"]\n[quantize.linear.float8]\nrecipe_name = "rowwise"\n[training]\n'), 8)
        .text,
    ).toContain('dtype=fp8:rowwise');
    expect(read(job('mx"]\n[training]\n'), 8).text).toContain('dtype=fp8:mxfp8');
    expect(() => read(job('float8"]\n[float8]\nrecipe_name = "rows"\n[training]\n'), 8)).toThrow(
      "float8.recipe_name: found 'rows', wanted tensorwise, rowwise",
    );
  });

  it('a file for a model of other depth says so', () => {
    const found = read('--tensor-model-parallel-size 2 --num-layers 80 --micro-batch-size 1', 8);
    expect(found.notPriced).toEqual([
      { key: '--num-layers', value: '80', why: 'the model has 32' },
    ]);
  });

  it('DeepSpeed: the batch follows from its parts, and what lies on the host is listed', () => {
    const found = read(DEEPSPEED, 16);
    expect(found).toMatchObject({ text: 'dp=16,mbs=2,zero=3,dtype=bf16', globalBatch: 128 });
    expect(found.notPriced).toEqual([
      {
        key: 'zero_optimization.offload_optimizer.device',
        value: 'cpu',
        why: 'nothing is moved to the host',
      },
    ]);
    const found3 = read(
      '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}',
      16,
    );
    expect(found3.text).toBe('dp_replicate=2,dp=8,mbs=1,zero=3');
    const of = (zero: string): readonly string[] =>
      read(
        `{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, ${zero}}}`,
        8,
      ).notPriced.map(({ key, why }) => `${key.replace('zero_optimization.', '')}: ${why}`);
    // The form of 2021 offloads parameters, too.
    expect(of('"cpu_offload": true, "cpu_offload_param": true')).toEqual([
      'cpu_offload: nothing is moved to the host',
      'cpu_offload_param: nothing is moved to the host',
    ]);
    expect(of('"zenflow": {"topk_ratio": 0.1}, "stage3_allgather_sequential": true')).toEqual([
      'zenflow.topk_ratio: it has no price',
      'stage3_allgather_sequential: parameters are gathered in buckets',
    ]);
    expect(of('"compute_grad_norm": false, "parameter_alignment": true')).toEqual([]);
  });

  it('Accelerate: a number of microbatches whose size the script has is listed', () => {
    const found = read('distributed_type: MULTI_GPU\ngradient_accumulation_steps: 4\n', 8);
    expect(found.notPriced).toMatchObject([{ key: 'microbatches', value: '4' }]);
    expect(read('distributed_type: MULTI_GPU\n', 8).notPriced).toEqual([]);
  });

  it('Accelerate: FSDP with a parallelism_config', () => {
    expect(read(ACCELERATE, 16).text).toBe(
      'dp_replicate=2,dp=4,tp=2,sp=0,mbs=1,zero=3,reshard=0,recompute=full,dtype=bf16',
    );
    const plain =
      'distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\nnum_processes: 8\n';
    expect(read(plain, 8).text).toBe('dp=8,mbs=1,zero=3,reshard=0');
  });

  it.each([
    [
      'job.description = """\n[parallelism]\n',
      8,
      'job:1:1: E_INPUT a list or a text of several lines is not closed',
    ],
    [
      '[parallelism]\ntensor_paralel_degree = 8\n',
      8,
      "job:2:1: E_INPUT unknown key 'parallelism.tensor_paralel_degree' -> did you mean 'tensor_parallel_degree'",
    ],
    [
      '--tensor-model-paralel-size 8 --micro-batch-size 1',
      8,
      "job:1:1: E_INPUT unknown key '--tensor-model-paralel-size' -> did you mean 'tensor_model_parallel_size'",
    ],
    [
      '{"zero_optimization": {"stge": 3}}',
      8,
      "job:1:25: E_INPUT unknown key 'zero_optimization.stge'",
    ],
    [
      '{"zero_optimization": {"stage": 4}}',
      8,
      "job:1:25: E_INPUT zero_optimization.stage: found '4', wanted a stage from 0 to 3",
    ],
    [
      '--tensor-model-parallel-size 3 --micro-batch-size 1',
      16,
      'job: E_INPUT pp x cp x tp = 1 x 1 x 3 = 3 does not divide --devices 16 -> --devices 15 would fit.',
    ],
    [
      '--tensor-model-parallel-size $TP --micro-batch-size 1',
      16,
      "job:1:30: E_INPUT --tensor-model-parallel-size: found '$TP', which the file does not set",
    ],
    [
      'num_processes: 16\ndistributed_type: MULTI_GPU\n',
      8,
      'job: E_INPUT the file is for 16 devices, and --devices is 8 -> write --devices 16.',
    ],
    [
      '[parallelism]\ndata_parallel_shard_degree = 3\n',
      8,
      'job: E_INPUT data ranks of 1 x 3, and --devices 8 leaves 8 next to pp x cp x tp = 1',
    ],
    [
      'hello: world\n',
      8,
      'job: E_INPUT the file has none of the settings that trainers state a layout in',
    ],
    ['{"zero', 8, `job:1:2: E_SYNTAX found '"', wanted a text with its closing quote`],
    [
      '[parallelism]\nwhat is this\n',
      8,
      "job:2:1: E_INPUT found 'what is this', wanted a section or NAME = VALUE",
    ],
  ])('refuses in one line: %j', (text, devices, wanted) => {
    expect(refusal(text, devices)).toContain(wanted);
  });
});

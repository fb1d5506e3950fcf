import { describe, expect, it } from 'vitest';

import { readLayoutFile } from '../../../src/trainers/read-layout-file.ts';
import { refusal } from '../../support/thrown.ts';
import { layoutModel } from '../layout-model.ts';

const read = (text: string, devices = 16): ReturnType<typeof readLayoutFile> =>
  readLayoutFile(text, { file: 'run.sh', devices, model: layoutModel() });

/** The settings without a price, as `name: why`. */
const listed = (text: string): string[] =>
  read(text).notPriced.map(({ key, why }) => `${key}: ${why}`);

const CORE = '--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16';
const FOUR = 'dp=4,tp=4,sp=1,mbs=1,zero=1,gradients=fp32,dtype=bf16';

describe('a launch script of Megatron-LM', () => {
  it.each([
    `ARGS="--tensor-model-parallel-size 4 ${CORE} --use-distributed-optimizer"\nARGS="$ARGS --sequence-parallel"\ntorchrun pretrain_gpt.py $ARGS\n`,
    `ARGS=( --tensor-model-parallel-size 4 ${CORE} --use-distributed-optimizer )\nARGS+=(--sequence-parallel)\ntorchrun pretrain_gpt.py "\${ARGS[@]}"\n`,
    `A=2; B=2; TP=$((A*B)); torchrun pretrain_gpt.py --tensor-model-parallel-size \${TP:-8} --sequence-parallel ${CORE} \\\n  --use-distributed-optimizer # the end\n`,
    `setup() { MODEL="--tensor-model-parallel-size $1 --sequence-parallel"; }\nsetup 4\nFSDP=\${FSDP:-0}\nif [ "$FSDP" = 1 ]; then OPT=--use-torch-fsdp2; else OPT=--use-distributed-optimizer; fi\nsrun bash -c "python pretrain_gpt.py $MODEL $OPT ${CORE}"\n`,
    `CMD="torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer ${CORE}"\necho $CMD\neval $CMD\n`,
    `OPT=(--use-distributed-optimizer)\nsbatch <<EOF\nsrun python pretrain_gpt.py --tensor-model-parallel-size=4 --sequence-parallel \${OPT[@]} ${CORE}\nEOF\n`,
  ])('is read as a shell reads it: %j', (text) => {
    expect(read(text)).toMatchObject({ text: FOUR, sequence: 4096, globalBatch: 64 });
  });

  it('means what Megatron-LM makes of what it does not state: float32, one microbatch a data rank', () => {
    expect(
      read('torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 2'),
    ).toMatchObject({
      text: 'dp=8,tp=2,sp=0,mbs=2,zero=0,dtype=f32',
      globalBatch: 16,
    });
    // The last of a name counts.
    expect(
      read(`torchrun a.py --tensor-model-parallel-size 2 ${CORE} --tensor-model-parallel-size 4`)
        .text,
    ).toContain('tp=4');
  });

  it('each argument is priced, known to change nothing, or listed; so are parts that only the run knows', () => {
    const text = `if [ -n "$WANDB" ]; then LOG=--log-throughput; fi
[ -d data ] && MORE="--split 1,2"
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 ${CORE} --lr 1e-4 --save $DIR \\
  --hidden-size 2048 --num-attention-heads 32 --swiglu --normalization RMSNorm --fp8-param-gather \\
  --hidden-dropout 0.1 --attention-dropout 0.0 $LOG $MORE $EXTRA_ARGS "$@"
`;
    expect(listed(text)).toEqual([
      '$WANDB: a condition is decided as if the environment did not set it',
      'processes: --devices is 16',
      '$LOG: which the file does not set',
      "${MORE}: which depends on '[ -d data ]'",
      '$EXTRA_ARGS: which the file does not set',
      '$@: the arguments that the script is called with',
      '--hidden-size: the model has 4096',
      '--fp8-param-gather: it has no price',
      '--hidden-dropout: --for megatron-lm prices dropout',
      '--swiglu --normalization: the form of the model is that of its config',
    ]);
  });

  it.each([
    [
      `torchrun a.py ${CORE} \\\n  --tensor-model-parallel-size $TP\n`,
      "run.sh:2:32: E_INPUT --tensor-model-parallel-size: found '$TP', which the file does not set",
    ],
    [
      `TP=$(nvidia-smi -L | wc -l)\ntorchrun a.py --tensor-model-parallel-size $TP ${CORE}\n`,
      "run.sh:1:4: E_INPUT --tensor-model-parallel-size: found '$(nvidia-smi -L | wc -l)', which a command prints when the file runs",
    ],
    [
      `A="${CORE}"\nif [ -f x ]; then A="$A --sequence-parallel"; fi\ntorchrun a.py --tensor-model-parallel-size 2 $A\n`,
      "run.sh:2:4: E_INPUT --sequence-parallel: found in one branch alone, which depends on '[ -f x ]'",
    ],
    [
      `A=("--tensor-model-parallel-size 2")\ntorchrun a.py "\${A[@]}" ${CORE}\n`,
      "run.sh:2:15: E_INPUT '--tensor-model-parallel-size 2' is one word, wanted a name and its value apart",
    ],
    [
      `for TP in 1 2; do\n  torchrun a.py --tensor-model-parallel-size $TP ${CORE}\ndone\n`,
      'run.sh:2:3: E_INPUT found 2 commands with arguments of Megatron-LM (lines 2, 2), wanted one',
    ],
    [
      `torchrun a.py ${CORE} --sequence-parallel true\n`,
      "E_INPUT --sequence-parallel: found 'true' after it, wanted no value",
    ],
    [
      `torchrun a.py ${CORE} --tensor_model_parallel_size 2\n`,
      "E_INPUT unknown argument '--tensor_model_parallel_size'",
    ],
    [
      `A="${CORE}"\nB="--num-layers 2 --tensor-model-parallel-size 2"\n. ./run.sh\n`,
      'E_INPUT found no command with arguments of Megatron-LM; variables hold them: A, B',
    ],
  ])('is refused by its line where it does not tell: %j', (text, wanted) => {
    expect(refusal(() => read(text)).headline).toContain(wanted);
  });
});

it('what another file decides, and an order of ranks that has no price, are listed', () => {
  const run = (more: string): string[] =>
    listed(`torchrun a.py --tensor-model-parallel-size 2 ${CORE} ${more} --seed 1`);
  expect(run('--yaml-cfg a.yaml')).toEqual(['--yaml-cfg: what that file sets is not read']);
  expect(run('--use-mp-args-from-checkpoint-args')).toEqual([
    '--use-mp-args-from-checkpoint-args: what the checkpoint sets is not read',
  ]);
  expect(run('--use-tp-pp-dp-mapping')).toEqual([
    '--use-tp-pp-dp-mapping: stages lie outermost, and data ranks inside of them',
  ]);
});

describe('a test of Megatron-LM', () => {
  const TEST = `ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 4
  --use-distributed-optimizer: true
  --sequence-parallel: true
  --micro-batch-size: 1
  --global-batch-size: 256
  --num-layers: 16
  --recompute-granularity: selective
  --recompute-modules: [core_attn mlp]
  --data-cache-path: \${DATA_CACHE_PATH}
  --moe-layer-freq: ([0]*3+[1]*29)
  --bf16: true
METRICS: ["iteration-time"]
`;

  it('is read from MODEL_ARGS, as its runner hands them over', () => {
    expect(read(TEST)).toMatchObject({
      format: 'test of Megatron-LM',
      text: 'pp=4,dp=2,tp=2,sp=1,mbs=1,zero=1,recompute=core_attn+mlp,gradients=fp32,dtype=bf16',
      globalBatch: 256,
    });
    expect(listed(TEST)).toEqual([
      '--num-layers: the model has 32',
      '--moe-layer-freq: the form of the model is that of its config',
    ]);
  });

  it.each([
    [
      TEST.replace('parallel-size: 2', 'parallel-size: ${TP}'),
      "run.sh:4:3: E_INPUT --tensor-model-parallel-size: found '${TP}', which the file does not set",
    ],
    [
      TEST.replace('sequence-parallel: true', 'sequence-parallel: false'),
      "run.sh:7:3: E_INPUT --sequence-parallel: found 'false' after it, wanted no value",
    ],
    ['MODEL_ARGS: 3\n', 'run.sh:1:1: E_INPUT MODEL_ARGS: wanted arguments with their values'],
  ])('is refused by its line: %j', (text, wanted) => {
    expect(refusal(() => read(text)).headline).toContain(wanted);
  });
});

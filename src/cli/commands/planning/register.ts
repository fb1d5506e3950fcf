/**
 * Registers `demo`, `plan`, `compare`, `tune`, `inference`, `audit` and `verify` with the command
 * line. Each loads its code when it runs.
 */

import { command } from '../flags/add-command.ts';
import {
  AUDIT_COMMAND,
  COMPARE_COMMAND,
  DEMO_COMMAND,
  INFERENCE_COMMAND,
  PLAN_COMMAND,
  TUNE_COMMAND,
  VERIFY_COMMAND,
} from './flags.ts';

export const registerDemo = command({
  usage: 'demo',
  summary: 'plan the bundled 2-layer Llama graph on 64 H100s',
  description:
    'Plans a bundled real graph (2 layers of Llama-3 8B, forward and backward, written by ' +
    'PyTorch).\n\nExamples:\n  $ shardwright demo --program\n  $ shardwright demo -o plan && ' +
    'shardwright verify plan',
  flags: DEMO_COMMAND,
  run: async (options, { io }) => (await import('./demo.ts')).demoCommand(options, io),
});

export const registerPlan = command({
  usage: 'plan <model>',
  summary: 'the cheapest placements on a mesh, with proof',
  description:
    'Plans a graph on a mesh of devices and proves the plan. The model is a file, the name ' +
    'of a model, or - for stdin.\n\nExamples:\n  $ shardwright plan llama-3.2-1b --devices ' +
    '8xH100\n  $ shardwright plan model.fx.txt.gz --mesh dp=8,tp=8 --cluster dgx-h100 ' +
    '--memory 60GiB\n  $ shardwright plan gpt2 ' +
    '--mesh dp=2,tp=8 --cluster dgx-h100 --pad-vocab 128\n  $ shardwright plan ' +
    'model.fx.txt.gz --mesh dp=2,tp=8 --cluster dgx-h100 --cost nccl --collectives ' +
    'nccl-table.txt\n  $ shardwright plan model.fx.txt.gz --mesh dp=8,tp=8 --cluster ' +
    'dgx-h100 --cache ~/.cache/plans',
  flags: PLAN_COMMAND,
  run: async (options, { io, control }, model: string) =>
    (await import('./plan.ts')).planCommand(model, options, io, control),
});

export const registerCompare = command({
  usage: 'compare [model]',
  summary: 'the recipes and the optimum on every mesh of some devices',
  description:
    'Prices the recipes and the optimum on every mesh. Says which is best, and why each ' +
    'other one is slower. For a model by name it tries pipeline stages too.\n\nExamples:\n  ' +
    '$ shardwright compare llama-3.1-70b --devices 256 --cluster dgx-h100 --seq 8192 ' +
    '--global-batch 512\n  $ shardwright compare model.fx.txt.gz --devices 64 --cluster ' +
    'dgx-h100 --plans fsdp,dp+tp,optimum\n  $ shardwright compare llama-3.1-8b --devices 64 ' +
    '--cluster dgx-h100 --seq 8192 --like runs.csv',
  flags: COMPARE_COMMAND,
  run: async (options, { io, control }, model?: string) =>
    (await import('./compare.ts')).compareCommand(model, options, io, control),
});

export const registerTune = command({
  usage: 'tune <config>',
  summary: 'what to change in the configuration of a trainer, with the diff of the file',
  description:
    'Reads a configuration of torchtitan, Accelerate, DeepSpeed, Megatron-LM, Megatron-Bridge, ' +
    'NeMo or MaxText, prices its step, and searches the layouts that this trainer runs. Prints ' +
    'the single settings that make the step faster, the best layout that fits, and the diff of ' +
    'the file to it. Batch, sequence and dtypes stay.\n\nWith --run it takes a model as plan ' +
    'does, and runs its best plans on every mesh of the devices, on random numbers, in ' +
    'processes of this machine; the fastest is kept, its predicted step beside the measured ' +
    'one.\n\nExamples:\n' +
    '  $ shardwright tune my_config.toml --devices 16 --cluster h100\n' +
    '  $ shardwright tune ds_config.json --model llama-3.1-8b ' +
    '--seq 4096 --devices 16 --cluster h100\n' +
    '  $ shardwright tune model.fx.txt --run --devices 4 --cluster cluster.json -o plan',
  flags: TUNE_COMMAND,
  run: async (options, { io, control, given }, path: string) =>
    (await import('./tune.ts')).tuneCommand(path, options, given, io, control),
});

export const registerInference = command({
  usage: 'inference <model>',
  summary: 'layouts that serve a model: latency, throughput, memory, requests',
  description:
    'Prices every layout of some devices that serves a decoder by name or config with a cache of ' +
    'keys and values: the time to the first token, the time of each token, tokens a second, ' +
    'memory, and how many requests fit. Requests run at once and take turns as in continuous ' +
    'batching.\n\nExamples:\n  $ shardwright inference llama-3.1-70b --devices 8xH100\n  ' +
    '$ shardwright inference llama-3.1-70b --devices 8 --cluster h200 --weights fp8 ' +
    '--prompt 2000 --generate 500 --each-token 50ms\n  $ shardwright inference deepseek-v3 ' +
    '--devices 32 --cluster h200 --weights fp8 --requests 2048 --price 2.5USD',
  flags: INFERENCE_COMMAND,
  run: async (options, { io }, model: string) =>
    (await import('./inference.ts')).inferenceCommand(model, options, io),
});

export const registerAudit = command({
  usage: 'audit <model>',
  summary: 'the gap of a plan to the optimum, and the edits that reduce it',
  description:
    'Prices a plan on the problem that the optimizer solves, and finds the best few changes. ' +
    'Exit 4 above the allowed regret.\n\nExample:\n  $ shardwright audit model.fx.txt.gz ' +
    '--plan recipe:fsdp+tp --mesh dp=8,tp=8 --cluster dgx-h100 --max-regret 3%',
  flags: AUDIT_COMMAND,
  run: async (options, { io, control }, model: string) =>
    (await import('./audit.ts')).auditCommand(model, options, io, control),
});

export const registerVerify = command({
  usage: 'verify <model|plan>',
  summary: 'run the plan with numbers on virtual devices, against the unsharded run',
  description:
    'Plans a model, or takes a written plan. Reduces its sizes, lowers it to a program per ' +
    'device and runs that on virtual devices in float64. Compares every tensor, output and ' +
    'gradient with the single-device run, and the collectives with those of the ' +
    'plan.\n\nExamples:\n  $ shardwright verify model.fx.txt.gz --mesh dp=2,tp=2\n  $ ' +
    'shardwright verify out/',
  flags: VERIFY_COMMAND,
  run: async (options, { io, control, given }, path: string) =>
    (await import('./verify.ts')).verifyCommand(path, options, given, io, control),
});

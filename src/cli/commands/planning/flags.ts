/** The flags of `plan`, `verify`, `audit`, `compare` and `demo`. */

import { FP8_RECIPES } from '../../../cost/kernels/software.ts';
import { parsePipelineSchedule, PIPELINE_SCHEDULES } from '../../../simulate/pipeline/schedules.ts';
import { CACHE_FORMATS, WEIGHT_FORMATS } from '../../../sweep/inference/question.ts';
import { type Given, list, off, on, or, required, text, value } from '../../input/flags/flag.ts';
import { MODEL_FLAGS, SIZE_FLAGS } from '../../input/flags/model-flags.ts';
import { ACCUMULATE, PLAN_FLAGS } from '../../input/flags/planning-flags.ts';
import {
  countFrom,
  oneOf,
  parseCount,
  parseCounts,
  parseFraction,
  parsePositive,
  parsePriceFlag,
  parseRisk,
  parseSeconds,
  parseSlice,
  parseSum,
  parseTokens,
} from '../../input/flags/read.ts';
import {
  CLUSTER,
  COMPILED,
  DETAILS,
  EXPLAIN_SOLVER,
  HOLDS,
  INPUT_DIMS,
  JSON_FLAG,
  MEMORY,
  MESH,
  PRICES,
  QUIET,
  TIME_LIMIT,
  UNKNOWN_OPERATORS,
  VERBOSE,
} from '../../input/flags/shared-flags.ts';

/** Flags of what plans a model, without the mesh and the cluster. */
const PLANNING = { ...MODEL_FLAGS, ...SIZE_FLAGS, ...PLAN_FLAGS };

const PROGRAM = on('--program', 'also print the program, each line with its placement');

const PLAN_FOLDER = value('-o, --output <dir>', 'write a plan folder', text);

export const PLAN_COMMAND = {
  mesh: {
    ...MESH,
    help: `${MESH.help} (default: that of the program, else the best of the devices)`,
  },
  devices: value(
    '--devices <n>',
    'number of devices, or with their kind, such as 16xH100; the best of their meshes is taken ' +
      '(default: the devices of one host)',
    countFrom(1),
  ),
  cluster: required(CLUSTER),
  ...PLANNING,
  overlap: on(
    '--overlap',
    'look for the plan with the shortest simulated step, with communication overlapped, ' +
      'and prove a lower bound on the simulated step of every plan',
    (overlap) => ({ overlap }),
  ),
  recipe: value(
    '--recipe <name>',
    'the plan of a recipe instead of the best one, such as fsdp+tp (recipes list names them); ' +
      'its gap says what it gives away',
    text,
    (recipe) => ({ recipe }),
  ),
  for: value(
    '--for <trainer>',
    'trainer that runs the training step: of the known plans and the plan of least costs the one ' +
      'whose step is the shortest under its software is taken, such as megatron, torchtitan, ' +
      'fsdp2, deepspeed (default: of a model by name megatron, on a TPU maxtext; of a graph the ' +
      'exported program)',
    text,
    (trainer) => ({ trainer }),
  ),
  risk: value(
    '--risk <share>',
    'the least probability of fitting that a known plan has which is taken for its step, such ' +
      'as 0.95 or 95% (default: 90%)',
    parseRisk,
    (risk) => ({ risk }),
  ),
  range: on('--range', 'price the plan at the least and the largest admitted sizes, too'),
  frontier: value<number | true>(
    '--frontier [points]',
    'print time against memory instead of one plan: the plans that no other beats in both, ' +
      'from the budget down, and the knee (default: 8 points, --checkpoint auto)',
    parseCount,
  ),
  pp: value(
    '--pp <stages>',
    'cut the model into pipeline stages, each on a mesh of its own; also as the outermost dim of ' +
      'the mesh, --mesh pp=2,dp=4. A graph file is the program of one microbatch, and is cut ' +
      'where few tensors cross',
    countFrom(1),
  ),
  schedule: value(
    '--schedule <name>',
    `with --pp: ${PIPELINE_SCHEDULES.join(', ')} (default: 1f1b)`,
    parsePipelineSchedule,
  ),
  microbatches: value(
    '--microbatches <n>',
    'with --pp: pieces of the batch (default: the most that divide it, up to 4 a stage); of a ' +
      'graph file: runs of the program in a step (default: 4 a stage)',
    countFrom(1),
  ),
  virtual: value(
    '--virtual <n>',
    'with --pp: chunks of layers on each device, of the interleaved schedule',
    countFrom(1),
  ),
  recipes: off('--no-recipes', 'leave out the comparison with the recipes'),
  program: PROGRAM,
  emit: value(
    '--emit <form>',
    'print the plan as a program instead: strict, the typed program that says every collective ' +
      '(check --mode strict takes it)',
    oneOf(['strict']),
  ),
  ...VERBOSE,
  ...EXPLAIN_SOLVER,
  cache: value(
    '--cache <dir>',
    'keep answers in this folder: the same question again is answered from there, byte for byte',
    text,
  ),
  emitIlp: value('--emit-ilp <file>', 'write the integer program in LP format', text),
  output: PLAN_FOLDER,
};
export type PlanOptions = Given<typeof PLAN_COMMAND>;

export const VERIFY_COMMAND = {
  ...PLANNING,
  mesh: { ...MESH, help: 'mesh dims, outermost first, such as dp=2,tp=2; a plan has its own' },
  cluster: or(CLUSTER, 'dgx-h100'),
  tolerance: or(
    value('--tolerance <error>', 'relative error above which a tensor is wrong', parsePositive),
    '1e-9',
  ),
  replan: on(
    '--replan',
    'plan the reduced model, instead of taking the placements of the full-size plan',
  ),
  shrink: off('--no-shrink', "run at the model's own sizes"),
};
export type VerifyOptions = Given<typeof VERIFY_COMMAND>;

export const AUDIT_COMMAND = {
  ...PLANNING,
  plan: required(
    value(
      '--plan <plan>',
      'plan folder or file, recipe:NAME, or given: the shardings that the model file states',
      text,
    ),
  ),
  mesh: { ...MESH, help: 'mesh dims, outermost first (default for given: that of the model file)' },
  cluster: CLUSTER,
  for: value(
    '--for <trainer>',
    'trainer that runs the training step, of a recipe or of given shardings (default: of a model ' +
      'by name megatron, on a TPU maxtext; of a graph the exported program); a written plan has ' +
      'its own',
    text,
    (trainer) => ({ trainer }),
  ),
  edits: or(value('--edits <k>', 'most edits to propose', parseCount), '3'),
  maxRegret: value(
    '--max-regret <fraction>',
    'exit with 4 where the step is longer than that of the best known plan by more than this (3%)',
    parseFraction,
  ),
};
export type AuditOptions = Given<typeof AUDIT_COMMAND>;

export const COMPARE_COMMAND = {
  ...MODEL_FLAGS,
  ...SIZE_FLAGS,
  seq: value(
    '--seq <list>',
    'tokens of a sequence, of a model name or config; several, such as 4096,8192, for a ' +
      'model by name: a curve (default: 4096, or what the positions allow)',
    parseCounts,
  ),
  devices: value(
    '--devices <list>',
    'number of devices; several, such as 64,128,256, for a model by name: a curve',
    parseCounts,
  ),
  cluster: list(
    '--cluster <name>',
    'node design such as dgx-h100, an accelerator such as h100, or a JSON file; several side by ' +
      'side, for a model by name, with devices of their own as in dgx-b200:128',
    text,
  ),
  equal: value(
    '--equal <what>',
    'of several clusters: devices, or cost: as many devices as cost what those of the first ' +
      'do (default: devices)',
    oneOf(['devices', 'cost']),
  ),
  risk: or(
    value(
      '--risk <share>',
      'the least probability with which the best plan fits, such as 0.9 or 90%: the best is the ' +
        'fastest of those that fit so surely, and a faster, riskier one is a note',
      parseRisk,
    ),
    '0.9',
  ),
  plans: value(
    '--plans <names>',
    'recipes to compare, optimum, and for a graph pp+optimum (pipeline stages), comma ' +
      'separated. For a model by name, suffixes set expert-parallel sizes ' +
      '(fsdp+tp+sp+ep4+etp2); etp selects all with expert tensor parallelism. Default: all; ' +
      'of those with etp, only promising ones',
    (names) => names.split(',').map((name) => name.trim()),
  ),
  maxDims: or(value('--max-dims <n>', 'most dims of a mesh: 1, 2 or 3', countFrom(1, 3)), '3'),
  ...PRICES,
  accumulate: ACCUMULATE,
  gap: or(
    value(
      '--gap <fraction>',
      'relative gap of the optimum that is good enough',
      parseFraction,
      (gap) => ({ gap }),
    ),
    '0',
  ),
  ...UNKNOWN_OPERATORS,
  ...MEMORY,
  ...HOLDS,
  ...TIME_LIMIT,
  ...INPUT_DIMS,
  globalBatch: value(
    '--global-batch <list>',
    'sequences of one step, for a model by name; several, such as 256,512: a curve (default: ' +
      'one a device)',
    parseCounts,
  ),
  layout: value(
    '--layout <settings>',
    'the layout that you run, compared with the best, and the single changes that make ' +
      'it faster, for a model by name: tp=8,pp=4,dp=8,mbs=1,zero=1,recompute=layernorm+act (or ' +
      'full, selective, other modules; also dp_replicate, cp, ep, etp, vp, stages, sp, ' +
      'context, schedule, reshard, offload, pair, gradients, dtype), or the file that states it: ' +
      'arguments of Megatron-LM, a configuration of torchtitan, NeMo, Megatron-Bridge, ' +
      'DeepSpeed, Accelerate or MaxText',
    text,
  ),
  tokens: value(
    '--tokens <n>',
    'what a run of so many tokens takes on the best plan: time with failures, device-hours, ' +
      'money, energy; such as 15T, 300B, for a model by name',
    parseTokens,
  ),
  price: list(
    '--price <price>',
    'with --tokens: of one device for one hour, such as 2.5USD or $2.5, for all clusters or ' +
      'one for each (default: what the cluster file states)',
    parsePriceFlag,
  ),
  carbon: value(
    '--carbon <g/kWh>',
    'with --tokens: grams of CO2 equivalent for a kilowatt-hour where the devices stand, such as ' +
      '350 (default: what the cluster file states)',
    parsePositive,
  ),
  within: value(
    '--within <time>',
    'with --tokens: which of the devices or clusters asked about end the run in this time, such ' +
      'as 30d, and the cheapest of them',
    parseSeconds,
  ),
  spend: value(
    '--spend <money>',
    'with --tokens and a price: the most tokens that a sum trains, such as 2M USD or $2M, and on ' +
      'which of the devices or clusters; within --within, if that is given',
    parseSum,
  ),
  for: value(
    '--for <trainer>',
    'trainer that the answer is for, under --cost nccl: only layouts that it runs are searched, ' +
      'and its kernels, launches and overlap are priced; for a model by name: ' +
      'megatron, megatron-bridge, nemo, torchtitan, fsdp2, accelerate, deepspeed, maxtext, ' +
      'shardwright, or a generation such as megatron-lm (default: that of the file of ' +
      '--layout, or megatron, on a TPU maxtext)',
    text,
  ),
  framework: value('--framework <trainer>', 'the same as --for', text),
  like: value(
    '--like <runs.csv>',
    'fit the constants of the machine and its host on runs of your own, for a model by name: ' +
      'a table as validate reads it. Says what changed, and the errors before, after and on ' +
      'runs that are left out; all figures are by the fit where left-out runs are predicted ' +
      'better',
    text,
  ),
  fp8: value(
    '--fp8 <recipe>',
    'products with weights in the layers run in fp8, from 16-bit weights, for a model by ' +
      `name: ${FP8_RECIPES.join(', ')}`,
    oneOf(FP8_RECIPES),
  ),
  compiled: COMPILED,
  threads: value(
    '--threads <n>',
    'threads that price, for a model by name (default: SHARDWRIGHT_THREADS, or one a core, at ' +
      'most 8)',
    parseCount,
  ),
  resume: value(
    '--resume <file>',
    'keep what was priced in a file, and go on from it, for a model by name',
    text,
  ),
  slice: value(
    '--slice <i/n>',
    'only the i-th of n parts of the meshes, or of the questions of --sweep',
    parseSlice,
  ),
  sweep: value(
    '--sweep <file>',
    'questions of many models, clusters and sizes, as YAML; with -o, and no model. Goes on ' +
      'from the answers in the folder',
    text,
  ),
  output: value(
    '-o, --output <dir>',
    'write the plan folder of the best, or of --keep; with --sweep: the folder of the answers',
    text,
  ),
  keep: value(
    '--keep <plan>',
    "with -o: the row to keep, by its name or as 'fsdp+tp on dp_shard=4,tp=2' (default: the best " +
      'that a folder states)',
    text,
  ),
  list: on('--list', 'with --sweep: name the questions and ask none'),
  ...DETAILS,
  merge: list('--merge <file>', 'put together what --slice --json wrote', text),
  ...QUIET,
};
export type CompareOptions = Given<typeof COMPARE_COMMAND>;

export const TUNE_COMMAND = {
  devices: required(value('--devices <n>', 'number of devices', countFrom(1))),
  cluster: required(CLUSTER),
  model: value(
    '--model <name>',
    'model by name, or its config.json (default: the one that the file names, or whose sizes it ' +
      'states)',
    text,
  ),
  for: COMPARE_COMMAND.for,
  seq: value('--seq <n>', 'sequence length (default: that of the file)', parseCount),
  globalBatch: value(
    '--global-batch <n>',
    'sequences of a step (default: those of the file)',
    parseCount,
  ),
  risk: COMPARE_COMMAND.risk,
  compiled: COMPILED,
  ...MEMORY,
  ...TIME_LIMIT,
  output: value(
    '-o, --output <path>',
    'write the file with the best layout; with --run, the folder of the fastest plan',
    text,
  ),
  run: on(
    '--run',
    'run the best plans of a model for a few steps each in processes of this machine (PyTorch), ' +
      'and keep the fastest',
  ),
  plans: value('--plans <n>', 'with --run: plans that are run (default: 5)', countFrom(1)),
  python: value(
    '--python <program>',
    'with --run: the Python that has PyTorch and the package shardwright (default: python3)',
    text,
  ),
  ...DETAILS,
  ...JSON_FLAG,
  ...QUIET,
};
export type TuneOptions = Given<typeof TUNE_COMMAND>;

export const INFERENCE_COMMAND = {
  devices: required(value('--devices <n>', 'number of devices', countFrom(1))),
  cluster: required(CLUSTER),
  prompt: or(value('--prompt <n>', 'tokens of a prompt', countFrom(1)), '1024'),
  generate: or(value('--generate <n>', 'tokens that are generated after it', countFrom(1)), '256'),
  requests: value(
    '--requests <n>',
    'requests at once on all devices (default: the most that fit and keep the limits)',
    countFrom(1),
  ),
  firstToken: value(
    '--first-token <time>',
    'the longest time to the first token of a prompt that does not wait, such as 500ms',
    parseSeconds,
  ),
  eachToken: value(
    '--each-token <time>',
    'the longest mean time between two tokens of a request, such as 50ms',
    parseSeconds,
  ),
  weights: or(
    value(
      '--weights <format>',
      `weights of the layers: ${WEIGHT_FORMATS.join(', ')}; products of fp8 run in fp8, those of ` +
        'int4 in 16 bits',
      oneOf(WEIGHT_FORMATS),
    ),
    'bf16',
  ),
  kvCache: or(
    value(
      '--kv-cache <format>',
      `keys and values of earlier tokens: ${CACHE_FORMATS.join(', ')}`,
      oneOf(CACHE_FORMATS),
    ),
    'bf16',
  ),
  layout: value('--layout <sizes>', 'only these layouts, such as tp=4,pp=2 (dp, pp, tp, ep)', text),
  memory: MEMORY.memory,
  headroom: MEMORY.headroom,
  price: value(
    '--price <price>',
    'of one device for one hour, such as 2.5USD: the money for a million tokens',
    parsePriceFlag,
  ),
  ...DETAILS,
  ...JSON_FLAG,
  ...QUIET,
};
export type InferenceOptions = Given<typeof INFERENCE_COMMAND>;

export const DEMO_COMMAND = {
  program: PROGRAM,
  ...VERBOSE,
  output: PLAN_FOLDER,
  ...JSON_FLAG,
  ...QUIET,
};
export type DemoOptions = Given<typeof DEMO_COMMAND>;

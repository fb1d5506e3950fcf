/**
 * Flags that several commands have, in the same words: output, devices and their prices, budgets,
 * limits.
 */

import { GRADIENTS, OPTIMIZERS } from '../../../cost/memory/state-bytes.ts';
import { COST_PRESETS } from '../../../cost/presets/names.ts';
import { ShardwrightError } from '../../../errors.ts';
import { ACTIVATIONS, UNKNOWN } from '../../../plan/request/request.ts';
import { list, on, or, text, value } from './flag.ts';
import {
  countFrom,
  oneOf,
  parseBytes,
  parseFraction,
  parseInputDim,
  parseSeconds,
} from './read.ts';

export const JSON_FLAG = { json: on('--json', 'print exactly one JSON value') };
export const QUIET = { quiet: on('--quiet', 'no progress on stderr') };

export const VERBOSE = {
  verbose: on(
    '-v, --verbose',
    'also print the parts of the costs and of memory, the known plans, all placements and notes',
  ),
};

/** The flag of commands other than `plan` that prints the details below their first screen. */
export const DETAILS = {
  verbose: on('-v, --verbose', 'also print every figure, plan and note below the first screen'),
};

export const EXPLAIN_SOLVER = {
  explainSolver: on(
    '--explain-solver',
    'also print the steps of the solver: what each came to, its work, the best cost and the bound',
  ),
};

/** Read before the model: a slip in the mesh would otherwise be reported as one of the file. */
export const MESH = value(
  '--mesh <dims>',
  'mesh dims, outermost first, such as dp=8,tp=8',
  async (dims) => {
    const { checkMeshFlag } = await import('../mesh-flag.ts');
    checkMeshFlag(dims);
    return dims;
  },
  (mesh) => ({ mesh }),
);
export const CLUSTER = value(
  '--cluster <name>',
  'node design such as dgx-h100, an accelerator such as h100, or a JSON file',
  text,
  (cluster) => ({
    cluster,
  }),
);
export const DEVICES = value('--devices <n>', 'number of devices', countFrom(0));

/** Flags on the source of prices: measured or modelled. */
export const PRICES = {
  cost: value(
    '--cost <preset>',
    `cost preset: ${COST_PRESETS.join(', ')} (default: nccl where the cluster has constants ` +
      'for it, else alpha-beta)',
    oneOf(COST_PRESETS),
    (cost) => ({ cost }),
  ),
  calibration: value(
    '--calibration <file>',
    'measured kernels of the device, written by bench/calibrate.py or by doctor --calibration',
    text,
  ),
  collectives: value(
    '--collectives <file>',
    'measured collectives of the cluster: a table `Group Size Collective 1MB 2MB ...`, a ' +
      'line of dashes, rows of milliseconds such as `intra 8 all_reduce 0.05 0.08`',
    text,
  ),
};

/** How the program runs. */
export const COMPILED = on(
  '--compiled',
  'price the program as a compiler runs it, which joins calls into kernels (torch.compile); ' +
    'of a model by name: with --for, the step under its compiler',
  (compiled) => ({ compiled }),
);

/** A share of a device's memory that leaves something. */
function parseHeadroom(given: string, flag: string): number {
  const share = parseFraction(
    given,
    flag,
    'a share of the memory of a device, such as 8% or 0.08.',
  );
  if (share < 1) return share;
  throw new ShardwrightError('E_USAGE', `${flag} '${given}' leaves nothing of a device`, {
    hint: 'give less than 100%.',
  });
}

/** Flags on the memory of a device. */
export const MEMORY = {
  memory: value(
    '--memory <size>',
    'budget per device, such as 60GiB (default: the memory of the device as its driver ' +
      'reports it, less the headroom)',
    parseBytes,
    (memoryBytes) => ({ memoryBytes }),
  ),
  headroom: value(
    '--headroom <share>',
    'share of the device memory that no plan fills, such as 8% (default: 5%): it is for ' +
      'context, allocator and buffers of collectives. --memory leaves none',
    parseHeadroom,
    (headroom) => ({ headroom }),
  ),
  optimizer: value(
    '--optimizer <name>',
    `${OPTIMIZERS.join(', ')} (default: adamw-mixed for 16-bit weights, adam for float32)`,
    oneOf(OPTIMIZERS),
    (optimizer) => ({ optimizer }),
  ),
  gradients: value(
    '--gradients <dtype>',
    'what gradients are kept in until the update, fp32 or bf16, and what they are summed in: ' +
      'a plan widens 16-bit gradients where they are made (default: the dtype of their ' +
      'parameter, or what --for does)',
    oneOf(GRADIENTS),
    (gradients) => ({ gradients }),
  ),
};

/** Flags on the bytes that the budget limits. */
export const HOLDS = {
  activations: value(
    '--activations <how>',
    'what the budget limits: constraint (peak memory, activations included; the default), ' +
      'report (parameters, gradients and optimizer state alone; the peak is reported), off ' +
      '(the same; no peak is computed), trainer (the step of --for, which recomputes as that ' +
      'software does where it does not fit)',
    oneOf(ACTIVATIONS),
    (activations) => ({ activations }),
  ),
};

export const UNKNOWN_OPERATORS = {
  unknown: or(
    value(
      '--unknown <policy>',
      `operators without a record: ${UNKNOWN.join(', ')}`,
      oneOf(UNKNOWN),
      (unknown) => ({
        unknown,
      }),
    ),
    'refuse',
  ),
};

export const TIME_LIMIT = {
  timeLimit: value(
    '--time-limit <time>',
    'answer with the best plan found in this time (seconds, or 90s, 10m, 2h), counted from the ' +
      'start of the process. A command that has found none ends half a second later. ' +
      'Re-costing and proving the answer take up to an eighth of the time before the search, ' +
      'and up to 10 s more where no plan is known to fit',
    parseSeconds,
    (timeLimitSeconds) => ({ timeLimitSeconds }),
  ),
};

/** Flags that name the batch and sequence dims of inputs, for recipes. */
export const INPUT_DIMS = {
  batchDim: list(
    '--batch-dim <NAME=D>',
    'batch dim of an input and of all inputs that share its index, for recipes, such as ' +
      'tokens=0 (default: read from the program)',
    parseInputDim,
    (dims, { inputDims }) =>
      dims.length === 0 ? {} : { inputDims: { ...inputDims, batch: Object.fromEntries(dims) } },
  ),
  sequenceDim: list(
    '--sequence-dim <NAME=D>',
    'sequence dim of an input, for recipes, such as tokens=1 (default: read from the program)',
    parseInputDim,
    (dims, { inputDims }) =>
      dims.length === 0 ? {} : { inputDims: { ...inputDims, sequence: Object.fromEntries(dims) } },
  ),
};

/** Files with operators of the user. */
export const OPERATOR_FILES = list(
  '--ops <file>',
  'operators of your own that the plan was made with',
  text,
);

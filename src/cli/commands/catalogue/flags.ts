/** The flags of `hardware`, `models`, `recipes` and `rules`. */

import { type Given, list, off, on, or, required, text, value } from '../../input/flags/flag.ts';
import { MODEL_FLAGS, parsePad } from '../../input/flags/model-flags.ts';
import { countFrom, parseSlice } from '../../input/flags/read.ts';
import { CLUSTER, DEVICES, JSON_FLAG } from '../../input/flags/shared-flags.ts';

export const HARDWARE_COMMAND = JSON_FLAG;
export type HardwareOptions = Given<typeof HARDWARE_COMMAND>;

export const HARDWARE_IMPORT_COMMAND = {
  base: value(
    '--base <name>',
    'node design or cluster file whose other figures stay (default: by the device that ' +
      'nccl-tests name)',
    text,
  ),
  out: value('-o, --out <file>', 'write the cluster file there (default: stdout)', text),
  ...JSON_FLAG,
};
export type HardwareImportOptions = Given<typeof HARDWARE_IMPORT_COMMAND>;

export const MODEL_SHOW_COMMAND = {
  padVocab: value(
    '--pad-vocab <n>',
    'count it with the vocabulary padded to a multiple of n, such as 128, and the padding ' +
      'apart (default: 1, none)',
    parsePad,
  ),
  ...JSON_FLAG,
};
export type ModelShowOptions = Given<typeof MODEL_SHOW_COMMAND>;

const HOSTS = or({ ...CLUSTER, help: 'node design whose hosts are counted' }, 'dgx-h100');

export const RECIPE_LIST_COMMAND = {
  mesh: value(
    '--mesh <dims>',
    'list only recipes for this number of mesh dims, and print their process groups',
    text,
  ),
  cluster: HOSTS,
  ...JSON_FLAG,
};
export type RecipeListOptions = Given<typeof RECIPE_LIST_COMMAND>;

export const RECIPE_LINT_COMMAND = {
  ...MODEL_FLAGS,
  plan: required(value('--plan <name>', 'name of the recipe', text)),
  mesh: required(
    value(
      '--mesh <dims>',
      'mesh dims of the recipe with their sizes, outermost first; one size may be -1 with ' +
        '--devices',
      text,
    ),
  ),
  cluster: HOSTS,
  devices: { ...DEVICES, read: countFrom(1) },
  batch: value('--batch <n>', 'global batch (default: that of the graph)', countFrom(1)),
  seq: value('--seq <n>', 'tokens of a sequence (default: those of the graph)', countFrom(1)),
  microbatch: value(
    '--microbatch <n>',
    'sequences of a microbatch on one data-parallel rank (default: 1)',
    countFrom(1),
  ),
  padVocab: value(
    '--pad-vocab <n>',
    'pad the vocabulary of a model name or config to a multiple of n x tp (default: 1, none)',
    parsePad,
  ),
};
export type RecipeLintOptions = Given<typeof RECIPE_LINT_COMMAND>;

const rank = countFrom(2, 8, 'write for example 2,3.');

export const RULES_COMMAND = {
  op: value('--op <name>', 'one operator, such as mm or aten.sum.dim_IntList; default all', text),
  ops: list('--ops <file>', 'operators and rules of your own, alone without --op', text),
  names: on('--names', 'the names of all operators with rules, aliases too, and no more'),
  check: on('--check', 'run the rules and search for missing ones'),
  search: off('--no-search', 'with --check: run the rules, and search for no missing ones'),
  ranks: value(
    '--ranks <list>',
    'numbers of simulated ranks, from 2 to 8 (default: 2,3)',
    (given, flag) => given.split(',').map((part) => rank(part, flag)),
  ),
  budget: value(
    '--budget <n>',
    'combinations tried for one call before it is left out (default: 50000)',
    countFrom(1),
  ),
  slice: value(
    '--slice <i/n>',
    'with --check: only the i-th of n parts of the operators',
    parseSlice,
  ),
  ...JSON_FLAG,
};
export type RulesOptions = Given<typeof RULES_COMMAND>;

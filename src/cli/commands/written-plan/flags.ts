/** The flags of the commands that read a written plan. */

import { LAUNCHERS } from '../../../export/launchers.ts';
import { REPORT_FORMATS } from '../../../report/formats.ts';
import { type Given, list, off, on, or, type Read, text, value } from '../../input/flags/flag.ts';
import {
  countFrom,
  oneOf,
  parseBytes,
  parseCount,
  parsePositive,
  parsePriceFlag,
  parseTokens,
} from '../../input/flags/read.ts';
import { DETAILS, JSON_FLAG, OPERATOR_FILES, QUIET } from '../../input/flags/shared-flags.ts';

export const CHECK_PLAN_COMMAND = { ops: OPERATOR_FILES, ...JSON_FLAG };
export type CheckPlanOptions = Given<typeof CHECK_PLAN_COMMAND>;

export const REPORT_COMMAND = {
  output: value('-o, --output <file>', 'write a file (default: stdout)', text),
  format: value(
    '--format <name>',
    `${REPORT_FORMATS.join(', ')} (default: by the ending of the file, else html)`,
    oneOf(REPORT_FORMATS),
  ),
  open: on('--open', 'open it in a browser; without -o it is a temporary file'),
  draw: list(
    '--draw <name>',
    'parameter to draw as a matrix of matrices (default: four of them)',
    text,
  ),
  recipes: off('--no-recipes', 'leave out the recipes, which are priced again'),
  whatIf: on(
    '--what-if',
    'solve again, several times: without the memory budget, on faster and slower links, and ' +
      'as asked where the plan folder has no progress.json',
  ),
  author: value('--author <name>', 'who asks, for the first screen of the report', text),
  date: value('--date <text>', 'the date of the question, as given: a report has no clock', text),
  tokens: value(
    '--tokens <n>',
    'of a plan: the run whose time, money and energy the first screen has (default: 1B)',
    parseTokens,
  ),
  price: value(
    '--price <price>',
    'of a plan: of one device for one hour, such as 2.5USD or $2.5 (default: what the cluster ' +
      'file states)',
    parsePriceFlag,
  ),
  carbon: value(
    '--carbon <g/kWh>',
    'of a plan: grams of CO2 equivalent for a kilowatt-hour (default: what the cluster file ' +
      'states)',
    parsePositive,
  ),
  json: on('--json', 'the same as --format json'),
};
export type ReportOptions = Given<typeof REPORT_COMMAND>;

const BUCKET_HELP =
  'most bytes of one bucket of collectives, 0 for none, or auto: the faster of none and 25MiB';
const readBucket: Read<number | 'auto'> = (given, flag) =>
  given === 'auto' ? given : given === '0' ? 0 : parseBytes(given, flag);

export const SIMULATE_COMMAND = {
  trace: value('--trace <file>', 'write the timeline for ui.perfetto.dev', text),
  prefetch: or(
    value<number | 'auto'>(
      '--prefetch <n>',
      'calls that gathers of weights run ahead, 0 for none, or auto: the fastest',
      (given, flag) =>
        given === 'auto'
          ? given
          : parseCount(given, flag, 'give auto, 0 for no prefetch, or a number of calls.'),
    ),
    'auto',
  ),
  inFlight: or(
    value(
      '--in-flight <size>',
      'most bytes of gathered weights that wait for their call',
      parseBytes,
    ),
    '2GB',
  ),
  bucket: or(value<number | 'auto'>('--bucket <size>', BUCKET_HELP, readBucket), 'auto'),
  memory: or(
    value<number | 'plan' | 'none'>(
      '--memory <size>',
      'limit on live bytes: prefetches wait where they would exceed it. Or plan (its ' +
        'budget), or none',
      (given, flag) => (given === 'plan' || given === 'none' ? given : parseBytes(given, flag)),
    ),
    'plan',
  ),
  asyncTp: on(
    '--async-tp',
    'split gathers and scatters into pieces that run beside the matrix products next to them',
  ),
  slowdown: or(
    value(
      '--slowdown <factor>',
      'time of compute while communication runs, relative to compute alone',
      parsePositive,
    ),
    '1',
  ),
  ...DETAILS,
  ...JSON_FLAG,
};
export type SimulateOptions = Given<typeof SIMULATE_COMMAND>;

/** Order of the calls that `--target torch` writes. */
const ORDER_FLAGS = {
  order: value(
    '--order <name>',
    'torch: program (calls as the plan lists them) or simulated (in the order of the ' +
      'simulated step, with its buckets); default: the faster one',
    oneOf(['program', 'simulated']),
  ),
  bucket: value(
    '--bucket <size>',
    `torch, in the simulated order: ${BUCKET_HELP} (default: auto)`,
    readBucket,
  ),
};

export const DOCTOR_COMMAND = {
  run: list(
    '--run <trace.json>',
    'trace of one rank with at least a step, as torch.profiler writes it; the first is compared ' +
      'call by call, those of more ranks say who waits for whom',
    text,
  ),
  calibration: value(
    '--calibration <file>',
    'write the measured calls there, as a calibration that plan --calibration reads',
    text,
  ),
  ...ORDER_FLAGS,
  ops: OPERATOR_FILES,
  ...JSON_FLAG,
};
export type DoctorOptions = Given<typeof DOCTOR_COMMAND>;

export const EXPLAIN_COMMAND = {
  force: list(
    '--force <spec>',
    'solve again with this placement of its result, such as S(0)R; of another node as NODE=SPEC, ' +
      'on top of those before it',
    text,
  ),
  limit: or(value('--limit <n>', 'lines of each table', countFrom(1)), '12'),
  ...JSON_FLAG,
  ...QUIET,
};
export type ExplainOptions = Given<typeof EXPLAIN_COMMAND>;

export const DIFF_COMMAND = JSON_FLAG;
export type DiffOptions = Given<typeof DIFF_COMMAND>;

export const EXPORT_COMMAND = {
  target: value('--target <name>', 'engine or format; `shardwright export` lists them', text),
  output: value(
    '-o, --output <dir>',
    'folder for the files (default: stdout where there is one)',
    text,
  ),
  check: on(
    '--check',
    'torch: also write check.py, which compares the plan at small sizes with one process',
  ),
  allowLossy: on(
    '--allow-lossy',
    'write the part that the target can express, with the losses as comments at the top',
  ),
  launcher: value(
    '--launcher <name>',
    `also write the file that starts the ranks: ${LAUNCHERS.join(', ')}`,
    oneOf(LAUNCHERS),
  ),
  script: value(
    '--script <command>',
    'with --launcher: the program of each rank with its arguments (default: train.py)',
    text,
  ),
  ...ORDER_FLAGS,
  ops: OPERATOR_FILES,
  ...JSON_FLAG,
};
export type ExportOptions = Given<typeof EXPORT_COMMAND>;

/** `compare`: takes a model and a number of devices and prints all recipes and the optimum on all meshes. */

import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import { ShardwrightError } from '../../../errors.ts';
import { DEFAULT_REQUEST, UNKNOWN, type PlanRequest } from '../../../plan/request/request.ts';
import { asComparison } from '../../../report/model/comparison-schema.ts';
import { comparisonText } from '../../../report/text/comparison.ts';
import { readFileText } from '../../../read-file.ts';
import { countedText, percentText } from '../../../units.ts';
import { compare } from '../../../zoo/compare/compare-graph.ts';
import type { Comparison } from '../../../zoo/compare/comparison.ts';
import { mostTensorRanks } from '../../../zoo/compare/compared-padding.ts';
import { mergeComparisons } from '../../../zoo/compare/conclude-comparison.ts';
import { compareModel } from '../../../zoo/sweep/compare-model.ts';
import type { SweepQuestion } from '../../../zoo/sweep/model/question.ts';
import { dtypeNamed } from '../../../models/build.ts';
import { looksLikeConfig, parseModelConfig } from '../../../models/families.ts';
import type { JsonRecord } from '../../../models/read-config.ts';
import { isModelName, modelEntry } from '../../../models/registry.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { loadCluster } from '../../../cost/hardware/cluster.ts';
import { COST_PRESETS } from '../../../cost/presets/presets.ts';
import { OPTIMIZERS, type Optimizer } from '../../../cost/memory/state-bytes.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { EXIT, type CliIo } from '../../output/io.ts';
import { loadModel, type LoadOptions } from '../../input/load.ts';
import { parsePad } from '../../input/load-config.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import type { RunControl } from '../../thread/run-control.ts';
import {
  inputDimsOf,
  type InputDimFlags,
  parseBytes,
  parseChoice,
  parseCount,
  parseFraction,
  parsePositive,
} from '../../input/options.ts';

export interface CompareOptions extends LoadOptions, InputDimFlags {
  readonly devices?: string;
  readonly cluster?: string;
  readonly calibration?: string;
  readonly collectives?: string;
  readonly plans?: string;
  readonly maxDims: string;
  readonly memory?: string;
  readonly optimizer?: string;
  readonly cost: string;
  readonly gap: string;
  readonly unknown: string;
  readonly timeLimit?: string;
  readonly slice?: string;
  readonly merge: readonly string[];
  readonly globalBatch?: string;
  readonly threads?: string;
  readonly resume?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** `compare`: the recipes and the optimum on every mesh of some devices. */
export async function compareCommand(
  model: string | undefined,
  options: CompareOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const comparison =
    options.merge.length > 0
      ? mergeComparisons(options.merge.map(readPiece))
      : await compareGiven(model, options, io, control);
  io.stdout(`${options.json === true ? JSON.stringify(comparison) : comparisonText(comparison)}\n`);
  const { stopped } = comparison;
  if (stopped !== undefined)
    io.stderr(`${stopped.by}: the best so far; ${countedText(stopped.notAsked.length, 'question')} not asked\n`);
  // A piece need not have a plan that fits: another piece may.
  if (comparison.best === null && options.slice === undefined && stopped === undefined) {
    // A named plan that the linter stops is bad input; anything else does not fit.
    const stopped = comparison.plans.length === 0 && options.plans !== undefined;
    return stopped ? EXIT.usage : EXIT.infeasible;
  }
  // An optimum that a time limit stopped may not be the best of its mesh.
  const gap = parseFraction(options.gap, '--gap');
  const open = comparison.plans.filter(
    (p) => p.proof !== undefined && p.proof.status !== 'optimal' && p.proof.gap > gap,
  );
  for (const p of open)
    io.stderr(`${p.mesh}: stopped at gap ${percentText(p.proof?.gap ?? 0)} (--gap, --time-limit)\n`);
  return open.length > 0 || stopped !== undefined ? EXIT.gap : EXIT.ok;
}

async function compareGiven(
  model: string | undefined,
  options: CompareOptions,
  io: CliIo,
  control: RunControl,
): Promise<Comparison> {
  const { devices, cluster } = options;
  // Reading counts.
  const { timeLimit } = options;
  const limit = timeLimit === undefined ? undefined : parsePositive(timeLimit, '--time-limit');
  const run = { deadline: control.deadline(limit), onPlan: control.answers };
  if (model === undefined || devices === undefined || cluster === undefined)
    throw new ShardwrightError('E_USAGE', 'compare needs a model, --devices and --cluster', {
      hint: 'shardwright compare model.fx.txt.gz --devices 64 --cluster dgx-h100',
    });
  const config = graphSizes(options) ? undefined : configOf(model);
  if (config !== undefined && inputDimsOf(options).inputDims !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--batch-dim and --sequence-dim are for graphs; the inputs of ${model} are known`,
    );
  if (config !== undefined)
    return compareByConfig(config.name, config.text, devices, clusterText(cluster, options), options, io, run);
  for (const flag of ['globalBatch', 'threads', 'resume'] as const)
    if (options[flag] !== undefined)
      throw new ShardwrightError('E_USAGE', `--${flag === 'globalBatch' ? 'global-batch' : flag} is for models by name or config; ${model} is compared as a graph`); // prettier-ignore
  const { pins: _, ...defaults } = DEFAULT_REQUEST;
  const request: Omit<PlanRequest, 'mesh'> = {
    ...defaults,
    pins: [],
    // Plans of many meshes are compared, and the program speaks of one.
    shardings: 'ignore',
    cluster: clusterText(cluster, options),
    cost: parseChoice(options.cost, '--cost', COST_PRESETS),
    gap: parseFraction(options.gap, '--gap'),
    unknown: parseChoice(options.unknown, '--unknown', UNKNOWN),
    ...(options.memory !== undefined ? { memoryBytes: parseBytes(options.memory, '--memory') } : {}),
    ...(options.optimizer !== undefined
      ? { optimizer: parseChoice<Optimizer>(options.optimizer, '--optimizer', OPTIMIZERS) }
      : {}),
    ...(limit === undefined ? {} : { timeLimitSeconds: limit }),
    ...inputDimsOf(options),
  };
  const maxDims = parseCount(options.maxDims, '--max-dims');
  if (maxDims < 1 || maxDims > 3) throw new ShardwrightError('E_USAGE', `--max-dims ${maxDims} is not 1, 2 or 3`);
  const plans = options.plans?.split(',').map((name) => name.trim());
  const { devicesPerHost } = loadCluster(request.cluster);
  const count = parseCount(devices, '--devices');
  const tensor = options.padVocab === undefined ? 1 : mostTensorRanks(count, devicesPerHost, maxDims, plans);
  const { graph, table, padding } = await loadModel(model, { ...options, tensor });
  const compared = await compare(graph, {
    table,
    devices: count,
    request,
    ...run,
    maxDims,
    ...(plans === undefined ? {} : { plans }),
    ...(options.slice !== undefined ? { slice: parseSlice(options.slice) } : {}),
    ...(options.quiet === true ? {} : { onProgress: io.progress }),
  });
  if (padding === undefined) return compared;
  const { multiple, vocabulary, rows, parameters } = padding;
  return { ...compared, padding: { multiple, vocabulary, byTensor: [{ tensor, rows, parameters }] } };
}

/** Flags that ask for one graph of stated sizes, which is compared as it is. */
function graphSizes(options: CompareOptions): boolean {
  return options.batch !== undefined || options.layers !== undefined || options.training !== undefined;
}

/** The config of a model by name or of a config file; undefined for anything else. */
function configOf(model: string): { readonly name: string; readonly text: string } | undefined {
  const isStdin = model === '-';
  if (!isStdin && !existsSync(model))
    return isModelName(model)
      ? { name: modelEntry(model).name, text: JSON.stringify(modelEntry(model).config) }
      : undefined;
  if (!isStdin && !model.endsWith('.json')) return undefined;
  const text = readFileText(model);
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json !== 'object' || json === null || !looksLikeConfig(json as JsonRecord)) return undefined;
  } catch {
    // What is wrong with the file is said by the loader of graphs, which knows where.
    return undefined;
  }
  return { name: isStdin ? 'stdin' : basename(model, '.json'), text };
}

async function compareByConfig(
  name: string,
  text: string,
  devices: string,
  cluster: string,
  options: CompareOptions,
  io: CliIo,
  run: { readonly deadline: Deadline; readonly onPlan: () => void },
): Promise<Comparison> {
  const count = parseCount(devices, '--devices');
  const positions = parseModelConfig(text).architecture.shape.positions;
  const question: SweepQuestion = {
    model: name,
    config: text,
    devices: count,
    cluster,
    sequence: options.seq === undefined ? Math.min(DEFAULT_SEQUENCE, positions ?? DEFAULT_SEQUENCE) : parseCount(options.seq, '--seq'), // prettier-ignore
    globalBatch: options.globalBatch === undefined ? count : parseCount(options.globalBatch, '--global-batch'),
    cost: parseChoice(options.cost, '--cost', COST_PRESETS),
    ...(options.dtype === undefined ? {} : { dtype: dtypeNamed(options.dtype) }),
    ...(options.padVocab === undefined ? {} : { padVocabulary: parsePad(options.padVocab) }),
    ...(options.memory === undefined ? {} : { memoryBytes: parseBytes(options.memory, '--memory') }),
    ...(options.optimizer === undefined
      ? {}
      : { optimizer: parseChoice<Optimizer>(options.optimizer, '--optimizer', OPTIMIZERS) }),
  };
  return compareModel(question, {
    table: builtinOperators(),
    ...run,
    ...(options.plans === undefined ? {} : { plans: options.plans.split(',').map((plan) => plan.trim()) }),
    ...(options.slice === undefined ? {} : { slice: parseSlice(options.slice) }),
    ...(options.threads === undefined ? {} : { threads: parseCount(options.threads, '--threads') }),
    ...(options.resume === undefined ? {} : { resume: options.resume }),
    ...(options.quiet === true ? {} : { onProgress: io.progress }),
  });
}

const DEFAULT_SEQUENCE = 4096;

/** `2/4`: the second of four pieces. */
function parseSlice(text: string): { readonly index: number; readonly count: number } {
  const match = /^(\d+)\/(\d+)$/.exec(text.trim());
  const [index, count] = match === null ? [0, 0] : [Number(match[1]), Number(match[2])];
  if (index < 1 || index > count)
    throw new ShardwrightError('E_USAGE', `--slice '${text}' is not i/n`, {
      hint: 'write --slice 1/4, 2/4, 3/4, 4/4.',
    });
  return { index: index - 1, count };
}

const WHAT_IS_MERGED = 'give files that `shardwright compare ... --slice i/n --json` wrote.';

/** A comparison that `--slice ... --json` wrote. @throws E_IO, E_SYNTAX, E_TYPE */
function readPiece(path: string): Comparison {
  const text = readFileText(path, { what: 'comparison', hint: WHAT_IS_MERGED });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ShardwrightError('E_SYNTAX', `not JSON: ${error instanceof Error ? error.message : String(error)}`, {
      file: path,
    });
  }
  return asComparison(value, path);
}

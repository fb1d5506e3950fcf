/**
 * `compare`: takes a model and a number of devices and prints all recipes and the optimum on all
 * meshes.
 */

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../../plan/request/request.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { mostTensorRanks } from '../../../recipes/compare/compared-padding.ts';
import type { Comparison } from '../../../recipes/compare/comparison.ts';
import { mergeComparisons } from '../../../recipes/compare/conclude-comparison.ts';
import { asComparison } from '../../../report/model/comparison-schema.ts';
import { comparedScreenText } from '../../../report/text/compared-screen.ts';
import { comparisonText } from '../../../report/text/comparison.ts';
import { compare } from '../../../sweep/pipeline/compare.ts';
import { parseJson } from '../../../text/json.ts';
import { countedText, percentText } from '../../../units.ts';
import { longName, requestOfFlags } from '../../input/flags/flag.ts';
import { loadModel } from '../../input/load.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { tryFolder } from '../../output/write-file.ts';
import type { RunControl } from '../../thread/run-control.ts';
import { missingError } from '../flags/usage-errors.ts';
import { keepRow } from './compare-keep.ts';
import { compareByConfig, configOf, isKnown } from './compare-model.ts';
import { askedClusters, asksMany, comparePoints, goalFlag } from './compare-points.ts';
import { COMPARE_COMMAND, type CompareOptions } from './flags.ts';

/** `compare`: the recipes and the optimum on every mesh of some devices. */
export async function compareCommand(
  model: string | undefined,
  options: CompareOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  if (options.sweep !== undefined) {
    if (model !== undefined)
      throw new ShardwrightError('E_USAGE', `--sweep names its models, and ${model} is named too`, {
        hint: 'leave it out.',
      });
    return (await import('./compare-sweep.ts')).compareSweep(options.sweep, options, io, control);
  }
  // A name that is not a model is refused before the flags that hang on what it is.
  if (model !== undefined && !isKnown(model)) await loadModel(model, {});
  checkKept(options);
  const many = asksMany(options) ? configAsked(model, options) : undefined;
  if (many !== undefined) return comparePoints(many, options, io, control);
  const comparison =
    options.merge.length > 0
      ? mergeComparisons(options.merge.map(readPiece))
      : await compareGiven(model, options, io, control);
  answer(
    io,
    options,
    comparison,
    (c) =>
      options.verbose === true
        ? `${comparedScreenText(c, true)}\n\n${comparisonText(c)}`
        : comparedScreenText(c),
    paintScreen,
  );
  const [cluster] = askedClusters(options);
  if (options.output !== undefined && model !== undefined && cluster !== undefined)
    await keepRow(
      comparison,
      { model, folder: options.output, cluster: named(options), options },
      io,
      control,
    );
  for (const warning of comparison.warnings ?? []) io.stderr(`warning: ${warning}\n`);
  return endOf(comparison, options, io);
}

/** Says what ended a comparison before it was done, and how it exits. */
function endOf(comparison: Comparison, options: CompareOptions, io: CliIo): number {
  const { stopped } = comparison;
  if (stopped !== undefined)
    io.stderr(
      `${stopped.by}: the best so far; ${countedText(stopped.notAsked.length, 'question')} ` +
        'not asked\n',
    );
  // A piece need not have a plan that fits: another piece may.
  if (comparison.best === null && options.slice === undefined && stopped === undefined) {
    // A named plan that the linter stops is bad input; anything else does not fit.
    const isRefused = comparison.plans.length === 0 && options.plans !== undefined;
    return isRefused ? EXIT.usage : EXIT.infeasible;
  }
  // An optimum that a time limit stopped may not be the best of its mesh.
  const { gap } = options;
  const open = comparison.plans.filter(
    ({ proof }) =>
      proof !== undefined && proof.status !== 'optimal' && proof.gap > (proof.goodEnough ?? gap),
  );
  for (const p of open)
    io.stderr(
      `${p.mesh}: stopped at gap ${percentText(p.proof?.gap ?? 0)} (--gap, --time-limit)\n`,
    );
  return open.length > 0 || stopped !== undefined ? EXIT.gap : EXIT.ok;
}

/** The cluster as it was given, without its number of devices. */
function named({ cluster: [cluster = ''] }: CompareOptions): string {
  return cluster.replace(/:\d{1,7}$/, '');
}

/** @throws E_USAGE for a row to keep without a folder, and for a folder of several comparisons */
function checkKept(options: CompareOptions): void {
  const { keep, output, merge } = options;
  if (keep !== undefined && output === undefined)
    throw new ShardwrightError('E_USAGE', `--keep ${keep} needs a folder`, { hint: '-o plan' });
  if (output !== undefined && (asksMany(options) || merge.length > 0))
    throw new ShardwrightError('E_USAGE', '-o keeps a plan of one comparison', {
      hint: 'ask one cluster, one number of devices, one sequence and one batch.',
    });
  if (output !== undefined) tryFolder(output, [], 'plan');
}

async function compareGiven(
  model: string | undefined,
  options: CompareOptions,
  io: CliIo,
  control: RunControl,
): Promise<Comparison> {
  // The time limit includes the time to read the model.
  const run: AskedRunOptions = {
    deadline: control.deadline(options.timeLimit),
    onPlan: control.answers,
    ...(options.quiet === true ? {} : { onProgress: io.progress }),
  };
  const config = configAsked(model, options);
  const [cluster] = askedClusters(options);
  const devices = cluster?.devices ?? options.devices?.[0];
  if (model === undefined || devices === undefined || cluster === undefined)
    throw incomplete(model, options);
  if (config === undefined) return compareAsGraph(model, devices, cluster.text, options, run);
  const point = {
    devices,
    cluster: cluster.text,
    sequence: options.seq?.[0],
    globalBatch: options.globalBatch?.[0],
    price: cluster.price,
  };
  return compareByConfig(config, point, options, run);
}

interface AskedRunOptions {
  readonly deadline: Deadline;
  readonly onPlan: () => void;
  readonly onProgress?: (line: string) => void;
}

/** Flags of models by name or config. */
const CONFIG_FLAGS = [
  'globalBatch',
  'tokens',
  'carbon',
  'within',
  'spend',
  'layout',
  'for',
  'framework',
  'fp8',
  'like',
  'threads',
  'resume',
  'equal',
] as const;

/** Compares the plans of the graph of a model. @throws E_USAGE for flags of models by config */
async function compareAsGraph(
  model: string,
  devices: number,
  cluster: string,
  options: CompareOptions,
  run: AskedRunOptions,
): Promise<Comparison> {
  const flag = CONFIG_FLAGS.find((name) => options[name] !== undefined);
  if (flag !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `${longName(flag)} is for models by name or config; ${model} is compared as a graph`,
    );
  // Plans of many meshes are compared, and the program speaks of one.
  const base: PlanRequest = { ...DEFAULT_REQUEST, shardings: 'ignore', mesh: '', cluster };
  const { mesh: _, ...request } = requestOfFlags(COMPARE_COMMAND, options, base);
  const { maxDims, plans, risk, seq, slice, ...read } = options;
  const tensor =
    options.padVocab === undefined
      ? 1
      : mostTensorRanks(devices, loadCluster(request.cluster), maxDims, plans);
  const { graph, table, padding } = await loadModel(model, {
    ...read,
    ...(seq === undefined ? {} : { seq: seq[0] }),
    tensor,
    devices,
  });
  const compared = await compare(
    graph,
    { ...request, devices },
    {
      table,
      ...run,
      maxDims,
      risk,
      ...defined({ plans, slice }),
    },
  );
  if (padding === undefined) return compared;
  const { multiple, vocabulary, rows, parameters } = padding;
  return {
    ...compared,
    padding: { multiple, vocabulary, byTensor: [{ tensor, rows, parameters }] },
  };
}

/** The config of a model that is compared by it; undefined for a graph. @throws E_USAGE */
function configAsked(
  model: string | undefined,
  options: CompareOptions,
): { readonly name: string; readonly text: string } | undefined {
  if (model === undefined) throw incomplete(model, options);
  const config = graphSizes(options) ? undefined : configOf(model, options.lora);
  if (config !== undefined && options.batchDim.length + options.sequenceDim.length > 0)
    throw new ShardwrightError(
      'E_USAGE',
      `--batch-dim and --sequence-dim are for graphs; the inputs of ${model} are known`,
    );
  if (
    config !== undefined &&
    options.activations !== undefined &&
    options.activations !== 'constraint'
  )
    throw new ShardwrightError(
      'E_USAGE',
      `--activations ${options.activations} is for graphs; of models by name peak memory is ` +
        'compared',
    );
  if (config !== undefined && options.accumulate !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--accumulate is for graphs; of ${model} all numbers of microbatches are tried`,
      { hint: '--global-batch says how many sequences a step has.' },
    );
  if (config !== undefined && options.equal !== undefined && options.cluster.length < 2)
    throw new ShardwrightError('E_USAGE', `--equal ${options.equal} needs several clusters`, {
      hint: 'name them: --cluster dgx-h100 --cluster dgx-b200.',
    });
  const goal = goalFlag(options);
  if (config === undefined && goal !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `${goal} is for models by name or config; ${model} is compared as a graph`,
      { hint: 'a run has tokens, which a graph does not count.' },
    );
  if (config === undefined && asksMany(options))
    throw new ShardwrightError(
      'E_USAGE',
      'several clusters, devices, sequences or batches are for models by name or config; ' +
        `${model} is compared as a graph`,
      { hint: 'name one of each.' },
    );
  return config;
}

function incomplete(model: string | undefined, options: CompareOptions): ShardwrightError {
  const { cluster, devices } = options;
  const missing = [
    ...(model === undefined ? ['<model>'] : []),
    ...(devices === undefined && !cluster.some((one) => /:\d+$/.test(one)) ? ['--devices'] : []),
    ...(cluster.length === 0 ? ['--cluster'] : []),
  ];
  const example = `shardwright compare ${model ?? 'llama-3.1-8b'} --devices 64xH100`;
  return missingError('compare', missing, example);
}

/** Flags that ask for one graph of stated sizes, which is compared as it is. */
function graphSizes(options: CompareOptions): boolean {
  return (
    options.batch !== undefined ||
    options.layers !== undefined ||
    options.training !== undefined ||
    options.forward !== undefined
  );
}

const WHAT_IS_MERGED = 'give files that `shardwright compare ... --slice i/n --json` wrote.';

/** A comparison that `--slice ... --json` wrote. @throws E_IO, E_SYNTAX, E_TYPE */
function readPiece(path: string): Comparison {
  const text = readFileText(path, { what: 'comparison', hint: WHAT_IS_MERGED });
  return asComparison(parseJson(text, { file: path }), path);
}

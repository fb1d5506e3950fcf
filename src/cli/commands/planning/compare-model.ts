/**
 * One comparison of a model by name or config: reads what the flags say of it, asks it, adds the
 * run and the stated layout.
 */

import { existsSync } from 'node:fs';
import { basename } from 'node:path';

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import type { Price } from '../../../cost/hardware/operation.ts';
import type { StepSoftware } from '../../../cost/kernels/software.ts';
import { defaultCostPreset } from '../../../cost/presets/presets.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { refitOn } from '../../../fidelity/refit.ts';
import { frameworkSoftware } from '../../../fidelity/software.ts';
import { trainerByDefault } from '../../../fidelity/trainer-step.ts';
import { defaultSequence } from '../../../models/build.ts';
import { ADAPTERS, looksLikeConfig, parseModelConfig } from '../../../models/families.ts';
import type { JsonRecord } from '../../../models/read-config.ts';
import { isModelName, modelEntry } from '../../../models/registry.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { readFileText } from '../../../platform/read-file.ts';
import type { AskedLayout, Comparison } from '../../../recipes/compare/comparison.ts';
import { withRefit } from '../../../recipes/compare/with-refit.ts';
import { compareModel } from '../../../sweep/compare-model.ts';
import { checkLayout, compareLayout } from '../../../sweep/layout/compare-layout.ts';
import { parseLayout } from '../../../sweep/layout/parse-layout.ts';
import {
  softwareInFp8,
  softwareWithGradients,
  type SweepQuestion,
} from '../../../sweep/model/question.ts';
import type { StatedLayout } from '../../../sweep/model/stated-layout.ts';
import { type AskedRun, withRun } from '../../../sweep/planning/run-question.ts';
import type { SettledLayout } from '../../../trainers/layout/layout-draft.ts';
import { type LayoutFile, readLayoutFile } from '../../../trainers/read-layout-file.ts';
import { type AskedTrainer, checkAdapters, trainerNamed } from '../../../trainers/trainers.ts';
import { withRunsTable } from '../../input/runs-table.ts';
import type { CompareOptions } from './flags.ts';

/** Tells whether a model is stdin, a file or a name; the loader of models refuses all else. */
export function isKnown(model: string): boolean {
  return model === '-' || existsSync(model) || isModelName(model);
}

/**
 * The config of a model by name or of a config file, with adapters where they are asked for;
 * undefined for anything else.
 */
export function configOf(
  model: string,
  lora?: JsonRecord,
): { readonly name: string; readonly text: string } | undefined {
  const found = plainConfigOf(model);
  if (found === undefined || lora === undefined) return found;
  const record = JSON.parse(found.text) as JsonRecord;
  return { ...found, text: JSON.stringify({ ...record, [ADAPTERS]: lora }) };
}

function plainConfigOf(
  model: string,
): { readonly name: string; readonly text: string } | undefined {
  const isStdin = model === '-';
  if (!isStdin && !existsSync(model))
    return isModelName(model)
      ? { name: modelEntry(model).name, text: JSON.stringify(modelEntry(model).config) }
      : undefined;
  if (!isStdin && !model.endsWith('.json')) return undefined;
  const text = readFileText(model);
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json !== 'object' || json === null || !looksLikeConfig(json as JsonRecord))
      return undefined;
  } catch {
    // The loader of graphs reports a broken file, because it knows the place of the fault.
    return undefined;
  }
  return { name: isStdin ? 'stdin' : basename(model, '.json'), text };
}

/** One comparison of a model by its config. */
interface AskedPoint {
  readonly devices: number;
  /** Node design, or the text of a cluster file. */
  readonly cluster: string;
  readonly sequence?: number | undefined;
  readonly globalBatch?: number | undefined;
  readonly price?: Price | undefined;
}

/** The flags of a comparison that a model by its config takes. */
type ConfigOptions = Pick<
  CompareOptions,
  | 'cost'
  | 'for'
  | 'framework'
  | 'compiled'
  | 'fp8'
  | 'like'
  | 'dtype'
  | 'padVocab'
  | 'memory'
  | 'headroom'
  | 'risk'
  | 'optimizer'
  | 'gradients'
  | 'carbon'
  | 'tokens'
  | 'layout'
  | 'plans'
  | 'slice'
  | 'threads'
  | 'resume'
>;

interface Config {
  readonly name: string;
  readonly text: string;
}

/** Compares the plans of a model by its config. */
export async function compareByConfig(
  config: Config,
  point: AskedPoint,
  options: ConfigOptions,
  control: {
    readonly deadline: Deadline;
    readonly onPlan: () => void;
    readonly onProgress?: (line: string) => void;
    readonly whatIf?: boolean;
    /** True if only layouts are asked for whose passes run one after another. */
    readonly serialPasses?: true;
  },
): Promise<Comparison> {
  const { serialPasses } = control;
  const asked =
    options.layout === undefined
      ? undefined
      : layoutAsked(options.layout, config.text, point.devices);
  const cost = options.cost ?? defaultCostPreset(loadCluster(point.cluster));
  const table = builtinOperators();
  const fitted =
    options.like === undefined
      ? undefined
      : await refitAsked(options.like, cost, point.cluster, table, control.onProgress);
  const question = {
    ...questionAsked(config, point, options, { asked, cost, fitted }),
    ...defined({ serialPasses }),
  };
  const run = runAsked(options, point.price);
  const layout = asked === undefined ? undefined : checkedLayout(asked, question);
  const found = await compareModel(question, {
    table,
    ...control,
    ...defined({
      plans: options.plans,
      slice: options.slice,
      threads: options.threads,
      resume: options.resume,
    }),
  });
  const compared = fitted === undefined ? found : withRefit(found, fitted.refit);
  const costed = withRun(compared, question, run);
  if (layout === undefined || asked === undefined) return costed;
  const best = compared.plans.find((plan) => plan.name === compared.best);
  return {
    ...costed,
    layout: await compareLayout(
      question,
      {
        text: asked.text,
        layout,
        bestSeconds: best?.seconds,
        run,
        from: layoutSource(asked, question),
        certainty: compared.certainty,
      },
      table,
    ),
  };
}

/** The question of a sweep, with what the flags leave open settled. */
export function questionAsked(
  { name, text }: Config,
  { devices, cluster, sequence, globalBatch }: AskedPoint,
  options: ConfigOptions,
  settled: {
    readonly asked: LayoutAsked | undefined;
    readonly cost: string;
    readonly fitted: Awaited<ReturnType<typeof refitOn>> | undefined;
  },
): SweepQuestion {
  const { asked, cost, fitted } = settled;
  const named = trainerOf(options, asked);
  const { lora } = parseModelConfig(text);
  if (lora !== undefined && named !== undefined) checkAdapters(named.trainer.id);
  const byDefault =
    named === undefined
      ? trainerByDefault(loadCluster(cluster), cost, lora !== undefined)
      : undefined;
  const question: SweepQuestion = {
    model: name,
    config: text,
    devices,
    cluster,
    sequence: sequence ?? asked?.sequence ?? defaultSequence(parseModelConfig(text)),
    globalBatch: globalBatch ?? asked?.globalBatch ?? devices,
    cost,
    risk: options.risk,
    ...(fitted?.refit.taken === true ? { constants: fitted.constants } : {}),
    ...softwareAsked(named ?? byDefault, options, cost, cluster),
    ...(byDefault === undefined ? {} : { trainerAssumed: true }),
    ...defined({
      dtype: options.dtype,
      padVocabulary: options.padVocab,
      memoryBytes: options.memory,
      headroom: options.headroom,
      optimizer: options.optimizer,
    }),
  };
  const { fp8 } = options;
  return fp8 === undefined
    ? question
    : { ...question, software: softwareInFp8(question, fp8, `--fp8 ${fp8}`) };
}

/** The file of a stated layout, with what of it the question does not follow. */
export function layoutSource(asked: LayoutAsked, question: SweepQuestion): AskedLayout['from'] {
  if (asked.from === undefined) return undefined;
  return { ...asked.from, notPriced: [...asked.from.notPriced, ...otherwise(asked, question)] };
}

/**
 * The constants that `--like` asks for. @throws E_USAGE, E_IO, E_CSV with the line, E_INPUT for a
 * table with too few runs
 */
async function refitAsked(
  path: string,
  cost: string,
  cluster: string,
  table: OperatorTable,
  onProgress?: (line: string) => void,
): ReturnType<typeof refitOn> {
  if (cost !== 'nccl')
    throw new ShardwrightError('E_USAGE', `--like goes with --cost nccl, not ${cost}`, {
      hint: 'other presets have no constants that are fitted.',
    });
  return withRunsTable(path, (text) => refitOn(text, cluster, table, onProgress));
}

interface LayoutAsked extends SettledLayout {
  /** The form of the file: trainers that have it, and what it can state. */
  readonly form?: Pick<LayoutFile, 'trainers' | 'runs'>;
  readonly from?: NonNullable<AskedLayout['from']>;
}

/**
 * Reads the value of `--layout`: settings, or a file of a trainer that states them. @throws
 * E_INPUT, E_IO
 */
export function layoutAsked(layout: string, config: string, devices: number): LayoutAsked {
  if (/^[a-z_]+\s*=/.test(layout) || !(existsSync(layout) || /[./]/.test(layout)))
    return { text: layout };
  // A Python file of several configurations has one behind a colon.
  const [, path = layout, configuration] = existsSync(layout)
    ? []
    : (/^(.+\.py):(\w+)$/.exec(layout) ?? []);
  const text = readFileText(path, {
    what: 'layout',
    hint: 'give settings such as tp=8,pp=4,dp=8, or a configuration of a trainer.',
  });
  const setting = {
    file: path,
    devices,
    model: parseModelConfig(config).architecture,
    ...defined({ configuration }),
  };
  const { format, notPriced, trainers, runs, ...settled } = readLayoutFile(text, setting);
  return {
    ...settled,
    from: { file: basename(layout), format, notPriced },
    form: { trainers, ...defined({ runs }) },
  };
}

/**
 * The layout, where it fits the model and the devices. @throws E_USAGE, E_INPUT with the file that
 * states it
 */
export function checkedLayout(
  { text, from, form }: LayoutAsked,
  question: SweepQuestion,
): StatedLayout {
  try {
    const layout = parseLayout(text, question.devices);
    checkLayout(question, layout, form?.runs);
    return layout;
  } catch (error) {
    if (from === undefined || !(error instanceof ShardwrightError)) throw error;
    throw new ShardwrightError(
      'E_INPUT',
      `${error.message.replace(/^--layout: /, '')}; the file states ${text}`,
      { ...error.details, file: from.file },
    );
  }
}

/** Notes where the file states another sequence length or batch than the flags. */
function otherwise(
  { sequence, globalBatch }: SettledLayout,
  question: SweepQuestion,
): { key: string; value: string; why: string }[] {
  const said = (
    key: string,
    value: number | undefined,
    flag: string,
    own: number,
  ): { key: string; value: string; why: string }[] =>
    value === undefined || value === own
      ? []
      : [{ key, value: String(value), why: `${flag} is ${own}` }];
  return [
    ...said('sequence', sequence, '--seq', question.sequence),
    ...said('global batch', globalBatch, '--global-batch', question.globalBatch),
  ];
}

/** Reads the values of `--tokens`, `--price` and `--carbon`. */
function runAsked(
  { tokens, carbon }: Pick<CompareOptions, 'tokens' | 'carbon'>,
  price: Price | undefined,
): AskedRun | undefined {
  if (tokens !== undefined) return { tokens, ...defined({ price, carbon }) };
  if (price !== undefined)
    throw new ShardwrightError('E_USAGE', '--price needs --tokens: a price is of a whole run', {
      hint: '--tokens 15T --price 2.5USD',
    });
  if (carbon !== undefined)
    throw new ShardwrightError('E_USAGE', '--carbon needs --tokens: it is of a whole run', {
      hint: '--tokens 15T --carbon 350',
    });
  return undefined;
}

/**
 * The trainer that a question is for: as `--for` names it, or that of the file of `--layout`.
 *
 * @throws E_USAGE for an unknown trainer; E_INPUT for a file of another one
 */
function trainerOf(
  { for: name, framework }: Pick<CompareOptions, 'for' | 'framework'>,
  asked: LayoutAsked | undefined,
): AskedTrainer | undefined {
  if (name !== undefined && framework !== undefined && name !== framework)
    throw new ShardwrightError('E_USAGE', `--for ${name} and --framework ${framework}`, {
      hint: 'they mean the same: leave one out.',
    });
  const flag = name === undefined ? '--framework' : '--for';
  const given = name ?? framework;
  const [own] = asked?.form?.trainers ?? [];
  if (given === undefined) return own === undefined ? undefined : trainerNamed(own, '--for');
  const found = trainerNamed(given, flag);
  const trainers = asked?.form?.trainers;
  if (trainers === undefined || trainers.includes(found.trainer.id)) return found;
  throw new ShardwrightError(
    'E_INPUT',
    `the file is of ${asked?.from?.format ?? own}, and ${flag} is ${given}`,
    {
      ...defined({ file: asked?.from?.file }),
      hint: `ask ${flag} ${trainers.join(` or ${flag} `)}.`,
    },
  );
}

/** The trainer of a question, and its software with `--compiled` and `--gradients`. */
function softwareAsked(
  asked: AskedTrainer | undefined,
  { compiled, gradients }: Pick<CompareOptions, 'compiled' | 'gradients'>,
  cost: string,
  cluster: string,
): Pick<SweepQuestion, 'software' | 'trainer'> {
  const kept = (software?: StepSoftware): Pick<SweepQuestion, 'software'> =>
    gradients === undefined
      ? software === undefined
        ? {}
        : { software }
      : { software: softwareWithGradients(software, gradients) };
  if (asked === undefined && compiled === undefined) return kept();
  if (asked === undefined || cost !== 'nccl')
    throw new ShardwrightError(
      'E_USAGE',
      `${asked === undefined ? '--compiled' : '--for'} goes with --cost nccl, not ${cost}`,
      { hint: 'other presets price calls one by one, whatever runs them.' },
    );
  const software = frameworkSoftware(asked.profile, loadCluster(cluster), compiled === true);
  return { ...kept(software), trainer: asked.trainer.id };
}

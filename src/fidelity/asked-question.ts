/**
 * The question of a comparison or of `tune`: takes what was asked, and gives it with the trainer,
 * its software and the stated layout settled.
 */
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import type { Fp8Recipe, StepSoftware } from '../cost/kernels/software.ts';
import type { Gradients, Optimizer } from '../cost/memory/state-bytes.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import type { DType } from '../graph/types.ts';
import { defaultSequence } from '../models/build.ts';
import { parseModelConfig } from '../models/families.ts';
import type { AskedLayout } from '../recipes/compare/comparison.ts';
import { checkLayout } from '../sweep/layout/compare-layout.ts';
import { parseLayout } from '../sweep/layout/parse-layout.ts';
import {
  softwareInFp8,
  softwareWithGradients,
  type SweepQuestion,
} from '../sweep/model/question.ts';
import type { StatedLayout } from '../sweep/model/stated-layout.ts';
import type { SettledLayout } from '../trainers/layout/layout-draft.ts';
import { type LayoutFile, readLayoutFile } from '../trainers/read-layout-file.ts';
import { type AskedTrainer, checkAdapters, trainerNamed } from '../trainers/trainers.ts';
import type { refitOn } from './refit.ts';
import { frameworkSoftware } from './software.ts';
import { trainerByDefault } from './trainer-step.ts';

/** A model by its config. */
export interface AskedModel {
  readonly name: string;
  /** Its Hugging Face config, JSON. */
  readonly text: string;
}

/** The devices and sizes of a question; sizes that are left out are those of the file. */
export interface AskedSizes {
  readonly devices: number;
  /** Node design, or the text of a cluster file. */
  readonly cluster: string;
  readonly sequence?: number | undefined;
  readonly globalBatch?: number | undefined;
}

/** Settings of a question, by the names of the flags. */
export interface AskedSettings {
  readonly for?: string | undefined;
  readonly framework?: string | undefined;
  readonly compiled?: boolean | undefined;
  readonly gradients?: Gradients | undefined;
  readonly fp8?: Fp8Recipe | undefined;
  readonly dtype?: DType | undefined;
  readonly padVocab?: number | undefined;
  readonly memory?: number | undefined;
  readonly headroom?: number | undefined;
  readonly risk?: number | undefined;
  readonly optimizer?: Optimizer | undefined;
}

/** A layout, as settings or as the file of a trainer states it. */
export interface LayoutAsked extends SettledLayout {
  /** The form of the file: trainers that have it, and what it can state. */
  readonly form?: Pick<LayoutFile, 'trainers' | 'runs'>;
  readonly from?: NonNullable<AskedLayout['from']>;
}

/**
 * The layout that the text of a trainer's file states.
 *
 * @param file its name, for errors
 * @throws E_INPUT, E_SYNTAX
 */
export function layoutOfText(
  text: string,
  {
    file,
    devices,
    configuration,
  }: { readonly file: string; readonly devices: number; readonly configuration?: string },
  config: string,
): LayoutAsked & { readonly from: NonNullable<AskedLayout['from']> } {
  const setting = {
    file,
    devices,
    model: parseModelConfig(config).architecture,
    ...defined({ configuration }),
  };
  const { format, notPriced, trainers, runs, ...settled } = readLayoutFile(text, setting);
  return {
    ...settled,
    from: { file, format, notPriced },
    form: { trainers, ...defined({ runs }) },
  };
}

/** The question of a sweep, with what the flags leave open settled. */
export function questionAsked(
  { name, text }: AskedModel,
  { devices, cluster, sequence, globalBatch }: AskedSizes,
  options: AskedSettings,
  settled: {
    readonly asked: LayoutAsked | undefined;
    readonly cost: string;
    readonly fitted: Awaited<ReturnType<typeof refitOn>> | undefined;
  },
): SweepQuestion {
  const { asked, cost, fitted } = settled;
  const named = trainerOf(options, asked);
  const { lora, architecture } = parseModelConfig(text);
  if (lora !== undefined && named !== undefined) checkAdapters(named.trainer.id);
  const byDefault =
    named === undefined
      ? trainerByDefault(
          loadCluster(cluster),
          cost,
          lora !== undefined || architecture.isUnmeasured === true,
        )
      : undefined;
  const question: SweepQuestion = {
    model: name,
    config: text,
    devices,
    cluster,
    sequence: sequence ?? asked?.sequence ?? defaultSequence(parseModelConfig(text)),
    globalBatch: globalBatch ?? asked?.globalBatch ?? devices,
    cost,
    ...(fitted?.refit.taken === true ? { constants: fitted.constants } : {}),
    ...softwareAsked(named ?? byDefault, options, cost, cluster),
    ...(byDefault === undefined ? {} : { trainerAssumed: true }),
    ...defined({
      risk: options.risk,
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

/**
 * The trainer that a question is for: as `--for` names it, or that of the file of `--layout`.
 *
 * @throws E_USAGE for an unknown trainer; E_INPUT for a file of another one
 */
function trainerOf(
  { for: name, framework }: Pick<AskedSettings, 'for' | 'framework'>,
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
  { compiled, gradients }: Pick<AskedSettings, 'compiled' | 'gradients'>,
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

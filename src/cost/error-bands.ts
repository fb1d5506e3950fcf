/**
 * States the errors of the price model as a band around a prediction. For a machine and a kind of
 * model, `data/validation.json` gives the range of eight in ten measured steps, the probability
 * that a predicted peak fits, and the difference below which two plans of one model are equal
 * within the error. scripts/validation-figures.ts makes the file from bench/predictions.csv;
 * `about` says which runs were predicted by constants that were fitted without their family.
 */

import * as z from 'zod';

import { ShardwrightError } from '../errors.ts';
import { packageData } from '../platform/platform.ts';

/**
 * Quantiles of measured over predicted: one run of ten lies below `p10`, nine of ten below `p90`.
 */
export interface Quantiles {
  readonly p10: number;
  readonly p50: number;
  readonly p90: number;
}

/**
 * The function that prices a step: `step` composes it as `compare MODEL` does, `calls` adds up
 * calls as `plan` does.
 */
export type PricedBy = 'step' | 'calls';

/** Measured runs that are alike in what errors depend on. A part that is null is any. */
export interface ErrorPool {
  /** Kind of device: A100, Hopper. */
  readonly accelerator: string | null;
  readonly experts: boolean | null;
  /** Id of the trainer whose engine runs the step. */
  readonly trainer: string | null;
  readonly hosts: 'one' | 'several' | null;
  /**
   * True if the runs are predicted as for those who name no trainer: by the software of the default
   * one, whatever ran them.
   */
  readonly assumed: boolean;
  readonly runs: number;
  readonly families: readonly string[];
  readonly step: Quantiles;
  readonly calls: Quantiles;
}

/** How far one source family is off. Shares: 0.1 is 10 %. */
export interface FamilyErrors {
  readonly family: string;
  readonly runs: number;
  readonly shipped: ErrorFigures;
  /** By constants that were fitted without it; absent where that was not done. */
  readonly heldOut?: ErrorFigures;
  readonly calls: ErrorFigures;
}

/** `bias`: median of predicted over measured minus 1; the others of its absolute value. */
export interface ErrorFigures {
  readonly bias: number;
  readonly mape: number;
  readonly median: number;
  /** Mean over groups of at least five runs; null without such groups. */
  readonly rank: number | null;
  readonly regret: number | null;
}

export interface Fidelity {
  readonly about: string;
  readonly source: string;
  /** The narrowest first; the last is of all runs. */
  readonly pools: readonly ErrorPool[];
  readonly families: readonly FamilyErrors[];
  /**
   * Pairs of comparable runs: nine of ten times the plan that is predicted to be slower by more
   * than this is slower.
   */
  readonly pairs: { readonly groups: number; readonly step: number; readonly calls: number };
  /**
   * Measured over predicted peak, ascending: evenly spread quantiles in which each family counts
   * the same.
   */
  readonly memory: {
    readonly readings: number;
    readonly families: readonly string[];
    readonly ratios: readonly number[];
  };
  readonly rows: readonly MeasuredErrors[];
}

/**
 * How far predictions are off on the runs of one kind of device. Shares of the measured value, 0.1
 * is 10 %.
 */
export interface MeasuredErrors {
  readonly accelerator: string;
  readonly experts: boolean;
  readonly runs: number;
  readonly sources: readonly string[];
  /** Errors of step times: mean and median of the absolute error, null without a timed run. */
  readonly mape: number | null;
  readonly medianApe: number | null;
  readonly memoryRuns: number;
  /** The error of memory peaks: the median of the absolute error. */
  readonly memoryMedianApe: number | null;
}

const quantiles = z.strictObject({ p10: z.number(), p50: z.number(), p90: z.number() });
const figures = z.strictObject({
  bias: z.number(),
  mape: z.number(),
  median: z.number(),
  rank: z.number().nullable(),
  regret: z.number().nullable(),
});
const schema = z.strictObject({
  about: z.string(),
  source: z.string(),
  pools: z.array(
    z.strictObject({
      accelerator: z.string().nullable(),
      experts: z.boolean().nullable(),
      trainer: z.string().nullable(),
      hosts: z.enum(['one', 'several']).nullable(),
      assumed: z.boolean(),
      runs: z.int(),
      families: z.array(z.string()),
      step: quantiles,
      calls: quantiles,
    }),
  ),
  families: z.array(
    z.strictObject({
      family: z.string(),
      runs: z.int(),
      shipped: figures,
      heldOut: figures.exactOptional(),
      calls: figures,
    }),
  ),
  pairs: z.strictObject({ groups: z.int(), step: z.number(), calls: z.number() }),
  memory: z.strictObject({
    readings: z.int(),
    families: z.array(z.string()),
    ratios: z.array(z.number()),
  }),
  rows: z.array(
    z.strictObject({
      accelerator: z.string(),
      experts: z.boolean(),
      runs: z.int(),
      sources: z.array(z.string()),
      mape: z.number().nullable(),
      medianApe: z.number().nullable(),
      memoryRuns: z.int(),
      memoryMedianApe: z.number().nullable(),
    }),
  ),
});

let known: Fidelity | undefined;

/** The bundled figures. */
export function fidelity(): Fidelity {
  return (known ??= schema.parse(JSON.parse(packageData('validation.json'))));
}

/** The circumstances that errors depend on. */
export interface Circumstances {
  readonly accelerator: string;
  readonly experts: boolean;
  readonly hosts: number;
  /** True if no run of the kind was measured, as of low-rank adapters alone. */
  readonly unmeasured?: boolean | undefined;
  /** Id of the trainer; absent: any. */
  readonly trainer?: string | undefined;
  /** True if nobody named that trainer: it is the default one, and the run may have another. */
  readonly assumed?: boolean | undefined;
}

/**
 * The narrowest pool of runs that resemble a question: on its kind of device, with its kind of
 * model and its trainer; undefined where there are too few.
 */
export function nearestPool(circumstances: Circumstances): ErrorPool | undefined {
  const { accelerator, experts, trainer, unmeasured, assumed = false } = circumstances;
  if (unmeasured === true) return undefined;
  const kind = kindOf(accelerator);
  const hosts = circumstances.hosts > 1 ? 'several' : 'one';
  return fidelity().pools.find(
    (p) =>
      p.accelerator === kind &&
      p.experts === experts &&
      p.assumed === assumed &&
      p.trainer === (trainer === undefined || assumed ? null : engineOf(trainer)) &&
      (p.hosts ?? hosts) === hosts,
  );
}

/** Says that no measured run resembles a question. */
export const NO_RUNS = 'no measured runs of this kind';

/** `dense models on A100, several hosts`, as far as a pool is narrow. */
export function poolText({ accelerator, experts, trainer, hosts, assumed }: ErrorPool): string {
  const models = experts === null ? 'models' : experts ? 'mixtures of experts' : 'dense models';
  const where = accelerator === null ? ' on any machine' : ` on ${accelerator}`;
  const count = hosts === null ? '' : hosts === 'one' ? ', one host' : ', several hosts';
  const by = trainer === null ? (assumed ? ', whatever their trainer' : '') : ` in ${trainer}`;
  return `${models}${where}${count}${by}`;
}

/** The trainers that run the step of another one: those on Megatron-Core. */
const ENGINES: Readonly<Record<string, string>> = {
  'megatron-bridge': 'megatron',
  nemo: 'megatron',
};

/** The trainer whose engine runs the step of a trainer. */
export function engineOf(trainer: string): string {
  return ENGINES[trainer] ?? trainer;
}

/** Devices of one architecture. */
const KINDS: Readonly<Record<string, string>> = {
  H100: 'Hopper',
  H200: 'Hopper',
  GH200: 'Hopper',
  H800: 'Hopper',
  A800: 'A100',
  B200: 'Blackwell',
  B300: 'Blackwell',
  GB200: 'Blackwell',
  GB300: 'Blackwell',
};

/** `Hopper` of `H200-SXM-141GB`: devices whose errors are alike. */
export function kindOf(accelerator: string): string {
  const generation = generationOf(accelerator);
  return KINDS[generation] ?? generation;
}

/** Tells whether a model routes tokens to experts, by the names of its parameters. */
export function hasExperts(parameters: readonly string[]): boolean {
  return parameters.some((name) => /(^|[._])experts?([._]|$)/.test(name));
}

/** Tells whether low-rank adapters are trained, by the names of parameters. */
export function hasAdapters(parameters: readonly string[]): boolean {
  return parameters.some((name) => /(^|\.)lora_[AB]\./.test(name));
}

/** Parameters that only networks of diffusion have. */
const DIFFUSION = /(^|[._])(adaLN_modulation|time_emb_proj)[._]/;

/**
 * Tells whether no run of the kind was measured, by the names of parameters: adapters alone are
 * trained, or a network learns to take noise away.
 */
export function isUnmeasured(parameters: readonly string[]): boolean {
  return hasAdapters(parameters) || parameters.some((name) => DIFFUSION.test(name));
}

/** `H100` of `H100-SXM5-80GB`; a name without a dash is its own generation. */
export function generationOf(accelerator: string): string {
  const parts = accelerator.split('-');
  return parts.slice(0, accelerator.startsWith('TPU') ? 2 : 1).join('-');
}

/**
 * The probability that a predicted peak stays within a limit, by the readings of measured runs.
 * Never 0 or 1: as many readings as there are say no more than that.
 */
export function fitProbability(peakBytes: number, limitBytes: number): number {
  const { ratios, readings } = fidelity().memory;
  if (peakBytes <= 0) return readings / (readings + 1);
  const room = limitBytes / peakBytes;
  return probabilityBelow(ratios.filter((ratio) => ratio <= room).length);
}

/** The probability that a reading is among the lowest so many of the quantiles. */
function probabilityBelow(count: number): number {
  const { ratios, readings } = fidelity().memory;
  return ((count / ratios.length) * readings + 0.5) / (readings + 1);
}

/** The largest probability of fitting that the readings confirm. */
export function largestProbability(): number {
  return probabilityBelow(fidelity().memory.ratios.length);
}

/**
 * The most bytes of a predicted peak that fit with at least a probability: the inverse of
 * `fitProbability`.
 *
 * @throws E_REQUEST for a probability that the readings do not confirm
 */
export function safePeakBytes(limitBytes: number, probability: number): number {
  const { ratios, readings } = fidelity().memory;
  if (probabilityBelow(0) >= probability) return Infinity;
  const at = ratios.findIndex((_, i) => probabilityBelow(i + 1) >= probability);
  if (at < 0)
    throw new ShardwrightError(
      'E_REQUEST',
      `the risk is ${probability}, and ${readings} readings of memory confirm at most ` +
        largestProbability().toFixed(3),
      { hint: 'ask for a smaller probability.' },
    );
  const bytes = Math.floor(limitBytes / ratios[at]);
  return limitBytes / bytes >= ratios[at] ? bytes : bytes - 1;
}

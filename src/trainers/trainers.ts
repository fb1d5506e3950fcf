/**
 * Lists the trainers. Readers of configurations, writers of launch files, export targets and the
 * prices of measured runs ask their records.
 */
import { internalError, ShardwrightError, suggestion } from '../errors.ts';
import { accelerate } from './accelerate/accelerate.ts';
import { autoparallel } from './autoparallel/autoparallel.ts';
import { deepspeed } from './deepspeed/deepspeed.ts';
import type { Framework } from './framework.ts';
import { fsdp2 } from './fsdp2/fsdp2.ts';
import { maxtext } from './maxtext/maxtext.ts';
import { megatron } from './megatron/megatron.ts';
import { megatronBridge } from './megatron-bridge/megatron-bridge.ts';
import { nemo } from './nemo/nemo.ts';
import { others } from './others.ts';
import { shardwright } from './shardwright/shardwright.ts';
import { torchtitan } from './torchtitan/torchtitan.ts';
import type { Trainer } from './trainer.ts';

const LIST = [
  megatron,
  torchtitan,
  nemo,
  megatronBridge,
  deepspeed,
  accelerate,
  fsdp2,
  maxtext,
  shardwright,
  autoparallel,
  ...others,
] as const;

/** All trainers, in the order in which their files are listed and their forms are tried. */
export const TRAINERS: readonly Trainer[] = LIST;

type KeysOf<Software> = Software extends unknown ? keyof Software : never;
/** A profile: the software of a generation of a trainer. */
export type FrameworkName = KeysOf<(typeof LIST)[number]['software']>;

export const FRAMEWORKS = Object.assign({}, ...LIST.map(({ software }) => software)) as Readonly<
  Record<FrameworkName, Framework>
>;
export const FRAMEWORK_NAMES = Object.keys(FRAMEWORKS) as FrameworkName[];

/** A trainer that a question is asked for, with the generation whose software is priced. */
export interface AskedTrainer {
  readonly trainer: Trainer;
  readonly profile: FrameworkName;
}

/** Trainers that a question can be asked for: they bring software that has a price. */
export const ASKED_TRAINERS = TRAINERS.filter(({ profile }) => profile !== undefined);
export const TRAINER_NAMES: readonly string[] = ASKED_TRAINERS.map(({ id }) => id);

/**
 * The trainer of a model by name where nobody asks for one: what large models are most often
 * pretrained with on such devices, or fine-tuned by adapters with.
 */
export function defaultTrainer(
  accelerator: string,
  hasAdapters: boolean,
): (typeof LIST)[number]['id'] {
  if (hasAdapters) return accelerator.startsWith('TPU') ? 'shardwright' : 'accelerate';
  return accelerator.startsWith('TPU') ? 'maxtext' : 'megatron';
}

/**
 * A trainer by its name, or by that of one of its generations (`megatron-core`).
 *
 * @throws E_USAGE with the nearest names
 */
export function trainerNamed(name: string, flag: string): AskedTrainer {
  const trainer =
    ASKED_TRAINERS.find(({ id }) => id === name) ??
    ASKED_TRAINERS.find(({ software }) => Object.hasOwn(software, name));
  if (trainer === undefined)
    throw new ShardwrightError('E_USAGE', `${flag} ${name}: there is no such trainer`, {
      hint: suggestion(name, [...new Set([...TRAINER_NAMES, ...FRAMEWORK_NAMES])], 'trainers'),
    });
  const profile = FRAMEWORK_NAMES.find(
    (known) => known === (Object.hasOwn(trainer.software, name) ? name : trainer.profile),
  );
  if (profile === undefined) throw internalError(`no profile of ${trainer.id}`);
  return { trainer, profile };
}

/** @throws E_USAGE for a trainer that has no low-rank adapters */
export function checkAdapters(id: string): void {
  const able = ASKED_TRAINERS.filter(({ adapters }) => adapters !== undefined);
  if (able.some((trainer) => trainer.id === id)) return;
  throw new ShardwrightError('E_USAGE', `--for ${id}: it trains no low-rank adapters`, {
    hint: `ask for one that does: ${able.map((trainer) => trainer.id).join(', ')}.`,
  });
}

/** Id of the trainer of a profile. */
export function trainerOfProfile(profile: FrameworkName): string {
  const trainer = TRAINERS.find(({ software }) => Object.hasOwn(software, profile));
  if (trainer === undefined) throw internalError(`no trainer has ${profile}`);
  return trainer.id;
}

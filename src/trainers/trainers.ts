/**
 * Lists the trainers. Readers of configurations, writers of launch files, export targets and the
 * prices of measured runs ask their records.
 */
import { accelerate } from './accelerate/accelerate.ts';
import { autoparallel } from './autoparallel/autoparallel.ts';
import { deepspeed } from './deepspeed/deepspeed.ts';
import type { Framework } from './framework.ts';
import { maxtext } from './maxtext/maxtext.ts';
import { megatron } from './megatron/megatron.ts';
import { nemo } from './nemo/nemo.ts';
import { others } from './others.ts';
import { torchtitan } from './torchtitan/torchtitan.ts';
import type { Trainer } from './trainer.ts';

const LIST = [
  megatron,
  torchtitan,
  nemo,
  deepspeed,
  accelerate,
  maxtext,
  autoparallel,
  ...others,
] as const;

/** In the order in which their files are listed and their forms are asked for. */
export const TRAINERS: readonly Trainer[] = LIST;

type KeysOf<Software> = Software extends unknown ? keyof Software : never;
/** A profile that `--framework` takes. */
export type FrameworkName = KeysOf<(typeof LIST)[number]['software']>;

export const FRAMEWORKS = Object.assign({}, ...LIST.map(({ software }) => software)) as Readonly<
  Record<FrameworkName, Framework>
>;
export const FRAMEWORK_NAMES = Object.keys(FRAMEWORKS) as FrameworkName[];

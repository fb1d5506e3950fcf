/** The targets of `shardwright export`, in the order in which they are listed. */
import type { ExportTarget } from '../backend/target.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import { autoparallelTarget } from '../trainers/recipe/autoparallel.ts';
import { deepspeedTarget } from '../trainers/recipe/deepspeed.ts';
import { hfTarget } from '../trainers/recipe/hf.ts';
import { maxtextTarget } from '../trainers/recipe/maxtext.ts';
import { megatronTarget } from '../trainers/recipe/megatron.ts';
import { torchtitanTarget } from '../trainers/recipe/torchtitan.ts';
import { einshardTarget } from './einshard.ts';
import { jaxTarget } from './jax/target.ts';
import { gspmdTarget, shardyTarget } from './shardy/target.ts';
import { torchTarget } from './torch/target.ts';
import { torchDtensorTarget } from './torch-dtensor.ts';

/** Every export target, in the order in which `shardwright export` lists them. */
export const EXPORT_TARGETS: readonly ExportTarget[] = [
  torchTarget,
  torchDtensorTarget,
  autoparallelTarget,
  torchtitanTarget,
  megatronTarget,
  deepspeedTarget,
  hfTarget,
  jaxTarget,
  shardyTarget,
  gspmdTarget,
  einshardTarget,
  maxtextTarget,
];

/** @throws E_USAGE with the nearest names */
export function exportTarget(name: string): ExportTarget {
  const found = EXPORT_TARGETS.find((target) => target.name === name);
  if (found !== undefined) return found;
  const names = EXPORT_TARGETS.map((target) => target.name);
  throw new ShardwrightError('E_USAGE', `there is no export target '${name}'`, {
    hint: suggestion(name, names, 'targets'),
  });
}

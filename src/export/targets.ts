/** The targets of `shardwright export`, in the order in which they are listed. */
import type { ExportTarget } from '../backend/target.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import { TRAINERS } from '../trainers/trainers.ts';
import { einshardTarget } from './einshard.ts';
import { jaxTarget } from './jax/target.ts';
import { gspmdTarget, shardyTarget } from './shardy/target.ts';
import { torchTarget } from './torch/target.ts';
import { torchDtensorTarget } from './torch-dtensor.ts';

/** Every export target, in the order in which `shardwright export` lists them. */
export const EXPORT_TARGETS: readonly ExportTarget[] = [
  torchTarget,
  torchDtensorTarget,
  ...TRAINERS.flatMap(({ target }) => target ?? []),
  jaxTarget,
  shardyTarget,
  gspmdTarget,
  einshardTarget,
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

import { fileURLToPath } from 'node:url';

import type { ExportFile, ExportSource, ExportTarget } from '../../src/backend/target.ts';
import { hfTarget } from '../../src/trainers/accelerate/target.ts';
import { deepspeedTarget } from '../../src/trainers/deepspeed/target.ts';
import { megatronTarget } from '../../src/trainers/megatron/target.ts';
import { torchtitanTarget } from '../../src/trainers/torchtitan/target.ts';
import { megatronSource, vocabularySource } from './recipe-plans.ts';

/** Targets whose files are read by a package. */
export const CONFIG_TARGETS: readonly ExportTarget[] = [
  torchtitanTarget,
  megatronTarget,
  deepspeedTarget,
  hfTarget,
];

export const CONFIG_RECORD = fileURLToPath(
  new URL('../fixtures/export/configs.json', import.meta.url),
);

export interface ConfigRecord {
  /** SHA-256 of the files that the packages read. */
  readonly files: string;
  readonly answers: Readonly<Record<string, { readonly version: string; readonly made: unknown }>>;
}

/** The files of each target in a folder of its own. */
export function configFiles(source: ExportSource): ExportFile[] {
  return CONFIG_TARGETS.flatMap((target) =>
    target.write(source).files.map(({ name, text }) => ({ name: `${target.name}/${name}`, text })),
  );
}

export const RUN_RECORD = fileURLToPath(
  new URL('../fixtures/export/recipe-runs.json', import.meta.url),
);

/** What trainers made of the files of `runFiles` when they ran. */
export interface RunRecord {
  /** SHA-256 of the files. */
  readonly files: string;
  readonly transformers: {
    readonly version: string;
    /**
     * For each file the devices that each parameter is cut over; `error` is what logits and
     * gradients differ by from one process.
     */
    readonly made: readonly {
      readonly error?: number;
      readonly parts: Readonly<Record<string, number>>;
    }[];
  };
  readonly torchtitan: {
    readonly version: string;
    readonly steps: number;
    readonly gradients: number;
  };
}

const FILES = ['distributed_config.json', 'torchtitan_config.py'];

/**
 * What transformers and torchtitan read of the two tensor-parallel plans, each in a folder of its
 * own.
 */
export async function runFiles(): Promise<ExportFile[]> {
  const sources = { megatron: await megatronSource(), vocabulary: await vocabularySource() };
  return Object.entries(sources).flatMap(([plan, source]) =>
    [hfTarget, torchtitanTarget]
      .flatMap((target) => target.write(source).files)
      .filter(({ name }) => FILES.includes(name))
      .map(({ name, text }) => ({ name: `${plan}/${name}`, text })),
  );
}

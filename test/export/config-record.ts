import { fileURLToPath } from 'node:url';
import { deepspeedTarget } from '../../src/export/configs/deepspeed.ts';
import { hfTarget } from '../../src/export/configs/hf.ts';
import { megatronTarget } from '../../src/export/configs/megatron.ts';
import type { ExportFile, ExportSource, ExportTarget } from '../../src/export/target.ts';
import { torchtitanTarget } from '../../src/export/configs/torchtitan.ts';

/** Targets whose files are read by a package. */
export const CONFIG_TARGETS: readonly ExportTarget[] = [torchtitanTarget, megatronTarget, deepspeedTarget, hfTarget];

export const CONFIG_RECORD = fileURLToPath(new URL('../fixtures/export/configs.json', import.meta.url));

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

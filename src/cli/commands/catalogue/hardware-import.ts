/** `hardware import FILES`: makes a cluster file of what was measured elsewhere. */

import { basename } from 'node:path';

import { importHardware } from '../../../cost/hardware/imported/import-measured.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { writeText } from '../../output/write-file.ts';
import type { HardwareImportOptions } from './flags.ts';

const MOST_BYTES = 16 * 2 ** 20;

export function hardwareImportCommand(
  paths: readonly string[],
  { base, out, json }: HardwareImportOptions,
  io: CliIo,
): number {
  const files = paths.map((path) => ({
    name: basename(path),
    text: readFileText(path, { what: 'measured file', maxBytes: MOST_BYTES }),
  }));
  const { file, told } = importHardware(files, base === undefined ? base : clusterText(base));
  const text = `${JSON.stringify(file, null, 1)}\n`;
  if (out === undefined) {
    io.stdout(json === true ? `${JSON.stringify(file)}\n` : text);
    for (const line of told) io.stderr(`${line}\n`);
    return EXIT.ok;
  }
  writeText(out, text, 'cluster file');
  if (json === true) io.stdout(`${JSON.stringify({ out, told })}\n`);
  else io.stdout(`${[...told, `wrote ${out}; --cluster takes it`].join('\n')}\n`);
  return EXIT.ok;
}

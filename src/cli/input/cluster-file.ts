/** Reads `--cluster`, `--calibration` and `--collectives` into the text of one cluster. */

import { basename } from 'node:path';

import { calibratedClusterText } from '../../cost/hardware/calibrated-text.ts';
import { parseCalibration } from '../../cost/hardware/calibration.ts';
import { parseCollectiveTable, tabledClusterText } from '../../cost/hardware/collective-table.ts';
import { clusterFromJson, loadCluster } from '../../cost/hardware/load-cluster.ts';
import { ShardwrightError } from '../../errors.ts';
import { readFileText, shownPath } from '../../platform/read-file.ts';

/** Files of what was measured on a cluster. */
interface MeasuredFiles {
  /** Kernels of a device, as `bench/calibrate.py` writes them. */
  readonly calibration?: string;
  /** A table of collectives. */
  readonly collectives?: string;
}

/**
 * The cluster that `--cluster` names: the text of a JSON file, or the name of a node design. With
 * `--calibration` and `--collectives` it is the cluster file of that cluster with its measurements.
 *
 * @throws E_IO for a file that cannot be read; E_CLUSTER, E_CALIBRATION and E_COLLECTIVES, with its
 *   name, for a file that is not a cluster, not a calibration of this cluster or not a table of
 *   collectives
 */
export function clusterText(
  nameOrFile: string,
  { calibration, collectives }: MeasuredFiles = {},
): string {
  let text = isFile(nameOrFile) ? clusterFile(nameOrFile) : nameOrFile;
  if (calibration !== undefined) {
    const measured = read(calibration, 'calibration file', 'write one with bench/calibrate.py.');
    text = named(calibration, 'E_CALIBRATION', () =>
      calibratedClusterText(text, parseCalibration(measured)),
    );
  }
  if (collectives !== undefined) {
    const table = read(collectives, 'table of collectives', 'its form: docs/costs.md.');
    const rows = named(collectives, 'E_COLLECTIVES', () => parseCollectiveTable(table));
    text = tabledClusterText(text, rows, basename(collectives));
    loadCluster(text);
  }
  return text;
}

/** Runs `work`; an error with `code` then names the file. */
function named<T>(file: string, code: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === code) throw error.with({ file });
    throw error;
  }
}

/** A name of a node design has no path and no ending of a file. */
function isFile(nameOrFile: string): boolean {
  return /[\\/]|\.(?:jsonc?|ya?ml|toml|txt)$/i.test(nameOrFile);
}

function clusterFile(path: string): string {
  const text = read(
    path,
    'cluster file',
    'give the path of a JSON file, or a node design such as dgx-h100.',
  );
  try {
    clusterFromJson(text);
  } catch (error) {
    if (error instanceof ShardwrightError) throw error.with({ file: shownPath(path) });
    throw error;
  }
  return text;
}

function read(path: string, what: string, hint: string): string {
  return readFileText(path, { what, hint });
}

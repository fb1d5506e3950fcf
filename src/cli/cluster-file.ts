import { readFileSync } from 'node:fs';
import { calibratedClusterText, parseCalibration } from '../cost/calibration.ts';
import { loadCluster } from '../cost/cluster.ts';
import { ShardwrightError } from '../errors.ts';

/**
 * What `--cluster` names: the text of a JSON file, or the name of a node design as it is; with `--calibration` the cluster
 * file of that cluster as it was measured.
 *
 * @throws E_IO for a file that cannot be read, E_CLUSTER and E_CALIBRATION for one that is no cluster, or no calibration of this cluster, with its name
 */
export function clusterText(nameOrFile: string, calibrationFile?: string): string {
  const text = nameOrFile.endsWith('.json') ? clusterFile(nameOrFile) : nameOrFile;
  if (calibrationFile === undefined) return text;
  const calibration = read(calibrationFile, 'calibration file', 'write one with bench/calibrate.py.');
  try {
    return calibratedClusterText(text, parseCalibration(calibration));
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_CALIBRATION')
      throw error.with({ file: calibrationFile });
    throw error;
  }
}

function clusterFile(path: string): string {
  const text = read(path, 'cluster file', 'give the path of a JSON file, or a node design such as dgx-h100.');
  try {
    loadCluster(text);
  } catch (error) {
    if (error instanceof ShardwrightError) throw error.with({ file: path });
    throw error;
  }
  return text;
}

function read(path: string, what: string, hint: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new ShardwrightError(
      'E_IO',
      `cannot read the ${what} ${path}: ${error instanceof Error ? error.message : String(error)}`,
      { hint },
    );
  }
}

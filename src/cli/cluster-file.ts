import { readFileSync } from 'node:fs';
import { ShardwrightError } from '../errors.ts';

/** What `--cluster` names: the text of a JSON file, or the name of a node design as it is. @throws E_IO */
export function clusterText(nameOrFile: string): string {
  if (!nameOrFile.endsWith('.json')) return nameOrFile;
  try {
    return readFileSync(nameOrFile, 'utf8');
  } catch (error) {
    throw new ShardwrightError(
      'E_IO',
      `cannot read the cluster file ${nameOrFile}: ${error instanceof Error ? error.message : String(error)}`,
      {
        hint: 'give the path of a JSON file, or a node design such as dgx-h100.',
      },
    );
  }
}

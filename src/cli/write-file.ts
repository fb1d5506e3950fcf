import { writeFileSync } from 'node:fs';
import { ShardwrightError } from '../errors.ts';

/** Writes a text that a command was asked for; `what` names it where it cannot be written. Throws `E_IO`. */
export function writeText(path: string, text: string, what: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new ShardwrightError(
      'E_IO',
      `cannot write the ${what}: ${error instanceof Error ? error.message : String(error)}`,
      { file: path, hint: 'name a file in a folder that exists and that you may write.' },
    );
  }
}

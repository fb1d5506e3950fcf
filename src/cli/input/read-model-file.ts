/** Reads a model file or stdin up to a limit of bytes. */

import { DEFAULT_MAX_BYTES } from '../../import/file/unpack.ts';
import { readFileBytes } from '../../platform/read-file.ts';

/**
 * Bytes of a model file, or of stdin (`-`); reading stops at `maxBytes`.
 *
 * @throws E_FILE when the file is missing, a folder or not readable; E_LIMIT when it is larger than
 *   `maxBytes`
 */
export function readModelFile(path: string, maxBytes = DEFAULT_MAX_BYTES): Uint8Array {
  return readFileBytes(path, {
    code: 'E_FILE',
    hint: 'check the path; models with built-in graphs are listed by `shardwright models list`',
    maxBytes,
  });
}

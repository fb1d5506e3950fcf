import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { ShardwrightError } from '../errors.ts';
import { DEFAULT_MAX_BYTES } from './unpack.ts';

/**
 * Bytes of a model file. The size is checked before reading.
 *
 * @throws E_FILE when the file is missing, a folder or not readable; E_LIMIT when it is larger than `maxBytes`
 */
export function readModelFile(path: string, maxBytes = DEFAULT_MAX_BYTES): Uint8Array {
  let handle: number;
  try {
    handle = openSync(path, 'r');
  } catch (error) {
    throw fileError(path, error);
  }
  try {
    const stat = fstatSync(handle);
    if (stat.isDirectory())
      throw new ShardwrightError('E_FILE', `${path} is a folder, a model file is needed`, {
        file: path,
        hint: 'name the file inside it',
      });
    if (stat.size > maxBytes)
      throw new ShardwrightError('E_LIMIT', `${path} has ${stat.size} bytes, more than ${maxBytes}`, {
        file: path,
        hint: 'raise the limit with maxBytes, or import a smaller part',
      });
    return readFileSync(handle);
  } catch (error) {
    throw error instanceof ShardwrightError ? error : fileError(path, error);
  } finally {
    closeSync(handle);
  }
}

function fileError(path: string, error: unknown): ShardwrightError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const [message, hint] =
    code === 'ENOENT'
      ? [
          `there is no file ${path}`,
          'check the path; models with built-in graphs are listed by `shardwright models list`',
        ]
      : code === 'EACCES' || code === 'EPERM'
        ? [`${path} may not be read`, 'check its permissions']
        : [`${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`, 'check the path'];
  return new ShardwrightError('E_FILE', message, { file: path, hint });
}

/** Packed bytes to unpacked ones, with limits that hold before memory is taken. */

import { messageOf, ShardwrightError } from '../../errors.ts';
import { gunzip as unpack } from '../../platform/platform.ts';

export interface UnpackLimits {
  /** Largest unpacked text. Default 256 MiB; a JavaScript string holds about 512 MiB at most. */
  readonly maxBytes?: number;
  /** Largest ratio of unpacked to packed size. Default 200. */
  readonly maxRatio?: number;
}

export const DEFAULT_MAX_BYTES = 256 * 2 ** 20;
const DEFAULT_MAX_RATIO = 200;

export function isGzip(bytes: Uint8Array): boolean {
  return bytes.length >= 2 && bytes[0] === 0x1f && bytes[1] === 0x8b;
}

/**
 * Unpacks gzip; other bytes come back as they are.
 *
 * @throws E_LIMIT when the result would exceed a limit (found while unpacking, at most the limit is
 *   held), E_ARCHIVE when the stream is cut, damaged or fails its checksum
 */
export function gunzip(bytes: Uint8Array, limits: UnpackLimits = {}): Uint8Array {
  const maxBytes = limits.maxBytes ?? DEFAULT_MAX_BYTES;
  if (!isGzip(bytes)) {
    if (bytes.length > maxBytes) throw tooLarge(bytes.length, maxBytes);
    return bytes;
  }
  const byRatio = Math.ceil(bytes.length * (limits.maxRatio ?? DEFAULT_MAX_RATIO));
  const limit = Math.min(maxBytes, byRatio);
  let unpacked: Uint8Array | undefined;
  try {
    unpacked = unpack(bytes, limit);
  } catch (error) {
    const reason = messageOf(error);
    throw new ShardwrightError('E_ARCHIVE', `the gzip data is damaged or cut: ${reason}`, {
      hint: 'copy or download the file again; `gunzip -t FILE` checks it',
    });
  }
  if (unpacked !== undefined) return unpacked;
  if (limit === byRatio && byRatio < maxBytes)
    throw new ShardwrightError(
      'E_LIMIT',
      `${bytes.length} bytes of gzip unpack to more than ${byRatio} bytes, ` +
        `${limits.maxRatio ?? DEFAULT_MAX_RATIO} times as many`,
      { hint: 'a text packs 10 to 30 times; unpack the file yourself (gunzip) if you trust it' },
    );
  throw tooLarge(undefined, maxBytes);
}

function tooLarge(bytes: number | undefined, maxBytes: number): ShardwrightError {
  const size = bytes === undefined ? 'the text unpacks to' : `the text has ${bytes} bytes,`;
  return new ShardwrightError('E_LIMIT', `${size} more than ${maxBytes} bytes`, {
    hint: `raise the limit with maxBytes, or import a smaller part`,
  });
}

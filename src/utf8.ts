/**
 * Takes bytes and gives their text: UTF-8 and nothing else; the error for another encoding names
 * it.
 */

import { ShardwrightError } from './errors.ts';

/**
 * Decodes UTF-8; a byte order mark is dropped.
 *
 * @throws E_ENCODING with the offset of the first wrong byte, or the name of the encoding
 */
export function decodeUtf8(bytes: Uint8Array): string {
  refuseUtf16(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const offset = firstInvalidByte(bytes);
    throw new ShardwrightError(
      'E_ENCODING',
      `byte ${offset} (0x${(bytes[offset] ?? 0).toString(16).padStart(2, '0')}) is not UTF-8`,
      { hint: 'save the text as UTF-8; a binary model needs its own format' },
    );
  }
}

/**
 * Longest valid prefix by bisection: decoding a prefix as a stream fails exactly when it holds a
 * wrong byte.
 */
function firstInvalidByte(bytes: Uint8Array): number {
  const valid = (length: number): boolean => {
    try {
      new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, length), { stream: true });
      return true;
    } catch {
      return false;
    }
  };
  let low = 0;
  let high = bytes.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (valid(middle)) low = middle;
    else high = middle - 1;
  }
  return Math.min(low, bytes.length - 1);
}

/**
 * Text of a Windows editor or shell (`> file` of PowerShell): two bytes a character, which no
 * reader of ours takes.
 *
 * @throws E_ENCODING for bytes with the mark of UTF-16 or UTF-32, or ASCII as UTF-16 without it
 */
export function refuseUtf16(bytes: Uint8Array): void {
  const little = bytes[0] === 0xff && bytes[1] === 0xfe;
  const big = bytes[0] === 0xfe && bytes[1] === 0xff;
  if (!little && !big && !looksUtf16(bytes)) return;
  const name =
    little && bytes.length >= 4 && bytes[2] === 0 && bytes[3] === 0 ? 'UTF-32' : 'UTF-16';
  throw new ShardwrightError('E_ENCODING', `the text is ${name}, UTF-8 is needed`, {
    hint: `save it as UTF-8, such as with \`iconv -f ${name} -t UTF-8 FILE\``,
  });
}

const LOOKED_AT = 64;

/** Every second byte is 0 and no other one. */
function looksUtf16(bytes: Uint8Array): boolean {
  const length = Math.min(LOOKED_AT, bytes.length - (bytes.length % 2));
  if (length < 8) return false;
  const zero = bytes[0] === 0 ? 0 : 1;
  for (let i = 0; i < length; i++) if ((bytes[i] === 0) !== (i % 2 === zero)) return false;
  return true;
}

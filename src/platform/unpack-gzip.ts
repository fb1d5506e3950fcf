/**
 * Unpacks gzip in plain JavaScript, for a page, up to a limit of bytes: undefined past the limit.
 * The checksum and length of every member are checked against its trailer (RFC 1952).
 */
import { Gunzip } from 'fflate';

import { crc32 } from './hash.ts';

const PIECE = 1 << 16;
const TRAILER = 8;

export function unpackGzip(bytes: Uint8Array, maxBytes: number): Uint8Array | undefined {
  const pieces: Uint8Array[] = [];
  let length = 0;
  let memberLength = 0;
  let crc = 0;
  const stream = new Gunzip((piece) => {
    pieces.push(piece);
    length += piece.length;
    memberLength += piece.length;
    crc = crc32(piece, crc);
  });
  /** The member that ends at `end` is what its trailer says. */
  const ended = (end: number): void => {
    const trailer = new DataView(bytes.buffer, bytes.byteOffset + end - TRAILER, TRAILER);
    if (trailer.getUint32(0, true) !== crc) throw new Error('incorrect data check');
    if (trailer.getUint32(4, true) !== memberLength >>> 0)
      throw new Error('incorrect length check');
    [memberLength, crc] = [0, 0];
  };
  stream.onmember = (offset) => {
    if (offset > 0) ended(offset);
  };
  for (let at = 0; at < bytes.length; at += PIECE) {
    stream.push(bytes.subarray(at, at + PIECE), at + PIECE >= bytes.length);
    if (length > maxBytes) return undefined;
  }
  if (bytes.length < 18) throw new Error('unexpected end of file');
  ended(bytes.length);
  const out = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

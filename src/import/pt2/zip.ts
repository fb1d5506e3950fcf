/**
 * Reads the directory of a zip archive and single members. Weights are listed but never unpacked.
 * Nothing is written to disk, and no name of the archive is ever used as a path; names that try to
 * be one are refused all the same.
 */

import { Inflate } from 'fflate';

import { messageOf, ShardwrightError } from '../../errors.ts';
import { crc32 } from '../../platform/platform.ts';

interface ZipMember {
  readonly name: string;
  /** 0 stored, 8 deflated. */
  readonly method: number;
  readonly crc: number;
  readonly packedBytes: number;
  readonly bytes: number;
  /** Offset of the local header. */
  readonly offset: number;
}

export interface ZipLimits {
  /** Most members. Default 100,000. */
  readonly maxMembers?: number;
  /** Largest unpacked member. Default 256 MiB. */
  readonly maxBytes?: number;
  /** Largest ratio of unpacked to packed size. Default 200. */
  readonly maxRatio?: number;
}

const MAX_MEMBERS = 100_000;
const MAX_BYTES = 256 * 2 ** 20;
const MAX_RATIO = 200;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
const LOCAL_BYTES = 30;
const NEEDS_64 = 0xffffffff;
const LINK_MODE = 0xa000;

/**
 * Members of an archive by name, in the order of its directory.
 *
 * @throws E_ARCHIVE for a cut, encrypted or multi-disk archive, for names that are absolute, hold
 *   `..` or are repeated, and for links; E_LIMIT for too many members
 */
export function zipDirectory(
  bytes: Uint8Array,
  limits: ZipLimits = {},
): ReadonlyMap<string, ZipMember> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = directoryEnd(view);
  const maxMembers = limits.maxMembers ?? MAX_MEMBERS;
  if (end.count > maxMembers)
    throw new ShardwrightError(
      'E_LIMIT',
      `the archive lists ${end.count} members, more than ${maxMembers}`,
      {
        hint: 'raise the limit with maxMembers',
      },
    );
  if (end.offset + end.size > bytes.length)
    throw damaged('its directory reaches past the end of the file', end.offset);
  const members = new Map<string, ZipMember>();
  const decoder = new TextDecoder('utf-8');
  let at = end.offset;
  for (let i = 0; i < end.count; i++) {
    if (at + ENTRY_BYTES > end.offset + end.size || view.getUint32(at, true) !== 0x02014b50)
      throw damaged(`entry ${i} of its directory is not there`, at);
    const flags = view.getUint16(at + 8, true);
    const nameBytes = view.getUint16(at + 28, true);
    const extraBytes = view.getUint16(at + 30, true);
    const commentBytes = view.getUint16(at + 32, true);
    const next = at + ENTRY_BYTES + nameBytes + extraBytes + commentBytes;
    if (next > end.offset + end.size) throw damaged(`entry ${i} of its directory is cut`, at);
    const name = decoder.decode(bytes.subarray(at + ENTRY_BYTES, at + ENTRY_BYTES + nameBytes));
    if ((flags & 1) !== 0) throw damaged(`the member ${quoted(name)} is encrypted`, at);
    const mode = view.getUint16(at + 40, true) & 0xf000;
    const madeByUnix = view.getUint8(at + 5) === 3;
    if (madeByUnix && mode === LINK_MODE) throw damaged(`the member ${quoted(name)} is a link`, at);
    checkName(name, at);
    if (members.has(name)) throw damaged(`the member ${quoted(name)} occurs twice`, at);
    const sizes = memberSizes(view, at, nameBytes, extraBytes);
    members.set(name, {
      name,
      method: view.getUint16(at + 10, true),
      crc: view.getUint32(at + 16, true),
      ...sizes,
    });
    at = next;
  }
  return members;
}

/**
 * Contents of one member.
 *
 * @throws E_LIMIT before memory is taken when the member is too large or packed too well; E_ARCHIVE
 *   when it is cut, has a wrong checksum or an unknown method
 */
export function zipMember(
  bytes: Uint8Array,
  member: ZipMember,
  limits: ZipLimits = {},
): Uint8Array {
  const maxBytes = limits.maxBytes ?? MAX_BYTES;
  const { name, offset, packedBytes } = member;
  if (member.bytes > maxBytes)
    throw new ShardwrightError(
      'E_LIMIT',
      `${quoted(name)} has ${member.bytes} bytes, more than ${maxBytes}`,
      {
        hint: 'raise the limit with maxBytes',
      },
    );
  const maxRatio = limits.maxRatio ?? MAX_RATIO;
  if (member.method === 8 && member.bytes > Math.max(packedBytes, 64) * maxRatio)
    throw new ShardwrightError(
      'E_LIMIT',
      `${quoted(name)} unpacks to ${member.bytes} bytes, more than ${maxRatio} times its ` +
        'packed size',
      {
        hint: 'a graph packs 10 to 30 times; unpack the archive yourself if you trust it',
      },
    );
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (offset + LOCAL_BYTES > bytes.length || view.getUint32(offset, true) !== 0x04034b50)
    throw damaged(`the member ${quoted(name)} is not where the directory says`, offset);
  const start =
    offset + LOCAL_BYTES + view.getUint16(offset + 26, true) + view.getUint16(offset + 28, true);
  if (start + packedBytes > bytes.length)
    throw damaged(`the member ${quoted(name)} is cut`, offset);
  const packed = bytes.subarray(start, start + packedBytes);
  let content: Uint8Array;
  if (member.method === 0) {
    if (packedBytes !== member.bytes)
      throw damaged(`the stored member ${quoted(name)} has two sizes`, offset);
    content = packed;
  } else if (member.method === 8) content = inflate(packed, member);
  else
    throw damaged(
      `the member ${quoted(name)} is packed by method ${member.method}; stored and deflate ` +
        'are read',
      offset,
    );
  if (crc32(content) !== member.crc)
    throw damaged(`the member ${quoted(name)} fails its checksum`, offset);
  return content;
}

/**
 * Unpacks into the stated size and not one byte more; the input is fed in pieces, so that a bomb
 * stops early.
 */
function inflate(packed: Uint8Array, member: ZipMember): Uint8Array {
  const out = new Uint8Array(member.bytes);
  let filled = 0;
  const stream = new Inflate((chunk) => {
    if (filled + chunk.length > out.length)
      throw damaged(
        `the member ${quoted(member.name)} is longer than its stated ${member.bytes} bytes`,
        member.offset,
      );
    out.set(chunk, filled);
    filled += chunk.length;
  });
  const PIECE = 1 << 14;
  try {
    for (let at = 0; at === 0 || at < packed.length; at += PIECE)
      stream.push(packed.subarray(at, at + PIECE), at + PIECE >= packed.length);
  } catch (error) {
    if (error instanceof ShardwrightError) throw error;
    const reason = messageOf(error);
    throw damaged(
      `the packed data of ${quoted(member.name)} is damaged (${reason})`,
      member.offset,
    );
  }
  if (filled !== out.length)
    throw damaged(
      `the member ${quoted(member.name)} has ${filled} of its stated ${out.length} bytes`,
      member.offset,
    );
  return out;
}

/** The end record, with sizes of the 64-bit one where it is present (torch writes one always). */
function directoryEnd(view: DataView): { count: number; size: number; offset: number } {
  const from = view.byteLength - END_BYTES;
  const lowest = Math.max(0, from - 0xffff);
  let at = from;
  // The record ends the file, with a comment of stated length: archives inside the archive have end
  // records too.
  const isEnd = (i: number): boolean =>
    view.getUint32(i, true) === 0x06054b50 &&
    i + END_BYTES + view.getUint16(i + 20, true) === view.byteLength;
  while (at >= lowest && !isEnd(at)) at--;
  if (at < lowest || from < 0)
    throw damaged('it has no end record; it may be cut', Math.max(0, from));
  const count = view.getUint16(at + 10, true);
  const size = view.getUint32(at + 12, true);
  const offset = view.getUint32(at + 16, true);
  if (count !== 0xffff && size !== NEEDS_64 && offset !== NEEDS_64) {
    if (view.getUint16(at + 4, true) !== 0) throw damaged('it is spread over several disks', at);
    return { count, size, offset };
  }
  const locator = at - 20;
  if (locator < 0 || view.getUint32(locator, true) !== 0x07064b50)
    throw damaged('its 64-bit end record is missing', at);
  const record = safe(view.getBigUint64(locator + 8, true), locator);
  if (record + 56 > view.byteLength || view.getUint32(record, true) !== 0x06064b50)
    throw damaged('its 64-bit end record is not where it should be', locator);
  return {
    count: safe(view.getBigUint64(record + 32, true), record),
    size: safe(view.getBigUint64(record + 40, true), record),
    offset: safe(view.getBigUint64(record + 48, true), record),
  };
}

function memberSizes(
  view: DataView,
  at: number,
  nameBytes: number,
  extraBytes: number,
): { packedBytes: number; bytes: number; offset: number } {
  let packedBytes = view.getUint32(at + 20, true);
  let bytes = view.getUint32(at + 24, true);
  let offset = view.getUint32(at + 42, true);
  // Extra field 1 holds the 64-bit values of those that do not fit, in this order.
  const end = at + ENTRY_BYTES + nameBytes + extraBytes;
  for (
    let field = at + ENTRY_BYTES + nameBytes;
    field + 4 <= end;
    field += 4 + view.getUint16(field + 2, true)
  ) {
    if (view.getUint16(field, true) !== 1) continue;
    let value = field + 4;
    const stop = Math.min(end, value + view.getUint16(field + 2, true));
    const wide = (narrow: number): number => {
      if (narrow !== NEEDS_64 || value + 8 > stop) return narrow;
      value += 8;
      return safe(view.getBigUint64(value - 8, true), field);
    };
    bytes = wide(bytes);
    packedBytes = wide(packedBytes);
    offset = wide(offset);
    break;
  }
  return { packedBytes, bytes, offset };
}

function safe(value: bigint, at: number): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER))
    throw damaged(`it states a size of ${value} bytes`, at);
  return Number(value);
}

function checkName(name: string, at: number): void {
  const parts = name.split(/[\\/]/);
  const absolute = /^([\\/]|[A-Za-z]:)/.test(name);
  if (name === '' || absolute || parts.includes('..') || name.includes('\0'))
    throw damaged(`a member is called ${quoted(name)}, which is not a name inside an archive`, at);
}

function quoted(name: string): string {
  return JSON.stringify(name.length > 120 ? `${name.slice(0, 120)}...` : name);
}

function damaged(reason: string, offset: number): ShardwrightError {
  return new ShardwrightError(
    'E_ARCHIVE',
    `the archive cannot be read: ${reason} (byte ${offset})`,
    {
      hint: 'save or copy the file again; `python -m zipfile -t FILE` checks it',
    },
  );
}

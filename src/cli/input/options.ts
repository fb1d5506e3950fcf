/** Parses the values of flags (bytes, fractions, counts, choices, shapes) and refuses others by name. */

import type { StatedDims } from '../../plan/request/request.ts';
import { didYouMean, ShardwrightError } from '../../errors.ts';

const UNITS: Readonly<Record<string, number>> = {
  B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
}; // prettier-ignore

/** `80GiB`, `80GB`, `1.5TB` as bytes. A bare number is refused, because 80 could be either. */
export function parseBytes(text: string, flag: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?$/.exec(text.trim());
  if (match === null)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a size`, {
      hint: 'write for example 80GiB or 80GB.',
    });
  const [, digits, unit] = match;
  if (unit === undefined)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' has no unit`, {
      hint: `write ${digits}GiB (${digits} x 2^30 bytes) or ${digits}GB (${digits} x 10^9 bytes).`,
    });
  return Math.floor(Number(digits) * UNITS[unit]);
}

/** `0`, `0.005`, `0.5%`. */
export function parseFraction(text: string, flag: string, hint = 'write for example 0.005 or 0.5%.'): number {
  const match = /^(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(%?)$/.exec(text.trim());
  const value = match === null ? NaN : Number(match[1]) / (match[2] === '%' ? 100 : 1);
  if (!Number.isFinite(value) || value < 0 || value > 1)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a fraction between 0 and 1`, { hint });
  return value;
}

export function parsePositive(text: string, flag: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value) || value <= 0)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a positive number`);
  return value;
}

export function parseCount(text: string, flag: string, hint?: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isSafeInteger(value) || value < 0)
    throw new ShardwrightError(
      'E_USAGE',
      `${flag} '${text}' is not a whole number of 0 or more`,
      hint === undefined ? {} : { hint },
    );
  return value;
}

/** One of a fixed list of words. @throws E_USAGE with all of them, and the nearest */
export function parseChoice<T extends string>(text: string, flag: string, words: readonly T[]): T {
  const found = words.find((w) => w === text);
  if (found !== undefined) return found;
  const near = didYouMean(text, words);
  throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not one of ${words.join(', ')}`, {
    ...(near.length > 0 ? { hint: `did you mean ${near.map((word) => `'${word}'`).join(' or ')}?` } : {}),
  });
}

/** `4,8`, `(4, 8)` or `[4, 8]`: sizes of at least 0, outermost dim first. `()` and the empty text are a scalar. */
export function parseShape(text: string, flag: string): number[] {
  const inner = /^\s*(?:\(([^()]*)\)|\[([^[\]]*)\]|([^()[\]]*))\s*$/.exec(text);
  const body = inner?.[1] ?? inner?.[2] ?? inner?.[3];
  const wrong = (why: string): ShardwrightError =>
    new ShardwrightError('E_USAGE', `${flag} '${text}' is not a shape: ${why}`, {
      hint: `write for example ${flag} 4,8.`,
    });
  if (body === undefined) throw wrong('the brackets do not match');
  if (body.trim() === '') return [];
  const parts = body.split(',');
  if (parts.length > 1 && parts.at(-1)?.trim() === '') parts.pop(); // `(4,)`, as Python writes it
  return parts.map((part, dim) => {
    const size = Number(part);
    if (!/^\s*\d+\s*$/.test(part) || !Number.isSafeInteger(size)) throw wrong(`size ${dim} is '${part.trim()}'`);
    return size;
  });
}

/** Batch and sequence dims of inputs as flags state them, `tokens=0`; nothing where none is given. @throws E_USAGE */
export function inputDimsOf(options: InputDimFlags): { readonly inputDims?: StatedDims } {
  const read = (texts: readonly string[] = [], flag: string): Record<string, number> => {
    const dims: Record<string, number> = {};
    for (const text of texts) {
      const [, name, dim] = /^(.+)=(-?\d+)$/.exec(text) ?? [];
      if (name === undefined)
        throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not NAME=D`, { hint: `write for example ${flag} tokens=0.` });
      dims[name] = Number(dim);
    }
    return dims;
  };
  const batch = read(options.batchDim, '--batch-dim');
  const sequence = read(options.sequenceDim, '--sequence-dim');
  if (Object.keys(batch).length + Object.keys(sequence).length === 0) return {};
  return { inputDims: { ...(Object.keys(batch).length > 0 ? { batch } : {}), ...(Object.keys(sequence).length > 0 ? { sequence } : {}) } };
} // prettier-ignore

export interface InputDimFlags {
  readonly batchDim?: readonly string[];
  readonly sequenceDim?: readonly string[];
}

/**
 * Parses the values of flags (bytes, fractions, counts, choices, shapes) and refuses others by
 * name.
 */

import { largestProbability } from '../../../cost/error-bands.ts';
import { parsePrice, type Price } from '../../../cost/hardware/operation.ts';
import { didYouMean, ShardwrightError } from '../../../errors.ts';
import type { Read } from './flag.ts';

const UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/** `80GiB`, `80GB`, `1.5TB` as bytes. A bare number is refused, because 80 could be either. */
export function parseBytes(text: string, flag: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?$/.exec(text.trim());
  if (match === null)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a size`, {
      hint: 'write for example 80GiB or 80GB.',
    });
  const [, digits, unit] = match;
  const bytes = UNITS[unit ?? ''];
  if (bytes === undefined)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' has no unit`, {
      hint: `write ${digits}GiB (${digits} x 2^30 bytes) or ${digits}GB (${digits} x 10^9 bytes).`,
    });
  return Math.floor(Number(digits) * bytes);
}

/** `0`, `0.005`, `0.5%`. */
export function parseFraction(
  text: string,
  flag: string,
  hint = 'write for example 0.005 or 0.5%.',
): number {
  const match = /^(\d+(?:\.\d+)?(?:e-?\d+)?)\s*(%?)$/.exec(text.trim());
  const value = match === null ? NaN : Number(match[1]) / (match[2] === '%' ? 100 : 1);
  if (!Number.isFinite(value) || value < 0 || value > 1)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a fraction between 0 and 1`, {
      hint,
    });
  return value;
}

/** `0.9`, `90%`: a probability of fitting. @throws E_USAGE for one that no reading confirms */
export function parseRisk(text: string, flag: string): number {
  const risk = parseFraction(text, flag, 'write for example 0.9 or 90%.');
  const most = largestProbability();
  if (risk > most)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is more than measured runs confirm`, {
      hint: `give at most ${Math.floor(100 * most)}%.`,
    });
  return risk;
}

export function parsePositive(text: string, flag: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value) || value <= 0)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a positive number`);
  return value;
}

/** Seconds in each unit of a time. */
const SECONDS: Readonly<Record<string, number>> = {
  ms: 1e-3,
  s: 1,
  m: 60,
  h: 3600,
  d: 86_400,
};

/** `600`, `600s`, `50ms`, `10m`, `1.5h`, `30d`: a time, in seconds. */
export function parseSeconds(text: string, flag: string): number {
  const match = /^((?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d{1,3})?)(ms|[smhd]?)$/.exec(text.trim());
  const seconds = match === null ? 0 : Number(match[1]) * (SECONDS[match[2] || 's'] ?? NaN);
  if (!(seconds > 0) || !Number.isFinite(seconds))
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a time above zero`, {
      hint: `give seconds, or a unit: ${flag} 600, 90s, 10m, 2h, 30d.`,
    });
  return seconds;
}

export function parseCount(text: string, flag: string, hint?: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isSafeInteger(value) || value < 0)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a whole number of 0 or more`, {
      hint: hint ?? `write digits alone, such as ${flag} 8.`,
    });
  return value;
}

/** `64,128,256`: whole numbers of at least 1, each once. */
export function parseCounts(text: string, flag: string): number[] {
  const counts = text.split(',').map((one) => (/^\d{1,12}$/.test(one.trim()) ? Number(one) : 0));
  if (counts.some((n) => n < 1) || new Set(counts).size < counts.length)
    throw new ShardwrightError(
      'E_USAGE',
      `${flag} '${text}' is not a list of different numbers of 1 or more`,
      {
        hint: `write for example ${flag} 64,128,256.`,
      },
    );
  return counts;
}

/** Reads whole numbers in a range. */
export function countFrom(
  least: number,
  most = Infinity,
  hint?: string,
): (text: string, flag: string) => number {
  return (text, flag) => {
    const value = parseCount(text, flag, hint);
    if (value >= least && value <= most) return value;
    const range = most === Infinity ? `${least} or more` : `from ${least} to ${most}`;
    throw new ShardwrightError(
      'E_USAGE',
      `${flag} ${text} is not ${range}`,
      hint === undefined ? {} : { hint },
    );
  };
}

/** Reads one of a fixed list of words. */
export function oneOf<const T extends string>(words: readonly T[], hint?: string): Read<T> {
  const read = (text: string, flag: string): T => parseChoice(text, flag, words, hint);
  return Object.assign(read, { words });
}

/** Reads `NAME=VALUE`, the form as the flag's help states it. */
export function pairOf(form: string): (text: string, flag: string) => readonly [string, string] {
  return (text, flag) => {
    const equals = text.indexOf('=');
    if (equals <= 0 || equals === text.length - 1)
      throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not ${form}`, {
        hint: `write ${flag} ${form}, a name of the model on its left.`,
      });
    return [text.slice(0, equals), text.slice(equals + 1)];
  };
}

/** `tokens=0`: a dim of an input. */
export function parseInputDim(text: string, flag: string): readonly [string, number] {
  const [, name, dim] = /^(.+)=(-?\d+)$/.exec(text) ?? [];
  if (name === undefined)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not NAME=D`, {
      hint: `write for example ${flag} tokens=0.`,
    });
  return [name, Number(dim)];
}

/** `2/4`: the second of four pieces, counted from 0. */
export function parseSlice(
  text: string,
  flag: string,
): { readonly index: number; readonly count: number } {
  const match = /^(\d+)\/(\d+)$/.exec(text.trim());
  const [index, count] = match === null ? [0, 0] : [Number(match[1]), Number(match[2])];
  if (index < 1 || index > count)
    throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not i/n`, {
      hint: `write ${flag} 1/4, 2/4, 3/4, 4/4.`,
    });
  return { index: index - 1, count };
}

/** `15T`, `300B`, `2e9`: a number of tokens. */
export function parseTokens(text: string, flag: string): number {
  const match = /^(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMBT]?)$/.exec(text.trim());
  const value =
    match === null
      ? NaN
      : Number(match[1]) * { '': 1, K: 1e3, M: 1e6, B: 1e9, T: 1e12 }[match[2] as 'K'];
  if (value >= 1 && value <= 1e18) return value;
  throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not a number of tokens`, {
    hint: 'write for example 15T or 300B.',
  });
}

/** `2.5USD`, `$2.5`: a price with its currency; without one, `2.5`, in dollars. */
export function parsePriceFlag(text: string, flag: string): Price {
  return amountOf(text, flag, 'the price of one device for one hour', '2.5USD');
}

/** `2M USD`, `$2M`, `50000`: a sum of money. */
export function parseSum(text: string, flag: string): Price {
  return amountOf(text, flag, 'a sum of money', '50kUSD');
}

function amountOf(text: string, flag: string, wanted: string, example: string): Price {
  const price = parsePrice(/^\s*[\d.]+\s*$/.test(text) ? `${text.trim()}USD` : text);
  if (price !== undefined) return price;
  throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not an amount with its currency`, {
    hint: `wanted ${wanted} and the three letters of the currency: ${flag} ${example}.`,
  });
}

/** One of a fixed list of words. @throws E_USAGE with all of them, and the nearest */
function parseChoice<T extends string>(
  text: string,
  flag: string,
  words: readonly T[],
  hint?: string,
): T {
  const found = words.find((w) => w === text);
  if (found !== undefined) return found;
  const near = didYouMean(text, words);
  throw new ShardwrightError('E_USAGE', `${flag} '${text}' is not one of ${words.join(', ')}`, {
    ...(near.length > 0
      ? { hint: `did you mean ${near.map((word) => `'${word}'`).join(' or ')}?` }
      : hint === undefined
        ? {}
        : { hint }),
  });
}

/**
 * `4,8`, `(4, 8)` or `[4, 8]`: sizes of at least 0, outermost dim first. `()` and the empty text
 * are a scalar.
 */
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
    if (!/^\s*\d+\s*$/.test(part) || !Number.isSafeInteger(size))
      throw wrong(`size ${dim} is '${part.trim()}'`);
    return size;
  });
}

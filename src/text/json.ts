/**
 * Reads JSON that a stranger may have written: `JSON.parse` itself reads any depth, but nearly
 * everything behind it, `JSON.stringify` included, recurses.
 */
import { type ErrorDetails, messageOf, ShardwrightError } from '../errors.ts';
import { MAX_DEPTH, placeAt } from './place.ts';

/** @throws E_SYNTAX for text that is not JSON, E_LIMIT for one that nests deeper than 256 levels */
export function parseJson(text: string, place: Pick<ErrorDetails, 'file' | 'hint'> = {}): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ShardwrightError('E_SYNTAX', `not JSON: ${messageOf(error)}`, place);
  }
  const deep = tooDeepAt(text);
  if (deep === undefined) return value;
  throw new ShardwrightError('E_LIMIT', `more than ${MAX_DEPTH} levels inside each other`, {
    ...place,
    ...placeAt(text, deep, place.file),
  });
}

/** The first bracket beyond the limit, of text that is JSON. */
function tooDeepAt(text: string): number | undefined {
  let depth = 0;
  for (const { 0: token, index } of text.matchAll(/"(?:[^"\\]|\\.)*"|[[{\]}]/g)) {
    if (token === '[' || token === '{') depth++;
    else if (token === ']' || token === '}') depth--;
    if (depth > MAX_DEPTH) return index;
  }
  return undefined;
}

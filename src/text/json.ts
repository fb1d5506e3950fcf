/**
 * Reads JSON that a stranger may have written: `JSON.parse` itself reads any depth, but nearly
 * everything behind it, `JSON.stringify` included, recurses.
 */
import { type ErrorDetails, messageOf, ShardwrightError } from '../errors.ts';
import { jsonFault } from './json-fault.ts';
import { MAX_DEPTH, placeAt } from './place.ts';

/** The name of a text that is not JSON, and the code of the error. */
interface Words {
  /** `the cluster file`; absent: the error says just `not JSON`. */
  readonly what?: string;
  /** Default `E_SYNTAX`. */
  readonly code?: string;
}

/** @throws E_SYNTAX for text that is not JSON, E_LIMIT for one that nests deeper than 256 levels */
export function parseJson(
  text: string,
  place: Pick<ErrorDetails, 'file' | 'hint'> = {},
  words: Words = {},
): unknown {
  const value = parseAnyDepth(text, place, words);
  const deep = tooDeepAt(text);
  if (deep === undefined) return value;
  throw new ShardwrightError('E_LIMIT', `more than ${MAX_DEPTH} levels inside each other`, {
    ...place,
    ...placeAt(text, deep, place.file),
  });
}

/**
 * The same for readers that take nothing deep from it: a large text is read once.
 *
 * @throws E_SYNTAX (or `code`), with line and column, for text that is not JSON
 */
export function parseAnyDepth(
  text: string,
  place: Pick<ErrorDetails, 'file' | 'hint'> = {},
  { what, code = 'E_SYNTAX' }: Words = {},
): unknown {
  const json = text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text;
  try {
    return JSON.parse(json);
  } catch (error) {
    const fault = jsonFault(json);
    const why = fault === undefined ? messageOf(error) : fault.why;
    const subject = what === undefined ? 'not JSON' : `${what} is not JSON`;
    throw new ShardwrightError(code, `${subject}: ${why}`, {
      hint: JSON_HINT,
      ...place,
      ...(fault === undefined ? {} : placeAt(json, fault.at, place.file)),
    });
  }
}

const JSON_HINT =
  'names and texts stand in double quotes, and no comma stands behind the last item.';
const BYTE_ORDER_MARK = '\ufeff';

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

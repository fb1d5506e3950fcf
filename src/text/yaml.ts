/**
 * Reads YAML from strangers: within limits on characters and on depth, each key once, and errors
 * with their place. The parser of `yaml` recurses into every level, and compares each key of a
 * mapping with all the others, so depth is counted on its tokens and keys are held in a set.
 */

import { isNode, isScalar, Lexer, parseDocument, Parser, visit } from 'yaml';

import { messageOf, ShardwrightError } from '../errors.ts';
import { MAX_DEPTH, placeAt } from './place.ts';

/** Characters of a YAML file that is read. */
const MAX_CHARACTERS = 2 ** 18;

/** Aliases of a file that are resolved: the parser looks through the whole file for each. */
const MOST_ALIASES = 1000;

/**
 * The value of a YAML text.
 *
 * @param file its name in errors
 * @param hint of errors: what the file should hold
 * @param maxAliasCount most values that one anchor may stand for, with those inside of its aliases
 * @throws E_INPUT with the place, for a text over a limit, one that is not YAML, a key given twice,
 *   and a value that contains itself
 */
export function readYaml(text: string, file: string, hint: string, maxAliasCount = 0): unknown {
  const fail = (message: string, at?: number): never => {
    const place = at === undefined ? { file } : placeAt(text, at, file);
    throw new ShardwrightError('E_INPUT', message, { ...place, hint });
  };
  if (text.length > MAX_CHARACTERS)
    fail(`the file has ${text.length} characters; at most ${MAX_CHARACTERS} are read`);
  const deep = tooDeepAt(text);
  if (deep !== undefined) fail(`not YAML: more than ${MAX_DEPTH} levels inside each other`, deep);
  const document = parseDocument(text, {
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
  });
  for (const { message, pos } of document.errors) fail(`not YAML: ${message}`, pos[0]);
  let aliases = 0;
  visit(document, {
    Alias(_, { source, range }, path) {
      const at = range?.[0];
      if (path.some((node) => isNode(node) && node.anchor === source))
        fail(`'*${source}' is inside of what it names`, at);
      if (++aliases > MOST_ALIASES) fail(`more than ${MOST_ALIASES} aliases`, at);
    },
    Map(_, { items }) {
      const keys = new Set<unknown>();
      for (const { key } of items) {
        const value = isScalar(key) ? key.value : key;
        if (keys.has(value))
          fail(`the key '${String(value)}' is given twice`, isScalar(key) ? key.range?.[0] : 0);
        keys.add(value);
      }
    },
  });
  try {
    return document.toJS({ maxAliasCount });
  } catch (error) {
    return fail(`not YAML: ${messageOf(error)}`);
  }
}

/** Where the text goes deeper than readers may. The parser of tokens has a stack, no recursion. */
function tooDeepAt(text: string): number | undefined {
  const parser = new Parser();
  for (const lexeme of new Lexer().lex(text)) {
    // Its tokens are made as they are asked for.
    Array.from(parser.next(lexeme));
    if (parser.stack.length > MAX_DEPTH) return parser.offset;
  }
  return undefined;
}

/**
 * The regular expressions of `[[ TEXT =~ EXPRESSION ]]`, as far as POSIX and JavaScript agree on
 * them. Source: the Bash manual, 3.2.5.2, and POSIX.1-2017, 9.4.
 */

/** A character or a set that both read alike, an anchor, a group, or a number of times. */
const SIGN =
  /\\[.[\](){}|*+?^$\\/-]|\[\^?[^\][\\]+\]|\[\^?(?:[^\][\\]*\[:(?:digit|alpha|alnum|upper|lower|space):\])+[^\][\\]*\]|\{\d+(?:,\d*)?\}|[*+?](?![*+?{])|[.^$()|]|[^\\[\]{}()*+?^$|.]/y;

const CLASSES: Readonly<Record<string, string>> = {
  digit: '0-9',
  alpha: 'A-Za-z',
  alnum: '0-9A-Za-z',
  upper: 'A-Z',
  lower: 'a-z',
  space: ' \\t\\n\\v\\f\\r',
};

/** A text whose signs stand for themselves, in a regular expression. */
export function quotedExpression(text: string): string {
  return text.replace(/[.[\](){}|*+?^$\\/]/g, '\\$&');
}

/**
 * Tells whether a text has a part that matches, and what the groups have. Undefined where the two
 * languages may differ; no groups where only which part matches may.
 */
export function matchesExpression(
  text: string,
  expression: string,
): { readonly matches: boolean; readonly groups: readonly string[] | undefined } | undefined {
  let source = '';
  for (SIGN.lastIndex = 0; SIGN.lastIndex < expression.length;) {
    const sign = SIGN.exec(expression)?.[0];
    if (sign === undefined) return undefined;
    source += sign.replace(/\[:(\w+):\]/g, (_, name: string) => CLASSES[name]);
  }
  // Letters beyond ASCII, and backtracking without an end.
  if (/[^\0-\x7f]/.test(text + expression) || text.length > MOST_TEXT) return undefined;
  if (/[*+}?][^()]*\)[*+{]/.test(source)) return undefined;
  let found: RegExpExecArray | null;
  try {
    found = new RegExp(source, 's').exec(text);
  } catch {
    return undefined;
  }
  if (found === null) return { matches: false, groups: [] };
  // POSIX takes the longest match, JavaScript the first branch and repetition that leads to one.
  const isClear = !/(^|[^\\])(\||\)[*+?{])/.test(source);
  return { matches: true, groups: isClear ? [...found].map(String) : undefined };
}

const MOST_TEXT = 4096;

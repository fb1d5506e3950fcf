/**
 * Writes out the braces of a word, `{a,b}` and `{1..4}`, which a shell does before anything else.
 * Source: the Bash manual, 3.5.1.
 */

import type { BraceExpansionPart, WordPart } from 'unbash';

/** Words that one word becomes, and members of one sequence, at most. */
const MOST_WORDS = 10_000;

/** A character of the script, or a part that braces do not look into. */
type Sign = string | WordPart;

/**
 * The words that the parts of a word become; undefined where the words are too many, or those of a
 * sequence that is not read.
 */
export function bracedWords(
  parts: readonly WordPart[],
): readonly (readonly WordPart[])[] | undefined {
  const signs = parts.flatMap((part) =>
    part.type === 'BraceExpansion' ? ['{', ...signsIn(part), '}'] : [part],
  );
  const { pos, end } = parts[0];
  const words = written(signs);
  return words?.map((word) => partsOf(word, { pos, end }));
}

/** The signs between the braces. */
function signsIn({ parts, text, pos, end }: BraceExpansionPart): readonly Sign[] {
  if (parts === undefined) return charactersOf(text.slice(1, -1), { pos, end });
  return parts.flatMap((part): readonly Sign[] => {
    if (part.type === 'Literal') return charactersOf(part.text, part);
    return part.type === 'BraceExpansion' ? ['{', ...signsIn(part), '}'] : [part];
  });
}

interface Place {
  readonly pos: number;
  readonly end: number;
}

/** Characters, of which one behind a backslash is no sign; a line end there is none at all. */
function charactersOf(text: string, { pos, end }: Place): readonly Sign[] {
  const signs = text.replaceAll('\\\n', '').match(/\\[\s\S]|[\s\S]/g) ?? [];
  return signs.map((sign) =>
    sign.length > 1 ? { type: 'Literal', pos, end, value: sign[1], text: sign } : sign,
  );
}

function partsOf(word: readonly Sign[], { pos, end }: Place): readonly WordPart[] {
  const parts: WordPart[] = [];
  let text = '';
  const close = (): void => {
    if (text !== '') parts.push({ type: 'Literal', pos, end, value: text, text });
    text = '';
  };
  // `{$X,a}1` is `$X1` and `a1`: what follows a variable may belong to its name.
  const split = word.flatMap((sign, i) =>
    i > 0 && typeof sign !== 'string' && sign.type === 'Literal'
      ? charactersOf(sign.text, sign)
      : [sign],
  );
  for (const sign of split) {
    const last = parts.at(-1);
    if (typeof sign === 'string' && text === '' && last !== undefined && goesOn(last, sign))
      parts[parts.length - 1] = { ...last, text: last.text + sign };
    else if (typeof sign === 'string') text += sign;
    else {
      close();
      parts.push(sign);
    }
  }
  close();
  return parts;
}

/** Tells whether a character behind a variable belongs to its name. */
function goesOn(part: WordPart, sign: string): boolean {
  return part.type === 'SimpleExpansion' && /^\$[A-Za-z_]/.test(part.text) && /\w/.test(sign);
}

/** The words of a word with braces, from the left. */
function written(signs: readonly Sign[]): readonly (readonly Sign[])[] | undefined {
  for (let open = signs.indexOf('{'); open >= 0; open = signs.indexOf('{', open + 1)) {
    const close = closeOf(signs, open);
    if (close === undefined) continue;
    const members = membersOf(signs.slice(open + 1, close));
    if (members === 'plain') continue;
    const tails = written(signs.slice(close + 1));
    if (members === undefined || tails === undefined) return undefined;
    if (members.length * tails.length > MOST_WORDS) return undefined;
    const head = signs.slice(0, open);
    return members.flatMap((member) => tails.map((tail) => [...head, ...member, ...tail]));
  }
  return [signs];
}

function closeOf(signs: readonly Sign[], open: number): number | undefined {
  let depth = 0;
  for (let i = open; i < signs.length; i++) {
    if (signs[i] === '{') depth++;
    if (signs[i] === '}' && --depth === 0) return i;
  }
  return undefined;
}

/** The members between two braces; `plain` where the braces are characters like any. */
function membersOf(signs: readonly Sign[]): readonly (readonly Sign[])[] | 'plain' | undefined {
  const members: Sign[][] = [[]];
  let depth = 0;
  for (const sign of signs) {
    if (sign === '{') depth++;
    if (sign === '}') depth--;
    if (sign === ',' && depth === 0) members.push([]);
    else members[members.length - 1].push(sign);
  }
  if (members.length > 1) {
    const each = members.map((member) => written(member));
    return each.includes(undefined) ? undefined : each.flatMap((words) => words ?? []);
  }
  if (!signs.every((sign) => typeof sign === 'string')) return 'plain';
  return sequenceOf(signs.join(''));
}

function sequenceOf(text: string): readonly (readonly Sign[])[] | 'plain' | undefined {
  const [, first, last, by] =
    /^(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?$/.exec(text) ?? [];
  if (first === undefined) return 'plain';
  const isNumber = /\d/.test(first);
  if (isNumber !== /\d/.test(last)) return 'plain';
  const [from, to] = [first, last].map((end) => (isNumber ? Number(end) : end.charCodeAt(0)));
  const step = Math.abs(Number(by ?? 1)) || 1;
  const count = Math.floor(Math.abs(to - from) / step) + 1;
  // Between letters of both cases lie signs that a shell reads again.
  const isMixed = !isNumber && /[a-z]/.test(first) !== /[a-z]/.test(last);
  if (isMixed || count > MOST_WORDS || !Number.isSafeInteger(from + to + step)) return undefined;
  const isPadded = isNumber && [first, last].some((end) => /^-?0\d/.test(end));
  const width = isPadded ? Math.max(first.length, last.length) : 0;
  return Array.from({ length: count }, (_, i) => {
    const value = from < to ? from + i * step : from - i * step;
    if (!isNumber) return [String.fromCharCode(value)];
    const sign = value < 0 ? '-' : '';
    return [sign + String(Math.abs(value)).padStart(width - sign.length, '0')];
  });
}

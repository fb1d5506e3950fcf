/** Codes of the characters that readers compare, and the classes that they ask for. */

export const CHAR = {
  TAB: 9,
  NEWLINE: 10,
  FORM_FEED: 12,
  RETURN: 13,
  SPACE: 32,
  QUOTE: 34,
  HASH: 35,
  DOLLAR: 36,
  APOSTROPHE: 39,
  OPEN_PAREN: 40,
  CLOSE_PAREN: 41,
  STAR: 42,
  PLUS: 43,
  COMMA: 44,
  MINUS: 45,
  DOT: 46,
  SLASH: 47,
  ZERO: 48,
  COLON: 58,
  SEMICOLON: 59,
  LESS: 60,
  EQUALS: 61,
  GREATER: 62,
  QUESTION: 63,
  OPEN_BRACKET: 91,
  BACKSLASH: 92,
  CLOSE_BRACKET: 93,
  UNDERSCORE: 95,
  OPEN_BRACE: 123,
  CLOSE_BRACE: 125,
} as const;

export function isDigit(c: number): boolean {
  return c >= 48 && c <= 57;
}

export function isLowerLetter(c: number): boolean {
  return c >= 97 && c <= 122;
}

export function isLetter(c: number): boolean {
  return isLowerLetter(c) || (c >= 65 && c <= 90);
}

export function isLetterOrDigit(c: number): boolean {
  return isLetter(c) || isDigit(c);
}

/** A blank, a tab, or the end of a line. */
export function isSpace(c: number): boolean {
  return c === CHAR.SPACE || c === CHAR.NEWLINE || c === CHAR.RETURN || c === CHAR.TAB;
}

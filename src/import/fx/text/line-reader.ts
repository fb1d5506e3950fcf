/** Reads a text line by line, with positions for errors. */

import { CHAR, isLetterOrDigit } from '../../../text/char.ts';
import { MAX_NAME } from '../../../text/place.ts';
import type { Scanner } from '../../file/scan.ts';

/** A text that is read line by line, without tokens: only the end of a line ends its contents. */
export class LineReader {
  protected pos = 0;
  /** 1-based; 0 before the first line. */
  protected line = 0;
  /** The end of the line. */
  protected end = 0;

  constructor(protected readonly scanner: Scanner) {}

  /** Moves to the next line; false at the end. */
  protected nextLine(): boolean {
    const { text } = this.scanner;
    if (this.line > 0) {
      if (this.end >= text.length) return false;
      this.pos = this.end + 1;
    } else if (text === '') return false;
    const stop = text.indexOf('\n', this.pos);
    this.end = stop < 0 ? text.length : stop;
    this.line++;
    return true;
  }

  /** The rest of the line, without blanks around it. */
  protected rest(): string {
    return this.scanner.text.slice(this.pos, this.end).trim();
  }

  /** Reads the name at the position. @throws E_SYNTAX where there is none, E_LIMIT */
  protected name(): string {
    const { text } = this.scanner;
    const start = this.pos;
    let pos = start;
    while (pos < this.end && isName(text.charCodeAt(pos))) pos++;
    if (pos === start) this.expected('a name');
    if (pos - start > MAX_NAME)
      this.fail(
        'E_LIMIT',
        `a name of ${pos - start} characters; at most ${MAX_NAME} are allowed`,
        start,
      );
    this.pos = pos;
    return text.slice(start, pos);
  }

  /** Skips blanks of the line. */
  protected blanks(): void {
    while (this.pos < this.end && isBlank(this.scanner.text.charCodeAt(this.pos))) this.pos++;
  }

  /** Skips a word. @throws E_SYNTAX where another text is found */
  protected expect(word: string): void {
    if (!this.scanner.text.startsWith(word, this.pos) || this.pos + word.length > this.end)
      this.expected(`'${word}'`);
    this.pos += word.length;
  }

  protected expected(what: string): never {
    const found = this.scanner.text.slice(this.pos, Math.min(this.end, this.pos + 40));
    return this.fail(
      'E_SYNTAX',
      `expected ${what}, found ${found === '' ? 'the end of the line' : `'${found}'`}`,
    );
  }

  /** @throws the code with line and column, of the position by default */
  protected fail(code: string, message: string, at = this.pos, hint?: string): never {
    throw this.scanner.error(
      code,
      message,
      at,
      hint ?? 'check the text against the output of print(graph); it may be cut or edited',
    );
  }
}

/** Tells whether a character code is a blank, a tab or a carriage return. */
export function isBlank(c: number): boolean {
  return c === CHAR.SPACE || c === CHAR.TAB || c === CHAR.RETURN;
}

/** Tells whether a character code may be part of a name. */
export function isName(c: number): boolean {
  return isLetterOrDigit(c) || c === CHAR.UNDERSCORE || c > 127;
}

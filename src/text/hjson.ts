/**
 * Reads Hjson from strangers: JSON with comments (`#`, `//`, `/* *\/`), commas that may be left out
 * at the end of a line or stand behind the last value, names and texts without quotes. JSON is
 * Hjson. Source: the syntax of hjson.github.io, as its Python package 3.1 reads it.
 */

import { ShardwrightError } from '../errors.ts';
import { MAX_DEPTH } from './place.ts';
import { NotationScanner } from './scanner.ts';

export type Hjson = null | boolean | number | string | readonly Hjson[] | HjsonObject;
interface HjsonObject {
  readonly [key: string]: Hjson;
}

const MOST_CHARACTERS = 2 ** 20;
const ESCAPES: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

/**
 * The object of a text.
 *
 * @throws E_SYNTAX with line and column, E_DUP for a key that is given twice, E_LIMIT
 */
export function readHjson(text: string): HjsonObject {
  return new HjsonReader(text, MOST_CHARACTERS, 'the file').document();
}

class HjsonReader extends NotationScanner {
  document(): HjsonObject {
    this.blanks();
    this.expect('{');
    const value = this.object(1);
    this.end();
    return value;
  }

  override fail(expected: string, hint = 'correct the text; it may have comments.'): never {
    const found = this.done ? 'the end of the text' : `'${this.peek()}'`;
    throw new ShardwrightError('E_SYNTAX', `found ${found}, wanted ${expected}`, {
      ...this.place(this.position),
      hint,
    });
  }

  /** Skips blanks and comments. */
  override blanks(): boolean {
    const from = this.at;
    for (;;) {
      super.blanks();
      const end = this.text.startsWith('/*', this.at)
        ? this.text.indexOf('*/', this.at + 2) + 2
        : this.peek() === '#' || this.text.startsWith('//', this.at)
          ? this.text.indexOf('\n', this.at) + 1
          : this.at;
      if (end === this.at) return this.at > from;
      // A comment that is not closed goes to the end of the text.
      this.at = end < this.at ? this.text.length : end;
    }
  }

  private object(depth: number): HjsonObject {
    const entries = new Map<string, Hjson>();
    while (!this.take('}')) {
      const from = this.position;
      const key = this.key();
      if (entries.has(key))
        throw new ShardwrightError('E_DUP', `the key '${key}' is given twice`, {
          ...this.place(from),
          hint: 'keep one of them.',
        });
      this.expect(':');
      entries.set(key, this.value(depth));
      this.take(',');
    }
    return Object.fromEntries(entries);
  }

  private key(): string {
    this.blanks();
    if (this.peek() === '"' || this.peek() === "'") return this.quoted();
    return this.match(/[^\s{}[\],:"'#/]+/y) ?? this.fail("a name or '}'");
  }

  private value(depth: number): Hjson {
    if (depth > MAX_DEPTH)
      throw new ShardwrightError('E_LIMIT', `more than ${MAX_DEPTH} levels inside each other`, {
        ...this.place(this.position),
      });
    if (this.take('{')) return this.object(depth + 1);
    if (this.take('[')) {
      const items: Hjson[] = [];
      while (!this.take(']')) {
        items.push(this.value(depth + 1));
        this.take(',');
      }
      return items;
    }
    if (this.take("'''")) {
      const end = this.text.indexOf("'''", this.at);
      if (end < 0) this.fail("'''", 'close the text.');
      const inner = this.text.slice(this.at, end);
      this.at = end + 3;
      return inner.trim();
    }
    if (this.peek() === '"' || this.peek() === "'") return this.quoted();
    return this.bare();
  }

  private quoted(): string {
    const quote = this.peek();
    const from = this.at++;
    let value = '';
    while (this.peek() !== quote) {
      const char = this.peek();
      if (char === '' || char === '\n') {
        this.back(from);
        this.fail('a text with its closing quote', `write ${quote} at its end.`);
      }
      this.at++;
      if (char !== '\\') {
        value += char;
        continue;
      }
      const escape = this.peek();
      const unicode = /u([\da-fA-F]{4})/y;
      unicode.lastIndex = this.at;
      const code = unicode.exec(this.text)?.[1];
      this.at += code === undefined ? 1 : 5;
      value +=
        code === undefined ? (ESCAPES[escape] ?? escape) : String.fromCharCode(parseInt(code, 16));
    }
    this.at++;
    return value;
  }

  /** A number or a word of JSON up to the end of a value; other texts up to that of the line. */
  private bare(): Hjson {
    const from = this.at;
    const word = this.match(/[^\n,}\]#/]+/y)?.trim() ?? '';
    if (word === 'true' || word === 'false') return word === 'true';
    if (word === 'null') return null;
    if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(word)) return Number(word);
    this.back(from);
    if (/^[{}[\],:]?$/.test(this.peek())) this.fail('a value');
    return (this.match(/[^\n]+/y) ?? '').trim();
  }
}

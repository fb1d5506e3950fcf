/**
 * Reads JSON files of unknown origin: integers stay exact beyond 2^53 (as bigint), objects have no
 * prototype, keys are unique, nesting is limited, and every refusal has its line and column.
 * `JSON.parse` promises none of these.
 */

import { ShardwrightError } from '../../errors.ts';
import { exactInteger } from '../../graph/text/token.ts';
import { CHAR, isDigit, isSpace } from '../../text/char.ts';
import { placeAt } from '../../text/place.ts';

export type JsonValue =
  null | boolean | number | bigint | string | readonly JsonValue[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

interface JsonLimits {
  /** Deepest nesting of arrays and objects. Default 256. */
  readonly maxDepth?: number;
}

const DEFAULT_MAX_DEPTH = 256;

/**
 * The value that a JSON text means.
 *
 * @throws E_SYNTAX with line and column, E_DUP for a repeated key, E_LIMIT for deeper nesting
 */
export function readJson(text: string, limits: JsonLimits = {}): JsonValue {
  return new JsonReader(text, limits.maxDepth ?? DEFAULT_MAX_DEPTH).document();
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

class JsonReader {
  private pos = 0;
  /** Keys and short strings recur in thousands of nodes; one string object serves all. */
  private readonly known = new Map<string, string>();

  constructor(
    private readonly text: string,
    private readonly maxDepth: number,
  ) {}

  document(): JsonValue {
    const value = this.value(0);
    this.blanks();
    if (this.pos < this.text.length) this.expected('the end of the text');
    return value;
  }

  private value(depth: number): JsonValue {
    this.blanks();
    const { text } = this;
    const c = text.charCodeAt(this.pos);
    switch (c) {
      case CHAR.OPEN_BRACE:
        return this.object(depth + 1);
      case CHAR.OPEN_BRACKET:
        return this.array(depth + 1);
      case CHAR.QUOTE:
        return this.string();
      case 116: // t
        return this.word('true', true);
      case 102: // f
        return this.word('false', false);
      case 110: // n
        return this.word('null', null);
      default:
        if (c === CHAR.MINUS || isDigit(c)) return this.number();
        return this.expected('a value');
    }
  }

  private object(depth: number): JsonObject {
    this.deeper(depth);
    const record = Object.create(null) as Record<string, JsonValue>;
    this.pos++;
    this.blanks();
    if (this.text.charCodeAt(this.pos) === CHAR.CLOSE_BRACE) {
      this.pos++;
      return record;
    }
    for (;;) {
      this.blanks();
      const at = this.pos;
      if (this.text.charCodeAt(at) !== CHAR.QUOTE) this.expected('a key in quotes');
      const key = this.string();
      if (key in record)
        this.fail(
          'E_DUP',
          `the key ${JSON.stringify(key.slice(0, 60))} occurs twice in one object`,
          at,
        );
      this.blanks();
      if (this.text.charCodeAt(this.pos) !== CHAR.COLON) this.expected(`':'`);
      this.pos++;
      record[key] = this.value(depth);
      this.blanks();
      const c = this.text.charCodeAt(this.pos);
      if (c !== CHAR.COMMA && c !== CHAR.CLOSE_BRACE) this.expected(`',' or '}'`);
      this.pos++;
      if (c === CHAR.CLOSE_BRACE) return record;
    }
  }

  private array(depth: number): JsonValue[] {
    this.deeper(depth);
    const items: JsonValue[] = [];
    this.pos++;
    this.blanks();
    if (this.text.charCodeAt(this.pos) === CHAR.CLOSE_BRACKET) {
      this.pos++;
      return items;
    }
    for (;;) {
      items.push(this.value(depth));
      this.blanks();
      const c = this.text.charCodeAt(this.pos);
      if (c !== CHAR.COMMA && c !== CHAR.CLOSE_BRACKET) this.expected(`',' or ']'`);
      this.pos++;
      if (c === CHAR.CLOSE_BRACKET) return items;
    }
  }

  private deeper(depth: number): void {
    if (depth > this.maxDepth)
      this.fail('E_LIMIT', `lists and objects nest deeper than ${this.maxDepth}`, this.pos);
  }

  private string(): string {
    const { text } = this;
    const start = this.pos;
    let end = start + 1;
    let plain = true;
    for (;;) {
      const c = text.charCodeAt(end);
      if (c === CHAR.QUOTE) break;
      if (Number.isNaN(c)) this.fail('E_SYNTAX', 'the string has no closing quote', start);
      if (c < 32)
        this.fail('E_SYNTAX', 'a control character in a string must be written as \\u00XX', end);
      if (c === CHAR.BACKSLASH) {
        plain = false;
        end++;
      }
      end++;
    }
    this.pos = end + 1;
    if (!plain) return this.escaped(start, end + 1);
    const found = text.slice(start + 1, end);
    if (found.length > 64) return found;
    const known = this.known.get(found);
    if (known !== undefined) return known;
    this.known.set(found, found);
    return found;
  }

  private escaped(start: number, end: number): string {
    try {
      return JSON.parse(this.text.slice(start, end)) as string;
    } catch {
      return this.fail('E_SYNTAX', 'an escape in the string is none of JSON', start);
    }
  }

  private number(): number | bigint {
    const { text } = this;
    const start = this.pos;
    let end = text.charCodeAt(start) === CHAR.MINUS ? start + 1 : start;
    const first = end;
    end = digits(text, end);
    if (end === first || (text.charCodeAt(first) === CHAR.ZERO && end > first + 1))
      this.expected('a number');
    let whole = true;
    if (text.charCodeAt(end) === CHAR.DOT) {
      const from = end + 1;
      end = digits(text, from);
      if (end === from) this.fail('E_SYNTAX', 'digits must follow the decimal point', from);
      whole = false;
    }
    const e = text.charCodeAt(end);
    if (e === 101 || e === 69) {
      const sign = text.charCodeAt(end + 1);
      const from = sign === CHAR.PLUS || sign === CHAR.MINUS ? end + 2 : end + 1;
      end = digits(text, from);
      if (end === from) this.fail('E_SYNTAX', 'digits must follow the exponent', from);
      whole = false;
    }
    if (end - start > 400) this.fail('E_LIMIT', `a number of ${end - start} characters`, start);
    this.pos = end;
    const word = text.slice(start, end);
    return whole ? exactInteger(word) : Number(word);
  }

  private word<T>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.pos)) this.expected('a value');
    this.pos += word.length;
    return value;
  }

  private blanks(): void {
    const { text } = this;
    for (;;) {
      const c = text.charCodeAt(this.pos);
      if (!isSpace(c)) return;
      this.pos++;
    }
  }

  private expected(what: string): never {
    const { text, pos } = this;
    const found =
      pos >= text.length ? 'the end of the text' : `'${text.slice(pos, pos + 24).split('\n')[0]}'`;
    return this.fail('E_SYNTAX', `expected ${what}, found ${found}`, pos);
  }

  private fail(code: string, message: string, at: number): never {
    const hint =
      code === 'E_LIMIT'
        ? 'no model file needs this; check where it comes from'
        : 'the file may be cut or edited';
    throw new ShardwrightError(code, message, { ...placeAt(this.text, at), hint });
  }
}

function digits(text: string, from: number): number {
  let end = from;
  for (let c = text.charCodeAt(end); isDigit(c); c = text.charCodeAt(++end));
  return end;
}

/**
 * Finds the place where a text stops being JSON (RFC 8259): what engines say of it differs between
 * their versions, and often leaves the place out.
 */

/** A place where a text stops being JSON. */
interface JsonFault {
  readonly at: number;
  /** `expected a value, found '}'`. */
  readonly why: string;
}

/** The first fault of a text; undefined for JSON. */
export function jsonFault(text: string): JsonFault | undefined {
  return new FaultFinder(text).first();
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const LITERAL = /(?:true|false|null)(?![\p{L}\p{N}_$])/uy;
const ESCAPE = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y;
/** Text of an error: a whole word rather than its first letter. */
const WORD = /[\p{L}\p{N}_$]{1,20}|\/[/*]|[^]/uy;

/** The token that may come next: a value, a name of an object, or one that follows either. */
type Expected = 'value' | 'value or ]' | 'name' | 'name or }' | 'colon' | 'more';

class FaultFinder {
  private at = 0;
  /** Closing brackets that are owed, the innermost last. */
  private readonly owed: ('}' | ']')[] = [];

  constructor(private readonly text: string) {}

  first(): JsonFault | undefined {
    let expected: Expected | JsonFault | undefined = 'value';
    while (typeof expected === 'string') {
      while (/[ \t\n\r]/.test(this.text[this.at] ?? '')) this.at++;
      expected = this.step(expected, this.text[this.at]);
    }
    return expected;
  }

  /** Takes one token; gives what may come behind it, undefined at the end of the text. */
  private step(expected: Expected, char: string | undefined): Expected | JsonFault | undefined {
    switch (expected) {
      case 'more':
        return this.more(char);
      case 'colon':
        return char === ':' ? this.skip(1, 'value') : this.expected("':'");
      case 'name':
      case 'name or }':
        if (char === '}' && expected === 'name or }') return this.close();
        return char === '"' ? this.string('colon') : this.expected('a name in double quotes');
      case 'value':
      case 'value or ]':
        if (char === ']' && expected === 'value or ]') return this.close();
        return this.value(char);
    }
  }

  private more(char: string | undefined): Expected | JsonFault | undefined {
    const closing = this.owed.at(-1);
    if (closing === undefined)
      return char === undefined ? undefined : this.expected('the end of the text');
    if (char === closing) return this.close();
    if (char === ',') return this.skip(1, closing === '}' ? 'name' : 'value');
    return this.expected(`',' or '${closing}'`);
  }

  private value(char: string | undefined): Expected | JsonFault {
    if (char === '"') return this.string('more');
    if (char === '{' || char === '[') {
      this.owed.push(char === '{' ? '}' : ']');
      return this.skip(1, char === '{' ? 'name or }' : 'value or ]');
    }
    const length = this.match(NUMBER) ?? this.match(LITERAL);
    return length === undefined ? this.expected('a value') : this.skip(length, 'more');
  }

  /** Goes through a text in quotes, whose length has no limit. */
  private string(next: Expected): Expected | JsonFault {
    for (this.at++; this.text[this.at] !== '"';) {
      const char = this.text[this.at];
      if (char === undefined) return this.expected(`'"' at the end of a string`);
      const length = char === '\\' ? this.match(ESCAPE) : char < ' ' ? undefined : 1;
      if (length === undefined)
        return this.fault(
          char === '\\'
            ? 'a string holds an unknown escape'
            : 'a string holds a line break or another control character',
        );
      this.at += length;
    }
    return this.skip(1, next);
  }

  private close(): Expected {
    this.owed.pop();
    return this.skip(1, 'more');
  }

  private skip(length: number, next: Expected): Expected {
    this.at += length;
    return next;
  }

  private match(pattern: RegExp): number | undefined {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text)?.[0].length;
  }

  private expected(what: string): JsonFault {
    const length = this.match(WORD);
    const found =
      length === undefined
        ? 'the end of the text'
        : JSON.stringify(this.text.slice(this.at, this.at + length)).replace(/^"(.*)"$/, "'$1'");
    const comment = /^'(?:\/[/*]|#)/.test(found) ? ' (JSON has no comments)' : '';
    return this.fault(`expected ${what}, found ${found}${comment}`);
  }

  private fault(why: string): JsonFault {
    return { at: this.at, why };
  }
}

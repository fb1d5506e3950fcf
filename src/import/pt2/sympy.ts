/**
 * Sizes in the notation of sympy's `srepr`, `Add(Symbol('s77', positive=True, integer=True),
 * Integer(1))`, turned into the text that `print_readable()` shows: `s77 + 1`.
 */

import { itemAt } from '../../item-at.ts';
import { CHAR } from '../../text/char.ts';
import type { Place } from './place.ts';

const MAX_LENGTH = 4096;
const MAX_DEPTH = 64;

/** Binding strength of what an expression ends in: 1 sum, 2 product, 3 power, 4 atom. */
interface Printed {
  readonly text: string;
  readonly strength: number;
}

/**
 * @throws E_SYNTAX for text that is no such expression, E_UNSUPPORTED for an unknown function,
 *   E_LIMIT
 */
export function sizeExpression(source: string, place: Place): string {
  if (source.length > MAX_LENGTH)
    throw place.error('E_LIMIT', `a size expression of ${source.length} characters`);
  return new Srepr(source, place).read();
}

class Srepr {
  private pos = 0;
  constructor(
    private readonly source: string,
    private readonly place: Place,
  ) {}

  read(): string {
    const { text } = this.expression(0);
    if (this.pos < this.source.length) this.expected('the end of the expression');
    return text;
  }

  private expression(depth: number): Printed {
    if (depth > MAX_DEPTH)
      throw this.place.error('E_LIMIT', `the size expression nests deeper than ${MAX_DEPTH}`);
    this.blanks();
    const number = this.match(/-?\d{1,18}(?!\d)/y);
    if (number !== undefined) return { text: number, strength: number.startsWith('-') ? 1 : 4 };
    const name = this.match(/[A-Za-z_]\w{0,63}/y);
    if (name === undefined) return this.expected('a name or a number');
    this.blanks();
    if (this.source[this.pos] !== '(') return { text: name, strength: 4 };
    this.pos++;
    if (name === 'Symbol' || name === 'Dummy') return this.symbol();
    const parts = this.list(depth);
    return this.printed(name, parts);
  }

  /** `'s77', positive=True, integer=True)`: only the name matters. */
  private symbol(): Printed {
    this.blanks();
    const name = this.match(/'[A-Za-z_]\w{0,63}'/y);
    if (name === undefined) return this.expected('a name in quotes');
    for (;;) {
      this.blanks();
      if (this.source[this.pos] === ')') break;
      if (this.match(/,\s*[a-z_]{1,40}\s*=\s*(True|False|None|\d{1,9})/y) === undefined)
        this.expected(`',' or ')'`);
    }
    this.pos++;
    return { text: name.slice(1, -1), strength: 4 };
  }

  private list(depth: number): Printed[] {
    const parts: Printed[] = [];
    for (;;) {
      parts.push(this.expression(depth + 1));
      this.blanks();
      const c = this.source[this.pos];
      if (c !== ',' && c !== ')') this.expected(`',' or ')'`);
      this.pos++;
      if (c === ')') return parts;
    }
  }

  private printed(name: string, parts: readonly Printed[]): Printed {
    const wrap = (part: Printed, strength: number): string =>
      part.strength < strength ? `(${part.text})` : part.text;
    const two = (): [Printed, Printed] => {
      const [a, b, ...others] = parts;
      if (a === undefined || b === undefined || others.length > 0)
        throw this.place.error('E_SYNTAX', `${name} takes 2 arguments, got ${parts.length}`);
      return [a, b];
    };
    switch (name) {
      case 'Integer':
        return itemAt(parts, 0);
      case 'Add':
        return {
          text: parts
            .map((p) => p.text)
            .join(' + ')
            .replaceAll('+ -', '- '),
          strength: 1,
        };
      case 'Mul':
        return { text: parts.map((p) => wrap(p, 2)).join('*'), strength: 2 };
      case 'Pow': {
        const [base, exponent] = two();
        return { text: `${wrap(base, 4)}**${wrap(exponent, 4)}`, strength: 3 };
      }
      case 'FloorDiv':
      case 'CleanDiv': {
        const [a, b] = two();
        return { text: `((${wrap(a, 2)}//${wrap(b, 3)}))`, strength: 4 };
      }
      case 'Mod':
      case 'PythonMod': {
        const [a, b] = two();
        return { text: `Mod(${a.text}, ${b.text})`, strength: 4 };
      }
      case 'Rational': {
        const [a, b] = two();
        return { text: `${a.text}/${b.text}`, strength: 2 };
      }
      case 'Min':
      case 'Max':
        return { text: `${name}(${parts.map((p) => p.text).join(', ')})`, strength: 4 };
      default:
        throw this.place.error('E_UNSUPPORTED', `the function ${name} in a size expression`);
    }
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.pos;
    const found = pattern.exec(this.source)?.[0];
    if (found !== undefined) this.pos += found.length;
    return found;
  }

  private blanks(): void {
    while (this.source.charCodeAt(this.pos) === CHAR.SPACE) this.pos++;
  }

  private expected(what: string): never {
    const found = this.source.slice(this.pos, this.pos + 20);
    throw this.place.error(
      'E_SYNTAX',
      `expected ${what} in the size expression, found ${found === '' ? 'its end' : `'${found}'`}`,
    );
  }
}

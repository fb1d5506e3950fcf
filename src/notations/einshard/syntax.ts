/**
 * The einshard notation, `a b -> 2 a2* b*`: on the left the dims of a tensor, on the right the dims
 * of a device mesh, outermost first. A name on the right cuts that tensor dim, a bare number or
 * star replicates. This file knows the text only; what an expression means on so many devices is in
 * `resolve.ts`.
 *
 *     expr := ws? left ws? "->" ws? right ws? EOF left := L (ws L)* right := R (ws R)* L := ident |
 *     "..." R := ident? int star? | ident star? | star | "..." ident := (Unicode letter | "_")+ int
 *     := [1-9][0-9]* star := "*" ws := spaces
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { NotationScanner } from '../../text/scanner.ts';

/** Dims that are not named and not cut. */
interface Ellipsis {
  readonly kind: 'ellipsis';
  /** 0-based offset in the text, in UTF-16 units. */
  readonly at: number;
}

/** A tensor dim. */
interface LeftName {
  readonly kind: 'name';
  readonly name: string;
  readonly at: number;
}

/** A mesh dim: `a`, `a4`, `a2*`, `4`, `*`. */
export interface RightFactor {
  readonly kind: 'factor';
  /** Tensor dim that the mesh dim cuts; null replicates. */
  readonly name: string | null;
  /** Size, or with a star what the size is a multiple of; 1 where no number is written. */
  readonly base: number;
  readonly starred: boolean;
  readonly at: number;
}

export type LeftElement = LeftName | Ellipsis;
export type RightElement = RightFactor | Ellipsis;

/** An einshard expression as it was read; `resolveEinshard` gives it a shape and devices. */
export interface EinshardExpression {
  /** The text as it was given; error carets point into it. */
  readonly text: string;
  readonly left: readonly LeftElement[];
  readonly right: readonly RightElement[];
}

/** Longest text that is read; no tensor has so many dims. */
const MAX_LENGTH = 4096;
const IDENT = /[\p{L}_]+/uy;
const LEFT_ITEM = 'identifier or ellipsis';
const RIGHT_ITEM = 'digit 1-9, identifier, string "*" or ellipsis';
const ARROW = 'string "->"';

/**
 * Reads an expression. Only the grammar is checked.
 *
 * @throws E_SYNTAX `expected DESC at position N` with a 0-based N, E_LIMIT for a text or number
 *   that is too long
 */
export function parseEinshard(text: string): EinshardExpression {
  checkKinds('parseEinshard', { text: [text, 'string'] });
  const scan = new Scan(text);
  scan.blanks();
  const left = list(scan, leftItem, LEFT_ITEM);
  if (!scan.take('->')) scan.fail(ARROW);
  scan.blanks();
  const right = list(scan, rightItem, RIGHT_ITEM);
  if (!scan.done) scan.fail('eof');
  return { text, left, right };
}

/**
 * Canonical text: single spaces, base 1 left out where something else is there to write. Parsing it
 * gives it back.
 */
export function formatEinshard(expression: Pick<EinshardExpression, 'left' | 'right'>): string {
  checkKinds('formatEinshard', { expression: [expression, 'expression'] });
  return (
    `${expression.left.map(elementText).join(' ')} -> ` +
    `${expression.right.map(elementText).join(' ')}`
  );
}

/** Text of one element. */
export function elementText(element: LeftElement | RightElement): string {
  if (element.kind === 'ellipsis') return '...';
  if (element.kind === 'name') return element.name;
  const { name, base, starred } = element;
  const bare = name === null && !starred;
  return `${name ?? ''}${base === 1 && !bare ? '' : base}${starred ? '*' : ''}`;
}

/** Tells whether a sharding text is in this notation: no other has an arrow. */
export function isEinshard(text: string): boolean {
  return text.includes('->');
}

/** At least one item, spaces between; the spaces after the last are taken too. */
function list<T>(scan: Scan, item: (scan: Scan) => T | undefined, expected: string): T[] {
  const out: T[] = [];
  do {
    const next = item(scan);
    if (next === undefined) {
      if (out.length === 0) scan.fail(expected);
      break;
    }
    out.push(next);
  } while (scan.blanks());
  return out;
}

function leftItem(scan: Scan): LeftElement | undefined {
  const { position: at } = scan;
  const name = scan.ident();
  if (name !== undefined) return { kind: 'name', name, at };
  return scan.take('...') ? { kind: 'ellipsis', at } : undefined;
}

function rightItem(scan: Scan): RightElement | undefined {
  const { position: at } = scan;
  if (scan.take('...')) return { kind: 'ellipsis', at };
  const name = scan.ident();
  const base = scan.int();
  const starred = scan.take('*');
  if (name === undefined && base === undefined && !starred) return undefined;
  return { kind: 'factor', name: name ?? null, base: base ?? 1, starred, at };
}

class Scan extends NotationScanner {
  constructor(text: string) {
    super(text, MAX_LENGTH, 'the einshard text');
  }

  protected override isBlank(char: string): boolean {
    return char === ' ';
  }

  /** Blanks separate the elements, so no word skips them. */
  protected override lead(): void {}

  ident(): string | undefined {
    return this.match(IDENT);
  }

  /** A number without leading zeros. */
  int(): number | undefined {
    const { at } = this;
    const digit = (): number => this.text.charCodeAt(this.at) - 48;
    if (!(digit() >= 1 && digit() <= 9)) return undefined;
    let value = 0;
    while (digit() >= 0 && digit() <= 9) {
      value = value * 10 + digit();
      this.at++;
    }
    if (!Number.isSafeInteger(value))
      throw new ShardwrightError(
        'E_LIMIT',
        `the number at position ${at} is beyond 2^53`,
        this.place(at),
      );
    return value;
  }

  override fail(expected: string): never {
    throw new ShardwrightError('E_SYNTAX', `expected ${expected} at position ${this.at}`, {
      hint: this.hint(expected),
      ...this.place(this.at),
    });
  }

  private hint(expected: string): string {
    const { text, at } = this;
    const next = text[at] ?? '';
    const last = text[at - 1] ?? '';
    if (/[\t\n\r,;]/.test(next)) return 'separate the elements with spaces';
    if (expected === 'eof') {
      if (next === '0') return 'a number starts with 1 to 9';
      if (last === '*') return 'the star is written last: name, number, star, as in a2*';
      if (/\d/.test(last) && !this.done) return 'the name is written before the number, as in a2';
      if (text.startsWith('->', at)) return 'there is one arrow only';
    }
    if (expected === ARROW && /[\d*]/.test(next))
      return 'numbers and stars belong on the right of the arrow';
    return (
      'write the dims of the tensor, an arrow, and the dims of the mesh, as in ' + 'a b -> 2 a2* b*'
    );
  }
}

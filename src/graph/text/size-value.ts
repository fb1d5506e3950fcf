/**
 * The value of a size expression: `2*s0 + 1`, `(s0 + 1)//2`, `Max(1, u0)`. The notations of our own
 * graphs, of sympy as PyTorch prints it, and of jaxprs are read the same way.
 */

/** Values of named sizes. */
export type SizeValues = ReadonlyMap<string, number>;

const FUNCTIONS: ReadonlyMap<string, (a: number, b: number) => number> = new Map([
  ['min', Math.min],
  ['max', Math.max],
  ['floordiv', floorDivision],
  ['mod', remainder],
]);
/** The same functions as sympy and PyTorch call them. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ['Min', 'min'],
  ['Max', 'max'],
  ['FloorDiv', 'floordiv'],
  ['CleanDiv', 'floordiv'],
  ['Mod', 'mod'],
  ['PythonMod', 'mod'],
]);

const MAX_DEPTH = 100;
const TOKEN = /\s*(?:(\d+)|([A-Za-z_]\w*)|(\*\*|\/\/|[-+*/%(),]))/y;

/** Admissible sizes of a dim: those in `[min, max]` that are multiples of `multiple`. */
export interface SizeRange {
  readonly min: number;
  readonly max: number;
  readonly multiple?: number;
}

/**
 * The size of a dim where none is stated: the least admissible one of at least 8, else the least;
 * undefined where no size is admissible.
 */
export function usualSize({ min, max, multiple = 1 }: SizeRange): number | undefined {
  const first = Math.ceil(min / multiple) * multiple;
  const usual = Math.max(first, Math.ceil(8 / multiple) * multiple);
  return usual <= max ? usual : first <= max ? first : undefined;
}

/** Names that an expression reads, in order of first use. */
export function sizeNames(text: string): string[] {
  const found = new Set<string>();
  for (const [, name] of text.matchAll(/([A-Za-z_]\w*)(?!\w*\s*\()/g))
    if (!isFunction(name)) found.add(name);
  return [...found];
}

/**
 * The value of a size expression; undefined where it reads a name without a value, is written in
 * another notation, or is not a whole number from 0.
 */
export function sizeValue(text: string, values: SizeValues): number | undefined {
  const value = new Reader(text, values).whole();
  // Adding 0 makes 0 of -0.
  return value !== undefined && Number.isSafeInteger(value) && value >= 0 ? value + 0 : undefined;
}

function isFunction(name: string): boolean {
  return FUNCTIONS.has(NAMES.get(name) ?? name);
}

/**
 * Recursive descent over sums, products and factors; undefined as soon as something is not known.
 */
class Reader {
  private at = 0;
  private token = '';

  constructor(
    private readonly text: string,
    private readonly values: SizeValues,
  ) {
    this.next();
  }

  whole(): number | undefined {
    const value = this.sum(0);
    return this.token === '' && this.at >= this.text.trimEnd().length ? value : undefined;
  }

  private next(): void {
    TOKEN.lastIndex = this.at;
    const match = TOKEN.exec(this.text);
    this.token = match?.[1] ?? match?.[2] ?? match?.[3] ?? '';
    if (match !== null) this.at = TOKEN.lastIndex;
  }

  private accept(token: string): boolean {
    if (this.token !== token) return false;
    this.next();
    return true;
  }

  private sum(depth: number): number | undefined {
    let value = this.product(depth);
    for (;;) {
      const sign = this.accept('+') ? 1 : this.accept('-') ? -1 : 0;
      if (sign === 0) return value;
      const right = this.product(depth);
      value = value === undefined || right === undefined ? undefined : value + sign * right;
    }
  }

  private product(depth: number): number | undefined {
    let value = this.power(depth);
    for (;;) {
      const { token } = this;
      if (!['*', '/', '//', '%'].includes(token)) return value;
      this.next();
      const right = this.power(depth);
      value =
        value === undefined || right === undefined ? undefined : combined(token, value, right);
    }
  }

  private power(depth: number): number | undefined {
    const base = this.factor(depth);
    if (!this.accept('**')) return base;
    const exponent = this.factor(depth);
    return base === undefined || exponent === undefined ? undefined : base ** exponent;
  }

  private factor(depth: number): number | undefined {
    if (depth > MAX_DEPTH) return undefined;
    if (this.accept('-')) {
      const value = this.factor(depth + 1);
      return value === undefined ? undefined : -value;
    }
    if (this.accept('(')) {
      const value = this.sum(depth + 1);
      return this.accept(')') ? value : undefined;
    }
    const { token } = this;
    if (!/^\w+$/.test(token)) return undefined;
    this.next();
    if (/^\d/.test(token)) return Number(token);
    if (!this.accept('(')) return this.values.get(token);
    const apply = FUNCTIONS.get(NAMES.get(token) ?? token);
    let value = this.sum(depth + 1);
    while (this.accept(',')) {
      const right = this.sum(depth + 1);
      value =
        value === undefined || right === undefined || apply === undefined
          ? undefined
          : apply(value, right);
    }
    return this.accept(')') && apply !== undefined ? value : undefined;
  }
}

function combined(operator: string, a: number, b: number): number | undefined {
  if (operator === '*') return a * b;
  if (b === 0) return undefined;
  if (operator === '//') return floorDivision(a, b);
  if (operator === '%') return remainder(a, b);
  return a % b === 0 ? a / b : undefined;
}

function floorDivision(a: number, b: number): number {
  return Math.floor(a / b);
}

function remainder(a: number, b: number): number {
  return a - b * Math.floor(a / b);
}

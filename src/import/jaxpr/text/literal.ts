/** Parameter values of jaxpr text: the Python literals that JAX prints, as plain data. */

export type Literal =
  | number
  | bigint
  | boolean
  | null
  /** A bare name, `float32`. */
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'list'; readonly items: readonly Literal[] }
  /** `P('x', None)`, `Mesh('x': 2)`, `GatherDimensionNumbers(offset_dims=(2,))`. */
  | {
      readonly kind: 'call';
      readonly name: string;
      readonly items: readonly Literal[];
      readonly named: ReadonlyMap<string, Literal>;
    };

const MAX_DEPTH = 64;

/** The literal that a text is; undefined where it is none that is known here. */
export function parseLiteral(text: string): Literal | undefined {
  const scan = { text, at: 0 };
  try {
    const value = read(scan, 0);
    blanks(scan);
    return scan.at === text.length ? value : undefined;
  } catch (error) {
    if (error instanceof NotALiteral) return undefined;
    throw error;
  }
}

class NotALiteral extends Error {}

interface Scan {
  readonly text: string;
  at: number;
}

function blanks(scan: Scan): void {
  while (/\s/.test(scan.text[scan.at] ?? '')) scan.at++;
}

function match(scan: Scan, pattern: RegExp): string | undefined {
  pattern.lastIndex = scan.at;
  const found = pattern.exec(scan.text);
  if (found === null) return undefined;
  scan.at += found[0].length;
  return found[0];
}

const NUMBER = /-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf\b|nan\b)/y;
const NAME = /[A-Za-z_][A-Za-z0-9_.]*/y;
const STRING = /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/y;

function read(scan: Scan, depth: number): Literal {
  if (depth > MAX_DEPTH) throw new NotALiteral();
  blanks(scan);
  const c = scan.text[scan.at];
  if (c === '(' || c === '[' || c === '{') {
    scan.at++;
    const close = { '(': ')', '[': ']', '{': '}' }[c];
    return { kind: 'list', items: members(scan, close, depth).items };
  }
  const quoted = match(scan, STRING);
  if (quoted !== undefined) return { kind: 'string', value: quoted.slice(1, -1) };
  const number = match(scan, NUMBER);
  if (number !== undefined) {
    if (/^-?\d+$/.test(number))
      return Number.isSafeInteger(Number(number)) ? Number(number) : BigInt(number);
    return Number(number.replace('inf', 'Infinity').replace('nan', 'NaN'));
  }
  const name = match(scan, NAME);
  if (name === undefined) throw new NotALiteral();
  if (name === 'None') return null;
  if (name === 'True' || name === 'False') return name === 'True';
  if (scan.text[scan.at] !== '(') return { kind: 'name', name };
  scan.at++;
  const { items, named } = members(scan, ')', depth);
  // `np.int64(3)` is the number.
  const [only, ...others] = items;
  if (only !== undefined && others.length === 0 && /^(np\.)?(u?int|float)\d+$/.test(name))
    return only;
  return { kind: 'call', name, items, named };
}

function members(
  scan: Scan,
  close: string,
  depth: number,
): { items: Literal[]; named: Map<string, Literal> } {
  const items: Literal[] = [];
  const named = new Map<string, Literal>();
  for (;;) {
    blanks(scan);
    if (scan.text[scan.at] === close) {
      scan.at++;
      return { items, named };
    }
    const start = scan.at;
    const key = match(scan, STRING)?.slice(1, -1) ?? match(scan, NAME);
    blanks(scan);
    const mark = scan.text[scan.at];
    if (key !== undefined && (mark === '=' || mark === ':') && scan.text[scan.at + 1] !== '=') {
      scan.at++;
      named.set(key, read(scan, depth + 1));
    } else {
      scan.at = start;
      items.push(read(scan, depth + 1));
    }
    blanks(scan);
    if (scan.text[scan.at] === ',') scan.at++;
    else if (scan.text[scan.at] !== close) throw new NotALiteral();
  }
}

/** Integers of a (nested) list, row-major; undefined where it holds anything else. */
export function intsOf(value: Literal | undefined): number[] | undefined {
  if (value === undefined || value === null || typeof value !== 'object' || value.kind !== 'list')
    return undefined;
  const out: number[] = [];
  const walk = (item: Literal): boolean => {
    if (typeof item === 'number') {
      out.push(item);
      return true;
    }
    return (
      item !== null && typeof item === 'object' && item.kind === 'list' && item.items.every(walk)
    );
  };
  return value.items.every(walk) ? out : undefined;
}

/**
 * The output of `printf`, `basename`, `dirname`, `seq` and `expr`, and the fields that `read` takes
 * from a line. Source: the Bash manual, 4.2, and the manual of coreutils.
 */

/** The fields of a line: blanks part them as many as there are, any other sign each. */
export function fieldsOf(line: string, sign: string, most: number): readonly string[] {
  const fields: string[] = [];
  let rest = sign === ' ' ? line.replace(/^[ \t]+|[ \t]+$/g, '') : line;
  const part = sign === ' ' ? /[ \t]+/ : sign;
  while (rest !== '') {
    const [field] = fields.length === most - 1 ? [rest] : rest.split(part, 1);
    fields.push(field);
    const after = rest.slice(field.length);
    rest = sign === ' ' ? after.replace(/^[ \t]+/, '') : after.slice(1);
  }
  return fields;
}

/** The output of `printf` for a format with only `%s` and `%d`; undefined for any other. */
export function formatted(format: string, values: readonly string[]): string | undefined {
  const signs = format.match(/%[\s\S]|\\[\s\S]|[^%\\]+/g) ?? [];
  const takes = signs.filter((sign) => /^%[sd]$/.test(sign)).length;
  if (signs.some((sign) => !/^(%[sd%]|\\[nt\\]|[^%\\]+)$/.test(sign))) return undefined;
  let text = '';
  let next = 0;
  do {
    for (const sign of signs)
      if (sign === '%%') text += '%';
      else if (sign.startsWith('%')) text += values[next++] ?? (sign === '%d' ? '0' : '');
      else if (sign.startsWith('\\')) text += { n: '\n', t: '\t' }[sign[1]] ?? '\\';
      else text += sign;
  } while (takes > 0 && next < values.length);
  return text;
}

/** The output of programs that know nothing but their arguments. */
export const PRINTED: Readonly<
  Record<'basename' | 'dirname' | 'seq' | 'expr', (args: readonly string[]) => string | undefined>
> = {
  basename: ([path, suffix = ''], ...rest) => {
    const name = path === undefined || rest.length > 0 ? undefined : path.replace(/\/+$/, '');
    const last = name?.slice(name.lastIndexOf('/') + 1);
    if (last === undefined || last === '' || last.startsWith('-')) return undefined;
    return suffix !== '' && last !== suffix && last.endsWith(suffix)
      ? last.slice(0, -suffix.length)
      : last;
  },
  dirname: ([path, ...rest]) => {
    if (path === undefined || rest.length > 0 || /^-|\/$|\/\//.test(path)) return undefined;
    const at = path.lastIndexOf('/');
    return at < 0 ? '.' : at === 0 ? '/' : path.slice(0, at);
  },
  seq: (args) => {
    const numbers = args.map(Number);
    if (numbers.some((n, i) => !/^-?\d+$/.test(args[i]) || Math.abs(n) > 1e6)) return undefined;
    const [first, step, last] =
      numbers.length === 1
        ? [1, 1, numbers[0]]
        : numbers.length === 2
          ? [numbers[0], 1, numbers[1]]
          : numbers;
    if (numbers.length < 1 || numbers.length > 3 || step === 0) return undefined;
    const count = Math.floor((last - first) / step) + 1;
    if (count > 10_000) return undefined;
    return Array.from({ length: Math.max(0, count) }, (_, i) => first + i * step).join('\n');
  },
  expr: (args) => {
    const terms = [...args];
    const value = valueOf(terms, 0);
    return terms.length > 0 ? undefined : value;
  },
};

/** The operators of `expr` from the loosest to the tightest. */
const LEVELS: readonly (readonly string[])[] = [
  ['|'],
  ['&'],
  ['<', '<=', '=', '==', '!=', '>=', '>'],
  ['+', '-'],
  ['*', '/', '%'],
];

/** The value of an expression of `expr`, whose words are taken from the front. */
function valueOf(terms: string[], level: number): string | undefined {
  if (level === LEVELS.length) return operandOf(terms);
  let left = valueOf(terms, level + 1);
  while (terms.length > 0 && LEVELS[level].includes(terms[0])) {
    const operator = String(terms.shift());
    const right = valueOf(terms, level + 1);
    left = left === undefined || right === undefined ? undefined : applied(left, operator, right);
  }
  return left;
}

function operandOf(terms: string[]): string | undefined {
  const first = terms.shift();
  if (first === '(') {
    const value = valueOf(terms, 0);
    return terms.shift() === ')' ? value : undefined;
  }
  if (first === 'length') {
    const text = terms.shift();
    // Whether a letter beyond ASCII counts once is for the locale to say.
    return text === undefined || /[^\0-\x7f]/.test(text) ? undefined : String(text.length);
  }
  // What matches an expression is not read.
  const isOpen = /^(match|substr|index|\+)$/.test(first ?? '') || terms[0] === ':';
  return isOpen || first === ')' ? undefined : first;
}

function applied(left: string, operator: string, right: string): string | undefined {
  const isNull = (text: string): boolean => /^(|-?0+)$/.test(text);
  if (operator === '|') return !isNull(left) ? left : isNull(right) ? '0' : right;
  if (operator === '&') return isNull(left) || isNull(right) ? '0' : left;
  const areNumbers = [left, right].every((text) => /^-?\d+$/.test(text));
  const [a, b] = [Number(left), Number(right)];
  if (![a, b].every((n) => !areNumbers || Number.isSafeInteger(n))) return undefined;
  if (operator in COMPARED) {
    if (areNumbers) return COMPARED[operator](a - b) ? '1' : '0';
    // The order of texts is the locale's.
    if (!/^(=|==|!=)$/.test(operator)) return undefined;
    return (left === right) === (operator !== '!=') ? '1' : '0';
  }
  const isDivision = operator === '/' || operator === '%';
  if (!areNumbers || (isDivision && b === 0)) return undefined;
  const value = CALCULATED[operator](a, b);
  return Number.isSafeInteger(value) ? String(value) : undefined;
}

/** By operator, of the difference of two numbers. */
const COMPARED: Readonly<Record<string, (difference: number) => boolean>> = {
  '<': (d) => d < 0,
  '<=': (d) => d <= 0,
  '=': (d) => d === 0,
  '==': (d) => d === 0,
  '!=': (d) => d !== 0,
  '>=': (d) => d >= 0,
  '>': (d) => d > 0,
};

const CALCULATED: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => Math.trunc(a / b) + 0,
  '%': (a, b) => (a % b) + 0,
};

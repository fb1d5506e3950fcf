/**
 * The output of `printf`, `basename`, `dirname` and `seq`, and the fields that `read` takes from a
 * line. Source: the Bash manual, 4.2, and the manual of coreutils.
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
  Record<'basename' | 'dirname' | 'seq', (args: readonly string[]) => string | undefined>
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
};

/**
 * Changes settings in the text of a configuration and keeps all else: comments, order, spaces. A
 * setting that is not there is added to its section, behind the others. Whoever edits reads the
 * text again: an edit that does not mean what it should is none.
 */

/** A value of a setting; undefined: the setting is taken out. */
export type SettingValue = string | number | boolean | undefined;

/** Values by the path of the setting. */
export type Settings = Readonly<Record<string, SettingValue>>;

/** The settings of `wanted` that are other than those of `current`. */
export function changedSettings(current: Settings, wanted: Settings): Settings {
  const keys = new Set([...Object.keys(current), ...Object.keys(wanted)]);
  return Object.fromEntries(
    [...keys].flatMap((key) => (current[key] === wanted[key] ? [] : [[key, wanted[key]]])),
  );
}

/** Sections of TOML, `section.key`. */
export function editToml(text: string, changed: Settings): string {
  const lines = text.split('\n');
  for (const [path, value] of Object.entries(changed)) {
    const [section, key] = splitPath(path);
    const start = lines.findIndex((line) => line.trim().startsWith(`[${section}]`));
    const next = lines.findIndex((line, i) => i > start && /^\s*\[[\w."-]+\]/.test(line));
    const end = next < 0 ? lines.length : next;
    const at = lines.findIndex(
      (line, i) => i > start && i < end && new RegExp(`^\\s*${key}\\s*=`).test(line),
    );
    if (start >= 0 && at >= 0) {
      if (value === undefined) lines.splice(at, 1);
      else lines[at] = withValue(lines[at], /^(\s*[\w-]+\s*=\s*)/, quoted(value));
    } else if (value !== undefined && start >= 0)
      lines.splice(lastFilled(lines, start, end) + 1, 0, `${key} = ${quoted(value)}`);
    else if (value !== undefined)
      lines.splice(
        lastFilled(lines, 0, lines.length) + 1,
        0,
        '',
        `[${section}]`,
        `${key} = ${quoted(value)}`,
      );
  }
  return lines.join('\n');
}

/** Mappings of YAML in block style, by their path. */
export function editYaml(text: string, changed: Settings): string {
  const lines = text.split('\n');
  for (const [path, value] of Object.entries(changed)) {
    const found = yamlPlace(lines, path.split('.'));
    if (found.at !== undefined) {
      if (value === undefined) lines.splice(found.at, 1);
      else lines[found.at] = withValue(lines[found.at], /^(\s*[\w-]+:\s*)/, String(value), ': ');
    } else if (value !== undefined) {
      const added = found.missing.map((name, i, { length }) => {
        const indent = ' '.repeat(found.indent + 2 * i);
        return i === length - 1 ? `${indent}${name}: ${value}` : `${indent}${name}:`;
      });
      lines.splice(found.behind + 1, 0, ...added);
    }
  }
  return lines.join('\n');
}

interface YamlPlace {
  readonly at?: number;
  /** Names of the path that are not there, and where they go. */
  readonly missing: readonly string[];
  readonly behind: number;
  readonly indent: number;
}

function yamlPlace(lines: readonly string[], path: readonly string[]): YamlPlace {
  let [from, to, indent] = [0, lines.length, 0];
  for (const [depth, name] of path.entries()) {
    const own = indentOf(lines, from, to) ?? (depth === 0 ? 0 : indent + 2);
    const at = lines.findIndex(
      (line, i) => i >= from && i < to && line.startsWith(`${' '.repeat(own)}${name}:`),
    );
    if (at < 0)
      return { missing: path.slice(depth), behind: lastFilled(lines, from - 1, to), indent: own };
    if (depth === path.length - 1) return { at, missing: [], behind: at, indent: own };
    const end = lines.findIndex(
      (line, i) => i > at && /\S/.test(line) && !/^\s*#/.test(line) && spaces(line) <= own,
    );
    [from, to, indent] = [at + 1, end < 0 ? to : Math.min(to, end), own];
  }
  return { missing: path, behind: lines.length - 1, indent };
}

function spaces(line: string): number {
  return line.length - line.trimStart().length;
}

/** The indentation of the first entry of a block. */
function indentOf(lines: readonly string[], from: number, to: number): number | undefined {
  const first = lines.slice(from, to).find((line) => /^\s*[\w-]+\s*:/.test(line));
  return first === undefined ? undefined : spaces(first);
}

/** Objects of JSON, by their path; comments stay. */
export function editJson(text: string, changed: Settings): string {
  let edited = text;
  for (const [path, value] of Object.entries(changed)) edited = setInJson(edited, path, value);
  return edited;
}

function setInJson(text: string, path: string, value: SettingValue): string {
  const names = path.split('.');
  let [from, to] = [text.indexOf('{') + 1, text.lastIndexOf('}')];
  for (const [depth, name] of names.entries()) {
    const found = entryIn(text, from, to, name);
    const isLast = depth === names.length - 1;
    if (found === undefined)
      return value === undefined ? text : added(text, from, to, names.slice(depth), value);
    if (isLast)
      return value === undefined
        ? withoutEntry(text, found)
        : `${text.slice(0, found.from)}${JSON.stringify(value)}${text.slice(found.to)}`;
    if (text[found.from] !== '{') return text;
    [from, to] = [found.from + 1, found.to - 1];
  }
  return text;
}

/** The text without the entry of a value, and without one of the commas around it. */
function withoutEntry(text: string, { from, to }: { from: number; to: number }): string {
  const before = /(,?)\s*"(?:[^"\\]|\\.)*"\s*:\s*$/.exec(text.slice(0, from));
  if (before === null) return text;
  const behind = text.slice(to);
  return text.slice(0, before.index) + (before[1] === '' ? behind.replace(/^\s*,/, '') : behind);
}

/** The value of a name at the top of an object whose inside is from `from` to `to`. */
function entryIn(
  text: string,
  from: number,
  to: number,
  name: string,
): { readonly from: number; readonly to: number } | undefined {
  const tokens = /"(?:[^"\\]|\\.)*"|\/\/.*|\/\*[\s\S]*?\*\/|#.*|[{}[\]:,]|[^\s{}[\]:,"]+/g;
  tokens.lastIndex = from;
  let depth = 0;
  let key = '';
  let open: number | undefined;
  for (
    let token = tokens.exec(text);
    token !== null && token.index < to;
    token = tokens.exec(text)
  ) {
    const [word] = token;
    if (/^(\/\/|\/\*|#)/.test(word)) continue;
    if (depth === 0 && word === ',') key = '';
    else if (depth === 0 && word === ':') open = key === name ? tokens.lastIndex : undefined;
    else if (/[{[]/.test(word) && word.length === 1) {
      if (depth === 0 && open !== undefined) open = token.index;
      depth++;
    } else if (/[}\]]/.test(word) && word.length === 1) {
      depth--;
      if (depth === 0 && open !== undefined) return { from: open, to: tokens.lastIndex };
    } else if (depth === 0) {
      if (open !== undefined && key === name) return { from: token.index, to: tokens.lastIndex };
      key = word.replace(/^"|"$/g, '');
    }
  }
  return undefined;
}

/** An entry more at the end of an object. */
function added(
  text: string,
  from: number,
  to: number,
  names: readonly string[],
  value: SettingValue,
): string {
  const inside = text.slice(from, to);
  const indent = /\n([ \t]*)\S/.exec(inside)?.[1] ?? '  ';
  const entry = names
    .slice(1)
    .reduceRight((inner, name) => `{ ${JSON.stringify(name)}: ${inner} }`, JSON.stringify(value));
  const own = `"${names[0]}": ${names.length === 1 ? JSON.stringify(value) : entry}`;
  const last = from + inside.trimEnd().length;
  const comma = inside.trim() === '' || inside.trimEnd().endsWith(',') ? '' : ',';
  return `${text.slice(0, last)}${comma}\n${indent}${own}${text.slice(last)}`;
}

function splitPath(path: string): readonly [section: string, key: string] {
  const at = path.lastIndexOf('.');
  return [path.slice(0, at), path.slice(at + 1)];
}

/** A line with another value; what stands behind the value stays. */
function withValue(line: string, head: RegExp, value: string, separator = ''): string {
  const [start = ''] = head.exec(line) ?? [];
  const rest = line.slice(start.length);
  const [old = ''] = /^("[^"]*"|'[^']*'|\[[^\]]*\]|[^\s#]*)/.exec(rest) ?? [];
  const behind = rest.slice(old.length);
  const isNew = old === '' && separator !== '';
  return `${isNew ? start.replace(/:\s*$/, separator) : start}${value}${behind}`;
}

/** The last line of a range that is neither empty nor a comment; else the line before it. */
function lastFilled(lines: readonly string[], from: number, to: number): number {
  for (let i = to - 1; i > from; i--) if (/^\s*[^\s#]/.test(lines[i])) return i;
  return Math.max(from, -1);
}

function quoted(value: NonNullable<SettingValue>): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

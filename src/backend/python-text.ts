/**
 * Writes literals, identifiers and comments of generated Python. Names and numbers of graphs and
 * plans are data: nothing of a name is ever code. Source: the lexical rules of the Python 3
 * language reference.
 */
import { NameSet } from '../graph/names.ts';
import { VERSION } from '../version.ts';
import type { ExportSource } from './target.ts';

/** A string literal; all but printable ASCII is escaped. */
export function pyString(text: string): string {
  let out = '"';
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (character === '"' || character === '\\') out += `\\${character}`;
    else if (code >= 0x20 && code < 0x7f) out += character;
    else if (code < 0x100) out += `\\x${code.toString(16).padStart(2, '0')}`;
    else if (code < 0x10000) out += `\\u${code.toString(16).padStart(4, '0')}`;
    else out += `\\U${code.toString(16).padStart(8, '0')}`;
  }
  return `${out}"`;
}

/** A float literal that reads back to the same double. */
export function pyFloat(value: number): string {
  if (Number.isNaN(value)) return 'float("nan")';
  if (value === Infinity) return 'float("inf")';
  if (value === -Infinity) return 'float("-inf")';
  if (Object.is(value, -0)) return '-0.0';
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

export function pyBool(value: boolean): string {
  return value ? 'True' : 'False';
}

/** `(a, b)`; of one member `(a,)`. */
export function pyTuple(members: readonly string[]): string {
  return members.length === 1 ? `(${members[0]},)` : `(${members.join(', ')})`;
}

export function pyList(members: readonly string[]): string {
  return `[${members.join(', ')}]`;
}

/** Text for a comment: one line, nothing that an editor or an interpreter would obey. */
export function pyComment(text: string): string {
  return text.replace(/[^\x20-\x7e]+/g, (other) => {
    const plain = /^[\xa1-\u024f\u0370-\u05ff\u2190-\u21ff\u3040-\u9fff]+$/.test(other);
    return plain ? other : '?';
  });
}

/** A docstring of lines; nothing in them ends it or is an escape. */
export function pyDocstring(lines: readonly string[]): string[] {
  const text = lines.map((line) => line.replace(/\\|"(?="|$)/g, '\\$&'));
  return `"""${text.join('\n')}\n"""`.split('\n');
}

const KEYWORDS = new Set(
  (
    'False None True and as assert async await break class continue def del elif else except ' +
    'finally for from global if import in is lambda nonlocal not or pass raise return try ' +
    'while with yield match case type _ print'
  ).split(' '),
);

/** Identifiers for names of a program: each name gets one of its own, always the same. */
export class PyNames {
  private readonly byName = new Map<string, string>();
  private readonly taken: NameSet;

  /** @param reserved identifiers that the text uses itself */
  constructor(reserved: Iterable<string> = []) {
    this.taken = new NameSet(reserved);
  }

  of(name: string): string {
    const known = this.byName.get(name);
    if (known !== undefined) return known;
    let base = name.replace(/[^A-Za-z0-9_]/g, '_');
    if (!/^[A-Za-z]/.test(base)) base = `v${base}`;
    if (KEYWORDS.has(base)) base = `${base}_`;
    const own = this.taken.take(base);
    this.byName.set(name, own);
    return own;
  }
}

/**
 * The lines at the top of a file, without the sign of a comment. They hold no date: equal plans
 * give equal bytes.
 */
export function headLines({ plan, mesh, planHash }: ExportSource, target: string): string[] {
  return [
    `Written by shardwright ${VERSION}, export --target ${target}.`,
    `Plan ${planHash}, mesh ${mesh.text}, model ${plan.model}, cluster ${plan.cluster}.`,
  ].map(pyComment);
}

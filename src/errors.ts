/**
 * The one error class of the library. Every refusal of bad input is a `ShardwrightError`: what is
 * wrong, where, what was expected and found, and the edit that fixes it. Faults of our own start
 * with `internal:`.
 */

/** A place in a text: 1-based line and column. */
export interface SourcePosition {
  readonly line: number;
  readonly column: number;
}

export interface ErrorDetails {
  /** The edit that fixes it, as a sentence or a command-line fragment. */
  readonly hint?: string;
  /** File or model name as the user gave it. */
  readonly file?: string;
  readonly position?: SourcePosition;
  /** The line of the input that is wrong, for the caret display. */
  readonly excerpt?: string;
  readonly node?: string;
  /** Module path (`layers.0.mlp`) or JSON path. */
  readonly path?: string;
  /** The nearest known plan that would do. */
  readonly nearest?: { readonly mesh: string; readonly recipe: string };
}

/** The one class of errors: a stable code, what is wrong, where, and the edit that fixes it. */
export class ShardwrightError extends Error {
  override readonly name = 'ShardwrightError';

  constructor(
    /** Stable code, `E_SYNTAX` and so on; tests and scripts match on it. */
    readonly code: string,
    message: string,
    readonly details: ErrorDetails = {},
  ) {
    super(typeof message === 'string' ? message : valueText(message));
  }

  /** `file:line:column: CODE message`, without excerpt and hint. */
  get headline(): string {
    const { file, position, node } = this.details;
    const place = [file, position?.line, position?.column]
      .filter((part) => part !== undefined)
      .join(':');
    const where = place !== '' && !this.message.includes(place) ? `${place}: ` : '';
    const at = node !== undefined && !this.message.includes(node) ? ` (node ${node})` : '';
    return `${where}${this.code} ${this.message}${at}`;
  }

  /**
   * Same error, with details that only the caller knows (such as the file name) filled in where
   * missing.
   */
  with(details: ErrorDetails): ShardwrightError {
    return new ShardwrightError(this.code, this.message, { ...details, ...this.details });
  }
}

/** The kind of a value, as errors say it: `undefined`, `a list`, `a number`. */
export function valueText(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (typeof value !== 'object') return `a ${typeof value}`;
  if (!isReadable(value)) return 'an object that cannot be read';
  return Array.isArray(value) ? 'a list' : 'an object';
}

/** `Array.isArray`, which throws for a proxy that was revoked. */
export function isList(value: unknown): value is readonly unknown[] {
  return typeof value === 'object' && value !== null && isReadable(value) && Array.isArray(value);
}

/** True for an object that is no list and can be read. */
export function isPlain(value: unknown): value is object {
  return typeof value === 'object' && value !== null && isReadable(value) && !Array.isArray(value);
}

/** False for proxies that answer nothing: even `Array.isArray` throws for one that was revoked. */
export function isReadable(value: object): boolean {
  try {
    void (value as { readonly [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
    return true;
  } catch {
    return false;
  }
}

/** A call of the library with an argument that is not of its kind, as JavaScript lets through. */
export function wrongArgument(
  call: string,
  name: string,
  found: string,
  hint: string,
): ShardwrightError {
  return new ShardwrightError('E_USAGE', `${call}: the ${name} is ${found}`, { hint });
}

/** @throws E_USAGE naming the argument that is of another type than JavaScript's `type` */
export function checkType(
  call: string,
  name: string,
  value: unknown,
  type: 'string' | 'function',
): void {
  if (typeof value === type) return;
  throw wrongArgument(call, name, valueText(value), `it is a ${type}.`);
}

/**
 * @param fields that the argument must have
 * @throws E_USAGE naming the argument that is not a record with these fields
 */
export function checkRecord(
  call: string,
  name: string,
  value: unknown,
  { fields, hint }: { readonly fields: readonly string[]; readonly hint: string },
): void {
  if (!isPlain(value)) throw wrongArgument(call, name, valueText(value), hint);
  const lacks = fields.find((field) => !(field in value));
  if (lacks !== undefined) throw wrongArgument(call, name, `an object without '${lacks}'`, hint);
}

/**
 * @param known names of the options
 * @throws E_USAGE naming the option that the function does not have
 */
export function checkOptions(
  call: string,
  options: unknown,
  known: Readonly<Record<string, unknown>>,
): void {
  const names = Object.keys(known);
  const hint = `the options are ${names.join(', ')}.`;
  if (!isPlain(options)) throw wrongArgument(call, 'record of options', valueText(options), hint);
  for (const name of Object.keys(options))
    if (!Object.hasOwn(known, name))
      throw new ShardwrightError('E_USAGE', `${call} has no option '${name}'`, {
        hint: suggestion(name, names, 'options'),
      });
  for (const name of names) readable(call, options, name);
}

/** Reads an option once: a getter or a proxy runs code of the caller. */
function readable(call: string, options: object, name: string): void {
  try {
    void (options as Readonly<Record<string, unknown>>)[name];
  } catch (error) {
    throw wrongArgument(
      call,
      `option '${name}'`,
      `a value that cannot be read: ${messageOf(error)}`,
      'options are plain records.',
    );
  }
}

/** A defect of Shardwright itself: says so, and how to report it. */
export function internalError(message: string, details: ErrorDetails = {}): ShardwrightError {
  return new ShardwrightError('E_INTERNAL', `internal: ${message}`, {
    hint: 'This is a defect of Shardwright. Please report it with the command and the model file.',
    ...details,
  });
}

/**
 * The nearest names to a misspelt one: those that it is a whole part of, shortest first, then those
 * at a Damerau-Levenshtein distance of at most max(1, length / 3), at most three, nearest first,
 * then alphabetical.
 */
export function didYouMean(name: string, known: Iterable<string>): string[] {
  const limit = Math.max(1, Math.floor(name.length / 3));
  const scored: { name: string; distance: number }[] = [];
  const part = `.${name}.`.toLowerCase().replace(/[-_/]/g, '.');
  for (const candidate of new Set(known)) {
    // A whole part of a name is what people remember: `lm_head.weight` of `model.lm_head.weight`,
    // `h100` of `dgx-h100`.
    if (name.length > 1 && `.${candidate}.`.toLowerCase().replace(/[-_/]/g, '.').includes(part)) {
      scored.push({ name: candidate, distance: (candidate.length - name.length) / 1e6 });
      continue;
    }
    if (Math.abs(candidate.length - name.length) > limit) continue;
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance <= limit) scored.push({ name: candidate, distance });
  }
  scored.sort((a, b) => a.distance - b.distance || (a.name < b.name ? -1 : 1));
  return scored.slice(0, 3).map((s) => s.name);
}

/** "did you mean `x`?" or, with nothing near, the list of what there is. */
export function suggestion(name: string, known: readonly string[], what: string): string {
  const near = didYouMean(name, known);
  if (near.length > 0) return `did you mean ${near.map((n) => `'${n}'`).join(' or ')}?`;
  const list = [...new Set(known)].sort();
  // A list that can be read is given whole; of a longer one a few show what such names look like.
  const most = list.length > 40 ? 8 : 40;
  const shown = list.slice(0, most).join(', ');
  return `known ${what}: ${shown}${list.length > most ? `, and ${list.length - most} more` : ''}`;
}

/** Damerau-Levenshtein distance of two words. */
export function editDistance(a: string, b: string): number {
  const width = b.length + 1;
  let twoAgo: number[] = [];
  let previous: number[] = Array.from({ length: width }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row: number[] = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let best = Math.min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, twoAgo[j - 2] + 1);
      row.push(best);
    }
    twoAgo = previous;
    previous = row;
  }
  return previous[b.length];
}

/** The message of what was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A signal ended the work before there was anything to answer with. */
export function interrupted(signal = 'a signal'): ShardwrightError {
  return new ShardwrightError(
    'E_INTERRUPTED',
    `${signal} came before there was anything to answer with`,
  );
}

/**
 * The values of a shell script that is read and not run: texts with parts that only the run knows,
 * and lists of them. Source: the expansions and the word splitting of the Bash manual, 3.5.
 */

/** A part of a value that the script alone does not tell. */
export interface Unknown {
  /** How the script writes it. */
  readonly text: string;
  readonly at: number;
  /** Why it is not known: the end of a sentence about it. */
  readonly why: string;
  /** Words that a condition may add here. */
  readonly adds?: readonly string[];
}

/** A text: known parts and unknown ones, in order. */
export type Value = readonly (string | Unknown)[];

/** A variable: a text or an array, which has `keys` where it is associative. */
export type Variable =
  | { readonly kind: 'text'; readonly value: Value }
  | {
      readonly kind: 'array';
      readonly values: readonly Value[];
      readonly keys?: readonly string[];
    };

/** A word that a command is given. */
export interface ShellWord {
  readonly value: Value;
  readonly at: number;
}

/** The value as the script has it: unknown parts as they are written. */
export function textOf(value: Value): string {
  return value.map((part) => (typeof part === 'string' ? part : part.text)).join('');
}

export function unknownIn(value: Value): Unknown | undefined {
  return value.find((part): part is Unknown => typeof part !== 'string');
}

/** The text of a value without unknown parts; undefined of others. */
export function knownText(value: Value): string | undefined {
  return unknownIn(value) === undefined ? textOf(value) : undefined;
}

/** Texts with a space between them. */
export function joined(values: readonly Value[]): Value {
  return values.flatMap((value, i) => (i === 0 ? value : [' ', ...value]));
}

/** Puts words together from parts of which some are split at blanks. */
export class Fields {
  private readonly done: Value[] = [];
  private open: (string | Unknown)[] | undefined;

  /** Adds to the last word, whatever it holds. */
  whole(value: Value): void {
    this.open = [...(this.open ?? []), ...value];
  }

  /** Adds a value whose blanks end words. */
  split(value: Value): void {
    for (const part of value) {
      if (typeof part !== 'string') this.whole([part]);
      else
        part.split(/[ \t\n]+/).forEach((text, i) => {
          if (i > 0) this.end();
          if (text !== '') this.whole([text]);
        });
    }
  }

  /** Adds a list: each value begins a word of its own but the first. */
  list(values: readonly Value[], isQuoted: boolean): void {
    values.forEach((value, i) => {
      if (i > 0) this.end();
      if (isQuoted) this.whole(value);
      else this.split(value);
    });
  }

  end(): void {
    if (this.open !== undefined) this.done.push(this.open);
    this.open = undefined;
  }

  words(): readonly Value[] {
    this.end();
    return this.done;
  }
}

/** The state that the statements of a script read and change: its variables, and where it is. */

import type { Redirection, Statement } from 'unbash';

import { ShardwrightError } from '../../errors.ts';
import { placeAt } from '../../text/place.ts';
import type { Scope } from './expand.ts';
import type { Unknown, Value, Variable } from './value.ts';

/** How a statement ends; `ran`: as the command does that it runs. */
export type Status = boolean | 'ran' | undefined;

/** The output of commands; if a part of it is not known, nothing is. */
export interface Output {
  readonly parts: (string | Unknown)[];
  isKnown: boolean;
}

export class ShellState {
  variables = new Map<string, Variable>();
  /** The arguments of the present function or script; absent: not known. */
  positional: readonly Value[] | undefined;
  /** The place in the file of an offset in the script that is read. */
  placed: (offset: number) => number = (offset) => offset;
  /** Names that nothing sets, of the words that were expanded last. */
  unset: string[] = [];
  /** The place of the statement that runs. */
  present = 0;
  /** Set after `exit`, `return`, `break` or `continue`. */
  ended: 'script' | 'function' | 'loop' | 'trip' | undefined;
  /** Variables of the shell outside that the present one does not see. */
  hidden: ReadonlySet<string> = new Set();
  /** The output that `$(...)` reads; absent outside of it. */
  output: Output | undefined;

  /** @param printed the output of the commands in `$(...)`, if the script decides all of it */
  constructor(
    private readonly whole: string,
    private readonly file: string,
    private readonly printed: (commands: readonly Statement[]) => Value | undefined,
  ) {}

  get scope(): Scope {
    return {
      variables: this.variables,
      positional: this.positional,
      placed: this.placed,
      isHidden: (name) => this.hidden.has(name),
      onUnset: (name) => void this.unset.push(name),
      printed: this.printed,
    };
  }

  /** A value in a condition: names that nothing sets are empty there. */
  emptied(value: Value): Value {
    return value.flatMap((part): Value => {
      if (typeof part === 'string') return [part];
      const name = part.text.replace(/^\$\{?|\}$/g, '');
      return !this.unset.includes(name) ? [part] : name === '#' ? ['0'] : [];
    });
  }

  /** Prints a text, and whether it goes where `$(...)` reads it. */
  print(value: Value, redirects: readonly Redirection[]): void {
    if (this.output === undefined) return;
    if (redirects.length === 0) this.output.parts.push(...value);
    else if (!redirects.every((redirect) => toErrors(redirect))) this.output.isKnown = false;
  }

  /** From here on no `$(...)` that could be known reads the output. */
  hideOutput(): void {
    if (this.output !== undefined) this.output.isKnown = false;
  }

  fail(code: string, what: string, offset: number, hint: string): ShardwrightError {
    return this.failAt(code, what, this.placed(offset), hint);
  }

  failAt(code: string, what: string, at: number, hint: string): ShardwrightError {
    return new ShardwrightError(code, what, { ...placeAt(this.whole, at, this.file), hint });
  }
}

/** Tells whether a redirection sends output to stderr. */
function toErrors(redirect: Redirection): boolean {
  return redirect.type === 'Redirect' && /^1?>&$|^>&$/.test(redirect.operator)
    ? redirect.target?.text === '2'
    : false;
}

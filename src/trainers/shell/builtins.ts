/** The builtin commands of a shell. Source: the Bash manual, 4.1 to 4.3. */

import type { Assignment, Redirection } from 'unbash';

import type { Assignments } from './assignments.ts';
import { bracketResult } from './conditions.ts';
import { documentOf, expandText } from './expand.ts';
import { nextOption, type OptionPlace } from './options.ts';
import { fieldsOf, formatted, PRINTED } from './printed.ts';
import type { ShellState, Status } from './state.ts';
import { joined, knownText, type ShellWord, textOf, type Value } from './value.ts';

/** Runs what is no builtin. */
interface Script {
  /** Runs a function of the script, or notes a command. */
  run(name: string | undefined, words: readonly ShellWord[]): Status;
  /** Reads a script in a text. */
  inner(value: Value, at: number): void;
}

export class Builtins {
  /** Other scripts that the script reads. */
  readonly sourced: { text: string; at: number }[] = [];
  private optionPlace: OptionPlace = { index: 1, character: 0 };

  constructor(
    private readonly state: ShellState,
    private readonly assignments: Assignments,
    private readonly script: Script,
  ) {}

  /** Runs a builtin, or hands the command on. */
  call(
    name: string | undefined,
    words: readonly ShellWord[],
    redirects: readonly Redirection[],
  ): Status {
    const values = words.slice(1).map(({ value }) => value);
    switch (name) {
      case 'echo':
      case 'cat':
      case 'basename':
      case 'dirname':
      case 'seq':
      case 'expr':
        if (this.state.output === undefined) return this.script.run(name, words);
        this.printOf(name, values, redirects);
        return true;
      case 'printf':
        return this.printFormat(words, redirects);
      case '[':
        return this.bracket(values.slice(0, -1));
      case 'test':
        return this.bracket(values);
      case ':':
      case 'true':
        return true;
      case 'false':
        return false;
      case 'exit':
      case 'return':
        return this.end(name, values);
      case 'break':
      case 'continue':
        this.endLoop(name, values, words[0].at);
        return true;
      case 'unset':
        for (const value of values) this.assignments.unsetName(textOf(value), words[0].at);
        return true;
      case 'set':
        this.setOptions(values);
        return true;
      case 'shift':
        return this.shift(values[0] ?? ['1'], words[0].at);
      case 'getopts':
        return this.option(values, words[0].at);
      case 'mapfile':
      case 'readarray':
        return this.readLines(values, words[0].at);
      case '.':
      case 'source':
        this.sourced.push({ text: values.map(textOf).join(' '), at: words[0].at });
        return 'ran';
      case 'eval':
        this.script.inner(joined(values), words[0].at);
        return 'ran';
      case 'let':
        return this.calculate(values);
      default:
        return this.script.run(name, words);
    }
  }

  /** The output of a program that knows nothing but its arguments. */
  private printOf(
    name: 'echo' | 'cat' | keyof typeof PRINTED,
    values: readonly Value[],
    redirects: readonly Redirection[],
  ): void {
    if (name === 'echo') {
      const first = textOf(values[0] ?? []);
      if (/^-[neE]*[eE]/.test(first)) this.state.hideOutput();
      else if (first === '-n') this.state.print(joined(values.slice(1)), redirects);
      else this.state.print([...joined(values), '\n'], redirects);
    } else if (name === 'cat') {
      const given = redirects.length === 1 ? documentOf(redirects[0], this.state.scope) : undefined;
      if (given === undefined || values.length > 0) this.state.hideOutput();
      else this.state.print(given, []);
    } else {
      const texts = values.map(knownText);
      const text = texts.includes(undefined) ? undefined : PRINTED[name](texts.map(String));
      if (text === undefined) this.state.hideOutput();
      else this.state.print([text, '\n'], redirects);
    }
  }

  /** `printf FORMAT ...`, and `printf -v NAME FORMAT ...`. */
  private printFormat(words: readonly ShellWord[], redirects: readonly Redirection[]): Status {
    const texts = words.slice(1).map(({ value }) => knownText(value));
    if (texts[0] === '--') texts.shift();
    const name = texts[0] === '-v' ? texts[1] : undefined;
    if (name === undefined && this.state.output === undefined)
      return this.script.run('printf', words);
    const [format, ...values] = texts.slice(name === undefined ? 0 : 2);
    const isKnown = format !== undefined && values.every((value) => value !== undefined);
    const text = isKnown ? formatted(format, values.map(String)) : undefined;
    if (name !== undefined) {
      if (text === undefined)
        this.assignments.setUnknown(name, words[0].at, 'which is formatted when the file runs');
      else this.assignments.keep(name, { kind: 'text', value: [text] });
    } else if (text === undefined) this.state.hideOutput();
    else this.state.print([text], redirects);
    return true;
  }

  /** `read NAME...` from a text of the script, split as `IFS=` before it says. */
  readNames(
    words: readonly ShellWord[],
    redirects: readonly Redirection[],
    given: readonly Assignment[],
  ): void {
    const texts = words.slice(1).map(({ value }) => textOf(value));
    const ends = texts.indexOf('-d');
    const isWhole = ends >= 0 && texts[ends + 1] === '';
    const names = texts.filter((text, i) => /^\w+$/.test(text) && texts[i - 1] !== '-d');
    const from = redirects.length === 1 ? documentOf(redirects[0], this.state.scope) : undefined;
    const known = from === undefined ? undefined : knownText(from);
    const options = texts.filter((text) => text.startsWith('-'));
    const isList = options.some((text) => /^-r?a/.test(text));
    const isPlain = options.every(
      (text) => /^-(r|r?a|d)$/.test(text) && (text !== '-d' || isWhole),
    );
    const signs = given.map(({ value }) =>
      value.type === 'Word' ? knownText(expandText(value, this.state.scope)) : undefined,
    );
    const sign = given.length === 0 ? ' ' : signs[0];
    const isSplit = given.length < 2 && sign?.length === 1 && (given[0]?.name ?? 'IFS') === 'IFS';
    const hasOne = names.length === 1;
    if (known === undefined || !isPlain || !isSplit || ((isWhole || isList) && !hasOne)) {
      for (const name of names)
        this.assignments.setUnknown(name, words[0].at, 'which is read when the file runs');
      return;
    }
    const text = isWhole ? known : known.split('\n')[0];
    const fields = fieldsOf(text, sign, isList || isWhole ? Infinity : names.length);
    if (isList) {
      this.assignments.keep(names[0], { kind: 'array', values: fields.map((field) => [field]) });
      return;
    }
    names.forEach((name, i) => {
      const value = isWhole ? text.replace(/^[ \t\n]+|[ \t\n]+$/g, '') : (fields[i] ?? '');
      this.assignments.keep(name, { kind: 'text', value: [value] });
    });
  }

  private end(name: 'exit' | 'return', values: readonly Value[]): Status {
    this.state.ended = name === 'exit' ? 'script' : 'function';
    const code = values.length === 0 ? '0' : knownText(values[0]);
    return code === undefined ? undefined : Number(code) === 0;
  }

  /** `mapfile` and `readarray`: what they read is not known. */
  private readLines(values: readonly Value[], at: number): undefined {
    for (const value of values) {
      const text = textOf(value);
      if (/^\w+$/.test(text))
        this.assignments.setUnknown(text, at, 'which is read when the file runs');
    }
    return undefined;
  }

  /** `let EXPRESSION...`. */
  private calculate(values: readonly Value[]): Status {
    const last = values.map((value) => this.assignments.calculated(knownText(value))).at(-1);
    return last === undefined ? undefined : last !== 0;
  }

  private endLoop(name: 'break' | 'continue', values: readonly Value[], at: number): void {
    if (values.length > 0 && knownText(values[0]) !== '1')
      throw this.state.failAt(
        'E_UNSUPPORTED',
        `${name} ${textOf(values[0])} ends several loops`,
        at,
        'write the loops so that each ends by itself.',
      );
    this.state.ended = name === 'break' ? 'loop' : 'trip';
  }

  /** `set -e -o NAME -- ARGUMENTS`. */
  private setOptions(values: readonly Value[]): void {
    const texts = values.map(textOf);
    let at = 0;
    for (; at < texts.length && /^[-+]./.test(texts[at]) && texts[at] !== '--'; at++) {
      if (/^-\w*a/.test(texts[at]) || (texts[at] === '-o' && texts[at + 1] === 'allexport'))
        this.assignments.exportsAll = true;
      if (/^\+\w*a/.test(texts[at]) || (texts[at] === '+o' && texts[at + 1] === 'allexport'))
        this.assignments.exportsAll = false;
      if (/^[-+]\w*o$/.test(texts[at])) at++;
    }
    const hasEnd = texts[at] === '--';
    if (hasEnd || at < texts.length) this.state.positional = values.slice(hasEnd ? at + 1 : at);
  }

  private shift(by: Value, at: number): Status {
    const number = Number(knownText(by) ?? NaN);
    if (this.state.positional === undefined) return true;
    if (!Number.isInteger(number) || number < 0)
      throw this.state.failAt(
        'E_UNSUPPORTED',
        `shift ${textOf(by)} by a number that the file does not tell`,
        at,
        'write the number.',
      );
    // More than there are: an error, and nothing is shifted.
    if (number > this.state.positional.length) return false;
    this.state.positional = this.state.positional.slice(number);
    return true;
  }

  /** `getopts LETTERS NAME [ARGUMENTS]`. */
  private option([letters = [], name = [], ...own]: readonly Value[], place: number): Status {
    const given = own.length > 0 ? own : this.state.positional;
    if (given === undefined) this.state.unset.push('@');
    const args = (given ?? []).map(knownText);
    const [known, to] = [knownText(letters), textOf(name)];
    const stated = this.state.variables.get('OPTIND');
    const index = stated?.kind === 'text' ? Number(knownText(stated.value) ?? NaN) : 1;
    if (known === undefined || args.includes(undefined) || !(index >= 1)) {
      for (const one of [to, 'OPTARG', 'OPTIND'])
        this.assignments.setUnknown(one, place, 'which depends on the arguments of the script');
      return undefined;
    }
    const character = this.optionPlace.index === index ? this.optionPlace.character : 0;
    const found = nextOption(known, args.map(String), { index, character });
    const next = 'next' in found ? found.next : found;
    this.optionPlace = next;
    this.assignments.keep('OPTIND', { kind: 'text', value: [String(next.index)] });
    this.assignments.keep(to, { kind: 'text', value: ['next' in found ? found.name : '?'] });
    if ('next' in found && found.argument !== undefined)
      this.assignments.keep('OPTARG', { kind: 'text', value: [found.argument] });
    else this.state.variables.delete('OPTARG');
    return 'next' in found;
  }

  private bracket(words: readonly Value[]): boolean | undefined {
    return bracketResult(words.map((word) => knownText(this.state.emptied(word))));
  }
}

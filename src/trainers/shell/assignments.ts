/**
 * Variables of a script as it assigns, declares and unsets them. Source: the Bash manual, 3.4, 4.2
 * and 6.7.
 */

import { type Assignment, parse, type Word } from 'unbash';

import { arithmetic } from './arithmetic.ts';
import { expandText, expandWord, indexIn, numbersOf } from './expand.ts';
import type { ShellState, Status } from './state.ts';
import { knownText, textOf, type Value, type Variable } from './value.ts';

/** Characters of a variable. */
const MOST_CHARACTERS = 2 ** 20;

/** Commands that declare variables. */
export const DECLARES: ReadonlySet<string> = new Set([
  'export',
  'declare',
  'local',
  'readonly',
  'typeset',
]);
/** The commands among them that declare local variables of a function. */
const LOCAL = new Set(['declare', 'local', 'typeset']);

export class Assignments {
  /** Variables that other programs see, shells among them. */
  readonly exported = new Set<string>();
  /** True after `set -a`. */
  exportsAll = false;
  /** The variables that names local to the present function had outside of it. */
  private locals: Map<string, Variable | undefined> | undefined;
  /** Variables that are integers: what they are set to is calculated. */
  private readonly integers = new Set<string>();

  constructor(private readonly state: ShellState) {}

  assign({ name, value, append, index, pos }: Assignment): void {
    if (name === 'IFS')
      throw this.state.fail(
        'E_UNSUPPORTED',
        'IFS changes how words are split',
        pos,
        'write the words with blanks, and leave IFS as it is.',
      );
    const old = this.state.variables.get(name);
    if (this.exportsAll) this.exported.add(name);
    const isAdded = append === true;
    if (old?.kind === 'array' && old.keys !== undefined)
      return this.assignKeys({ name, value, index, pos, isAdded });
    if (value.type === 'ArrayValue') {
      const placed = value.elements.find((word) => /^\[[^\]]+\]=/.test(word.text));
      if (placed !== undefined)
        return this.setUnknown(
          name,
          this.state.placed(placed.pos),
          'an array with indices, which is not read',
        );
      const values = value.elements.flatMap((word) => expandWord(word, this.state.scope));
      const before =
        !isAdded || old === undefined ? [] : old.kind === 'array' ? old.values : [old.value];
      this.keep(name, { kind: 'array', values: [...before, ...values] });
      return;
    }
    const text = expandText(value, this.state.scope);
    if (this.integers.has(name)) return this.assignNumber(name, text, isAdded, pos);
    if (index === undefined && old?.kind !== 'array') {
      const before = isAdded && old !== undefined ? old.value : [];
      this.keep(name, { kind: 'text', value: [...before, ...text] });
      return;
    }
    const values = old === undefined ? [] : old.kind === 'array' ? [...old.values] : [old.value];
    const stated = index === undefined ? 0 : indexIn(index, this.state.scope);
    const at = stated !== undefined && stated < 0 ? stated + values.length : stated;
    // Any element may be the one that is set.
    if (at === undefined || at < 0 || at > values.length)
      return this.setUnknown(
        name,
        this.state.placed(pos),
        'an array of which an element is set that is not read',
      );
    values[at] = isAdded ? [...(values[at] ?? []), ...text] : text;
    this.state.variables.set(name, { kind: 'array', values });
  }

  /** Sets values of an associative array. */
  private assignKeys({
    name,
    value,
    index,
    pos,
    isAdded,
  }: Pick<Assignment, 'name' | 'value' | 'index' | 'pos'> & { readonly isAdded: boolean }): void {
    const old = this.state.variables.get(name);
    const isWhole = value.type === 'ArrayValue';
    const had = old?.kind !== 'array' || (isWhole && !isAdded) ? { values: [], keys: [] } : old;
    const entries = new Map((had.keys ?? []).map((key, i) => [key, had.values[i]]));
    const unread = (): void =>
      this.setUnknown(name, this.state.placed(pos), 'an array whose indices are not read');
    if (isWhole) {
      for (const element of value.elements) {
        const [first, ...rest] = expandText(element, this.state.scope);
        const [, key, from] =
          typeof first === 'string' ? (/^\[([^\]]*)\]=([\s\S]*)$/.exec(first) ?? []) : [];
        if (key === undefined) return unread();
        entries.set(key, [from, ...rest]);
      }
    } else {
      const key = index === undefined ? '0' : knownText(expandText(index, this.state.scope));
      if (key === undefined) return unread();
      const text = expandText(value, this.state.scope);
      entries.set(key, isAdded ? [...(entries.get(key) ?? []), ...text] : text);
    }
    this.keep(name, { kind: 'array', values: [...entries.values()], keys: [...entries.keys()] });
  }

  private assignNumber(name: string, value: Value, isAdded: boolean, offset: number): void {
    const text = knownText(value);
    const number = this.calculated(isAdded && text !== undefined ? `${name}+(${text})` : text);
    if (number === undefined)
      this.setUnknown(name, this.state.placed(offset), 'a number that the file does not tell');
    else this.state.variables.set(name, { kind: 'text', value: [String(number)] });
  }

  /** The number that an arithmetic text comes to, with what it assigns. */
  calculated(text: string | undefined): number | undefined {
    const [statement] = text === undefined ? [] : parse(`((${text}))`).commands;
    const command = statement?.command;
    if (command?.type !== 'ArithmeticCommand' || command.expression === undefined) return undefined;
    return arithmetic(command.expression, numbersOf(this.state.scope));
  }

  /** Sets a variable, within a limit on what it grows to. */
  keep(name: string, variable: Variable): void {
    const values = variable.kind === 'array' ? variable.values : [variable.value];
    const size = values.reduce((sum, value) => sum + textOf(value).length + value.length + 1, 0);
    if (size > MOST_CHARACTERS)
      throw this.state.fail(
        'E_LIMIT',
        `${name} grows beyond ${MOST_CHARACTERS} characters`,
        this.state.present,
        'write the arguments out.',
      );
    this.state.variables.set(name, variable);
  }

  /** @param at the place in the file of what sets it */
  setUnknown(name: string, at: number, why: string): void {
    const value: Value = [{ text: `$${name}`, at, why }];
    this.state.variables.set(name, { kind: 'text', value });
  }

  unsetName(text: string, at: number): void {
    const [, name, index] = /^(\w+)\[(.*)\]$/.exec(text) ?? [];
    const variable = this.state.variables.get(name);
    if (variable?.kind !== 'array') {
      if (index === undefined) this.state.variables.delete(text);
    } else if (variable.keys?.includes(index) === true) {
      const [keys, values] = [variable.keys, variable.values].map((list) =>
        list.filter((_, i) => variable.keys?.[i] !== index),
      ) as [string[], Value[]];
      this.keep(name, { kind: 'array', values, keys });
    } else if (Number(index) === variable.values.length - 1 || index === '-1')
      this.state.variables.set(name, { kind: 'array', values: variable.values.slice(0, -1) });
    else this.setUnknown(name, at, 'an array with an index left out, which is not read');
  }

  declare(name: string, args: readonly (Word | Assignment)[]): Status {
    const flags = args.flatMap((arg) => (/^-\w+$/.test(arg.text) ? [...arg.text.slice(1)] : []));
    const [alias] = args.filter((arg) => flags.includes('n') && /^\w/.test(arg.text));
    if (alias !== undefined)
      throw this.state.fail(
        'E_UNSUPPORTED',
        `${alias.text} is another name of a variable`,
        alias.pos,
        'write the variable itself.',
      );
    const isArray = flags.includes('a') || flags.includes('A');
    const [cased] = args.filter((arg) => /^-\w*[lu]/.test(arg.text));
    if (cased !== undefined)
      throw this.state.fail(
        'E_UNSUPPORTED',
        `${name} ${cased.text} changes the case of what is assigned`,
        cased.pos,
        'write the text as it is to be.',
      );
    const isExport = (name === 'export' && !flags.includes('n')) || flags.includes('x');
    for (const arg of args) {
      // A name that is put together: export "${NAME}_SIZE=8".
      const built = arg.type === 'Word' ? this.builtAssignment(arg) : undefined;
      const [own] = built === undefined ? (/^\w+/.exec(arg.text) ?? []) : [built.name];
      if (own === undefined) continue;
      if (isExport) this.exported.add(own);
      else if (name === 'export') this.exported.delete(own);
      if (flags.includes('i')) this.integers.add(own);
      const locals = LOCAL.has(name) && !flags.includes('g') ? this.locals : undefined;
      if (locals !== undefined && !locals.has(own)) {
        locals.set(own, this.state.variables.get(own));
        this.state.variables.set(own, { kind: 'text', value: [] });
      }
      const isMap = flags.includes('A');
      if (isMap && this.state.variables.get(own)?.kind !== 'array')
        this.state.variables.set(own, { kind: 'array', values: [], keys: [] });
      if (arg.type === 'Assignment') this.assign(arg);
      else if (built?.value !== undefined) this.keep(own, { kind: 'text', value: built.value });
      else if (isArray && !isMap) this.state.variables.set(own, { kind: 'array', values: [] });
    }
    return true;
  }

  /** The name, and the value if there is one, of a word that is expanded before it is read. */
  private builtAssignment(word: Word): { name: string; value: Value | undefined } | undefined {
    if (word.parts === undefined) return undefined;
    const [first, ...rest] = expandText(word, this.state.scope).reduce<Value>((all, part) => {
      const last = all.at(-1);
      return typeof part === 'string' && typeof last === 'string'
        ? [...all.slice(0, -1), last + part]
        : [...all, part];
    }, []);
    if (typeof first !== 'string') return undefined;
    const [, name, value] = /^([A-Za-z_]\w*)(?:=([\s\S]*))?$/.exec(first) ?? [];
    if (name === undefined || (value === undefined && rest.length > 0)) return undefined;
    return { name, value: value === undefined ? undefined : [value, ...rest] };
  }

  /** Runs a command with names that it alone has: `NAME=VALUE COMMAND`. */
  withNames(given: readonly Assignment[], run: () => Status): Status {
    const own = given.filter(({ name }) => name !== 'IFS');
    const before = own.map(({ name }) => [name, this.state.variables.get(name)] as const);
    const isNew = own.flatMap(({ name }) => (this.exported.has(name) ? [] : [name]));
    for (const assignment of own) this.assign(assignment);
    for (const name of isNew) this.exported.add(name);
    const status = run();
    for (const name of isNew) this.exported.delete(name);
    this.restore(before);
    return status;
  }

  /** Runs a function: the names that it declares are local. */
  inFunction<T>(run: () => T): T {
    const outer = this.locals;
    const locals = new Map<string, Variable | undefined>();
    this.locals = locals;
    const found = run();
    this.restore(locals);
    this.locals = outer;
    return found;
  }

  private restore(before: Iterable<readonly [string, Variable | undefined]>): void {
    for (const [name, variable] of before)
      if (variable === undefined) this.state.variables.delete(name);
      else this.state.variables.set(name, variable);
  }
}

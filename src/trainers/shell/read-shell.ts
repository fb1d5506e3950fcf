/**
 * Reads the commands of a shell script with the words that they are given, without running it:
 * variables, arrays, functions, conditions on what the script sets. The parser is that of `unbash`.
 * What depends on the run (output of commands, the environment, files) stays unknown, with its
 * place. Source: the Bash manual, 3.2 to 3.7.
 */

import {
  type Assignment,
  type CommandNode,
  type CompoundList,
  parse,
  type Redirection,
  type Statement,
  type Word,
} from 'unbash';

import { ShardwrightError } from '../../errors.ts';
import { placeAt } from '../../text/place.ts';
import { arithmetic } from './arithmetic.ts';
import { bracketResult, testResult, testsAlone, type TestWords } from './conditions.ts';
import {
  documentOf,
  expandExpression,
  expandPattern,
  expandText,
  expandWord,
  indexIn,
  numbersOf,
  type Scope,
} from './expand.ts';
import { mergeVariables } from './merge.ts';
import { nextOption, type OptionPlace } from './options.ts';
import { isOpenPattern, matchesPattern } from './patterns.ts';
import { fieldsOf, formatted, PRINTED } from './printed.ts';
import { matchesExpression } from './regular.ts';
import {
  joined,
  knownText,
  type ShellWord,
  textOf,
  type Unknown,
  unknownIn,
  type Value,
  type Variable,
} from './value.ts';

/** A command that the script runs. */
export interface ShellCommand {
  readonly words: readonly ShellWord[];
  readonly at: number;
}

/** The commands of a script and its variables, as far as they can be known without running it. */
export interface ShellScript {
  readonly commands: readonly ShellCommand[];
  readonly variables: ReadonlyMap<string, Variable>;
  /** Names of which a condition was decided as if the environment did not set them. */
  readonly assumedUnset: readonly { readonly name: string; readonly at: number }[];
  /** Other scripts that it reads. */
  readonly sourced: readonly { readonly text: string; readonly at: number }[];
}

/** Statements that are read: a loop is read as often as it runs. */
const MOST_STEPS = 20_000;
/** Trips of a loop by a test, beyond which it is one that waits for something. */
const MOST_TRIPS = 1000;
/** Scripts inside scripts, and calls inside calls. */
const MOST_DEPTH = 16;

/** @throws E_SYNTAX with line and column for what is not a shell script; E_LIMIT */
export function readShell(text: string, file: string): ShellScript {
  const reader = new ShellReader(text, file);
  reader.script(text, (offset) => offset);
  return reader;
}

/** Characters of a variable. */
const MOST_CHARACTERS = 2 ** 20;

/** Where a part of the script lies. */
type Ranged = { readonly pos: number; readonly end: number };

/** The output of commands; if a part of it is not known, nothing is. */
interface Output {
  readonly parts: (string | Unknown)[];
  isKnown: boolean;
}

/** How a statement ends; `ran`: as the command does that it runs. */
type Status = boolean | 'ran' | undefined;

class ShellReader implements ShellScript {
  readonly commands: ShellCommand[] = [];
  readonly assumedUnset: { name: string; at: number }[] = [];
  readonly sourced: { text: string; at: number }[] = [];
  variables = new Map<string, Variable>();
  private readonly functions = new Map<string, Extract<CommandNode, { type: 'Function' }>>();
  private positional: readonly Value[] | undefined;
  private placed: (offset: number) => number = (offset) => offset;
  private source = '';
  private unset: string[] = [];
  /** The place of the statement that runs. */
  private present = 0;
  private steps = 0;
  private depth = 0;
  /** Set after `exit`, `return`, `break` or `continue`. */
  private ended: 'script' | 'function' | 'loop' | 'trip' | undefined;
  /** True if a condition that is not decided ends a loop or one of its trips. */
  private mayEndLoop = false;
  /** Variables that are integers: what they are set to is calculated. */
  private readonly integers = new Set<string>();
  /** How the last `$(...)` ended, which an assignment by itself ends as. */
  private substituted: Status = true;
  private optionPlace: OptionPlace = { index: 1, character: 0 };
  /** Variables that other programs see, shells among them. */
  private readonly exported = new Set<string>();
  /** True after `set -a`. */
  private exportsAll = false;
  /** Variables of the shell outside that the present one does not see. */
  private hidden: ReadonlySet<string> = new Set();
  /** The output that `$(...)` reads; absent outside of it. */
  private output: Output | undefined;
  /** The variables that names local to the present function had outside of it. */
  private locals: Map<string, Variable | undefined> | undefined;

  constructor(
    private readonly whole: string,
    private readonly file: string,
  ) {}

  /** Reads a script, or one inside of it. */
  script(text: string, placed: (offset: number) => number): void {
    const [outerPlaced, outerSource] = [this.placed, this.source];
    const tree = parse(text);
    this.placed = placed;
    this.source = text;
    const [fault] = tree.errors ?? [];
    if (fault !== undefined)
      throw this.fail('E_SYNTAX', `not a shell script: ${fault.message}`, fault.pos, 'correct it.');
    this.deeper(() => this.statements(tree.commands));
    this.placed = outerPlaced;
    this.source = outerSource;
  }

  private fail(code: string, what: string, offset: number, hint: string): ShardwrightError {
    return this.failAt(code, what, this.placed(offset), hint);
  }

  private failAt(code: string, what: string, at: number, hint: string): ShardwrightError {
    return new ShardwrightError(code, what, { ...placeAt(this.whole, at, this.file), hint });
  }

  private deeper<T>(run: () => T): T {
    if (++this.depth > MOST_DEPTH)
      throw this.fail(
        'E_LIMIT',
        `more than ${MOST_DEPTH} scripts or calls in each other`,
        this.present,
        'write the arguments out.',
      );
    const found = run();
    this.depth--;
    return found;
  }

  private get scope(): Scope {
    return {
      variables: this.variables,
      positional: this.positional,
      placed: this.placed,
      isHidden: (name) => this.hidden.has(name),
      onUnset: (name) => void this.unset.push(name),
      printed: (commands) => this.printed(commands),
    };
  }

  private statements(list: readonly Statement[]): Status {
    let status: Status = true;
    for (const { command } of list) {
      if (this.ended !== undefined) return status;
      if (command.type === 'AndOr') status = this.andOr(command);
      else if (command.type === 'Pipeline') status = this.pipeline(command);
      else status = this.command(command);
    }
    return status;
  }

  private list({ commands }: CompoundList): Status {
    return this.statements(commands);
  }

  private andOr({ commands, operators }: Extract<Statement['command'], { type: 'AndOr' }>): Status {
    const one = (i: number): Status => {
      const node = commands[i];
      return node.type === 'Pipeline' ? this.pipeline(node) : this.command(node);
    };
    let status = one(0);
    operators.forEach((operator, i) => {
      if (this.ended !== undefined) return;
      const next = (): Status => one(i + 1);
      // Commands are taken to succeed; a test that is not decided makes what follows conditional.
      if (status === undefined) this.branches([next, () => undefined], commands[i]);
      else if ((status !== false) === (operator === '&&')) {
        const { type } = commands[i + 1];
        const isTest = type === 'TestCommand' || type === 'ArithmeticCommand';
        status = isTest ? next() : this.taken(next, () => undefined, commands[i]);
      }
    });
    return status;
  }

  private pipeline({
    commands,
    prefixes,
  }: Extract<Statement['command'], { type: 'Pipeline' }>): Status {
    let status: Status = true;
    if (commands.length > 1) this.hideOutput();
    for (const command of commands) {
      // Each runs in a shell of its own.
      const before = new Map(this.variables);
      status = this.command(command);
      if (commands.length > 1) this.variables = before;
    }
    const isNegated = prefixes.filter(({ type }) => type === 'Negation').length % 2 === 1;
    return isNegated && typeof status === 'boolean' ? !status : status;
  }

  /** From here on no `$(...)` that could be known reads the output. */
  private hideOutput(): void {
    if (this.output !== undefined) this.output.isKnown = false;
  }

  private command(node: CommandNode): Status {
    this.present = node.pos;
    if (++this.steps > MOST_STEPS)
      throw this.fail(
        'E_LIMIT',
        `the script runs more than ${MOST_STEPS} statements`,
        node.pos,
        'write the arguments out.',
      );
    switch (node.type) {
      case 'Command':
        return this.simple(node);
      case 'Function':
        this.functions.set(textOf(expandText(node.name, this.scope)), node);
        return true;
      case 'Redirected': {
        this.hideOutput();
        const status = this.command(node.command);
        this.documents(node.redirects);
        return status;
      }
      case 'BraceGroup':
        return this.list(node.body);
      case 'Subshell':
        return this.subshell(() => this.list(node.body));
      case 'TestCommand':
        return this.condition(() => testResult(node.expression, this.testWords));
      case 'ArithmeticCommand': {
        const { expression } = node;
        const value =
          expression === undefined ? undefined : arithmetic(expression, numbersOf(this.scope));
        return value === undefined ? undefined : value !== 0;
      }
      case 'If':
        return this.choose(node);
      case 'Case':
        return this.caseOf(node);
      case 'For':
        return this.loop(node);
      case 'While':
        return this.whileLoop(node);
      case 'ArithmeticFor':
        return this.countedLoop(node);
      case 'Select':
        return this.branches([() => this.trip(node.body), () => undefined], node);
      case 'Coproc':
        return undefined;
    }
  }

  /** Reads each branch with variables of its own, and keeps what they agree on. */
  private branches(runs: readonly (() => void)[], condition: Ranged): undefined {
    const before = this.variables;
    const ends: Map<string, Variable>[] = [];
    this.hideOutput();
    for (const run of runs) {
      this.variables = new Map(before);
      run();
      // A branch that ends the script leaves nothing to what follows.
      if (this.ended === 'loop' || this.ended === 'trip') this.mayEndLoop = true;
      if (this.ended !== 'script' && this.ended !== 'function') ends.push(this.variables);
      this.ended = undefined;
    }
    const text = this.source.slice(condition.pos, condition.end).split('\n')[0];
    this.variables =
      ends.length === 0 ? before : mergeVariables(ends, { text, at: this.placed(condition.pos) });
    return undefined;
  }

  private choose(node: Extract<CommandNode, { type: 'If' }>): Status {
    const arms = [{ clause: node.clause, then: node.then }, ...node.elif];
    const otherwise = node.else;
    const last = (): Status => (otherwise === undefined ? true : this.list(otherwise));
    const from = (i: number): Status => {
      if (i === arms.length) return last();
      const { clause, then } = arms[i];
      const status = this.list(clause);
      const [yes, no] = [(): Status => this.list(then), (): Status => from(i + 1)];
      if (status === true) return this.taken(yes, no, clause);
      if (status === false) return this.taken(no, yes, clause);
      return this.branches([yes, no], clause);
    };
    return from(0);
  }

  private caseOf(node: Extract<CommandNode, { type: 'Case' }>): Status {
    const word = this.condition(() => knownText(this.emptied(expandText(node.word, this.scope))));
    const bodies = node.items.map((item) => (): Status => this.list(item.body));
    const none = (): Status => true;
    if (word === undefined) return this.branches([...bodies, none], node.word);
    let found = false;
    let isNext = false;
    for (const [i, item] of node.items.entries()) {
      const patterns = item.pattern.map((p) => knownText(expandPattern(p, this.scope)));
      const isOpen = patterns.some((p) => p === undefined || isOpenPattern(p, word));
      if (isOpen && !isNext) return this.branches([...bodies.slice(i), none], node.word);
      if (!isNext && !patterns.some((p) => p !== undefined && matchesPattern(word, p))) continue;
      const status = found ? bodies[i]() : this.taken(bodies[i], none, node.word);
      found = true;
      isNext = item.terminator === ';&';
      if (!isNext && item.terminator !== ';;&') return status;
    }
    return true;
  }

  private loop(node: Extract<CommandNode, { type: 'For' }>): Status {
    const name = textOf(expandText(node.name, this.scope));
    const words =
      node.wordlist === undefined
        ? this.positional
        : node.wordlist.flatMap((word) => expandWord(word, this.scope));
    // Called without arguments, a script has none to go through.
    if (words?.length === 1 && this.positional === undefined && textOf(words[0]) === '$@') {
      this.assume(['@'], node.name);
      return true;
    }
    if (words === undefined || words.some((word) => unknownIn(word) !== undefined)) {
      this.setUnknown(name, this.placed(node.pos), 'which a loop sets');
      return this.branches([() => this.trip(node.body), () => undefined], node.name);
    }
    const trips = (): void => {
      for (const value of words) {
        this.variables.set(name, { kind: 'text', value });
        if (!this.onTrip(node.body)) break;
      }
    };
    this.trips(trips, node.name);
    return true;
  }

  /** One trip of a loop that is known to run; whether another follows. */
  private onTrip(body: CompoundList): boolean {
    this.list(body);
    if (this.ended === 'trip') this.ended = undefined;
    return this.ended === undefined;
  }

  /** Runs the trips of a loop; where a condition that is open may end it, nothing is known. */
  private trips(run: () => void, condition: Ranged): void {
    const [before, outer] = [new Map(this.variables), this.mayEndLoop];
    this.mayEndLoop = false;
    run();
    if (this.ended === 'loop') this.ended = undefined;
    // Nobody knows after which trip it ended.
    if (this.mayEndLoop) {
      const after = this.variables;
      this.variables = before;
      this.branches([() => void (this.variables = after), () => undefined], condition);
    }
    this.mayEndLoop = outer;
  }

  /** Trips of a loop whose test the script decides; of another nobody knows how often it runs. */
  private whileLoop(node: Extract<CommandNode, { type: 'While' }>): Status {
    const wanted = node.kind === 'while';
    const isTest = (): boolean | undefined => {
      this.unset = [];
      const status = testsAlone(node.clause) ? this.list(node.clause) : undefined;
      if (typeof status !== 'boolean') return undefined;
      const names = this.unset;
      // Nothing is known of a loop that runs because nobody sets a name.
      if (names.length > 0 && status === wanted) return undefined;
      this.assume(names, node.clause);
      return status === wanted;
    };
    return this.decidedLoop(isTest, node, () => undefined);
  }

  private countedLoop(node: Extract<CommandNode, { type: 'ArithmeticFor' }>): Status {
    const value = (expression: typeof node.test): number | undefined =>
      expression === undefined ? undefined : arithmetic(expression, numbersOf(this.scope));
    value(node.initialize);
    const isTest = (): boolean | undefined => {
      const number = value(node.test);
      return number === undefined ? undefined : number !== 0;
    };
    return this.decidedLoop(isTest, node, () => void value(node.update));
  }

  private decidedLoop(
    isTest: () => boolean | undefined,
    node: Ranged & { readonly body: CompoundList },
    step: () => void,
  ): Status {
    const before = new Map(this.variables);
    let goesOn = isTest();
    const trips = (): void => {
      for (let trip = 0; goesOn === true; trip++) {
        if (trip === MOST_TRIPS) {
          goesOn = undefined;
          break;
        }
        if (!this.onTrip(node.body)) break;
        step();
        goesOn = isTest();
      }
    };
    this.trips(trips, node);
    if (goesOn !== undefined) return true;
    const after = this.variables;
    this.variables = before;
    return this.branches(
      [() => void (this.variables = after), () => this.trip(node.body), () => undefined],
      node,
    );
  }

  /** The body of a loop that runs nobody knows how often. */
  private trip(body: CompoundList): void {
    const outer = this.mayEndLoop;
    this.list(body);
    this.mayEndLoop = outer;
    if (this.ended === 'trip' || this.ended === 'loop') this.ended = undefined;
  }

  /** Reads a condition by itself: a name that nothing sets is empty there. */
  private condition<T>(decide: () => T): T {
    this.unset = [];
    return decide();
  }

  /**
   * Takes the branch of a condition that is decided. Where it was decided as if the environment did
   * not set a name, that is noted; and where the script ends then, the environment does set it.
   */
  private taken(run: () => Status, other: () => void, node: Ranged): Status {
    const names = [...new Set(this.unset)];
    this.unset = [];
    if (names.length === 0) return run();
    const before = new Map(this.variables);
    const status = run();
    if (this.ended === 'script' || this.ended === 'function') {
      this.ended = undefined;
      this.variables = before;
      return this.branches([other], node);
    }
    this.assume(names, node);
    return status;
  }

  /** Notes names that a condition was decided without. */
  private assume(names: readonly string[], node: Ranged): void {
    for (const name of names)
      if (!this.assumedUnset.some((known) => known.name === name))
        this.assumedUnset.push({ name, at: this.placed(node.pos) });
  }

  /** A value in a condition: names that nothing sets are empty there. */
  private emptied(value: Value): Value {
    return value.flatMap((part): Value => {
      if (typeof part === 'string') return [part];
      const name = part.text.replace(/^\$\{?|\}$/g, '');
      return !this.unset.includes(name) ? [part] : name === '#' ? ['0'] : [];
    });
  }

  private get testWords(): TestWords {
    const known = (value: Value): string | undefined => knownText(this.emptied(value));
    return {
      text: (word) => known(expandText(word, this.scope)),
      pattern: (word) => known(expandPattern(word, this.scope)),
      expression: (text, word) => {
        const expression = known(expandExpression(word, this.scope));
        const found =
          text === undefined || expression === undefined
            ? undefined
            : matchesExpression(text, expression);
        const { groups } = found ?? {};
        if (groups === undefined)
          this.setUnknown('BASH_REMATCH', this.placed(word.pos), 'which a match sets');
        else this.keep('BASH_REMATCH', { kind: 'array', values: groups.map((one) => [one]) });
        return found?.matches;
      },
    };
  }

  private bracket(words: readonly Value[]): boolean | undefined {
    return bracketResult(words.map((word) => knownText(this.emptied(word))));
  }

  private simple(node: Extract<CommandNode, { type: 'Command' }>): Status {
    if (node.name === undefined) {
      this.substituted = true;
      for (const part of node.prefix) if (part.type === 'Assignment') this.assign(part);
      return this.substituted;
    }
    const words: ShellWord[] = [];
    const take = (word: Word): void => {
      const at = this.placed(word.pos);
      for (const value of expandWord(word, this.scope)) words.push({ value, at });
    };
    const name = knownText(expandWord(node.name, this.scope)[0] ?? []);
    this.unset = [];
    take(node.name);
    if (name !== undefined && DECLARES.has(name)) return this.declare(name, node.args);
    for (const argument of node.args) {
      if (argument.type === 'Word') take(argument);
      else words.push({ value: [argument.text], at: this.placed(argument.pos) });
    }
    const given = node.prefix.flatMap((part) => (part.type === 'Assignment' ? [part] : []));
    if (name === 'read') {
      this.readNames(words, node.redirects, given);
      return 'ran';
    }
    return this.withNames(given, () => {
      const status = this.call(name, words, node.redirects);
      // A document that `:` is given is a comment.
      if (name !== ':') this.documents(node.redirects);
      return status;
    });
  }

  /** Runs a command with names that it alone has: `NAME=VALUE COMMAND`. */
  private withNames(given: readonly Assignment[], run: () => Status): Status {
    const own = given.filter(({ name }) => name !== 'IFS');
    const before = own.map(({ name }) => [name, this.variables.get(name)] as const);
    const isNew = own.flatMap(({ name }) => (this.exported.has(name) ? [] : [name]));
    for (const assignment of own) this.assign(assignment);
    for (const name of isNew) this.exported.add(name);
    const status = run();
    for (const name of isNew) this.exported.delete(name);
    for (const [name, variable] of before)
      if (variable === undefined) this.variables.delete(name);
      else this.variables.set(name, variable);
    return status;
  }

  /** `read NAME...` from a text of the script, split as `IFS=` before it says. */
  private readNames(
    words: readonly ShellWord[],
    redirects: readonly Redirection[],
    given: readonly Assignment[],
  ): void {
    const texts = words.slice(1).map(({ value }) => textOf(value));
    const ends = texts.indexOf('-d');
    const isWhole = ends >= 0 && texts[ends + 1] === '';
    const names = texts.filter((text, i) => /^\w+$/.test(text) && texts[i - 1] !== '-d');
    const from = redirects.length === 1 ? documentOf(redirects[0], this.scope) : undefined;
    const known = from === undefined ? undefined : knownText(from);
    const options = texts.filter((text) => text.startsWith('-'));
    const isList = options.some((text) => /^-r?a/.test(text));
    const isPlain = options.every(
      (text) => /^-(r|r?a|d)$/.test(text) && (text !== '-d' || isWhole),
    );
    const signs = given.map(({ value }) =>
      value.type === 'Word' ? knownText(expandText(value, this.scope)) : undefined,
    );
    const sign = given.length === 0 ? ' ' : signs[0];
    const isSplit = given.length < 2 && sign?.length === 1 && (given[0]?.name ?? 'IFS') === 'IFS';
    const hasOne = names.length === 1;
    if (known === undefined || !isPlain || !isSplit || ((isWhole || isList) && !hasOne)) {
      for (const name of names)
        this.setUnknown(name, words[0].at, 'which is read when the file runs');
      return;
    }
    const text = isWhole ? known : known.split('\n')[0];
    const fields = fieldsOf(text, sign, isList || isWhole ? Infinity : names.length);
    if (isList) {
      this.keep(names[0], { kind: 'array', values: fields.map((field) => [field]) });
      return;
    }
    names.forEach((name, i) => {
      const value = isWhole ? text.replace(/^[ \t\n]+|[ \t\n]+$/g, '') : (fields[i] ?? '');
      this.keep(name, { kind: 'text', value: [value] });
    });
  }

  /** The output of commands in `$(...)`, if the script decides all of it. */
  private printed(commands: readonly Statement[]): Value | undefined {
    const [outer, unset, positional] = [this.output, this.unset, this.positional];
    const output: Output = { parts: [], isKnown: true };
    this.output = output;
    const status = this.deeper(() => this.subshell(() => this.statements(commands)));
    [this.output, this.unset, this.positional] = [outer, unset, positional];
    this.substituted = status;
    return output.isKnown ? output.parts : undefined;
  }

  /** Prints a text, and whether it goes where `$(...)` reads it. */
  private print(value: Value, redirects: readonly Redirection[]): void {
    if (this.output === undefined) return;
    if (redirects.length === 0) this.output.parts.push(...value);
    else if (!redirects.every((redirect) => toErrors(redirect))) this.output.isKnown = false;
  }

  /** Runs a builtin or a function, or notes the command. */
  private call(
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
        if (this.output === undefined) return this.run(name, words);
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
      case 'return': {
        this.ended = name === 'exit' ? 'script' : 'function';
        const code = values.length === 0 ? '0' : knownText(values[0]);
        return code === undefined ? undefined : Number(code) === 0;
      }
      case 'break':
      case 'continue':
        this.endLoop(name, values, words[0].at);
        return true;
      case 'unset':
        for (const value of values) this.unsetName(textOf(value), words[0].at);
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
        for (const value of values) {
          const text = textOf(value);
          if (/^\w+$/.test(text))
            this.setUnknown(text, words[0].at, 'which is read when the file runs');
        }
        return undefined;
      case '.':
      case 'source':
        this.sourced.push({ text: values.map(textOf).join(' '), at: words[0].at });
        return 'ran';
      case 'eval':
        this.inner(joined(values), words[0].at);
        return 'ran';
      case 'let': {
        const last = values.map((value) => this.calculated(knownText(value))).at(-1);
        return last === undefined ? undefined : last !== 0;
      }
      default:
        return this.run(name, words);
    }
  }

  /** `set -e -o NAME -- ARGUMENTS`. */
  private setOptions(values: readonly Value[]): void {
    const texts = values.map(textOf);
    let at = 0;
    for (; at < texts.length && /^[-+]./.test(texts[at]) && texts[at] !== '--'; at++) {
      if (/^-\w*a/.test(texts[at]) || (texts[at] === '-o' && texts[at + 1] === 'allexport'))
        this.exportsAll = true;
      if (/^\+\w*a/.test(texts[at]) || (texts[at] === '+o' && texts[at + 1] === 'allexport'))
        this.exportsAll = false;
      if (/^[-+]\w*o$/.test(texts[at])) at++;
    }
    const hasEnd = texts[at] === '--';
    if (hasEnd || at < texts.length) this.positional = values.slice(hasEnd ? at + 1 : at);
  }

  private shift(by: Value, at: number): Status {
    const number = Number(knownText(by) ?? NaN);
    if (this.positional === undefined) return true;
    if (!Number.isInteger(number) || number < 0)
      throw this.failAt(
        'E_UNSUPPORTED',
        `shift ${textOf(by)} by a number that the file does not tell`,
        at,
        'write the number.',
      );
    // More than there are: an error, and nothing is shifted.
    if (number > this.positional.length) return false;
    this.positional = this.positional.slice(number);
    return true;
  }

  /** `getopts LETTERS NAME [ARGUMENTS]`. */
  private option([letters = [], name = [], ...own]: readonly Value[], place: number): Status {
    const given = own.length > 0 ? own : this.positional;
    if (given === undefined) this.unset.push('@');
    const args = (given ?? []).map(knownText);
    const [known, to] = [knownText(letters), textOf(name)];
    const stated = this.variables.get('OPTIND');
    const index = stated?.kind === 'text' ? Number(knownText(stated.value) ?? NaN) : 1;
    if (known === undefined || args.includes(undefined) || !(index >= 1)) {
      for (const one of [to, 'OPTARG', 'OPTIND'])
        this.setUnknown(one, place, 'which depends on the arguments of the script');
      return undefined;
    }
    const character = this.optionPlace.index === index ? this.optionPlace.character : 0;
    const found = nextOption(known, args.map(String), { index, character });
    const next = 'next' in found ? found.next : found;
    this.optionPlace = next;
    this.keep('OPTIND', { kind: 'text', value: [String(next.index)] });
    this.keep(to, { kind: 'text', value: ['next' in found ? found.name : '?'] });
    if ('next' in found && found.argument !== undefined)
      this.keep('OPTARG', { kind: 'text', value: [found.argument] });
    else this.variables.delete('OPTARG');
    return 'next' in found;
  }

  private endLoop(name: 'break' | 'continue', values: readonly Value[], at: number): void {
    if (values.length > 0 && knownText(values[0]) !== '1')
      throw this.failAt(
        'E_UNSUPPORTED',
        `${name} ${textOf(values[0])} ends several loops`,
        at,
        'write the loops so that each ends by itself.',
      );
    this.ended = name === 'break' ? 'loop' : 'trip';
  }

  private unsetName(text: string, at: number): void {
    const [, name, index] = /^(\w+)\[(.*)\]$/.exec(text) ?? [];
    const variable = this.variables.get(name);
    if (variable?.kind !== 'array') {
      if (index === undefined) this.variables.delete(text);
    } else if (variable.keys?.includes(index) === true) {
      const [keys, values] = [variable.keys, variable.values].map((list) =>
        list.filter((_, i) => variable.keys?.[i] !== index),
      ) as [string[], Value[]];
      this.keep(name, { kind: 'array', values, keys });
    } else if (Number(index) === variable.values.length - 1 || index === '-1')
      this.variables.set(name, { kind: 'array', values: variable.values.slice(0, -1) });
    else this.setUnknown(name, at, 'an array with an index left out, which is not read');
  }

  /** The number that an arithmetic text comes to, with what it assigns. */
  private calculated(text: string | undefined): number | undefined {
    const [statement] = text === undefined ? [] : parse(`((${text}))`).commands;
    const command = statement?.command;
    if (command?.type !== 'ArithmeticCommand' || command.expression === undefined) return undefined;
    return arithmetic(command.expression, numbersOf(this.scope));
  }

  private run(name: string | undefined, words: readonly ShellWord[]): Status {
    const called = name === undefined ? undefined : this.functions.get(name);
    if (called !== undefined) {
      const [outer, outerLocals] = [this.positional, this.locals];
      this.positional = words.slice(1).map(({ value }) => value);
      const locals = new Map<string, Variable | undefined>();
      this.locals = locals;
      const { body } = called;
      const status = this.deeper(() =>
        body.type === 'CompoundList' ? this.list(body) : this.command(body),
      );
      for (const [own, variable] of locals)
        if (variable === undefined) this.variables.delete(own);
        else this.variables.set(own, variable);
      [this.positional, this.locals] = [outer, outerLocals];
      if (this.ended === 'function') this.ended = undefined;
      return status;
    }
    // `bash -c TEXT`, whoever starts it.
    const texts = words.map(({ value }) => textOf(value));
    const shell = texts.findIndex((text) => /(^|\/)(ba|z|da)?sh$/.test(text));
    const flag = texts.findIndex((text, i) => shell >= 0 && i > shell && /^-[a-z]*c$/.test(text));
    this.hideOutput();
    if (flag >= 0 && texts.slice(shell + 1, flag).every((text) => text.startsWith('-')))
      this.shell(() => this.inner(words.at(flag + 1)?.value ?? [], words[flag].at));
    else if (this.output === undefined) this.commands.push({ words, at: words[0]?.at ?? 0 });
    return 'ran';
  }

  /** The output of a program that knows nothing but its arguments. */
  private printOf(
    name: 'echo' | 'cat' | keyof typeof PRINTED,
    values: readonly Value[],
    redirects: readonly Redirection[],
  ): void {
    if (name === 'echo') {
      const first = textOf(values[0] ?? []);
      if (/^-[neE]*[eE]/.test(first)) this.hideOutput();
      else if (first === '-n') this.print(joined(values.slice(1)), redirects);
      else this.print([...joined(values), '\n'], redirects);
    } else if (name === 'cat') {
      const given = redirects.length === 1 ? documentOf(redirects[0], this.scope) : undefined;
      if (given === undefined || values.length > 0) this.hideOutput();
      else this.print(given, []);
    } else {
      const texts = values.map(knownText);
      const text = texts.includes(undefined) ? undefined : PRINTED[name](texts.map(String));
      if (text === undefined) this.hideOutput();
      else this.print([text, '\n'], redirects);
    }
  }

  /** `printf FORMAT ...`, and `printf -v NAME FORMAT ...`. */
  private printFormat(words: readonly ShellWord[], redirects: readonly Redirection[]): Status {
    const texts = words.slice(1).map(({ value }) => knownText(value));
    if (texts[0] === '--') texts.shift();
    const name = texts[0] === '-v' ? texts[1] : undefined;
    if (name === undefined && this.output === undefined) return this.run('printf', words);
    const [format, ...values] = texts.slice(name === undefined ? 0 : 2);
    const isKnown = format !== undefined && values.every((value) => value !== undefined);
    const text = isKnown ? formatted(format, values.map(String)) : undefined;
    if (name !== undefined) {
      if (text === undefined)
        this.setUnknown(name, words[0].at, 'which is formatted when the file runs');
      else this.keep(name, { kind: 'text', value: [text] });
    } else if (text === undefined) this.hideOutput();
    else this.print([text], redirects);
    return true;
  }

  /** A script in a text of the script: its places are that of the text. */
  private inner(value: Value, at: number): void {
    const text = value.map((part) => (typeof part === 'string' ? part : this.named(part))).join('');
    this.script(text, () => at);
  }

  /** Runs what leaves no variable behind. */
  private subshell<T>(run: () => T): T {
    const before = new Map(this.variables);
    const found = run();
    this.variables = before;
    this.ended = undefined;
    return found;
  }

  /** Runs what another shell reads: it sees the variables that are exported. */
  private shell(run: () => void): void {
    const outer = this.hidden;
    this.subshell(() => {
      const names = [...this.variables.keys()];
      const hidden = names.filter((name) => !this.exported.has(name) && !isNamed(name));
      this.hidden = new Set([...outer, ...hidden]);
      for (const name of hidden) this.variables.delete(name);
      run();
    });
    this.hidden = outer;
  }

  /** A name for an unknown part of a script in the script. */
  private named(part: Unknown): string {
    const name = `${NAMED}${this.steps}_${this.variables.size}`;
    this.variables.set(name, { kind: 'text', value: [part] });
    return `\${${name}}`;
  }

  /** Scripts that a command is given as a document. */
  private documents(redirects: readonly Redirection[]): void {
    if (this.output !== undefined || redirects.some(isThrownAway)) return;
    for (const redirect of redirects) {
      if (redirect.type !== 'HereDoc') continue;
      const { body } = redirect;
      const value = documentOf(redirect, this.scope) ?? [];
      const text = textOf(value);
      if (/(^|\s)--[a-z]/.test(text) && parse(text).errors === undefined)
        this.shell(() => this.inner(value, this.placed(body.pos)));
    }
  }

  private declare(name: string, args: readonly (Word | Assignment)[]): Status {
    const flags = args.flatMap((arg) => (/^-\w+$/.test(arg.text) ? [...arg.text.slice(1)] : []));
    const [alias] = args.filter((arg) => flags.includes('n') && /^\w/.test(arg.text));
    if (alias !== undefined)
      throw this.fail(
        'E_UNSUPPORTED',
        `${alias.text} is another name of a variable`,
        alias.pos,
        'write the variable itself.',
      );
    const isArray = flags.includes('a') || flags.includes('A');
    const [cased] = args.filter((arg) => /^-\w*[lu]/.test(arg.text));
    if (cased !== undefined)
      throw this.fail(
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
        locals.set(own, this.variables.get(own));
        this.variables.set(own, { kind: 'text', value: [] });
      }
      const isMap = flags.includes('A');
      if (isMap && this.variables.get(own)?.kind !== 'array')
        this.variables.set(own, { kind: 'array', values: [], keys: [] });
      if (arg.type === 'Assignment') this.assign(arg);
      else if (built?.value !== undefined) this.keep(own, { kind: 'text', value: built.value });
      else if (isArray && !isMap) this.variables.set(own, { kind: 'array', values: [] });
    }
    return true;
  }

  /** The name, and the value if there is one, of a word that is expanded before it is read. */
  private builtAssignment(word: Word): { name: string; value: Value | undefined } | undefined {
    if (word.parts === undefined) return undefined;
    const [first, ...rest] = expandText(word, this.scope).reduce<Value>((all, part) => {
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

  /** @param at the place in the file of what sets it */
  private setUnknown(name: string, at: number, why: string): void {
    const value: Value = [{ text: `$${name}`, at, why }];
    this.variables.set(name, { kind: 'text', value });
  }

  private assign({ name, value, append, index, pos }: Assignment): void {
    if (name === 'IFS')
      throw this.fail(
        'E_UNSUPPORTED',
        'IFS changes how words are split',
        pos,
        'write the words with blanks, and leave IFS as it is.',
      );
    const old = this.variables.get(name);
    if (this.exportsAll) this.exported.add(name);
    const isAdded = append === true;
    if (old?.kind === 'array' && old.keys !== undefined)
      return this.assignKeys({ name, value, index, pos, isAdded });
    if (value.type === 'ArrayValue') {
      const placed = value.elements.find((word) => /^\[[^\]]+\]=/.test(word.text));
      if (placed !== undefined)
        return this.setUnknown(
          name,
          this.placed(placed.pos),
          'an array with indices, which is not read',
        );
      const values = value.elements.flatMap((word) => expandWord(word, this.scope));
      const before =
        !isAdded || old === undefined ? [] : old.kind === 'array' ? old.values : [old.value];
      this.keep(name, { kind: 'array', values: [...before, ...values] });
      return;
    }
    const text = expandText(value, this.scope);
    if (this.integers.has(name)) return this.assignNumber(name, text, isAdded, pos);
    if (index === undefined && old?.kind !== 'array') {
      const before = isAdded && old !== undefined ? old.value : [];
      this.keep(name, { kind: 'text', value: [...before, ...text] });
      return;
    }
    const values = old === undefined ? [] : old.kind === 'array' ? [...old.values] : [old.value];
    const stated = index === undefined ? 0 : indexIn(index, this.scope);
    const at = stated !== undefined && stated < 0 ? stated + values.length : stated;
    // Any element may be the one that is set.
    if (at === undefined || at < 0 || at > values.length)
      return this.setUnknown(
        name,
        this.placed(pos),
        'an array of which an element is set that is not read',
      );
    values[at] = isAdded ? [...(values[at] ?? []), ...text] : text;
    this.variables.set(name, { kind: 'array', values });
  }

  /** Sets values of an associative array. */
  private assignKeys({
    name,
    value,
    index,
    pos,
    isAdded,
  }: Pick<Assignment, 'name' | 'value' | 'index' | 'pos'> & { readonly isAdded: boolean }): void {
    const old = this.variables.get(name);
    const isWhole = value.type === 'ArrayValue';
    const had = old?.kind !== 'array' || (isWhole && !isAdded) ? { values: [], keys: [] } : old;
    const entries = new Map((had.keys ?? []).map((key, i) => [key, had.values[i]]));
    const unread = (): void =>
      this.setUnknown(name, this.placed(pos), 'an array whose indices are not read');
    if (isWhole) {
      for (const element of value.elements) {
        const [first, ...rest] = expandText(element, this.scope);
        const [, key, from] =
          typeof first === 'string' ? (/^\[([^\]]*)\]=([\s\S]*)$/.exec(first) ?? []) : [];
        if (key === undefined) return unread();
        entries.set(key, [from, ...rest]);
      }
    } else {
      const key = index === undefined ? '0' : knownText(expandText(index, this.scope));
      if (key === undefined) return unread();
      const text = expandText(value, this.scope);
      entries.set(key, isAdded ? [...(entries.get(key) ?? []), ...text] : text);
    }
    this.keep(name, { kind: 'array', values: [...entries.values()], keys: [...entries.keys()] });
  }

  private assignNumber(name: string, value: Value, isAdded: boolean, offset: number): void {
    const text = knownText(value);
    const number = this.calculated(isAdded && text !== undefined ? `${name}+(${text})` : text);
    if (number === undefined)
      this.setUnknown(name, this.placed(offset), 'a number that the file does not tell');
    else this.variables.set(name, { kind: 'text', value: [String(number)] });
  }

  /** Sets a variable, within a limit on what it grows to. */
  private keep(name: string, variable: Variable): void {
    const values = variable.kind === 'array' ? variable.values : [variable.value];
    const size = values.reduce((sum, value) => sum + textOf(value).length + value.length + 1, 0);
    if (size > MOST_CHARACTERS)
      throw this.fail(
        'E_LIMIT',
        `${name} grows beyond ${MOST_CHARACTERS} characters`,
        this.present,
        'write the arguments out.',
      );
    this.variables.set(name, variable);
  }
}

const NAMED = '_unknown_';

/** Tells whether a name stands for an unknown part of a script. */
function isNamed(name: string): boolean {
  return name.startsWith(NAMED);
}

const DECLARES = new Set(['export', 'declare', 'local', 'readonly', 'typeset']);

/** The commands among them that declare local variables of a function. */
const LOCAL = new Set(['declare', 'local', 'typeset']);

/** Tells whether a redirection sends output nowhere. */
function isThrownAway(redirect: Redirection): boolean {
  return (
    redirect.type === 'Redirect' &&
    /^[1&]?>{1,2}&?$/.test(redirect.operator) &&
    redirect.target?.text === '/dev/null'
  );
}

/** Tells whether a redirection sends output to stderr. */
function toErrors(redirect: Redirection): boolean {
  return redirect.type === 'Redirect' && /^1?>&$|^>&$/.test(redirect.operator)
    ? redirect.target?.text === '2'
    : false;
}

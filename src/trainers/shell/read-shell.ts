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
  type TestExpression,
  type Word,
} from 'unbash';

import { ShardwrightError } from '../../errors.ts';
import { placeAt } from '../../text/place.ts';
import { arithmetic } from './arithmetic.ts';
import {
  expandParts,
  expandText,
  expandWord,
  matchesPattern,
  numbersOf,
  type Scope,
} from './expand.ts';
import { mergeVariables } from './merge.ts';
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

/** What a script does, as far as it tells. */
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
  private steps = 0;
  private depth = 0;
  /** Set after `exit` or `return`. */
  private ended: 'script' | 'function' | undefined;

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
    return new ShardwrightError(code, what, {
      ...placeAt(this.whole, this.placed(offset), this.file),
      hint,
    });
  }

  private deeper<T>(run: () => T): T {
    if (++this.depth > MOST_DEPTH)
      throw this.fail(
        'E_LIMIT',
        `more than ${MOST_DEPTH} scripts or calls in each other`,
        0,
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
      onUnset: (name) => void this.unset.push(name),
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
    for (const command of commands) {
      // Each runs in a shell of its own.
      const before = new Map(this.variables);
      status = this.command(command);
      if (commands.length > 1) this.variables = before;
    }
    const isNegated = prefixes.filter(({ type }) => type === 'Negation').length % 2 === 1;
    return isNegated && typeof status === 'boolean' ? !status : status;
  }

  private command(node: CommandNode): Status {
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
        const status = this.command(node.command);
        this.documents(node.redirects);
        return status;
      }
      case 'BraceGroup':
        return this.list(node.body);
      case 'Subshell': {
        const before = new Map(this.variables);
        const status = this.list(node.body);
        this.variables = before;
        this.ended = undefined;
        return status;
      }
      case 'TestCommand':
        return this.condition(() => this.test(node.expression));
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
      case 'ArithmeticFor':
      case 'Select':
        return this.branches([() => void this.list(node.body), () => undefined], node);
      case 'Coproc':
        return undefined;
    }
  }

  /** Reads each branch with variables of its own, and keeps what they agree on. */
  private branches(runs: readonly (() => void)[], condition: Ranged): undefined {
    const before = this.variables;
    const ends: Map<string, Variable>[] = [];
    for (const run of runs) {
      this.variables = new Map(before);
      run();
      // A branch that ends the script leaves nothing to what follows.
      if (this.ended === undefined) ends.push(this.variables);
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
    for (const [i, item] of node.items.entries()) {
      const patterns = item.pattern.map((p) => knownText(expandText(p, this.scope)));
      if (patterns.some((p) => p === undefined || /[[\\(]/.test(p)))
        return this.branches([...bodies.slice(i), none], node.word);
      if (patterns.some((p) => p !== undefined && matchesPattern(word, p)))
        return this.taken(bodies[i], none, node.word);
    }
    return true;
  }

  private loop(node: Extract<CommandNode, { type: 'For' }>): Status {
    const name = textOf(expandText(node.name, this.scope));
    const words =
      node.wordlist === undefined
        ? this.positional
        : node.wordlist.flatMap((word) => expandWord(word, this.scope));
    if (words === undefined || words.some((word) => unknownIn(word) !== undefined)) {
      this.setUnknown(name, node.pos, 'which a loop sets');
      return this.branches([() => void this.list(node.body), () => undefined], node.name);
    }
    let status: Status = true;
    for (const value of words) {
      this.variables.set(name, { kind: 'text', value });
      status = this.list(node.body);
    }
    return status;
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
    if (this.ended !== undefined) {
      this.ended = undefined;
      this.variables = before;
      return this.branches([other], node);
    }
    for (const name of names)
      if (!this.assumedUnset.some((known) => known.name === name))
        this.assumedUnset.push({ name, at: this.placed(node.pos) });
    return status;
  }

  /** A value in a condition: names that nothing sets are empty there. */
  private emptied(value: Value): Value {
    return value.filter(
      (part) =>
        typeof part === 'string' || !this.unset.includes(part.text.replace(/^\$\{?|\}$/g, '')),
    );
  }

  private test(expression: TestExpression): boolean | undefined {
    const text = (word: Word): string | undefined =>
      knownText(this.emptied(expandText(word, this.scope)));
    switch (expression.type) {
      case 'TestGroup':
        return this.test(expression.expression);
      case 'TestNot': {
        const inner = this.test(expression.operand);
        return inner === undefined
          ? undefined
          : expression.negations.length % 2 === 1
            ? !inner
            : inner;
      }
      case 'TestLogical': {
        const parts = expression.operands.map((operand) => this.test(operand));
        const decides = expression.operator === '||';
        if (parts.includes(decides)) return decides;
        return parts.includes(undefined) ? undefined : !decides;
      }
      case 'TestUnary':
        return unaryTest(expression.operator, text(expression.operand));
      case 'TestBinary':
        return binaryTest(text(expression.left), expression.operator, text(expression.right));
    }
  }

  /** `[ ... ]` and `test`. */
  private bracket(words: readonly Value[]): boolean | undefined {
    const texts = words.map((word) => knownText(this.emptied(word)));
    const [first, second, third] = texts;
    if (first === '!') {
      const inner = this.bracket(words.slice(1));
      return inner === undefined ? undefined : !inner;
    }
    const join = texts.findIndex((t) => t === '-a' || t === '-o');
    if (join > 0) {
      const [left, right] = [
        this.bracket(words.slice(0, join)),
        this.bracket(words.slice(join + 1)),
      ];
      if (left === undefined || right === undefined) return undefined;
      return texts[join] === '-a' ? left && right : left || right;
    }
    if (texts.length === 1) return first === undefined ? undefined : first !== '';
    if (texts.length === 2 && first !== undefined) return unaryTest(first, second);
    return texts.length === 3 && second !== undefined
      ? binaryTest(first, second, third)
      : undefined;
  }

  private simple(node: Extract<CommandNode, { type: 'Command' }>): Status {
    if (node.name === undefined) {
      for (const part of node.prefix) if (part.type === 'Assignment') this.assign(part);
      return true;
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
    const status = this.call(name, words);
    this.documents(node.redirects);
    return status;
  }

  /** Runs a builtin or a function, or notes the command. */
  private call(name: string | undefined, words: readonly ShellWord[]): Status {
    const values = words.slice(1).map(({ value }) => value);
    switch (name) {
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
        this.ended = name === 'exit' ? 'script' : 'function';
        return true;
      case 'unset':
        for (const value of values) this.variables.delete(textOf(value));
        return true;
      case 'set': {
        const at = values.findIndex((value) => textOf(value) === '--');
        if (at >= 0) this.positional = values.slice(at + 1);
        return true;
      }
      case 'shift':
        this.positional = this.positional?.slice(Number(textOf(values[0] ?? ['1'])));
        return true;
      case 'read':
      case 'mapfile':
      case 'readarray':
        for (const value of values) {
          const text = textOf(value);
          if (/^\w+$/.test(text)) this.setUnknown(text, 0, 'which is read when the file runs');
        }
        return undefined;
      case '.':
      case 'source':
        this.sourced.push({ text: values.map(textOf).join(' '), at: words[0].at });
        return 'ran';
      case 'eval':
        this.inner(joined(values), words[0].at);
        return 'ran';
      default:
        return this.run(name, words);
    }
  }

  private run(name: string | undefined, words: readonly ShellWord[]): Status {
    const called = name === undefined ? undefined : this.functions.get(name);
    if (called !== undefined) {
      const outer = this.positional;
      this.positional = words.slice(1).map(({ value }) => value);
      const { body } = called;
      const status = this.deeper(() =>
        body.type === 'CompoundList' ? this.list(body) : this.command(body),
      );
      this.positional = outer;
      if (this.ended === 'function') this.ended = undefined;
      return status;
    }
    // `bash -c TEXT`, whoever starts it.
    const texts = words.map(({ value }) => textOf(value));
    const shell = texts.findIndex((text) => /(^|\/)(ba|z|da)?sh$/.test(text));
    const flag = texts.findIndex((text, i) => shell >= 0 && i > shell && /^-[a-z]*c$/.test(text));
    if (flag >= 0 && texts.slice(shell + 1, flag).every((text) => text.startsWith('-')))
      this.inner(words.at(flag + 1)?.value ?? [], words[flag].at);
    else this.commands.push({ words, at: words[0]?.at ?? 0 });
    return 'ran';
  }

  /** A script in a text of the script: its places are that of the text. */
  private inner(value: Value, at: number): void {
    const before = new Map(this.variables);
    const text = value.map((part) => (typeof part === 'string' ? part : this.named(part))).join('');
    this.script(text, () => at);
    this.variables = before;
    this.ended = undefined;
  }

  /** A name for an unknown part of a script in the script. */
  private named(part: Unknown): string {
    const name = `_unknown_${this.steps}_${this.variables.size}`;
    this.variables.set(name, { kind: 'text', value: [part] });
    return `\${${name}}`;
  }

  /** Scripts that a command is given as a document. */
  private documents(redirects: readonly Redirection[]): void {
    for (const redirect of redirects) {
      if (redirect.type !== 'HereDoc') continue;
      const { body } = redirect;
      const value = body.parts === undefined ? [body.text] : expandParts(body.parts, this.scope);
      const text = textOf(value);
      if (/(^|\s)--[a-z]/.test(text) && parse(text).errors === undefined)
        this.inner(value, this.placed(body.pos));
    }
  }

  private declare(name: string, args: readonly (Word | Assignment)[]): Status {
    if (name === 'let') return this.counted(args);
    const isArray = args.some((arg) => arg.type === 'Word' && /^-\w*[aA]/.test(arg.text));
    for (const arg of args) {
      if (arg.type === 'Assignment') this.assign(arg);
      else if (isArray && /^\w+$/.test(arg.text))
        this.variables.set(arg.text, { kind: 'array', values: [] });
    }
    return true;
  }

  /** `let NAME=...`: the number is not read. */
  private counted(args: readonly (Word | Assignment)[]): Status {
    for (const arg of args) {
      const [name] = /^\w+/.exec(arg.text) ?? [];
      if (name !== undefined) this.setUnknown(name, arg.pos, 'a number that let sets');
    }
    return undefined;
  }

  private setUnknown(name: string, offset: number, why: string): void {
    const value: Value = [{ text: `$${name}`, at: this.placed(offset), why }];
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
    const isAdded = append === true;
    if (value.type === 'ArrayValue') {
      const placed = value.elements.find((word) => /^\[[^\]]+\]=/.test(word.text));
      if (placed !== undefined)
        return this.setUnknown(name, placed.pos, 'an array with indices, which is not read');
      const values = value.elements.flatMap((word) => expandWord(word, this.scope));
      const before =
        !isAdded || old === undefined ? [] : old.kind === 'array' ? old.values : [old.value];
      this.keep(name, { kind: 'array', values: [...before, ...values] });
      return;
    }
    const text = expandText(value, this.scope);
    if (index === undefined && old?.kind !== 'array') {
      const before = isAdded && old !== undefined ? old.value : [];
      this.keep(name, { kind: 'text', value: [...before, ...text] });
      return;
    }
    const values = old === undefined ? [] : old.kind === 'array' ? [...old.values] : [old.value];
    const at = index === undefined ? 0 : Number(knownText(expandText(index, this.scope)) ?? NaN);
    if (!Number.isInteger(at) || at < 0 || at > values.length) {
      const why = 'an element of an array that is not read';
      this.variables.set(name, {
        kind: 'array',
        values: [...values, [{ text: `\${${name}[@]}`, at: this.placed(pos), why }]],
      });
      return;
    }
    values[at] = isAdded ? [...(values[at] ?? []), ...text] : text;
    this.variables.set(name, { kind: 'array', values });
  }

  /** Sets a variable, within a limit on what it grows to. */
  private keep(name: string, variable: Variable): void {
    const values = variable.kind === 'array' ? variable.values : [variable.value];
    const size = values.reduce((sum, value) => sum + textOf(value).length + value.length + 1, 0);
    if (size > MOST_CHARACTERS)
      throw this.fail(
        'E_LIMIT',
        `${name} grows beyond ${MOST_CHARACTERS} characters`,
        0,
        'write the arguments out.',
      );
    this.variables.set(name, variable);
  }
}

const DECLARES = new Set(['let', 'export', 'declare', 'local', 'readonly', 'typeset']);

function unaryTest(operator: string, text: string | undefined): boolean | undefined {
  if (text === undefined) return undefined;
  if (operator === '-z') return text === '';
  return operator === '-n' ? text !== '' : undefined;
}

function binaryTest(
  left: string | undefined,
  operator: string,
  right: string | undefined,
): boolean | undefined {
  if (left === undefined || right === undefined) return undefined;
  if (operator === '=' || operator === '==' || operator === '!=') {
    if (/[[\\(]/.test(right)) return undefined;
    return matchesPattern(left, right) === (operator !== '!=');
  }
  const compare = NUMBER_TESTS[operator] as ((a: number, b: number) => boolean) | undefined;
  const [a, b] = [Number(left), Number(right)];
  return compare === undefined || left === '' || Number.isNaN(a) || Number.isNaN(b)
    ? undefined
    : compare(a, b);
}

const NUMBER_TESTS: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  '-eq': (a, b) => a === b,
  '-ne': (a, b) => a !== b,
  '-lt': (a, b) => a < b,
  '-le': (a, b) => a <= b,
  '-gt': (a, b) => a > b,
  '-ge': (a, b) => a >= b,
};

/**
 * Reads the commands of a shell script with the words that they are given, without running it:
 * variables, arrays, functions, conditions on what the script sets. The parser is that of `unbash`.
 * What depends on the run (output of commands, the environment, files) stays unknown, with its
 * place. Source: the Bash manual, 3.2 to 3.7.
 */

import {
  type CommandNode,
  type CompoundList,
  parse,
  type Redirection,
  type Statement,
  type Word,
} from 'unbash';

import { arithmetic } from './arithmetic.ts';
import { Assignments, DECLARES } from './assignments.ts';
import { Builtins } from './builtins.ts';
import { testResult, testsAlone, type TestWords } from './conditions.ts';
import {
  documentOf,
  expandExpression,
  expandPattern,
  expandText,
  expandWord,
  numbersOf,
} from './expand.ts';
import { mergeVariables } from './merge.ts';
import { isOpenPattern, matchesPattern } from './patterns.ts';
import { matchesExpression } from './regular.ts';
import { type Output, ShellState, type Status } from './state.ts';
import {
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

/** Where a part of the script lies. */
type Ranged = { readonly pos: number; readonly end: number };

class ShellReader implements ShellScript {
  readonly commands: ShellCommand[] = [];
  readonly assumedUnset: { name: string; at: number }[] = [];
  private readonly state: ShellState;
  private readonly assignments: Assignments;
  private readonly builtins: Builtins;
  private readonly functions = new Map<string, Extract<CommandNode, { type: 'Function' }>>();
  private source = '';
  private steps = 0;
  private depth = 0;
  /** True if a condition that is not decided ends a loop or one of its trips. */
  private mayEndLoop = false;
  /** How the last `$(...)` ended, which an assignment by itself ends as. */
  private substituted: Status = true;

  constructor(whole: string, file: string) {
    this.state = new ShellState(whole, file, (commands) => this.printed(commands));
    this.assignments = new Assignments(this.state);
    this.builtins = new Builtins(this.state, this.assignments, {
      run: (name, words) => this.run(name, words),
      inner: (value, at) => this.inner(value, at),
    });
  }

  get variables(): ReadonlyMap<string, Variable> {
    return this.state.variables;
  }

  get sourced(): ShellScript['sourced'] {
    return this.builtins.sourced;
  }

  /** Reads a script, or one inside of it. */
  script(text: string, placed: (offset: number) => number): void {
    const [outerPlaced, outerSource] = [this.state.placed, this.source];
    const tree = parse(text);
    this.state.placed = placed;
    this.source = text;
    const [fault] = tree.errors ?? [];
    if (fault !== undefined)
      throw this.state.fail(
        'E_SYNTAX',
        `not a shell script: ${fault.message}`,
        fault.pos,
        'correct it.',
      );
    this.deeper(() => this.statements(tree.commands));
    this.state.placed = outerPlaced;
    this.source = outerSource;
  }

  private deeper<T>(run: () => T): T {
    if (++this.depth > MOST_DEPTH)
      throw this.state.fail(
        'E_LIMIT',
        `more than ${MOST_DEPTH} scripts or calls in each other`,
        this.state.present,
        'write the arguments out.',
      );
    const found = run();
    this.depth--;
    return found;
  }

  private statements(list: readonly Statement[]): Status {
    let status: Status = true;
    for (const { command } of list) {
      if (this.state.ended !== undefined) return status;
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
      if (this.state.ended !== undefined) return;
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
    if (commands.length > 1) this.state.hideOutput();
    for (const command of commands) {
      // Each runs in a shell of its own.
      const before = new Map(this.state.variables);
      status = this.command(command);
      if (commands.length > 1) this.state.variables = before;
    }
    const isNegated = prefixes.filter(({ type }) => type === 'Negation').length % 2 === 1;
    return isNegated && typeof status === 'boolean' ? !status : status;
  }

  private command(node: CommandNode): Status {
    this.state.present = node.pos;
    if (++this.steps > MOST_STEPS)
      throw this.state.fail(
        'E_LIMIT',
        `the script runs more than ${MOST_STEPS} statements`,
        node.pos,
        'write the arguments out.',
      );
    switch (node.type) {
      case 'Command':
        return this.simple(node);
      case 'Function':
        this.functions.set(textOf(expandText(node.name, this.state.scope)), node);
        return true;
      case 'Redirected': {
        this.state.hideOutput();
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
          expression === undefined
            ? undefined
            : arithmetic(expression, numbersOf(this.state.scope));
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
    const before = this.state.variables;
    const ends: Map<string, Variable>[] = [];
    this.state.hideOutput();
    for (const run of runs) {
      this.state.variables = new Map(before);
      run();
      // A branch that ends the script leaves nothing to what follows.
      if (this.state.ended === 'loop' || this.state.ended === 'trip') this.mayEndLoop = true;
      if (this.state.ended !== 'script' && this.state.ended !== 'function')
        ends.push(this.state.variables);
      this.state.ended = undefined;
    }
    const text = this.source.slice(condition.pos, condition.end).split('\n')[0];
    this.state.variables =
      ends.length === 0
        ? before
        : mergeVariables(ends, { text, at: this.state.placed(condition.pos) });
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
    const word = this.condition(() =>
      knownText(this.state.emptied(expandText(node.word, this.state.scope))),
    );
    const bodies = node.items.map((item) => (): Status => this.list(item.body));
    const none = (): Status => true;
    if (word === undefined) return this.branches([...bodies, none], node.word);
    let found = false;
    let isNext = false;
    for (const [i, item] of node.items.entries()) {
      const patterns = item.pattern.map((p) => knownText(expandPattern(p, this.state.scope)));
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
    const name = textOf(expandText(node.name, this.state.scope));
    const words =
      node.wordlist === undefined
        ? this.state.positional
        : node.wordlist.flatMap((word) => expandWord(word, this.state.scope));
    // Called without arguments, a script has none to go through.
    if (words?.length === 1 && this.state.positional === undefined && textOf(words[0]) === '$@') {
      this.assume(['@'], node.name);
      return true;
    }
    if (words === undefined || words.some((word) => unknownIn(word) !== undefined)) {
      this.assignments.setUnknown(name, this.state.placed(node.pos), 'which a loop sets');
      return this.branches([() => this.trip(node.body), () => undefined], node.name);
    }
    const trips = (): void => {
      for (const value of words) {
        this.state.variables.set(name, { kind: 'text', value });
        if (!this.onTrip(node.body)) break;
      }
    };
    this.trips(trips, node.name);
    return true;
  }

  /** One trip of a loop that is known to run; whether another follows. */
  private onTrip(body: CompoundList): boolean {
    this.list(body);
    if (this.state.ended === 'trip') this.state.ended = undefined;
    return this.state.ended === undefined;
  }

  /** Runs the trips of a loop; where a condition that is open may end it, nothing is known. */
  private trips(run: () => void, condition: Ranged): void {
    const [before, outer] = [new Map(this.state.variables), this.mayEndLoop];
    this.mayEndLoop = false;
    run();
    if (this.state.ended === 'loop') this.state.ended = undefined;
    // Nobody knows after which trip it ended.
    if (this.mayEndLoop) {
      const after = this.state.variables;
      this.state.variables = before;
      this.branches([() => void (this.state.variables = after), () => undefined], condition);
    }
    this.mayEndLoop = outer;
  }

  /** Trips of a loop whose test the script decides; of another nobody knows how often it runs. */
  private whileLoop(node: Extract<CommandNode, { type: 'While' }>): Status {
    const wanted = node.kind === 'while';
    const isTest = (): boolean | undefined => {
      this.state.unset = [];
      const status = testsAlone(node.clause) ? this.list(node.clause) : undefined;
      if (typeof status !== 'boolean') return undefined;
      const names = this.state.unset;
      // Nothing is known of a loop that runs because nobody sets a name.
      if (names.length > 0 && status === wanted) return undefined;
      this.assume(names, node.clause);
      return status === wanted;
    };
    return this.decidedLoop(isTest, node, () => undefined);
  }

  private countedLoop(node: Extract<CommandNode, { type: 'ArithmeticFor' }>): Status {
    const value = (expression: typeof node.test): number | undefined =>
      expression === undefined ? undefined : arithmetic(expression, numbersOf(this.state.scope));
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
    const before = new Map(this.state.variables);
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
    const after = this.state.variables;
    this.state.variables = before;
    return this.branches(
      [() => void (this.state.variables = after), () => this.trip(node.body), () => undefined],
      node,
    );
  }

  /** The body of a loop that runs nobody knows how often. */
  private trip(body: CompoundList): void {
    const outer = this.mayEndLoop;
    this.list(body);
    this.mayEndLoop = outer;
    if (this.state.ended === 'trip' || this.state.ended === 'loop') this.state.ended = undefined;
  }

  /** Reads a condition by itself: a name that nothing sets is empty there. */
  private condition<T>(decide: () => T): T {
    this.state.unset = [];
    return decide();
  }

  /**
   * Takes the branch of a condition that is decided. Where it was decided as if the environment did
   * not set a name, that is noted; and where the script ends then, the environment does set it.
   */
  private taken(run: () => Status, other: () => void, node: Ranged): Status {
    const names = [...new Set(this.state.unset)];
    this.state.unset = [];
    if (names.length === 0) return run();
    const before = new Map(this.state.variables);
    const status = run();
    if (this.state.ended === 'script' || this.state.ended === 'function') {
      this.state.ended = undefined;
      this.state.variables = before;
      return this.branches([other], node);
    }
    this.assume(names, node);
    return status;
  }

  /** Notes names that a condition was decided without. */
  private assume(names: readonly string[], node: Ranged): void {
    for (const name of names)
      if (!this.assumedUnset.some((known) => known.name === name))
        this.assumedUnset.push({ name, at: this.state.placed(node.pos) });
  }

  private get testWords(): TestWords {
    const known = (value: Value): string | undefined => knownText(this.state.emptied(value));
    return {
      text: (word) => known(expandText(word, this.state.scope)),
      pattern: (word) => known(expandPattern(word, this.state.scope)),
      expression: (text, word) => {
        const expression = known(expandExpression(word, this.state.scope));
        const found =
          text === undefined || expression === undefined
            ? undefined
            : matchesExpression(text, expression);
        const { groups } = found ?? {};
        if (groups === undefined)
          this.assignments.setUnknown(
            'BASH_REMATCH',
            this.state.placed(word.pos),
            'which a match sets',
          );
        else
          this.assignments.keep('BASH_REMATCH', {
            kind: 'array',
            values: groups.map((one) => [one]),
          });
        return found?.matches;
      },
    };
  }

  private simple(node: Extract<CommandNode, { type: 'Command' }>): Status {
    if (node.name === undefined) {
      this.substituted = true;
      for (const part of node.prefix) if (part.type === 'Assignment') this.assignments.assign(part);
      return this.substituted;
    }
    const words: ShellWord[] = [];
    const take = (word: Word): void => {
      const at = this.state.placed(word.pos);
      for (const value of expandWord(word, this.state.scope)) words.push({ value, at });
    };
    const name = knownText(expandWord(node.name, this.state.scope)[0] ?? []);
    this.state.unset = [];
    take(node.name);
    if (name !== undefined && DECLARES.has(name)) return this.assignments.declare(name, node.args);
    for (const argument of node.args) {
      if (argument.type === 'Word') take(argument);
      else words.push({ value: [argument.text], at: this.state.placed(argument.pos) });
    }
    const given = node.prefix.flatMap((part) => (part.type === 'Assignment' ? [part] : []));
    if (name === 'read') {
      this.builtins.readNames(words, node.redirects, given);
      return 'ran';
    }
    return this.assignments.withNames(given, () => {
      const status = this.builtins.call(name, words, node.redirects);
      // A document that `:` is given is a comment.
      if (name !== ':') this.documents(node.redirects);
      return status;
    });
  }

  /** The output of commands in `$(...)`, if the script decides all of it. */
  private printed(commands: readonly Statement[]): Value | undefined {
    const [outer, unset, positional] = [this.state.output, this.state.unset, this.state.positional];
    const output: Output = { parts: [], isKnown: true };
    this.state.output = output;
    const status = this.deeper(() => this.subshell(() => this.statements(commands)));
    [this.state.output, this.state.unset, this.state.positional] = [outer, unset, positional];
    this.substituted = status;
    return output.isKnown ? output.parts : undefined;
  }

  private run(name: string | undefined, words: readonly ShellWord[]): Status {
    const called = name === undefined ? undefined : this.functions.get(name);
    if (called !== undefined) {
      const outer = this.state.positional;
      this.state.positional = words.slice(1).map(({ value }) => value);
      const { body } = called;
      const status = this.assignments.inFunction(() =>
        this.deeper(() => (body.type === 'CompoundList' ? this.list(body) : this.command(body))),
      );
      this.state.positional = outer;
      if (this.state.ended === 'function') this.state.ended = undefined;
      return status;
    }
    // `bash -c TEXT`, whoever starts it.
    const texts = words.map(({ value }) => textOf(value));
    const shell = texts.findIndex((text) => /(^|\/)(ba|z|da)?sh$/.test(text));
    const flag = texts.findIndex((text, i) => shell >= 0 && i > shell && /^-[a-z]*c$/.test(text));
    this.state.hideOutput();
    if (flag >= 0 && texts.slice(shell + 1, flag).every((text) => text.startsWith('-')))
      this.shell(() => this.inner(words.at(flag + 1)?.value ?? [], words[flag].at));
    else if (this.state.output === undefined) this.commands.push({ words, at: words[0]?.at ?? 0 });
    return 'ran';
  }

  /** A script in a text of the script: its places are that of the text. */
  private inner(value: Value, at: number): void {
    const text = value.map((part) => (typeof part === 'string' ? part : this.named(part))).join('');
    this.script(text, () => at);
  }

  /** Runs what leaves no variable behind. */
  private subshell<T>(run: () => T): T {
    const before = new Map(this.state.variables);
    const found = run();
    this.state.variables = before;
    this.state.ended = undefined;
    return found;
  }

  /** Runs what another shell reads: it sees the variables that are exported. */
  private shell(run: () => void): void {
    const outer = this.state.hidden;
    this.subshell(() => {
      const names = [...this.state.variables.keys()];
      const hidden = names.filter((name) => !this.assignments.exported.has(name) && !isNamed(name));
      this.state.hidden = new Set([...outer, ...hidden]);
      for (const name of hidden) this.state.variables.delete(name);
      run();
    });
    this.state.hidden = outer;
  }

  /** A name for an unknown part of a script in the script. */
  private named(part: Unknown): string {
    const name = `${NAMED}${this.steps}_${this.state.variables.size}`;
    this.state.variables.set(name, { kind: 'text', value: [part] });
    return `\${${name}}`;
  }

  /** Scripts that a command is given as a document. */
  private documents(redirects: readonly Redirection[]): void {
    if (this.state.output !== undefined || redirects.some(isThrownAway)) return;
    for (const redirect of redirects) {
      if (redirect.type !== 'HereDoc') continue;
      const { body } = redirect;
      const value = documentOf(redirect, this.state.scope) ?? [];
      const text = textOf(value);
      if (/(^|\s)--[a-z]/.test(text) && parse(text).errors === undefined)
        this.shell(() => this.inner(value, this.state.placed(body.pos)));
    }
  }
}

const NAMED = '_unknown_';

/** Tells whether a name stands for an unknown part of a script. */
function isNamed(name: string): boolean {
  return name.startsWith(NAMED);
}

/** Tells whether a redirection sends output nowhere. */
function isThrownAway(redirect: Redirection): boolean {
  return (
    redirect.type === 'Redirect' &&
    /^[1&]?>{1,2}&?$/.test(redirect.operator) &&
    redirect.target?.text === '/dev/null'
  );
}

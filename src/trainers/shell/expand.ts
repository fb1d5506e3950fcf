/**
 * Expands words of a shell script as Bash does: parameters with their defaults, arrays, arithmetic,
 * quotes, and the splitting of words. Nothing of the script is executed: the output of a command is
 * unknown. Source: the Bash manual, 3.5.
 */

import {
  type ArithmeticExpression,
  type CommandExpansionPart,
  type ParameterExpansionPart,
  type ParameterOperation,
  parse,
  type Redirection,
  type Statement,
  type Word,
  type WordPart,
} from 'unbash';

import { arithmetic, type ArithmeticScope } from './arithmetic.ts';
import { bracedWords } from './braces.ts';
import { isOpenPattern, quotedPattern, removedFrom, replacedIn } from './patterns.ts';
import { quotedExpression } from './regular.ts';
import {
  Fields,
  joined,
  knownText,
  textOf,
  type Unknown,
  unknownIn,
  type Value,
  type Variable,
} from './value.ts';

/** The variables and the positional arguments that words are expanded with. */
export interface Scope {
  readonly variables: Map<string, Variable>;
  /** Arguments of the function that runs; absent in the script itself. */
  readonly positional: readonly Value[] | undefined;
  /** The place of an offset of the text that is read. */
  readonly placed: (offset: number) => number;
  /** Tells whether a name is set outside of the shell that runs, which does not see it. */
  readonly isHidden: (name: string) => boolean;
  /** Told of each name that is read and that the script has not set. */
  readonly onUnset: (name: string) => void;
  /** The output of commands, as far as the script itself decides it. */
  readonly printed: (commands: readonly Statement[]) => Value | undefined;
}

const UNSET = 'which the file does not set';
const HIDDEN = 'which the file sets and does not export';
const COMMAND = 'which a command prints when the file runs';
const ARGUMENTS = 'the arguments that the script is called with';
const RUN = 'which only the run knows';
const UNREAD = 'an expansion that is not read';

/** The words that one word of the script becomes. */
export function expandWord(word: Word, scope: Scope): readonly Value[] {
  const { parts } = word;
  if (parts === undefined) return [[word.value]];
  if (!parts.some(({ type }) => type === 'BraceExpansion')) return wordsOf(parts, scope);
  const words = bracedWords(parts);
  return words === undefined
    ? [[{ text: word.text, at: scope.placed(word.pos), why: UNREAD }]]
    : words.flatMap((one) => wordsOf(one, scope));
}

function wordsOf(parts: readonly WordPart[], scope: Scope): readonly Value[] {
  const fields = new Fields();
  for (const part of parts) expandPart(part, scope, fields, false);
  return fields.words();
}

/** The pattern that a word is: what is quoted in it stands for itself. */
export function expandPattern(word: Word, scope: Scope): Value {
  const plain = (text: string): string =>
    text.replace(/\\([\s\S])/g, (_, sign: string) => quotedPattern(sign));
  if (word.parts === undefined) return [plain(word.text)];
  return word.parts.flatMap((part): Value => {
    if (part.type === 'Literal') return [plain(part.text)];
    if (part.type === 'Glob' || part.type === 'ExtendedGlob') return [part.text];
    const value = expandParts([part], scope);
    if (!QUOTED.has(part.type)) return value;
    return value.map((one) => (typeof one === 'string' ? quotedPattern(one) : one));
  });
}

/** The regular expression that a word is: what is quoted in it stands for itself. */
export function expandExpression(word: Word, scope: Scope): Value {
  if (word.parts === undefined) return [word.text];
  return word.parts.flatMap((part): Value => {
    if (part.type === 'Literal' || part.type === 'Glob' || part.type === 'ExtendedGlob')
      return [part.text];
    const value = expandParts([part], scope);
    if (!QUOTED.has(part.type)) return value;
    return value.map((one) => (typeof one === 'string' ? quotedExpression(one) : one));
  });
}

/** Parts whose signs stand for themselves. */
const QUOTED: ReadonlySet<WordPart['type']> = new Set([
  'SingleQuoted',
  'AnsiCQuoted',
  'DoubleQuoted',
  'LocaleString',
]);

/** The text of a word that is not split: of an assignment, a test, a pattern. */
export function expandText(word: Word, scope: Scope): Value {
  if (word.parts === undefined) return [word.value];
  const fields = new Fields();
  for (const part of word.parts) expandPart(part, scope, fields, true);
  return joined(fields.words());
}

/** The parts of a text between double quotes, or of a document in the script. */
function expandParts(parts: readonly WordPart[], scope: Scope): Value {
  const fields = new Fields();
  for (const part of parts) expandPart(part, scope, fields, true);
  return joined(fields.words());
}

function expandPart(part: WordPart, scope: Scope, fields: Fields, isQuoted: boolean): void {
  const add = (value: Value): void => (isQuoted ? fields.whole(value) : fields.split(value));
  switch (part.type) {
    case 'Literal':
    case 'SingleQuoted':
    case 'AnsiCQuoted':
      return fields.whole([part.value]);
    case 'Glob':
    case 'ExtendedGlob':
      // No file is looked for: a pattern that matches none stays as it is.
      return fields.whole([part.text]);
    case 'DoubleQuoted':
    case 'LocaleString':
      if (part.parts.length === 0 || !part.parts.every((inner) => isList(inner))) fields.whole([]);
      for (const inner of part.parts) expandPart(inner, scope, fields, true);
      return;
    case 'SimpleExpansion': {
      const name = part.text.slice(1);
      const found = lookUp(name, part.text, part.pos, scope);
      return 'list' in found ? fields.list(found.list, isQuoted) : add(found.value);
    }
    case 'ParameterExpansion': {
      const found = expandParameter(part, scope);
      if ('operand' in found) return expandOperand(found.operand, scope, fields, isQuoted);
      return 'list' in found ? fields.list(found.list, isQuoted) : add(found.value);
    }
    case 'ArithmeticExpansion':
      return add([arithmeticText(part.expression, part.text, part.pos, scope)]);
    case 'CommandExpansion':
      return add(
        printed(part, scope) ?? [{ text: part.text, at: scope.placed(part.pos), why: COMMAND }],
      );
    case 'ProcessSubstitution':
      return add([{ text: part.text, at: scope.placed(part.pos), why: COMMAND }]);
    case 'BraceExpansion':
      // Where words are not split, braces are characters.
      if (part.parts === undefined) return fields.whole([part.text]);
      fields.whole(['{']);
      for (const inner of part.parts) expandPart(inner, scope, fields, isQuoted);
      return fields.whole(['}']);
  }
}

/** The word after `:-` or `:+`, whose quotes count; its blanks end words unless all is quoted. */
function expandOperand(word: Word, scope: Scope, fields: Fields, isQuoted: boolean): void {
  if (isQuoted) return fields.whole(expandText(word, scope));
  if (word.parts === undefined) return fields.split([word.value]);
  for (const part of word.parts)
    if (part.type === 'Literal') fields.split([part.value]);
    else expandPart(part, scope, fields, false);
}

/** The output of commands, without the line ends behind it. */
function printed({ script }: CommandExpansionPart, scope: Scope): Value | undefined {
  if (script === undefined || script.errors !== undefined) return undefined;
  const value = scope.printed(script.commands);
  const last = value?.at(-1);
  return value !== undefined && typeof last === 'string'
    ? [...value.slice(0, -1), last.replace(/\n+$/, '')]
    : value;
}

/** A text that stands in the script for a command to read: `<<EOF`, `<<< WORD`. */
export function documentOf(redirect: Redirection, scope: Scope): Value | undefined {
  if (redirect.type === 'HereString')
    return redirect.target && [...expandText(redirect.target, scope), '\n'];
  if (redirect.type !== 'HereDoc') return undefined;
  const { body, delimiter } = redirect;
  if (body.parts !== undefined) return expandParts(body.parts, scope);
  // A line end or a sign of an expansion behind a backslash, where the limit is not quoted.
  const isPlain = delimiter?.quoted !== false;
  const plain = (sign: string): string => (sign === '\\\n' ? '' : sign.slice(1));
  return [isPlain ? body.text : body.text.replace(/\\[\\$`\n]/g, plain)];
}

/** Tells whether a part may become no word at all, as an empty list between quotes does. */
function isList(part: WordPart): boolean {
  return part.type === 'ParameterExpansion'
    ? part.index?.text === '@'
    : part.type === 'SimpleExpansion' && part.text === '$@';
}

/** A text, or the values of a list. */
type Found = { readonly value: Value } | { readonly list: readonly Value[] };

/** The value of a name: of an array without an index the first. */
function lookUp(name: string, text: string, offset: number, scope: Scope): Found {
  const at = scope.placed(offset);
  const { positional } = scope;
  if (name === '@' || name === '*' || name === '#') {
    if (positional === undefined) {
      scope.onUnset(name);
      return { value: [{ text, at, why: ARGUMENTS }] };
    }
    if (name === '#') return { value: [String(positional.length)] };
    return name === '@' ? { list: positional } : { value: joined(positional) };
  }
  if (!/^\w+$/.test(name) || name === '0') return { value: [{ text, at, why: RUN }] };
  if (/^[1-9]\d*$/.test(name) && positional !== undefined)
    return { value: positional[Number(name) - 1] ?? [] };
  const found = scope.variables.get(name);
  if (found?.kind === 'text') return { value: found.value };
  if (found?.kind === 'array') return { value: found.values[0] ?? [] };
  scope.onUnset(name);
  return { value: [{ text, at, why: scope.isHidden(name) ? HIDDEN : UNSET }] };
}

function expandParameter(
  part: ParameterExpansionPart,
  scope: Scope,
): Found | { readonly operand: Word } {
  const { parameter, index, operation, prefix, text } = part;
  const unread: Found = { value: [{ text, at: scope.placed(part.pos), why: UNREAD }] };
  if (prefix === '#') return operation === undefined ? lengthOf(part, scope, unread) : unread;
  if (prefix === '!') return pointedTo(part, scope) ?? unread;
  const variable = scope.variables.get(parameter);
  // Once: an index may count on.
  const isPlace = index !== undefined && !/^[@*]$/.test(index.text);
  const isList = variable?.kind !== 'array' || variable.keys === undefined;
  const which = isPlace && isList ? indexIn(index, scope) : undefined;
  // Each value is edited, and only then joined to one text.
  const isJoined = (index?.text ?? parameter) === '*';
  const whole = (found: Found): Found =>
    isJoined && 'list' in found ? { value: joined(found.list) } : found;
  const plain = (): Found => valueOf(part, which, scope) ?? unread;
  if (operation === undefined) return whole(plain());
  // The arguments of a function are counted from 1.
  const first = /^[@*]$/.test(parameter) ? 1 : 0;
  if (operation.type !== 'Default')
    return whole(edited(plain(), operation, scope, { unread, first }));
  const isSet =
    hasValue(variable, index, which, scope) ||
    (scope.positional !== undefined &&
      (/^[@*]$/.test(parameter) || Number(parameter) <= scope.positional.length));
  if (!isSet) scope.onUnset(parameter);
  const counts = isSet && !(operation.operator.startsWith(':') && isEmpty(plain()));
  switch (operation.operator.replace(':', '')) {
    case '+':
      return counts ? { operand: operation.operand } : { value: [] };
    case '?':
      return whole(plain());
    default: {
      if (counts) return whole(plain());
      if (!operation.operator.endsWith('=')) return { operand: operation.operand };
      const value = expandText(operation.operand, scope);
      scope.variables.set(parameter, { kind: 'text', value });
      return { value };
    }
  }
}

/** `${!NAME}`, the value of the variable that a variable names; `${!LIST[@]}`, its indices. */
function pointedTo(
  { parameter, index, operation, text, pos }: ParameterExpansionPart,
  scope: Scope,
): Found | undefined {
  if (operation !== undefined) return undefined;
  if (index !== undefined) return index.text === '@' ? indicesOf(parameter, scope) : undefined;
  const name = scope.variables.get(parameter);
  const pointed = name?.kind === 'text' ? knownText(name.value) : undefined;
  return pointed === undefined ? undefined : lookUp(pointed, text, pos, scope);
}

/**
 * The value of a parameter before an operation changes it.
 *
 * @param which the index of a list, where it is known
 */
function valueOf(
  { parameter, index, text, pos }: ParameterExpansionPart,
  which: number | undefined,
  scope: Scope,
): Found | undefined {
  if (index === undefined && parameter === '*' && scope.positional !== undefined)
    return { list: scope.positional };
  const variable = scope.variables.get(parameter);
  if (index === undefined || variable === undefined) return lookUp(parameter, text, pos, scope);
  const values = variable.kind === 'array' ? variable.values : [variable.value];
  if (variable.kind === 'array' && variable.keys !== undefined)
    return valueAt(variable.keys, values, index, scope);
  if (/^[@*]$/.test(index.text)) return { list: values };
  if (which === undefined) return undefined;
  const open = unknownBefore(variable, which);
  if (open === undefined) return { value: values.at(which) ?? [] };
  return { value: [{ text, at: scope.placed(pos), why: open.why }] };
}

/** Tells whether a variable is set, and has the index that is asked for. */
function hasValue(
  variable: Variable | undefined,
  index: Word | undefined,
  which: number | undefined,
  scope: Scope,
): boolean {
  if (variable?.kind !== 'array' || index === undefined || /^[@*]$/.test(index.text))
    return variable !== undefined;
  if (variable.keys !== undefined) {
    const key = knownText(expandText(index, scope));
    return key === undefined || variable.keys.includes(key);
  }
  const at = which ?? NaN;
  return unknownBefore(variable, at) !== undefined || variable.values.at(at) !== undefined;
}

/** The number of an element of a list, which is calculated; undefined where it is not known. */
export function indexIn(index: Word, scope: Scope): number | undefined {
  const text = knownText(expandText(index, scope));
  if (text === undefined) return undefined;
  const [statement] = parse(`((${text}))`).commands;
  const command = statement?.command;
  return command?.type !== 'ArithmeticCommand' || command.expression === undefined
    ? undefined
    : arithmetic(command.expression, numbersOf(scope));
}

/** The unknown part up to an element of a list, which may be any number of elements. */
function unknownBefore(variable: Variable | undefined, which: number): Unknown | undefined {
  if (variable?.kind !== 'array') return variable && unknownIn(variable.value);
  const { values } = variable;
  return (which < 0 ? values : values.slice(0, which + 1)).map(unknownIn).find((u) => u);
}

/** A value of an associative array; all of them have an order of the shell's own. */
function valueAt(
  keys: readonly string[],
  values: readonly Value[],
  index: Word,
  scope: Scope,
): Found | undefined {
  if (/^[@*]$/.test(index.text))
    return values.length > 1 || values.some((value) => unknownIn(value) !== undefined)
      ? undefined
      : { list: values };
  const key = knownText(expandText(index, scope));
  return key === undefined ? undefined : { value: values[keys.indexOf(key)] ?? [] };
}

/** The indices of an array. */
function indicesOf(name: string, scope: Scope): Found | undefined {
  const variable = scope.variables.get(name);
  if (variable?.kind !== 'array') return undefined;
  const { values, keys } = variable;
  if (values.some((value) => unknownIn(value) !== undefined)) return undefined;
  if (keys !== undefined && keys.length > 1) return undefined;
  return { list: values.map((_, i) => [keys?.[i] ?? String(i)]) };
}

function isEmpty(found: Found): boolean {
  return 'list' in found ? found.list.length === 0 : textOf(found.value) === '';
}

function lengthOf(
  { parameter, index, text, pos }: ParameterExpansionPart,
  scope: Scope,
  unread: Found,
): Found {
  if (/^[@*#]?$/.test(parameter))
    return scope.positional === undefined
      ? { value: [{ text, at: scope.placed(pos), why: ARGUMENTS }] }
      : { value: [String(scope.positional.length)] };
  const variable = scope.variables.get(parameter);
  if (variable === undefined) return lookUp(parameter, text, pos, scope);
  if (variable.kind === 'array')
    return index === undefined || variable.values.some((value) => unknownIn(value) !== undefined)
      ? unread
      : { value: [String(variable.values.length)] };
  const known = knownText(variable.value);
  return known === undefined ? unread : { value: [String(known.length)] };
}

/** `${NAME%...}`, `${NAME//a/b}`, `${NAME^^}` of a known text. */
function edited(
  found: Found,
  operation: ParameterOperation,
  scope: Scope,
  { unread, first }: { readonly unread: Found; readonly first: number },
): Found {
  if (operation.type === 'Slice') return sliced(found, operation, scope, first) ?? unread;
  if ('list' in found) {
    const each = found.list.map((value) => edited({ value }, operation, scope, { unread, first }));
    return each.some((one) => one === unread)
      ? unread
      : { list: each.map((one) => ('value' in one ? one.value : [])) };
  }
  const text = knownText(found.value);
  if (text === undefined) return found;
  if (text.length > MOST_EDITED) return unread;
  const word = (w: Word | undefined): string | undefined =>
    w === undefined ? '' : knownText(expandText(w, scope));
  if (operation.type === 'CaseModification') {
    const up = operation.operator.startsWith('^');
    const change = (t: string): string => (up ? t.toUpperCase() : t.toLowerCase());
    if (operation.operand !== undefined) return unread;
    const isAll = operation.operator.length === 2;
    return { value: [isAll ? change(text) : change(text.slice(0, 1)) + text.slice(1)] };
  }
  if (operation.type === 'Replace') {
    const pattern = knownText(expandPattern(operation.pattern, scope));
    const replacement = word(operation.replacement);
    if (pattern === undefined || replacement === undefined) return unread;
    // Since Bash 5.2 `&` is what matched.
    if (isOpenPattern(pattern, text) || replacement.includes('&')) return unread;
    if (text === '' && /^\*+$/.test(pattern)) return unread;
    // Bash 5.2 takes a quoted star at the end of a pattern that begins with one for an open one.
    if (/^\*[\s\S]*\[\*\]$/.test(pattern)) return unread;
    return { value: [replacedIn(text, operation.operator, pattern, replacement)] };
  }
  if (operation.type === 'Remove') {
    const pattern = knownText(expandPattern(operation.operand, scope));
    if (pattern === undefined || isOpenPattern(pattern, text)) return unread;
    return { value: [removedFrom(text, operation.operator, pattern)] };
  }
  return unread;
}

/** `${NAME:2:3}`: characters of a text, or values of a list. */
function sliced(
  found: Found,
  { offset, length }: Extract<ParameterOperation, { type: 'Slice' }>,
  scope: Scope,
  first: number,
): Found | undefined {
  const numberOf = (word: Word): number => Number(knownText(expandText(word, scope)) ?? NaN);
  const stated = numberOf(offset);
  // From the end a negative one counts; before the first argument lies the name of the script.
  const from = stated < 0 ? stated : stated - first;
  const size = length === undefined ? Infinity : numberOf(length);
  if (!Number.isInteger(from) || !(size >= 0) || (stated === 0 && first === 1)) return undefined;
  const to = (all: number): number => (from < 0 ? Math.max(0, all + from) : from) + size;
  if ('list' in found) {
    if (found.list.some((value) => unknownIn(value) !== undefined)) return undefined;
    return { list: found.list.slice(from, to(found.list.length)) };
  }
  const text = knownText(found.value);
  return text === undefined ? undefined : { value: [text.slice(from, to(text.length))] };
}

function arithmeticText(
  expression: ArithmeticExpression | undefined,
  text: string,
  pos: number,
  scope: Scope,
): Value[number] {
  const value = expression === undefined ? undefined : arithmetic(expression, numbersOf(scope));
  return value === undefined
    ? { text, at: scope.placed(pos), why: 'a number that the file does not tell' }
    : String(value);
}

/** The numbers of variables. */
export function numbersOf(scope: Scope): ArithmeticScope {
  return {
    operand: ({ value, parts }) => {
      const known = parts === undefined ? value : knownText(expandParts(parts, scope));
      return known === undefined ? undefined : numberOf(known, scope);
    },
    assign: (target, value) => {
      assignNumber(target, value, scope);
    },
  };
}

/** @param depth names that stood for this one */
function numberOf(text: string, scope: Scope, depth = 0): number | undefined {
  const numberIn = (value: Value | undefined): number | undefined => {
    const known = value === undefined ? undefined : knownText(value);
    return known === undefined || depth > MOST_NAMES
      ? undefined
      : numberOf(known, scope, depth + 1);
  };
  const [, place] = /^\$(\d)$/.exec(text.trim()) ?? [];
  if (place !== undefined) return numberIn(scope.positional?.[Number(place) - 1]);
  const word = text.trim().replace(/^\$(?=[A-Za-z_]\w*$)/, '');
  const literal = literalNumber(word);
  if (literal !== undefined) return literal.number;
  const [, array, index] = /^(\w+)\[(.+)\]$/.exec(word) ?? [];
  const variable = scope.variables.get(array ?? word);
  if (array === undefined) return variable?.kind === 'text' ? numberIn(variable.value) : undefined;
  if (depth > MOST_NAMES || variable?.kind !== 'array' || variable.keys !== undefined)
    return undefined;
  const at = numberOf(index, scope, depth + 1);
  return at === undefined || !Number.isInteger(at) ? undefined : numberIn(variable.values.at(at));
}

/** A number that is written out; undefined for a name, a number of `undefined` for a wrong one. */
function literalNumber(word: string): { readonly number: number | undefined } | undefined {
  if (/^(0[xX][\da-fA-F]+|\d+)$/.test(word))
    return { number: /^0\d/.test(word) ? parseInt(word, 8) : Number(word) };
  const [, base, digits] = /^([2-9]|[12]\d|3[0-6])#([\da-zA-Z]+)$/.exec(word) ?? [];
  if (base !== undefined) {
    const number = parseInt(digits, Number(base));
    const isRead = number.toString(Number(base)) === digits.toLowerCase().replace(/^0+(?=.)/, '');
    return { number: isRead ? number : undefined };
  }
  if (word === '') return { number: 0 };
  return /^-\d+$/.test(word) ? { number: Number(word) } : undefined;
}

/** Sets a variable, or an element of a list, in arithmetic. */
function assignNumber(target: string, number: number | undefined, scope: Scope): void {
  const [, name = target, index] = /^(\w+)\[(.+)\]$/.exec(target) ?? [];
  const unknown: Value = [
    { text: `$${name}`, at: scope.placed(0), why: 'a number that the file does not tell' },
  ];
  const value = number === undefined ? unknown : [String(number)];
  if (index === undefined) {
    scope.variables.set(name, { kind: 'text', value });
    return;
  }
  const old = scope.variables.get(name);
  const at = numberOf(index, scope);
  const values = old?.kind === 'array' && old.keys === undefined ? [...old.values] : [];
  const isIn = at !== undefined && at >= 0 && at <= values.length;
  if (isIn) values[at] = value;
  scope.variables.set(name, isIn ? { kind: 'array', values } : { kind: 'text', value: unknown });
}

/** Characters of a text of which a part is looked for. */
const MOST_EDITED = 4096;
/** Names that stand for one another in arithmetic. */
const MOST_NAMES = 16;

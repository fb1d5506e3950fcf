/**
 * The tests of a shell script: `[[ ... ]]`, `[ ... ]` and `test`. One that asks for what only the
 * run knows has no result. Source: the Bash manual, 3.2.5 and 6.4.
 */

import type { CompoundList, TestExpression, Word } from 'unbash';

import { isOpenPattern, matchesPattern, quotedPattern } from './patterns.ts';

/** The words of a test as texts; undefined where the script does not tell them. */
export interface TestWords {
  readonly text: (word: Word) => string | undefined;
  readonly pattern: (word: Word) => string | undefined;
  /** Tells whether a text matches a regular expression. */
  readonly expression: (text: string | undefined, word: Word) => boolean | undefined;
}

/** `[[ ... ]]`. */
export function testResult(expression: TestExpression, words: TestWords): boolean | undefined {
  switch (expression.type) {
    case 'TestGroup':
      return testResult(expression.expression, words);
    case 'TestNot': {
      const inner = testResult(expression.operand, words);
      return inner === undefined
        ? undefined
        : expression.negations.length % 2 === 1
          ? !inner
          : inner;
    }
    case 'TestLogical': {
      const parts = expression.operands.map((operand) => testResult(operand, words));
      const decides = expression.operator === '||';
      if (parts.includes(decides)) return decides;
      return parts.includes(undefined) ? undefined : !decides;
    }
    case 'TestUnary':
      return unaryTest(expression.operator, words.text(expression.operand));
    case 'TestBinary': {
      const { left, operator, right } = expression;
      if (operator === '=~') return words.expression(words.text(left), right);
      const other = comparesTexts(operator) ? words.pattern(right) : words.text(right);
      return binaryTest(words.text(left), operator, other);
    }
  }
}

/** `[ ... ]` and `test`, of their words. */
export function bracketResult(texts: readonly (string | undefined)[]): boolean | undefined {
  const [first, second, third] = texts;
  if (first === '!') {
    const inner = bracketResult(texts.slice(1));
    return inner === undefined ? undefined : !inner;
  }
  const join = texts.findIndex((t) => t === '-a' || t === '-o');
  if (join > 0) {
    const left = bracketResult(texts.slice(0, join));
    const right = bracketResult(texts.slice(join + 1));
    if (left === undefined || right === undefined) return undefined;
    return texts[join] === '-a' ? left && right : left || right;
  }
  if (texts.length === 1) return first === undefined ? undefined : first !== '';
  if (texts.length === 2 && first !== undefined) return unaryTest(first, second);
  if (texts.length !== 3 || second === undefined || third === undefined) return undefined;
  return binaryTest(first, second, comparesTexts(second) ? quotedPattern(third) : third);
}

/** Tells whether a list of commands is one test, or asks for the next option, and nothing else. */
export function testsAlone({ commands }: CompoundList): boolean {
  const [{ command }] = commands;
  if (commands.length > 1) return false;
  const isBracket =
    command.type === 'Command' && /^(\[|test|getopts)$/.test(command.name?.text ?? '');
  return isBracket || command.type === 'TestCommand' || command.type === 'ArithmeticCommand';
}

function unaryTest(operator: string, text: string | undefined): boolean | undefined {
  if (text === undefined) return undefined;
  if (operator === '-z') return text === '';
  return operator === '-n' ? text !== '' : undefined;
}

function comparesTexts(operator: string): boolean {
  return operator === '=' || operator === '==' || operator === '!=';
}

/** @param right of a comparison of texts the pattern */
function binaryTest(
  left: string | undefined,
  operator: string,
  right: string | undefined,
): boolean | undefined {
  if (left === undefined || right === undefined) return undefined;
  if (comparesTexts(operator)) {
    if (isOpenPattern(right, left)) return undefined;
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

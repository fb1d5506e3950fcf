/**
 * The whole numbers of `$((...))` in a shell script. Source: the shell arithmetic of the Bash
 * manual, 6.5; a number beyond 2^53 is not known.
 */

import type { ArithmeticExpression } from 'unbash';

/** The variables that an expression reads and sets. */
export interface ArithmeticScope {
  /** The number of an operand; undefined where the script does not tell it. */
  readonly operand: (
    word: Extract<ArithmeticExpression, { type: 'ArithmeticWord' }>,
  ) => number | undefined;
  readonly assign: (name: string, value: number | undefined) => void;
}

const BINARY: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => Math.trunc(a / b),
  '%': (a, b) => a % b,
  '**': (a, b) => a ** b,
  '<<': (a, b) => a * 2 ** b,
  '>>': (a, b) => Math.floor(a / 2 ** b),
  '<': (a, b) => Number(a < b),
  '<=': (a, b) => Number(a <= b),
  '>': (a, b) => Number(a > b),
  '>=': (a, b) => Number(a >= b),
  '==': (a, b) => Number(a === b),
  '!=': (a, b) => Number(a !== b),
  '&': bitwise((a, b) => a & b),
  '|': bitwise((a, b) => a | b),
  '^': bitwise((a, b) => a ^ b),
  ',': (_, b) => b,
};
const UNARY: Readonly<Record<string, (a: number) => number>> = {
  '-': (a) => -a,
  '+': (a) => a,
  '!': (a) => Number(a === 0),
  '~': (a) => -a - 1,
};

/** Bits of the 64 that a number of the shell has. */
function bitwise(of: (a: bigint, b: bigint) => bigint): (a: number, b: number) => number {
  return (a, b) => Number(of(BigInt(a), BigInt(b)));
}

/** The value of an expression; undefined where the script alone does not tell it. */
export function arithmetic(
  expression: ArithmeticExpression,
  scope: ArithmeticScope,
): number | undefined {
  const value = evaluate(expression, scope);
  return value === undefined || !Number.isSafeInteger(value) ? undefined : value;
}

function evaluate(expression: ArithmeticExpression, scope: ArithmeticScope): number | undefined {
  switch (expression.type) {
    case 'ArithmeticGroup':
      return arithmetic(expression.expression, scope);
    case 'ArithmeticWord':
      return scope.operand(expression);
    case 'ArithmeticCommandExpansion':
      return undefined;
    case 'ArithmeticTernary': {
      const test = arithmetic(expression.test, scope);
      if (test === undefined) {
        for (const branch of [expression.consequent, expression.alternate]) forget(branch, scope);
        return undefined;
      }
      return arithmetic(test === 0 ? expression.alternate : expression.consequent, scope);
    }
    case 'ArithmeticUnary': {
      const operand = arithmetic(expression.operand, scope);
      if (expression.operator === '++' || expression.operator === '--') {
        const next =
          operand === undefined ? undefined : operand + (expression.operator === '++' ? 1 : -1);
        if (expression.operand.type === 'ArithmeticWord')
          scope.assign(expression.operand.value, next);
        return expression.prefix ? next : operand;
      }
      return operand === undefined || !Object.hasOwn(UNARY, expression.operator)
        ? undefined
        : UNARY[expression.operator](operand);
    }
    case 'ArithmeticBinary':
      return binary(expression, scope);
  }
}

function binary(
  { operator, left, right }: Extract<ArithmeticExpression, { type: 'ArithmeticBinary' }>,
  scope: ArithmeticScope,
): number | undefined {
  const assigned = /^(.*)=$/.exec(operator);
  if (assigned !== null && !Object.hasOwn(BINARY, operator)) {
    const how = assigned[1];
    const a = how === '' ? 0 : arithmetic(left, scope);
    const b = arithmetic(right, scope);
    const value =
      how === ''
        ? b
        : a === undefined || b === undefined || !Object.hasOwn(BINARY, how)
          ? undefined
          : BINARY[how](a, b);
    if (left.type === 'ArithmeticWord') scope.assign(left.value, value);
    return value;
  }
  // From the left: what is on the right may read what the left assigns.
  const a = arithmetic(left, scope);
  if (operator === '&&' || operator === '||') {
    if (a === undefined) {
      forget(right, scope);
      return undefined;
    }
    if ((a !== 0) === (operator === '||')) return Number(a !== 0);
    const b = arithmetic(right, scope);
    return b === undefined ? undefined : Number(b !== 0);
  }
  const b = arithmetic(right, scope);
  return a === undefined || b === undefined || !Object.hasOwn(BINARY, operator)
    ? undefined
    : BINARY[operator](a, b);
}

/** Makes unknown what an expression may assign, where nobody knows whether it does. */
function forget(expression: ArithmeticExpression, scope: ArithmeticScope): void {
  const assigns = (target: ArithmeticExpression): void => {
    if (target.type === 'ArithmeticWord') scope.assign(target.value, undefined);
  };
  switch (expression.type) {
    case 'ArithmeticGroup':
      return forget(expression.expression, scope);
    case 'ArithmeticTernary':
      for (const part of [expression.test, expression.consequent, expression.alternate])
        forget(part, scope);
      return;
    case 'ArithmeticUnary':
      if (/^(\+\+|--)$/.test(expression.operator)) assigns(expression.operand);
      return forget(expression.operand, scope);
    case 'ArithmeticBinary':
      if (/[^<>=!]=$|^=$|<<=$|>>=$/.test(expression.operator)) assigns(expression.left);
      forget(expression.left, scope);
      return forget(expression.right, scope);
    case 'ArithmeticWord':
    case 'ArithmeticCommandExpansion':
  }
}

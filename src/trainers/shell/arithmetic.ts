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
  '&&': (a, b) => Number(a !== 0 && b !== 0),
  '||': (a, b) => Number(a !== 0 || b !== 0),
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
      if (test === undefined) return undefined;
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
  const b = arithmetic(right, scope);
  const assigned = /^(.*)=$/.exec(operator);
  if (assigned !== null && !Object.hasOwn(BINARY, operator)) {
    const how = assigned[1];
    const a = how === '' ? 0 : arithmetic(left, scope);
    const value =
      how === ''
        ? b
        : a === undefined || b === undefined || !Object.hasOwn(BINARY, how)
          ? undefined
          : BINARY[how](a, b);
    if (left.type === 'ArithmeticWord') scope.assign(left.value, value);
    return value;
  }
  const a = arithmetic(left, scope);
  return a === undefined || b === undefined || !Object.hasOwn(BINARY, operator)
    ? undefined
    : BINARY[operator](a, b);
}

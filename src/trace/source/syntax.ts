/** Helpers on TypeScript syntax that all source rewrites share. */

import ts from 'typescript';

/** Methods of lists whose callback answers yes or no. */
export const PREDICATES: ReadonlySet<string> = new Set([
  'filter',
  'some',
  'every',
  'find',
  'findIndex',
  'findLast',
  'findLastIndex',
]);

/** The expression without parentheses, `as`, `satisfies` and `!`. */
export function bare(expression: ts.Expression): ts.Expression {
  let inner = expression;
  while (
    ts.isParenthesizedExpression(inner) ||
    ts.isAsExpression(inner) ||
    ts.isSatisfiesExpression(inner) ||
    ts.isNonNullExpression(inner)
  )
    inner = inner.expression;
  return inner;
}

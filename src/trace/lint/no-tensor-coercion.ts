/**
 * The rule `shardwright/no-tensor-coercion`: reports, by type, the uses of a traced tensor that
 * JavaScript gives another meaning and that neither run time nor the stock typed rules catch. It
 * walks the TypeScript tree and leaves the ESLint tree alone, so it needs nothing but the parser
 * services of typescript-eslint at run time.
 */

import ts from 'typescript';

import { bare, PREDICATES } from '../source/syntax.ts';
import { TensorTypes } from './tensor-types.ts';

/** One finding: what is wrong, what to write instead, and where. */
interface Finding {
  readonly node: ts.Node;
  readonly message: string;
}

const RELATIONAL: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.LessThanToken, 'lt'],
  [ts.SyntaxKind.LessThanEqualsToken, 'le'],
  [ts.SyntaxKind.GreaterThanToken, 'gt'],
  [ts.SyntaxKind.GreaterThanEqualsToken, 'ge'],
]);
const EQUALITY: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.EqualsEqualsToken, 'eq'],
  [ts.SyntaxKind.EqualsEqualsEqualsToken, 'eq'],
  [ts.SyntaxKind.ExclamationEqualsToken, 'ne'],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, 'ne'],
]);
const ARITHMETIC: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.PlusToken, 'add'],
  [ts.SyntaxKind.PlusEqualsToken, 'add'],
  [ts.SyntaxKind.MinusToken, 'sub'],
  [ts.SyntaxKind.MinusEqualsToken, 'sub'],
  [ts.SyntaxKind.AsteriskToken, 'mul'],
  [ts.SyntaxKind.AsteriskEqualsToken, 'mul'],
  [ts.SyntaxKind.SlashToken, 'div'],
  [ts.SyntaxKind.SlashEqualsToken, 'div'],
  [ts.SyntaxKind.PercentToken, 'remainder'],
  [ts.SyntaxKind.PercentEqualsToken, 'remainder'],
  [ts.SyntaxKind.AsteriskAsteriskToken, 'pow'],
  [ts.SyntaxKind.AsteriskAsteriskEqualsToken, 'pow'],
  [ts.SyntaxKind.AmpersandToken, 'bitwiseAnd'],
  [ts.SyntaxKind.AmpersandEqualsToken, 'bitwiseAnd'],
  [ts.SyntaxKind.BarToken, 'bitwiseOr'],
  [ts.SyntaxKind.BarEqualsToken, 'bitwiseOr'],
  [ts.SyntaxKind.CaretToken, 'logicalXor'],
  [ts.SyntaxKind.CaretEqualsToken, 'logicalXor'],
  [ts.SyntaxKind.LessThanLessThanToken, 'mul'],
  [ts.SyntaxKind.GreaterThanGreaterThanToken, 'div'],
  [ts.SyntaxKind.GreaterThanGreaterThanGreaterThanToken, 'div'],
]);
const KEYED = new Set(['includes', 'indexOf', 'lastIndexOf', 'has', 'get', 'add', 'set', 'delete']);
const COERCING = new Set([
  'Number',
  'String',
  'BigInt',
  'isNaN',
  'isFinite',
  'parseInt',
  'parseFloat',
]);
const NUMBER_TESTS = new Set(['isNaN', 'isFinite', 'isInteger', 'isSafeInteger']);

/** Every finding of a file, in order. */
export function tensorCoercions(file: ts.SourceFile, checker: ts.TypeChecker): Finding[] {
  const types = new TensorTypes(checker);
  const found: Finding[] = [];
  const report = (node: ts.Node, message: string): void => void found.push({ node, message });
  const visit = (node: ts.Node): void => {
    check(node, types, checker, report);
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

type Report = (node: ts.Node, message: string) => void;

function check(node: ts.Node, types: TensorTypes, checker: ts.TypeChecker, report: Report): void {
  const tensor = (e: ts.Node): boolean => types.isTensor(e);
  if (ts.isSwitchStatement(node) && tensor(node.expression))
    report(node.expression, 'switch compares a tensor by reference; use `where` on `t.eq(value)`.');
  else if (ts.isCaseClause(node) && tensor(node.expression))
    report(node.expression, 'case compares a tensor by reference; use `where` on `t.eq(value)`.');
  else if (ts.isBinaryExpression(node)) checkBinary(node, tensor, report);
  else if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) {
    if (node.operator !== ts.SyntaxKind.ExclamationToken && tensor(node.operand))
      report(
        node,
        `'${ts.tokenToString(node.operator) ?? ''}' coerces a tensor; use \`t.neg()\`, ` +
          `\`t.add(1)\` or \`t.sub(1)\`.`,
      );
    else if (node.operator === ts.SyntaxKind.ExclamationToken && tensor(node.operand))
      report(node, '! of a tensor is always false; use `t.logicalNot()`.');
  } else if (ts.isElementAccessExpression(node)) {
    if (tensor(node.expression))
      report(node, 'a tensor has no elements by index; use `t.select(0, i)` or `t.slice(0, i)`.');
    else if (tensor(node.argumentExpression))
      report(node.argumentExpression, 'a tensor is not a key; use `gather` or `indexSelect`.');
  } else if (ts.isTemplateSpan(node) && tensor(node.expression))
    report(node.expression, 'a template coerces a tensor; use `t.name` or `t.shape`.');
  else if (ts.isSpreadAssignment(node) && tensor(node.expression))
    report(
      node,
      '{...t} copies the fields of a tensor; pass the tensor itself, `t.detach()` for one ' +
        'without gradient.',
    );
  else if (ts.isSpreadElement(node) && tensor(node.expression))
    report(node, 'a tensor cannot be spread; use `t.unbind(0)`.');
  else if (ts.isForOfStatement(node) && tensor(node.expression))
    report(node.expression, 'a tensor cannot be iterated; use `t.unbind(0)`.');
  else if (ts.isComputedPropertyName(node) && tensor(node.expression))
    report(node.expression, 'a tensor is not a key; use `gather` or `indexSelect`.');
  else if (ts.isCallExpression(node) || ts.isNewExpression(node))
    checkCall(node, types, checker, report);
}

function checkBinary(
  node: ts.BinaryExpression,
  tensor: (e: ts.Node) => boolean,
  report: Report,
): void {
  const { left, right, operatorToken } = node;
  const { kind } = operatorToken;
  const sign = ts.tokenToString(kind) ?? '';
  const either = (): boolean => tensor(left) || tensor(right);
  const equality = EQUALITY.get(kind);
  if (equality !== undefined) {
    if (!isAbsence(left) && !isAbsence(right) && either())
      report(node, `${sign} compares a tensor by reference; use \`a.${equality}(b)\`.`);
    return;
  }
  const method = RELATIONAL.get(kind) ?? ARITHMETIC.get(kind);
  if (method !== undefined && either())
    report(node, `'${sign}' coerces a tensor; use \`a.${method}(b)\`.`);
  else if (kind === ts.SyntaxKind.InKeyword && tensor(right))
    report(
      node,
      "'in' asks a tensor for a property; read `t.shape`, or use `t.gather(dim, index)`.",
    );
  else if (
    (kind === ts.SyntaxKind.AmpersandAmpersandEqualsToken ||
      kind === ts.SyntaxKind.BarBarEqualsToken) &&
    tensor(left)
  )
    report(
      node,
      `${sign} decides by truthiness, and a tensor is always true; use \`where\` or ` +
        `\`a.logical${sign === '&&=' ? 'And' : 'Or'}(b)\`.`,
    );
}

function checkCall(
  node: ts.CallExpression | ts.NewExpression,
  types: TensorTypes,
  checker: ts.TypeChecker,
  report: Report,
): void {
  const callee = bare(node.expression);
  const [first] = node.arguments ?? [];
  if (first === undefined) return;
  const isTensor = types.isTensor(first);
  if (ts.isIdentifier(callee)) {
    const message = isTensor ? functionMessage(node, callee.text) : undefined;
    if (message !== undefined) report(node, message);
    return;
  }
  if (!ts.isPropertyAccessExpression(callee)) return;
  const message = isTensor ? methodMessage(callee, checker) : undefined;
  const { text } = callee.name;
  if (message !== undefined) report(node, message);
  else if (
    PREDICATES.has(text) &&
    !types.isTensor(callee.expression) &&
    isReference(first) &&
    types.returnsTensor(first)
  )
    report(
      first,
      `the predicate of ${text} gives a tensor, which is always true; use \`where\`, or a ` +
        'host condition.',
    );
}

/** The result of a host function on a tensor, if the function is not an operator. */
function functionMessage(
  node: ts.CallExpression | ts.NewExpression,
  text: string,
): string | undefined {
  if (text === 'Boolean') return 'Boolean(t) is always true; use `t.ne(0)` and `where`.';
  if (text === 'assert' || text === 'ok')
    return `${text}(t) always passes; use a check of the host, or \`t.all()\` as an output.`;
  if (text === 'Array' && node.arguments?.length === 1)
    return 'Array(t) is a list of one; use `t.unbind(0)`.';
  if (COERCING.has(text))
    return `${text}(t) coerces a tensor; use \`t.to(dtype)\`, \`t.isnan()\` or \`t.isfinite()\`.`;
  if (ts.isNewExpression(node) && (text === 'Set' || text === 'Map'))
    return `a tensor cannot be iterated; use \`t.unbind(0)\`.`;
  return undefined;
}

/** The result of a host method on a tensor, if the method is not an operator. */
function methodMessage(
  { name: { text }, expression }: ts.PropertyAccessExpression,
  checker: ts.TypeChecker,
): string | undefined {
  const owner = ts.isIdentifier(expression) ? expression.text : '';
  if (owner === 'Number' && NUMBER_TESTS.has(text))
    return `Number.${text}(t) is always false; use \`t.isnan()\` or \`t.isfinite()\`.`;
  if (owner === 'Array' && text === 'isArray')
    return 'Array.isArray(t) is always false; use `t instanceof Tensor`.';
  if (owner === 'Object')
    return (
      `Object.${text}(t) looks at a tensor by reference or by field; use \`a.eq(b)\` or its ` +
      'methods.'
    );
  if (owner === 'Math' || owner === 'JSON')
    return `${owner}.${text}(t) coerces a tensor; use its methods, \`t.exp()\`, \`t.name\`.`;
  if (KEYED.has(text) && isCollection(checker.getTypeAtLocation(expression)))
    return `${text} finds a tensor by reference; use \`a.eq(b)\`, or keep an index beside it.`;
  if (owner === 'assert' && (text === 'ok' || text === 'equal' || text === 'strictEqual'))
    return `assert.${text}(t) looks at a reference; use a check of the host.`;
  return undefined;
}

function isCollection(type: ts.Type): boolean {
  const name = type.symbol?.name ?? '';
  return [
    'Array',
    'ReadonlyArray',
    'Map',
    'ReadonlyMap',
    'Set',
    'ReadonlySet',
    'WeakMap',
    'WeakSet',
  ].includes(name);
}

/** A predicate by name: the stock rules see those written in place. */
function isReference(node: ts.Expression): boolean {
  const plain = bare(node);
  return ts.isIdentifier(plain) || ts.isPropertyAccessExpression(plain);
}

function isAbsence(node: ts.Expression): boolean {
  const plain = bare(node);
  return (
    plain.kind === ts.SyntaxKind.NullKeyword ||
    ts.isVoidExpression(plain) ||
    ts.isTypeOfExpression(plain) ||
    (ts.isIdentifier(plain) && plain.text === 'undefined')
  );
}

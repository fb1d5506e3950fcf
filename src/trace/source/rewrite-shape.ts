/**
 * Decides whether a conditional or a loop of the source can be written as an operator, and as
 * which.
 */

import ts from 'typescript';

import { bare } from './syntax.ts';

/** True if a conditional or loop can be written as an operator, and as which. */
type Shape =
  /**
   * Both sides give a value: `c ? a : b`, or an if whose branches both return; they assign these
   * variables on the way.
   */
  | { readonly form: 'return'; readonly names: readonly string[] }
  /** The parts assign these outer variables and do nothing else. */
  | { readonly form: 'assign'; readonly names: readonly string[] }
  | { readonly form: 'other'; readonly reason: string };

/** @param locals variables that nobody reads after a branch has returned */
export function shapeOf(
  node: ts.IfStatement | ts.WhileStatement | ts.ConditionalExpression,
  locals: ReadonlySet<string> = new Set(),
): Shape {
  const other = (reason: string): Shape => ({ form: 'other', reason });
  if (ts.isConditionalExpression(node)) {
    const [a, b] = [effectsOf(node.whenTrue), effectsOf(node.whenFalse)];
    const blocked = a.blocked ?? b.blocked;
    if (blocked !== undefined) return other(blocked);
    if (a.assigned.size + b.assigned.size > 0) return other('its branches assign variables');
    return { form: 'return', names: [] };
  }
  if (ts.isWhileStatement(node)) {
    const [test, body] = [effectsOf(node.expression), effectsOf(node.statement)];
    const blocked = test.blocked ?? body.blocked;
    if (blocked !== undefined) return other(blocked);
    if (body.returns > 0) return other('its body returns');
    if (test.assigned.size > 0) return other('its condition assigns variables');
    return { form: 'assign', names: [...body.assigned].sort() };
  }
  const yes = effectsOf(node.thenStatement);
  const no = node.elseStatement === undefined ? undefined : effectsOf(node.elseStatement);
  const blocked = yes.blocked ?? no?.blocked;
  if (blocked !== undefined) return other(blocked);
  if (no === undefined || node.elseStatement === undefined)
    return yes.returns > 0 ? other('only one branch returns') : assigning(yes.assigned);
  if (yes.returns + no.returns > 0) {
    if (
      terminalReturns(node.thenStatement) !== yes.returns ||
      terminalReturns(node.elseStatement) !== no.returns
    )
      return other('a branch returns from its middle, or not at its end');
    if (yes.returns === 0 || no.returns === 0) return other('only one branch returns');
    const names = [...new Set([...yes.assigned, ...no.assigned])].sort();
    const outer = names.find((name) => !locals.has(name));
    if (outer !== undefined)
      return other(`its branches return and assign '${outer}' of outside the function`);
    return { form: 'return', names };
  }
  return assigning(new Set([...yes.assigned, ...no.assigned]));
}

/** Branches that assign: a variable that one of them leaves out stays what it is there. */
function assigning(assigned: ReadonlySet<string>): Shape {
  return assigned.size === 0
    ? { form: 'other', reason: 'it neither returns nor assigns variables' }
    : { form: 'assign', names: [...assigned].sort() };
}

/**
 * Returns with which every way through the statement ends; 0 where some way does not end in one.
 */
function terminalReturns(statement: ts.Statement): number {
  if (ts.isReturnStatement(statement)) return 1;
  if (ts.isBlock(statement)) {
    const last = statement.statements.at(-1);
    return last === undefined ? 0 : terminalReturns(last);
  }
  if (ts.isIfStatement(statement) && statement.elseStatement !== undefined) {
    const [a, b] = [
      terminalReturns(statement.thenStatement),
      terminalReturns(statement.elseStatement),
    ];
    return a === 0 || b === 0 ? 0 : a + b;
  }
  return 0;
}

/** Tells whether a list of statements ends in a return on every way through it. */
export function alwaysReturns(statements: readonly ts.Statement[]): boolean {
  const last = statements.at(-1);
  return last !== undefined && terminalReturns(last) > 0;
}

/** Tells whether a statement returns from the function around it, on some way. */
export function returnsInside(statement: ts.Statement): boolean {
  return effectsOf(statement).returns > 0;
}

/** Tells whether an expression does more than give a value: it assigns, awaits or deletes. */
export function hasEffects(expression: ts.Expression): boolean {
  const { assigned, blocked } = effectsOf(expression);
  return assigned.size > 0 || blocked !== undefined;
}

interface Effects {
  /** Variables declared outside that are assigned inside, nested functions included. */
  readonly assigned: Set<string>;
  /** Return statements of the function around. */
  returns: number;
  /** A construct that no operator can express. */
  blocked: string | undefined;
}

function effectsOf(root: ts.Node): Effects {
  const effects: Effects = { assigned: new Set(), returns: 0, blocked: undefined };
  const block = (reason: string): void => void (effects.blocked ??= reason);
  const visit = (node: ts.Node, scopes: readonly ReadonlySet<string>[], nesting: Nesting): void => {
    if (ts.isFunctionLike(node)) {
      if (ts.isFunctionDeclaration(node) && nesting.functions === 0)
        block('it declares a function');
      const inner = { functions: nesting.functions + 1, loops: 0, switches: 0 };
      const names = new Set(node.parameters.flatMap((p) => bindingNames(p.name)));
      ts.forEachChild(node, (child) => visit(child, [...scopes, names], inner));
      return;
    }
    const own = nesting.functions === 0;
    if (own && ts.isReturnStatement(node)) effects.returns++;
    if (own && (ts.isAwaitExpression(node) || ts.isYieldExpression(node)))
      block('it awaits or yields');
    if (own && ts.isThrowStatement(node)) block('it throws');
    if (own && ts.isLabeledStatement(node)) block('it has a label');
    if (ts.isBreakStatement(node) && nesting.loops + nesting.switches === 0 && own)
      block('it breaks out');
    if (ts.isContinueStatement(node) && nesting.loops === 0 && own) block('it continues a loop');
    if (own && ts.isVariableDeclarationList(node) && (node.flags & ts.NodeFlags.BlockScoped) === 0)
      block('it declares a var');
    if (ts.isDeleteExpression(node)) block('it deletes a property');
    for (const target of assignmentTargets(node)) {
      if (!ts.isIdentifier(target)) block('it assigns a property');
      else if (!scopes.some((names) => names.has(target.text))) effects.assigned.add(target.text);
    }
    const loop = ts.isIterationStatement(node, false) ? 1 : 0;
    const choice = ts.isSwitchStatement(node) ? 1 : 0;
    const inner = { ...nesting, loops: nesting.loops + loop, switches: nesting.switches + choice };
    const declared = declaredNames(node);
    const inScope = declared.size === 0 ? scopes : [...scopes, declared];
    ts.forEachChild(node, (child) => visit(child, inScope, inner));
  };
  visit(root, [], { functions: 0, loops: 0, switches: 0 });
  return effects;
}

interface Nesting {
  readonly functions: number;
  readonly loops: number;
  readonly switches: number;
}

/** Names that a block, loop head, catch or case block declares for its contents. */
export function declaredNames(node: ts.Node): ReadonlySet<string> {
  const names = new Set<string>();
  const declare = (list: ts.VariableDeclarationList): void => {
    for (const { name } of list.declarations) for (const n of bindingNames(name)) names.add(n);
  };
  const statements = (list: readonly ts.Statement[]): void => {
    for (const s of list) {
      if (ts.isVariableStatement(s)) declare(s.declarationList);
      else if ((ts.isFunctionDeclaration(s) || ts.isClassDeclaration(s)) && s.name !== undefined)
        names.add(s.name.text);
    }
  };
  if (ts.isBlock(node)) statements(node.statements);
  else if (ts.isCaseBlock(node)) for (const clause of node.clauses) statements(clause.statements);
  else if (ts.isForStatement(node) || ts.isForInStatement(node) || ts.isForOfStatement(node)) {
    if (node.initializer !== undefined && ts.isVariableDeclarationList(node.initializer))
      declare(node.initializer);
  } else if (ts.isCatchClause(node) && node.variableDeclaration !== undefined)
    for (const n of bindingNames(node.variableDeclaration.name)) names.add(n);
  return names;
}

export function bindingNames(name: ts.BindingName): string[] {
  if (ts.isIdentifier(name)) return [name.text];
  return name.elements.flatMap((e) => (ts.isOmittedExpression(e) ? [] : bindingNames(e.name)));
}

/** Targets of `=`, `+=`, `++`, destructuring and loop heads, as expressions. */
function assignmentTargets(node: ts.Node): ts.Expression[] {
  if (ts.isBinaryExpression(node)) {
    const { kind } = node.operatorToken;
    if (kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment)
      return patternTargets(node.left);
  }
  if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) {
    if (
      node.operator === ts.SyntaxKind.PlusPlusToken ||
      node.operator === ts.SyntaxKind.MinusMinusToken
    )
      return patternTargets(node.operand);
  }
  if (
    (ts.isForOfStatement(node) || ts.isForInStatement(node)) &&
    !ts.isVariableDeclarationList(node.initializer)
  )
    return patternTargets(node.initializer);
  return [];
}

function patternTargets(pattern: ts.Expression): ts.Expression[] {
  const plain = bare(pattern);
  if (ts.isArrayLiteralExpression(plain))
    return plain.elements.flatMap((e) =>
      ts.isOmittedExpression(e)
        ? []
        : patternTargets(ts.isSpreadElement(e) ? e.expression : withoutDefault(e)),
    );
  if (ts.isObjectLiteralExpression(plain))
    return plain.properties.flatMap((p) => {
      if (ts.isShorthandPropertyAssignment(p)) return [p.name];
      if (ts.isPropertyAssignment(p)) return patternTargets(withoutDefault(p.initializer));
      return ts.isSpreadAssignment(p) ? patternTargets(p.expression) : [];
    });
  return [plain];
}

function withoutDefault(expression: ts.Expression): ts.Expression {
  return ts.isBinaryExpression(expression) &&
    expression.operatorToken.kind === ts.SyntaxKind.EqualsToken
    ? expression.left
    : expression;
}

/**
 * The source-level front end. JavaScript decides truthiness and identity without calling anything,
 * so every place where a program does so is wrapped in a call that looks at the value: it lets host
 * values pass and stops on traced tensors. Types are stripped on the way, and an inline source map
 * leads back to the text as written.
 */

import ts from 'typescript';

import { ShardwrightError } from '../../errors.ts';
import { shownFile } from '../errors/position.ts';
import { withTailReturns } from './early-returns.ts';
import { plainLoop } from './plain-loops.ts';
import { Rewriter } from './rewrite.ts';
import { hasEffects } from './rewrite-shape.ts';
import { bare, PREDICATES } from './syntax.ts';

export interface WrapOptions {
  /**
   * `check`: a traced tensor in a condition is an error, or is asked of the region policy where the
   * trace has one. `rewrite`: conditionals and loops become calls that record operators.
   */
  readonly mode?: 'check' | 'rewrite';
  /** Module that exports `sourceHooks`. */
  readonly runtime?: string;
}

/** The name under which transformed modules know the runtime. */
const HOOKS = '__shardwright';

/**
 * The module as JavaScript with its conditions wrapped.
 *
 * @param fileName shown in messages; its extension says whether the text is TypeScript
 * @throws E_SYNTAX with the position when the text does not parse
 */
export function wrapConditions(
  source: string,
  fileName: string,
  options: WrapOptions = {},
): string {
  return transpile(source, fileName, (context) => (file) => {
    const wrapper = new Wrapper(context, file, shownFile(fileName), options.mode ?? 'check');
    return withImport(wrapper.run(), options.runtime ?? 'shardwright/trace');
  });
}

/** The module as JavaScript, conditions left alone. @throws E_SYNTAX as `wrapConditions` does */
export function stripTypes(source: string, fileName: string): string {
  return transpile(source, fileName, undefined);
}

function transpile(
  source: string,
  fileName: string,
  transformer: ts.TransformerFactory<ts.SourceFile> | undefined,
): string {
  const { outputText, diagnostics } = ts.transpileModule(source, {
    fileName,
    reportDiagnostics: true,
    compilerOptions: {
      target: ts.ScriptTarget.ES2023,
      module: ts.ModuleKind.ESNext,
      inlineSourceMap: true,
      inlineSources: true,
      allowJs: true,
    },
    ...(transformer === undefined ? {} : { transformers: { before: [transformer] } }),
  });
  const [fault] = (diagnostics ?? []).filter((d) => d.category === ts.DiagnosticCategory.Error);
  if (fault === undefined) return outputText;
  const place = fault.file?.getLineAndCharacterOfPosition(fault.start ?? 0);
  throw new ShardwrightError('E_SYNTAX', ts.flattenDiagnosticMessageText(fault.messageText, ' '), {
    file: shownFile(fileName),
    ...(place === undefined
      ? {}
      : { position: { line: place.line + 1, column: place.character + 1 } }),
    hint: 'the file must be a TypeScript or JavaScript module.',
  });
}

/** `import { sourceHooks as __shardwright } from "shardwright/trace"`, before everything else. */
function withImport(file: ts.SourceFile, runtime: string): ts.SourceFile {
  const { factory } = ts;
  const name = factory.createImportSpecifier(
    false,
    factory.createIdentifier('sourceHooks'),
    factory.createIdentifier(HOOKS),
  );
  const statement = factory.createImportDeclaration(
    undefined,
    factory.createImportClause(undefined, undefined, factory.createNamedImports([name])),
    factory.createStringLiteral(runtime),
  );
  return factory.updateSourceFile(file, [statement, ...file.statements]);
}

const EQUALITIES: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.EqualsEqualsEqualsToken, '==='],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, '!=='],
  [ts.SyntaxKind.EqualsEqualsToken, '=='],
  [ts.SyntaxKind.ExclamationEqualsToken, '!='],
]);

const LOGIC: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.AmpersandAmpersandToken, '&&'],
  [ts.SyntaxKind.BarBarToken, '||'],
]);
const ARITHMETIC: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.PlusToken, '+'],
  [ts.SyntaxKind.MinusToken, '-'],
  [ts.SyntaxKind.AsteriskToken, '*'],
  [ts.SyntaxKind.SlashToken, '/'],
  [ts.SyntaxKind.PercentToken, '%'],
  [ts.SyntaxKind.LessThanToken, '<'],
  [ts.SyntaxKind.LessThanEqualsToken, '<='],
  [ts.SyntaxKind.GreaterThanToken, '>'],
  [ts.SyntaxKind.GreaterThanEqualsToken, '>='],
]);
const COMPOUND: ReadonlyMap<ts.SyntaxKind, string> = new Map([
  [ts.SyntaxKind.PlusEqualsToken, '+'],
  [ts.SyntaxKind.MinusEqualsToken, '-'],
  [ts.SyntaxKind.AsteriskEqualsToken, '*'],
  [ts.SyntaxKind.SlashEqualsToken, '/'],
  [ts.SyntaxKind.PercentEqualsToken, '%'],
]);

class Wrapper {
  private readonly factory: ts.NodeFactory;
  private readonly rewriter: Rewriter | undefined;
  /** Bodies of functions met so far, with the parameters of theirs. */
  private readonly bodies = new Map<ts.Block, readonly ts.ParameterDeclaration[]>();
  /** Variables that end with the function, by the conditional that ends it. */
  private readonly locals = new Map<ts.Node, ReadonlySet<string>>();
  /** Loops that were written anew, with what they were. */
  private readonly loops = new Map<ts.Node, string>();
  private names = 0;

  constructor(
    private readonly context: ts.TransformationContext,
    private readonly file: ts.SourceFile,
    private readonly shown: string,
    mode: 'check' | 'rewrite',
  ) {
    this.factory = context.factory;
    this.rewriter =
      mode === 'rewrite' ? new Rewriter(context.factory, (...a) => this.hook(...a)) : undefined;
  }

  run(): ts.SourceFile {
    return ts.visitEachChild(this.file, this.visit, this.context);
  }

  private readonly visit = (node: ts.Node): ts.Node => {
    const { factory } = this;
    const body = this.rewriter === undefined ? undefined : bodyOf(node);
    if (body !== undefined) this.bodies.set(body, (node as ts.FunctionLikeDeclaration).parameters);
    const parameters = ts.isBlock(node) ? this.bodies.get(node) : undefined;
    if (parameters !== undefined) return this.functionBody(node as ts.Block, parameters);
    if (this.rewriter !== undefined && ts.isIterationStatement(node, false)) {
      const made = this.plain(node);
      if (made !== undefined) return this.inner(made);
    }
    if (isConditional(node)) return this.conditional(node);
    if (ts.isDoStatement(node))
      return factory.updateDoStatement(
        node,
        this.inner(node.statement),
        this.watchedLoop(node.expression, this.inner(node.expression), 'do'),
      );
    if (ts.isForStatement(node) && node.condition !== undefined)
      return this.forLoop(node, node.condition);
    if (ts.isSwitchStatement(node))
      return factory.updateSwitchStatement(
        node,
        this.wrapped(node.expression, 'switch'),
        this.inner(node.caseBlock),
      );
    if (ts.isCaseClause(node)) {
      const visited = ts.visitEachChild(node, this.visit, this.context);
      return factory.updateCaseClause(
        visited,
        this.watched(node.expression, visited.expression, 'case'),
        visited.statements,
      );
    }
    if (this.rewriter !== undefined) {
      const made = this.counted(node);
      if (made !== undefined) return made;
    }
    if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken)
      return factory.updatePrefixUnaryExpression(node, this.wrapped(node.operand, '!'));
    if (ts.isBinaryExpression(node)) return this.binary(node);
    if (ts.isCallExpression(node)) return this.call(node);
    return ts.visitEachChild(node, this.visit, this.context);
  };

  private inner<T extends ts.Node>(child: T): T {
    return ts.visitNode(child, this.visit) as T;
  }

  /** A loop that ends its body on every way; undefined where it is left as it is. */
  private plain(node: ts.IterationStatement): ts.Statement | undefined {
    if (this.loops.has(node)) return undefined;
    const kind = ts.isWhileStatement(node) ? 'while' : ts.isDoStatement(node) ? 'do' : 'for';
    const made = plainLoop(node, {
      factory: this.factory,
      fresh: () => `__going${++this.names}`,
      hook: (name, args, at) => this.hook(name, args, kind, this.position(at)),
    });
    if (made !== undefined) this.loops.set(made.loop, kind);
    return made?.statement;
  }

  /**
   * Logic and arithmetic that a traced number may meet: `a && b`, `!a`, `i += 1`, `i++;`, `i < n`;
   * undefined for everything else.
   */
  private counted(node: ts.Node): ts.Node | undefined {
    const { factory } = this;
    if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken)
      return this.hook('not', [this.inner(node.operand)], '!', this.position(node.operand));
    if (ts.isExpressionStatement(node) && isStep(node.expression)) {
      const { operand, operator } = node.expression;
      const sign = operator === ts.SyntaxKind.PlusPlusToken ? '+' : '-';
      const value = this.hook('step', [operand], sign, this.position(operand));
      return factory.updateExpressionStatement(node, factory.createAssignment(operand, value));
    }
    if (!ts.isBinaryExpression(node)) return undefined;
    const { left, right } = node;
    const { kind } = node.operatorToken;
    const logic = LOGIC.get(kind);
    if (logic !== undefined && !isConstant(left) && !hasEffects(right))
      return ts.setTextRange(
        this.hook(
          'logic',
          [this.inner(left), this.arrow(this.inner(right))],
          logic,
          this.position(left),
        ),
        node,
      );
    const compound = COMPOUND.get(kind);
    if (compound !== undefined && ts.isIdentifier(left))
      return factory.createAssignment(
        left,
        this.arithmetic(left, this.inner(right), compound, left),
      );
    const sign = ARITHMETIC.get(kind);
    if (sign === undefined || isText(left) || isText(right)) return undefined;
    if (isConstant(left) && isConstant(right)) return undefined;
    return ts.setTextRange(this.arithmetic(this.inner(left), this.inner(right), sign, left), node);
  }

  private arithmetic(
    left: ts.Expression,
    right: ts.Expression,
    sign: string,
    at: ts.Node,
  ): ts.Expression {
    return this.hook('arithmetic', [left, right], sign, this.position(at));
  }

  private arrow(body: ts.Expression): ts.Expression {
    const { factory } = this;
    const concise = factory.createParenthesizedExpression(body);
    return factory.createArrowFunction(undefined, undefined, [], undefined, undefined, concise);
  }

  /** The block of a function, in which conditionals return values instead of leaving early. */
  private functionBody(block: ts.Block, parameters: readonly ts.ParameterDeclaration[]): ts.Node {
    const made = withTailReturns(block, [...parameters], this.factory);
    for (const [statement, names] of made.locals) this.locals.set(statement, names);
    return ts.visitEachChild(made.body, this.visit, this.context);
  }

  private conditional(node: Conditional): ts.Node {
    const { factory } = this;
    const written = ts.isIfStatement(node) ? 'if' : ts.isWhileStatement(node) ? 'while' : '?:';
    const kind = this.loops.get(node) ?? written;
    const test = ts.isConditionalExpression(node) ? node.condition : node.expression;
    const position = this.position(test);
    const visited = ts.visitEachChild(node, this.visit, this.context);
    if (this.rewriter !== undefined && !isConstant(test))
      return mappedTo(
        test,
        this.rewriter.rewrite(node, visited, kind, position, this.locals.get(node)),
      );
    if (ts.isIfStatement(visited))
      return factory.updateIfStatement(
        visited,
        this.watched(test, visited.expression, kind),
        visited.thenStatement,
        visited.elseStatement,
      );
    if (ts.isWhileStatement(visited))
      return factory.updateWhileStatement(
        visited,
        this.watched(test, visited.expression, kind),
        visited.statement,
      );
    return factory.updateConditionalExpression(
      visited,
      this.watched(test, visited.condition, kind),
      visited.questionToken,
      visited.whenTrue,
      visited.colonToken,
      visited.whenFalse,
    );
  }

  private forLoop(node: ts.ForStatement, condition: ts.Expression): ts.Node {
    const visited = ts.visitEachChild(node, this.visit, this.context);
    const test =
      visited.condition === undefined
        ? undefined
        : this.watchedLoop(condition, visited.condition, 'for');
    return this.factory.updateForStatement(
      visited,
      visited.initializer,
      test,
      visited.incrementor,
      visited.statement,
    );
  }

  private binary(node: ts.BinaryExpression): ts.Node {
    const { factory } = this;
    const { kind } = node.operatorToken;
    if (kind === ts.SyntaxKind.AmpersandAmpersandToken || kind === ts.SyntaxKind.BarBarToken) {
      const sign = kind === ts.SyntaxKind.BarBarToken ? '||' : '&&';
      return factory.updateBinaryExpression(
        node,
        this.wrapped(node.left, sign),
        node.operatorToken,
        this.inner(node.right),
      );
    }
    if (
      kind === ts.SyntaxKind.AmpersandAmpersandEqualsToken ||
      kind === ts.SyntaxKind.BarBarEqualsToken
    )
      return this.logicalAssignment(node, kind);
    const equality = EQUALITIES.get(kind);
    if (equality === undefined || isPresenceTest(node.left) || isPresenceTest(node.right))
      return ts.visitEachChild(node, this.visit, this.context);
    return factory.updateBinaryExpression(
      node,
      this.wrapped(node.left, equality),
      node.operatorToken,
      this.wrapped(node.right, equality),
    );
  }

  /** `a &&= b` as `w(a) && (a = b)`; the object and the key of a member are evaluated once. */
  private logicalAssignment(node: ts.BinaryExpression, kind: ts.SyntaxKind): ts.Node {
    const { factory } = this;
    const and = kind === ts.SyntaxKind.AmpersandAmpersandEqualsToken;
    const before: ts.Expression[] = [];
    const once = (expression: ts.Expression): ts.Expression => {
      if (
        isConstant(expression) ||
        [ts.SyntaxKind.ThisKeyword, ts.SyntaxKind.SuperKeyword].includes(expression.kind)
      )
        return expression;
      const temporary = factory.createTempVariable((name) =>
        this.context.hoistVariableDeclaration(name),
      );
      before.push(factory.createAssignment(temporary, this.inner(expression)));
      return temporary;
    };
    const left = bare(node.left);
    let target: ts.Expression;
    if (ts.isPropertyAccessExpression(left))
      target = factory.createPropertyAccessExpression(once(left.expression), left.name);
    else if (ts.isElementAccessExpression(left))
      target = factory.createElementAccessExpression(
        once(left.expression),
        once(left.argumentExpression),
      );
    else target = node.left;
    const test = this.hook('condition', [target], and ? '&&=' : '||=', this.position(node.left));
    const result: ts.Expression = factory.createBinaryExpression(
      test,
      and ? ts.SyntaxKind.AmpersandAmpersandToken : ts.SyntaxKind.BarBarToken,
      factory.createParenthesizedExpression(
        factory.createAssignment(target, this.inner(node.right)),
      ),
    );
    return factory.createParenthesizedExpression(
      [...before, result].reduce((a, b) => factory.createComma(a, b)),
    );
  }

  private call(node: ts.CallExpression): ts.Node {
    const { factory } = this;
    const [first, ...rest] = node.arguments;
    const visited = ts.visitEachChild(node, this.visit, this.context);
    if (first === undefined || ts.isSpreadElement(first)) return visited;
    const [seen] = visited.arguments;
    let argument: ts.Expression | undefined;
    if (ts.isIdentifier(node.expression) && node.expression.text === 'Boolean' && rest.length === 0)
      argument = this.watched(first, seen, 'Boolean');
    else if (
      ts.isPropertyAccessExpression(node.expression) &&
      PREDICATES.has(node.expression.name.text)
    )
      argument = this.hook('predicate', [seen], node.expression.name.text, this.position(first));
    if (argument === undefined) return visited;
    return factory.updateCallExpression(visited, visited.expression, visited.typeArguments, [
      argument,
      ...visited.arguments.slice(1),
    ]);
  }

  private wrapped(expression: ts.Expression, kind: string): ts.Expression {
    return this.watched(expression, this.inner(expression), kind);
  }

  /** `__shardwright.condition(visited, "if", "model.ts:3:7")`; literals stay bare. */
  private watched(original: ts.Expression, visited: ts.Expression, kind: string): ts.Expression {
    return isConstant(original)
      ? visited
      : this.hook('condition', [visited], kind, this.position(original));
  }

  /** The test of a loop that no operator is made of. */
  private watchedLoop(
    original: ts.Expression,
    visited: ts.Expression,
    kind: 'do' | 'for',
  ): ts.Expression {
    if (this.rewriter === undefined || isConstant(original))
      return this.watched(original, visited, kind);
    const reason = ts.factory.createStringLiteral(
      `a ${kind} loop has no form as an operator, a while loop has`,
    );
    return this.hook('refuse', [visited], kind, this.position(original), reason);
  }

  private hook(
    name: string,
    args: readonly ts.Expression[],
    kind: string,
    position: string,
    ...more: ts.Expression[]
  ): ts.Expression {
    const { factory } = this;
    return factory.createCallExpression(
      factory.createPropertyAccessExpression(factory.createIdentifier(HOOKS), name),
      undefined,
      [...args, factory.createStringLiteral(kind), factory.createStringLiteral(position), ...more],
    );
  }

  private position(node: ts.Node): string {
    const { line, character } = this.file.getLineAndCharacterOfPosition(node.getStart(this.file));
    return `${this.shown}:${line + 1}:${character + 1}`;
  }
}

type Conditional = ts.IfStatement | ts.WhileStatement | ts.ConditionalExpression;

function isConditional(node: ts.Node): node is Conditional {
  return ts.isIfStatement(node) || ts.isWhileStatement(node) || ts.isConditionalExpression(node);
}

/**
 * The block of a function that returns values of its own accord; generators and promises have other
 * ways out.
 */
function bodyOf(node: ts.Node): ts.Block | undefined {
  const plain =
    ts.isArrowFunction(node) ||
    ts.isFunctionExpression(node) ||
    ts.isFunctionDeclaration(node) ||
    ts.isMethodDeclaration(node);
  if (
    !plain ||
    node.body === undefined ||
    !ts.isBlock(node.body) ||
    node.asteriskToken !== undefined
  )
    return undefined;
  return node.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.AsyncKeyword) === true
    ? undefined
    : node.body;
}

/** Source maps lead from the call that records an operator to the condition that it was. */
function mappedTo(test: ts.Expression, made: ts.Node): ts.Node {
  const call =
    ts.isExpressionStatement(made) || (ts.isReturnStatement(made) && made.expression !== undefined)
      ? made.expression
      : made;
  if (call !== undefined && ts.isCallExpression(call)) ts.setTextRange(call, test);
  return made;
}

/** `i++` or `--i` of a variable. */
function isStep(expression: ts.Expression): expression is (
  ts.PostfixUnaryExpression | ts.PrefixUnaryExpression
) & {
  readonly operand: ts.Identifier;
} {
  if (!ts.isPostfixUnaryExpression(expression) && !ts.isPrefixUnaryExpression(expression))
    return false;
  const { operator, operand } = expression;
  return (
    (operator === ts.SyntaxKind.PlusPlusToken || operator === ts.SyntaxKind.MinusMinusToken) &&
    ts.isIdentifier(operand)
  );
}

/** A text: what is added to it is text, too. */
function isText(expression: ts.Expression): boolean {
  const plain = bare(expression);
  return ts.isStringLiteralLike(plain) || ts.isTemplateExpression(plain);
}

/** A literal: it is not a tensor. */
function isConstant(expression: ts.Expression): boolean {
  const plain = bare(expression);
  return (
    ts.isLiteralExpression(plain) ||
    plain.kind === ts.SyntaxKind.TrueKeyword ||
    plain.kind === ts.SyntaxKind.FalseKeyword ||
    plain.kind === ts.SyntaxKind.NullKeyword
  );
}

/**
 * `null`, `undefined`, `void 0`, `typeof x` and string literals: comparing a tensor with these asks
 * for presence only.
 */
function isPresenceTest(expression: ts.Expression): boolean {
  const plain = bare(expression);
  return (
    plain.kind === ts.SyntaxKind.NullKeyword ||
    ts.isVoidExpression(plain) ||
    ts.isTypeOfExpression(plain) ||
    ts.isStringLiteralLike(plain) ||
    (ts.isIdentifier(plain) && plain.text === 'undefined')
  );
}

/**
 * Mode `rewrite`: conditionals and loops as calls with their parts as functions, so that a traced
 * condition can record both sides. The parts keep reading and assigning the program's own
 * variables, so a host condition runs as it always did.
 */

import ts from 'typescript';

import { internalError } from '../../errors.ts';
import { shapeOf } from './rewrite-shape.ts';

type Hook = (
  name: string,
  args: readonly ts.Expression[],
  kind: string,
  position: string,
  ...more: ts.Expression[]
) => ts.Expression;
type Conditional = ts.IfStatement | ts.WhileStatement | ts.ConditionalExpression;

export class Rewriter {
  constructor(
    private readonly factory: ts.NodeFactory,
    private readonly hook: Hook,
  ) {}

  /**
   * @param original as the user wrote it, for questions about its shape
   * @param visited the same with its parts transformed
   * @param locals variables of the function that ends with it, if one does
   */
  rewrite(
    original: Conditional,
    visited: Conditional,
    kind: string,
    position: string,
    locals?: ReadonlySet<string>,
  ): ts.Node {
    const { factory } = this;
    const shape = shapeOf(original, locals);
    if (shape.form === 'other') return this.refused(visited, kind, position, shape.reason);
    if (ts.isConditionalExpression(visited)) {
      const parts = [
        visited.condition,
        this.value(visited.whenTrue),
        this.value(visited.whenFalse),
      ];
      return this.hook('branch', parts, kind, position);
    }
    if (ts.isWhileStatement(visited) && shape.form === 'assign') {
      const parts = [
        this.value(visited.expression),
        this.body(visited.statement),
        this.variables(shape.names),
      ];
      return factory.createExpressionStatement(this.hook('loop', parts, kind, position));
    }
    if (!ts.isIfStatement(visited)) throw internalError(`a ${kind} has the shape of an if`);
    const otherwise = visited.elseStatement ?? factory.createBlock([]);
    if (shape.form === 'return') {
      const parts = [visited.expression, this.body(visited.thenStatement), this.body(otherwise)];
      const variables = shape.names.length === 0 ? [] : [this.variables(shape.names)];
      return factory.createReturnStatement(
        this.hook('branch', parts, kind, position, ...variables),
      );
    }
    const parts = [
      visited.expression,
      this.body(visited.thenStatement),
      this.body(otherwise),
      this.variables(shape.names),
    ];
    return factory.createExpressionStatement(this.hook('assign', parts, kind, position));
  }

  /** The statement as it was; its condition refuses traced tensors with the reason. */
  private refused(visited: Conditional, kind: string, position: string, reason: string): ts.Node {
    const { factory } = this;
    const test = (expression: ts.Expression): ts.Expression =>
      this.hook('refuse', [expression], kind, position, factory.createStringLiteral(reason));
    if (ts.isIfStatement(visited))
      return factory.updateIfStatement(
        visited,
        test(visited.expression),
        visited.thenStatement,
        visited.elseStatement,
      );
    if (ts.isWhileStatement(visited))
      return factory.updateWhileStatement(visited, test(visited.expression), visited.statement);
    return factory.updateConditionalExpression(
      visited,
      test(visited.condition),
      visited.questionToken,
      visited.whenTrue,
      visited.colonToken,
      visited.whenFalse,
    );
  }

  private value(expression: ts.Expression): ts.Expression {
    return this.arrow(this.factory.createParenthesizedExpression(expression));
  }

  private body(statement: ts.Statement): ts.Expression {
    return this.arrow(
      ts.isBlock(statement) ? statement : this.factory.createBlock([statement], true),
    );
  }

  private arrow(body: ts.ConciseBody, parameters: readonly string[] = []): ts.Expression {
    const { factory } = this;
    const list = parameters.map((name) =>
      factory.createParameterDeclaration(undefined, undefined, name),
    );
    const token = factory.createToken(ts.SyntaxKind.EqualsGreaterThanToken);
    return factory.createArrowFunction(undefined, undefined, list, undefined, token, body);
  }

  /** `{ names: ["x"], read: () => [x], write: (v) => { x = v[0]; } }`. */
  private variables(names: readonly string[]): ts.Expression {
    const { factory } = this;
    const read = factory.createArrayLiteralExpression(
      names.map((name) => factory.createIdentifier(name)),
    );
    // A name that no program uses by accident, since the variables may have any.
    const values = '__values';
    const write = names.map((name, i) =>
      factory.createExpressionStatement(
        factory.createAssignment(
          factory.createIdentifier(name),
          factory.createElementAccessExpression(factory.createIdentifier(values), i),
        ),
      ),
    );
    return factory.createObjectLiteralExpression([
      factory.createPropertyAssignment(
        'names',
        factory.createArrayLiteralExpression(
          names.map((name) => factory.createStringLiteral(name)),
        ),
      ),
      factory.createPropertyAssignment('read', this.arrow(read)),
      factory.createPropertyAssignment('write', this.arrow(factory.createBlock(write), [values])),
    ]);
  }
}

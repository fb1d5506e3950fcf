/**
 * Rewrites early returns of a function body as branches that both return: `if (c) return a; rest`
 * becomes `if (c) return a; else { rest }`, which a traced condition can record. For every such
 * `if` it also gives the variables that belong to the function, which nobody reads after it has
 * returned. Statements that cannot be moved stay.
 */

import ts from 'typescript';

import { alwaysReturns, bindingNames, declaredNames, returnsInside } from './rewrite-shape.ts';

/**
 * Statements that one function may have more than it was written with: two ways on after one `if`
 * copy what follows it.
 */
const MOST_COPIES = 64;

interface TailBody {
  readonly body: ts.Block;
  /** Variables of the function that an `if` of the body can see. */
  readonly locals: ReadonlyMap<ts.IfStatement, ReadonlySet<string>>;
}

/**
 * @param parameters of the function, by which its variables are distinguished from those around it
 */
export function withTailReturns(
  body: ts.Block,
  parameters: readonly ts.ParameterDeclaration[],
  factory: ts.NodeFactory,
): TailBody {
  const locals = new Map<ts.IfStatement, ReadonlySet<string>>();
  let copies = 0;

  /**
   * The statements, then `rest`, as one list of which every way that can return ends in a return.
   *
   * @param before what runs earlier and may refer to names that the statements declare
   */
  const tail = (
    statements: readonly ts.Statement[],
    rest: readonly ts.Statement[],
    names: ReadonlySet<string>,
    before: readonly ts.Node[],
  ): readonly ts.Statement[] => {
    const whole = [...statements, ...rest];
    const at = whole.findIndex(
      (statement) => ts.isIfStatement(statement) && returnsInside(statement),
    );
    const found = at < 0 ? undefined : whole[at];
    if (found === undefined || !ts.isIfStatement(found)) return whole;
    const earlier = [...before, ...whole.slice(0, at + 1)];
    const after = whole.slice(at + 1);
    const seen = new Set([...names, ...declaredIn(whole)]);
    const branches = [found.thenStatement, found.elseStatement ?? factory.createBlock([])].map(
      listOf,
    );
    const open = branches.filter((list) => !alwaysReturns(list));
    const taken = copies + (open.length === 2 ? after.length : 0);
    if (
      taken > MOST_COPIES ||
      !movable(after, earlier) ||
      open.some((list) => meet(declaredIn(list), after))
    )
      return whole;
    copies = taken;
    const [yes, no] = branches.map((list) => {
      const inner = new Set([...seen, ...declaredIn(list)]);
      return factory.createBlock(
        tail(list, alwaysReturns(list) ? [] : after, inner, earlier),
        true,
      );
    });
    const made = factory.updateIfStatement(found, found.expression, yes, no);
    if (!alwaysReturns([made])) return whole;
    locals.set(made, seen);
    return [...whole.slice(0, at), made];
  };

  const own = new Set(parameters.flatMap((parameter) => bindingNames(parameter.name)));
  return {
    body: factory.updateBlock(body, tail(body.statements, [], own, [...parameters])),
    locals,
  };
}

function listOf(statement: ts.Statement): readonly ts.Statement[] {
  return ts.isBlock(statement) ? statement.statements : [statement];
}

function declaredIn(statements: readonly ts.Statement[]): ReadonlySet<string> {
  return declaredNames(ts.factory.createBlock(statements));
}

/**
 * Tells whether statements can move one block deeper: nothing before them knows a name that they
 * declare.
 */
function movable(statements: readonly ts.Statement[], before: readonly ts.Node[]): boolean {
  return !statements.some(ts.isFunctionDeclaration) && !meet(declaredIn(statements), before);
}

/** Tells whether one of the names is spoken of. */
function meet(names: ReadonlySet<string>, nodes: readonly ts.Node[]): boolean {
  const speaks = (node: ts.Node): boolean => {
    if (ts.isPropertyAccessExpression(node)) return speaks(node.expression);
    if (ts.isPropertyAssignment(node) && ts.isIdentifier(node.name))
      return speaks(node.initializer);
    if (ts.isIdentifier(node)) return names.has(node.text);
    return ts.forEachChild(node, speaks) ?? false;
  };
  return names.size > 0 && nodes.some(speaks);
}

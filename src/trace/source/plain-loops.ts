/**
 * Rewrites loops of the source so that they can be recorded: without `break` and `continue`, and
 * `for` and `do` as `while`. What follows an `if (c) continue;` moves into its else; `break` sets a
 * variable to false, without which the body does nothing. A loop that cannot be moved stays.
 */

import ts from 'typescript';

import { bindingNames, declaredNames } from './rewrite-shape.ts';

type Loop = ts.IterationStatement;

/** The statement in place of a loop, and the loop in it. */
interface PlainLoop {
  readonly statement: ts.Statement;
  readonly loop: ts.IterationStatement;
}

/** The writer of a file: it makes calls of the runtime, and names that the file does not use. */
interface LoopWriter {
  readonly factory: ts.NodeFactory;
  readonly fresh: () => string;
  /** `__shardwright.name(...args, kind, position)`, of a loop at the place of its condition. */
  readonly hook: (name: string, args: readonly ts.Expression[], at: ts.Node) => ts.Expression;
}

/** Statements that one loop may have more than it was written with. */
const MOST_COPIES = 64;

/** The loop in a plain form; undefined where it has that already, or has none. */
export function plainLoop(loop: Loop, writer: LoopWriter): PlainLoop | undefined {
  const { breaks, continues } = jumpsOf(loop.statement);
  const isWritten = ts.isForStatement(loop) || ts.isDoStatement(loop);
  if ((!isWritten && !breaks && !continues) || isLabelled(loop) || hasReturn(loop.statement))
    return undefined;
  return new Plain(writer, breaks).loop(loop);
}

class Plain {
  /** Variable that is true until the loop is left by `break`. */
  private readonly goesOn: string | undefined;
  private copies = 0;

  constructor(
    private readonly writer: LoopWriter,
    breaks: boolean,
  ) {
    this.goesOn = breaks ? writer.fresh() : undefined;
  }

  loop(loop: Loop): PlainLoop | undefined {
    const lowered = this.lowered(listOf(loop.statement));
    if (lowered === undefined) return undefined;
    if (ts.isWhileStatement(loop)) return this.whileLoop(loop, lowered);
    if (ts.isDoStatement(loop)) return this.doLoop(loop, lowered);
    if (ts.isForStatement(loop) && loop.condition !== undefined && !isCaptured(loop))
      return this.forLoop(loop, loop.condition, lowered);
    return this.goesOn === undefined && !jumpsOf(loop.statement).continues
      ? undefined
      : this.overRows(loop, lowered);
  }

  /** `while (goesOn && (test)) { body }`. */
  private whileLoop(loop: ts.WhileStatement, body: readonly ts.Statement[]): PlainLoop {
    const test =
      this.goesOn === undefined
        ? loop.expression
        : this.joined(this.goesOn, ts.SyntaxKind.AmpersandAmpersandToken, loop.expression);
    return this.made(loop, [], test, body);
  }

  /** `let first = true; while (first || (test)) { first = false; body }`. */
  private doLoop(loop: ts.DoStatement, body: readonly ts.Statement[]): PlainLoop {
    const { factory, fresh } = this.writer;
    const first = fresh();
    let test = this.joined(first, ts.SyntaxKind.BarBarToken, loop.expression);
    if (this.goesOn !== undefined)
      test = this.joined(this.goesOn, ts.SyntaxKind.AmpersandAmpersandToken, test);
    const begun = this.assigned(first, factory.createFalse());
    return this.made(loop, [this.declared(first)], test, [begun, ...body]);
  }

  /** `let i = 0; while (i < n) { if (goesOn) { body } i++; }`: the host counts where it can. */
  private forLoop(
    loop: ts.ForStatement,
    condition: ts.Expression,
    lowered: readonly ts.Statement[],
  ): PlainLoop {
    const { factory, hook } = this.writer;
    const { initializer, incrementor } = loop;
    const before: ts.Statement[] = [];
    if (initializer !== undefined)
      before.push(
        ts.isVariableDeclarationList(initializer)
          ? factory.createVariableStatement(undefined, initializer)
          : factory.createExpressionStatement(initializer),
      );
    const step = incrementor === undefined ? [] : [factory.createExpressionStatement(incrementor)];
    if (this.goesOn === undefined) return this.made(loop, before, condition, [...lowered, ...step]);
    const going = factory.createIdentifier(this.goesOn);
    const asked = factory.createArrowFunction(
      undefined,
      undefined,
      [],
      undefined,
      undefined,
      factory.createParenthesizedExpression(condition),
    );
    const test = ts.setTextRange(hook('goesOn', [going, asked], condition), condition);
    // A step that others see is not made on the way out.
    const isOwn = initializer !== undefined && ts.isVariableDeclarationList(initializer);
    const body = isOwn
      ? [this.guarded(lowered, condition), ...step]
      : [this.guarded([...lowered, ...this.unlessLeft(step, condition)], condition)];
    return this.made(loop, before, test, body);
  }

  /** Other loops keep their head: the host counts. */
  private overRows(loop: Loop, lowered: readonly ts.Statement[]): PlainLoop | undefined {
    const { factory, hook } = this.writer;
    let body: readonly ts.Statement[] = lowered;
    if (this.goesOn !== undefined) {
      const going = factory.createIdentifier(this.goesOn);
      const ended = ts.setTextRange(hook('ended', [going], loop), loop);
      body = [
        factory.createIfStatement(ended, factory.createBreakStatement()),
        this.guarded(lowered, loop),
      ];
    }
    const block = factory.createBlock(body, true);
    let made: ts.IterationStatement;
    if (ts.isForOfStatement(loop))
      made = factory.updateForOfStatement(
        loop,
        loop.awaitModifier,
        loop.initializer,
        loop.expression,
        block,
      );
    else if (ts.isForInStatement(loop))
      made = factory.updateForInStatement(loop, loop.initializer, loop.expression, block);
    else if (ts.isForStatement(loop))
      made = factory.updateForStatement(
        loop,
        loop.initializer,
        loop.condition,
        loop.incrementor,
        block,
      );
    else return undefined;
    return this.around([], made);
  }

  private made(
    loop: Loop,
    before: readonly ts.Statement[],
    test: ts.Expression,
    body: readonly ts.Statement[],
  ): PlainLoop {
    const { factory } = this.writer;
    const made = factory.createWhileStatement(test, factory.createBlock(body, true));
    return this.around(before, ts.setTextRange(made, loop));
  }

  private around(before: readonly ts.Statement[], loop: ts.IterationStatement): PlainLoop {
    const { factory } = this.writer;
    const flag = this.goesOn === undefined ? [] : [this.declared(this.goesOn)];
    return { statement: factory.createBlock([...before, ...flag, loop], true), loop };
  }

  /** `if (goesOn) { body }`; a recorded loop asks in its condition, and not here. */
  private guarded(body: readonly ts.Statement[], at: ts.Node): ts.Statement {
    const { factory, hook } = this.writer;
    const going = factory.createIdentifier(this.goesOn ?? '');
    const test = ts.setTextRange(hook('still', [going], at), at);
    return factory.createIfStatement(test, factory.createBlock(body, true));
  }

  private unlessLeft(step: readonly ts.Statement[], at: ts.Node): readonly ts.Statement[] {
    if (step.length === 0) return [];
    const { factory } = this.writer;
    const going = ts.setTextRange(factory.createIdentifier(this.goesOn ?? ''), at);
    return [factory.createIfStatement(going, factory.createBlock(step, true))];
  }

  /**
   * Statements without jumps of this loop; undefined where a jump stands in a construct that has no
   * such form.
   */
  private lowered(statements: readonly ts.Statement[]): readonly ts.Statement[] | undefined {
    const { factory } = this.writer;
    const at = statements.findIndex((statement) => jumps(statement));
    const found = at < 0 ? undefined : statements[at];
    if (found === undefined) return statements;
    const earlier = statements.slice(0, at);
    if (ts.isContinueStatement(found)) return earlier;
    if (ts.isBreakStatement(found))
      return [...earlier, this.assigned(this.goesOn ?? '', factory.createFalse())];
    const after = statements.slice(at + 1);
    if (ts.isBlock(found))
      return declaredNames(found).size > 0
        ? undefined
        : this.lowered([...earlier, ...found.statements, ...after]);
    if (!ts.isIfStatement(found) || after.some(ts.isFunctionDeclaration)) return undefined;
    const branches = [listOf(found.thenStatement), listOf(found.elseStatement)];
    if (branches.every((list) => !alwaysJumps(list))) this.copies += after.length;
    if (this.copies > MOST_COPIES) return undefined;
    const [yes, no] = branches.map((list) =>
      this.lowered(alwaysJumps(list) ? list : [...list, ...after]),
    );
    if (yes === undefined || no === undefined) return undefined;
    if (yes.length + no.length === 0)
      return [...earlier, factory.createExpressionStatement(found.expression)];
    const [onTrue, onFalse] = [yes, no].map((list) => factory.createBlock(list, true));
    return [...earlier, factory.updateIfStatement(found, found.expression, onTrue, onFalse)];
  }

  /** `let name = true;` */
  private declared(name: string): ts.Statement {
    const { factory } = this.writer;
    const one = factory.createVariableDeclaration(name, undefined, undefined, factory.createTrue());
    return factory.createVariableStatement(
      undefined,
      factory.createVariableDeclarationList([one], ts.NodeFlags.Let),
    );
  }

  private assigned(name: string, value: ts.Expression): ts.Statement {
    const { factory } = this.writer;
    return factory.createExpressionStatement(
      factory.createAssignment(factory.createIdentifier(name), value),
    );
  }

  /** `name && (test)`, at the place of the test. */
  private joined(name: string, sign: ts.BinaryOperator, test: ts.Expression): ts.Expression {
    const { factory } = this.writer;
    const left = ts.setTextRange(factory.createIdentifier(name), test);
    return ts.setTextRange(
      factory.createBinaryExpression(left, sign, factory.createParenthesizedExpression(test)),
      test,
    );
  }
}

function listOf(statement: ts.Statement | undefined): readonly ts.Statement[] {
  if (statement === undefined) return [];
  return ts.isBlock(statement) ? statement.statements : [statement];
}

function isLabelled(loop: Loop): boolean {
  // Nodes that were made have no parent; a label before the loop keeps the loop as it is.
  const parent: ts.Node | undefined = loop.parent;
  return parent !== undefined && ts.isLabeledStatement(parent);
}

interface Jumps {
  readonly breaks: boolean;
  readonly continues: boolean;
}

/** Jumps of the loop whose body this is. */
function jumpsOf(body: ts.Node): Jumps {
  let [breaks, continues] = [false, false];
  const visit = (node: ts.Node, inSwitch: boolean): void => {
    if (ts.isFunctionLike(node) || ts.isIterationStatement(node, false)) return;
    if (ts.isBreakStatement(node) && !inSwitch) breaks = true;
    if (ts.isContinueStatement(node)) continues = true;
    ts.forEachChild(node, (child) => visit(child, inSwitch || ts.isSwitchStatement(node)));
  };
  visit(body, false);
  return { breaks, continues };
}

function jumps(statement: ts.Statement): boolean {
  const { breaks, continues } = jumpsOf(statement);
  return breaks || continues;
}

/** Tells whether a list of statements ends in a jump on every way through it. */
function alwaysJumps(statements: readonly ts.Statement[]): boolean {
  const last = statements.at(-1);
  if (last === undefined) return false;
  if (ts.isBreakStatement(last) || ts.isContinueStatement(last)) return true;
  if (ts.isBlock(last)) return alwaysJumps(last.statements);
  return (
    ts.isIfStatement(last) &&
    last.elseStatement !== undefined &&
    alwaysJumps(listOf(last.thenStatement)) &&
    alwaysJumps(listOf(last.elseStatement))
  );
}

function hasReturn(body: ts.Node): boolean {
  const visit = (node: ts.Node): boolean => {
    if (ts.isFunctionLike(node)) return false;
    return ts.isReturnStatement(node) || (ts.forEachChild(node, visit) ?? false);
  };
  return visit(body);
}

/**
 * Tells whether a function of the loop speaks of a variable of its head: every trip has its own
 * then, which a `while` loop has not.
 */
function isCaptured({ initializer, condition, incrementor, statement }: ts.ForStatement): boolean {
  if (initializer === undefined || !ts.isVariableDeclarationList(initializer)) return false;
  const names = new Set(initializer.declarations.flatMap(({ name }) => bindingNames(name)));
  const visit = (node: ts.Node, inside: boolean): boolean => {
    if (inside && ts.isIdentifier(node)) return names.has(node.text);
    const deeper = inside || ts.isFunctionLike(node);
    return ts.forEachChild(node, (child) => visit(child, deeper)) ?? false;
  };
  return [condition, incrementor, statement].some(
    (part) => part !== undefined && visit(part, false),
  );
}

/** Reads one `def forward` of FX text: its inputs, statements and return. */

import { defined } from '../../defined.ts';
import type { Retention, ValueType } from '../../graph/types.ts';
import { CHAR } from '../../text/char.ts';
import { END, INTEGER, NAME, NEWLINE, OPERATOR, type Scanner, STRING } from '../file/scan.ts';
import type { DraftRef, FxInput, FxNode, FxReturn } from './record.ts';
import type { Annotations } from './text/annotation.ts';
import { ExpressionReader } from './text/expression.ts';
import { Names } from './text/names.ts';
import { readSourceComment } from './text/source-comment.ts';

/**
 * One `def forward`: its inputs, statements and return. Names live here; nested classes have their
 * own.
 */
export class ForwardBody {
  inputs: FxInput[] = [];
  readonly nodes: FxNode[] = [];
  returns: FxReturn[] = [];
  joint = false;
  private readonly names: Names;
  private readonly declared = new Map<string, FxInput>();
  private readonly expressions: ExpressionReader;
  private returned = false;
  private flattened = false;
  private source: string | undefined;
  private save: Retention | undefined;
  private sourceComment = -1;

  constructor(
    private readonly scanner: Scanner,
    private readonly annotations: Annotations,
    private readonly count: (at: number) => void,
  ) {
    this.sourceComment = scanner.loneComment;
    this.names = new Names(scanner);
    this.expressions = new ExpressionReader(scanner, this.names);
  }

  read(indent: number): void {
    const { scanner } = this;
    scanner.next();
    scanner.expect(CHAR.OPEN_PAREN, `'('`);
    scanner.next();
    this.parameters();
    scanner.next();
    this.returnAnnotation();
    scanner.expect(CHAR.COLON, `':'`);
    scanner.next();
    scanner.expect(NEWLINE, 'the end of the line');
    scanner.next();
    while (!scanner.atEnd() && scanner.indent() > indent) {
      if (this.returned)
        scanner.fail(
          'E_SYNTAX',
          `expected the end of 'forward' after its return, found ${scanner.found()}`,
        );
      this.statement();
    }
    if (!this.returned)
      scanner.fail('E_SYNTAX', `expected a return statement, found ${scanner.found()}`);
    if (!this.flattened)
      this.inputs.forEach((input, k) => (this.inputs[k] = this.declaredAs(input)));
  }

  private parameters(): void {
    const { scanner } = this;
    if (!scanner.is('self')) scanner.expected(`'self'`);
    scanner.next();
    let previous: { input: FxInput; at: number } | undefined;
    const describe = (): void => {
      const descriptor = this.descriptor();
      if (descriptor === undefined || previous === undefined) return;
      previous.input = { ...previous.input, descriptor };
      this.inputs[previous.at] = previous.input;
      previous = undefined;
    };
    while (scanner.at(CHAR.COMMA)) {
      scanner.next();
      describe();
      if (scanner.at(CHAR.CLOSE_PAREN)) break;
      scanner.expect(NAME, 'a parameter');
      const { start: offset, line } = scanner;
      const name = scanner.word();
      scanner.next();
      let type: ValueType | undefined;
      if (scanner.at(CHAR.COLON)) {
        scanner.next();
        if (scanner.at(STRING)) {
          type = this.annotations.read(scanner);
          scanner.next();
        } else this.dottedAnnotation();
      }
      if (scanner.at(CHAR.EQUALS)) {
        scanner.next();
        this.expressions.value(0);
      }
      previous = { input: { name, type, offset, line }, at: this.inputs.length };
      this.names.define(name, { kind: 'value', name }, offset);
      this.inputs.push(previous.input);
      describe();
    }
    scanner.expect(CHAR.CLOSE_PAREN, `',' or ')'`);
  }

  /**
   * `-> torch.Tensor`, `-> "f32[8]"`, `-> Tuple[Tensor, ...]` is read over: the statements say what
   * is returned.
   */
  private returnAnnotation(): void {
    const { scanner } = this;
    if (!scanner.at(OPERATOR) || scanner.word() !== '->') return;
    scanner.next();
    if (scanner.at(CHAR.COLON)) scanner.expected('a type');
    for (let depth = 0; depth > 0 || !scanner.at(CHAR.COLON); scanner.next()) {
      if (scanner.at(CHAR.OPEN_BRACKET) || scanner.at(CHAR.OPEN_PAREN)) depth++;
      if (scanner.at(CHAR.CLOSE_BRACKET) || scanner.at(CHAR.CLOSE_PAREN)) depth--;
      if (scanner.at(NEWLINE) || scanner.atEnd()) scanner.expected(`':'`);
    }
  }

  /** An annotation such as `torch.Tensor`, which says nothing of sizes. */
  private dottedAnnotation(): void {
    const { scanner } = this;
    scanner.expect(NAME, 'a type');
    scanner.next();
    while (scanner.at(CHAR.DOT)) {
      scanner.next();
      scanner.expect(NAME, 'a name');
      scanner.next();
    }
  }

  private statement(): void {
    const { scanner } = this;
    this.takeSource();
    if (scanner.is('return')) {
      scanner.next();
      this.returnStatement();
      this.endStatement();
      return;
    }
    scanner.expect(NAME, 'a statement');
    const { start, line } = scanner;
    const name = scanner.word();
    const kind = scanner.next();
    if (kind === CHAR.EQUALS) this.assignment(name, undefined, start, line);
    else if (kind === CHAR.COLON) this.annotated(name, start, line);
    else if (kind === CHAR.COMMA) this.unpacking(name, start, line);
    else if (kind === CHAR.OPEN_BRACKET)
      scanner.fail(
        'E_UNSUPPORTED',
        `'${name}' is changed in place`,
        start,
        'functionalize the graph first (AOTAutograd does)',
      );
    else if (kind === OPERATOR && scanner.word().endsWith('='))
      scanner.fail(
        'E_UNSUPPORTED',
        `'${name}' is changed in place`,
        start,
        'functionalize the graph first (AOTAutograd does)',
      );
    else scanner.expected(`'=', ':' or ','`);
    // Freed names or further declarations follow ';'.
    while (scanner.at(CHAR.SEMICOLON)) {
      scanner.next();
      if (scanner.at(NEWLINE) || scanner.at(END)) break;
      this.freedNames();
    }
    this.endStatement();
  }

  /** `a = b = None`, names that are freed, or one more declaration `a: "..."`. */
  private freedNames(): void {
    const { scanner } = this;
    scanner.expect(NAME, 'a name');
    const { start, end, line } = scanner;
    if (scanner.next() === CHAR.COLON) {
      this.annotated(scanner.text.slice(start, end), start, line);
      return;
    }
    scanner.expect(CHAR.EQUALS, `'=' or ':'`);
    for (;;) {
      scanner.next();
      scanner.expect(NAME, `a name or 'None'`);
      const last = scanner.is('None');
      scanner.next();
      if (last) return;
      scanner.expect(CHAR.EQUALS, `'='`);
    }
  }

  private endStatement(): void {
    const { scanner } = this;
    if (scanner.at(END)) return;
    scanner.expect(NEWLINE, 'the end of the line');
    scanner.next();
  }

  /** `name: "type"` with or without a value. */
  private annotated(name: string, offset: number, line: number): void {
    const { scanner } = this;
    scanner.next();
    scanner.expect(STRING, 'a type in quotes');
    const type = this.annotations.read(scanner);
    if (scanner.next() === CHAR.EQUALS) {
      this.assignment(name, type, offset, line);
      return;
    }
    const descriptor = this.descriptor();
    if (this.declared.has(name)) scanner.fail('E_DUP', `'${name}' is declared twice`, offset);
    this.declared.set(name, {
      name,
      type,
      offset,
      line,
      ...defined({ descriptor }),
    });
  }

  private assignment(
    name: string,
    type: ValueType | undefined,
    offset: number,
    line: number,
  ): void {
    const { scanner } = this;
    scanner.next();
    const operation = this.expressions.statement();
    if (operation === undefined) {
      // `x = y` is a second name for one value; `x = None` frees it.
      const value = this.expressions.result;
      if (value === null && type === undefined) return;
      this.names.define(name, value, offset);
      return;
    }
    this.count(offset);
    const ref: DraftRef = { kind: 'value', name };
    this.names.define(name, ref, offset);
    const { kind, target, args, kwargs } = operation;
    this.nodes.push({
      name,
      kind,
      target,
      args,
      kwargs,
      type,
      offset,
      line,
      source: this.source,
      save: this.save,
      ref,
    });
  }

  /**
   * `a, b, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)`: the inputs in order.
   */
  private unpacking(first: string, offset: number, line: number): void {
    const { scanner } = this;
    const names: { name: string; offset: number; line: number }[] = [{ name: first, offset, line }];
    while (scanner.at(CHAR.COMMA)) {
      if (scanner.next() !== NAME) break;
      names.push({ name: scanner.word(), offset: scanner.start, line: scanner.line });
      scanner.next();
    }
    scanner.expect(CHAR.EQUALS, `'=' or ','`);
    scanner.next();
    if (!scanner.is('fx_pytree'))
      scanner.fail(
        'E_UNSUPPORTED',
        'a value is unpacked into names',
        offset,
        'write one getitem a name: x = y[0]',
      );
    if (this.flattened || this.nodes.length > 0)
      scanner.fail('E_SYNTAX', 'the inputs are unpacked twice or too late', offset);
    this.callOf('tree_flatten_spec');
    this.skipArguments();
    this.flattened = true;
    const before = new Map(this.inputs.map((input) => [input.name, input]));
    this.joint = before.has('tangents') && !names.some((n) => n.name === 'tangents');
    this.names.clear();
    this.inputs = names.map(({ name, offset: at, line: atLine }) => {
      const known = this.declared.get(name) ?? before.get(name);
      this.names.define(name, { kind: 'value', name }, at);
      if (known !== undefined) return known;
      return { name, type: undefined, offset: at, line: atLine };
    });
    for (const name of this.declared.keys())
      if (!this.names.has(name))
        scanner.fail(
          'E_REF',
          `'${name}' is declared but not unpacked from the inputs`,
          this.declared.get(name)!.offset,
        );
  }

  /** A parameter may be typed by a declaration in the body instead. */
  private declaredAs(input: FxInput): FxInput {
    return input.type === undefined ? (this.declared.get(input.name) ?? input) : input;
  }

  /** `module . name (`; leaves the scanner behind the bracket. */
  private callOf(name: string): void {
    const { scanner } = this;
    scanner.next();
    scanner.expect(CHAR.DOT, `'.'`);
    scanner.next();
    if (!scanner.is(name)) scanner.expected(`'${name}'`);
    scanner.next();
    scanner.expect(CHAR.OPEN_PAREN, `'('`);
    scanner.next();
  }

  /** To behind the bracket that closes the current call. */
  private skipArguments(): void {
    const { scanner } = this;
    let depth = 1;
    while (depth > 0) {
      if (scanner.at(END)) scanner.expected(`')'`);
      if (
        scanner.at(CHAR.OPEN_PAREN) ||
        scanner.at(CHAR.OPEN_BRACKET) ||
        scanner.at(CHAR.OPEN_BRACE)
      )
        depth++;
      if (
        scanner.at(CHAR.CLOSE_PAREN) ||
        scanner.at(CHAR.CLOSE_BRACKET) ||
        scanner.at(CHAR.CLOSE_BRACE)
      )
        depth--;
      scanner.next();
    }
  }

  private returnStatement(): void {
    const { scanner } = this;
    this.returned = true;
    if (scanner.is('pytree')) {
      this.callOf('tree_unflatten');
      this.returnList();
      scanner.expect(CHAR.COMMA, `','`);
      scanner.next();
      this.skipArguments();
    } else if (scanner.at(CHAR.OPEN_PAREN) || scanner.at(CHAR.OPEN_BRACKET)) this.returnList();
    else {
      scanner.expect(NAME, 'a value');
      this.returnEntry();
    }
    if (scanner.at(CHAR.COMMA))
      scanner.fail(
        'E_UNSUPPORTED',
        'the return is a bare list',
        scanner.start,
        'put the returned values in parentheses',
      );
  }

  private returnList(): void {
    const { scanner } = this;
    const close = scanner.at(CHAR.OPEN_PAREN) ? CHAR.CLOSE_PAREN : CHAR.CLOSE_BRACKET;
    if (!scanner.at(CHAR.OPEN_PAREN) && !scanner.at(CHAR.OPEN_BRACKET)) scanner.expected(`'['`);
    scanner.next();
    while (!scanner.at(close)) {
      this.returnEntry();
      this.describeReturn();
      if (scanner.at(CHAR.COMMA)) {
        scanner.next();
        this.describeReturn();
      } else if (!scanner.at(close))
        scanner.expected(`',' or '${close === CHAR.CLOSE_PAREN ? ')' : ']'}'`);
    }
    scanner.next();
  }

  private returnEntry(): void {
    const { scanner } = this;
    const offset = scanner.start;
    if (scanner.at(CHAR.OPEN_PAREN) || scanner.at(CHAR.OPEN_BRACKET) || scanner.at(CHAR.OPEN_BRACE))
      scanner.fail(
        'E_UNSUPPORTED',
        'a nested structure is returned',
        offset,
        'return a flat list of values',
      );
    if (scanner.at(INTEGER))
      scanner.fail('E_UNSUPPORTED', 'a number is returned', offset, 'return tensors and None only');
    scanner.expect(NAME, 'a value or None');
    if (scanner.is('None')) {
      this.returns.push({ value: null, offset });
    } else {
      const value = this.names.lookup(scanner.word(), offset);
      if (
        typeof value !== 'object' ||
        value === null ||
        !('kind' in value) ||
        value.kind !== 'value'
      )
        throw scanner.error(
          'E_UNSUPPORTED',
          `'${scanner.word()}' is returned, but is not a tensor`,
          offset,
          'return tensors and None only',
        );
      this.returns.push({ value: value.name, offset });
    }
    scanner.next();
  }

  private describeReturn(): void {
    const descriptor = this.descriptor();
    const last = this.returns[this.returns.length - 1];
    if (descriptor !== undefined && last !== undefined && last.descriptor === undefined)
      this.returns[this.returns.length - 1] = { ...last, descriptor };
  }

  /** AOT descriptor in the comment just skipped. */
  private descriptor(): string | undefined {
    const { text, commentStart, commentEnd } = this.scanner;
    if (commentStart < 0) return undefined;
    const comment = text.slice(commentStart + 1, commentEnd).trim();
    return /^\w+AOT(Input|Output)\(.*\)$/.test(comment) ? comment : undefined;
  }

  /** A comment on a line of its own is the place of all statements up to the next such comment. */
  private takeSource(): void {
    const { loneComment, text } = this.scanner;
    if (loneComment === this.sourceComment) return;
    this.sourceComment = loneComment;
    const end = text.indexOf('\n', loneComment);
    const comment = text.slice(
      loneComment,
      end < 0 ? undefined : Math.min(end, loneComment + 8192),
    );
    const { save, source } = readSourceComment(comment);
    this.save = save;
    if (source !== null) this.source = source;
  }
}

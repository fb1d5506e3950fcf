/** Parses texts of layouts and of nested integers. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { NotationScanner } from '../../text/scanner.ts';
import {
  type IntTree,
  MAX_TREE_DEPTH,
  MAX_TREE_LEAVES,
  type Order,
  sameNesting,
  treeText,
} from './int-tree.ts';
import { compact, Layout } from './layout.ts';
import type { Tiler } from './tiler.ts';

/** Characters that a text of layouts may have. */
const MAX_TEXT = 1 << 16;

/**
 * A layout such as `((2,2),3):((24,2),8)`. Without strides it is compact in the order: LayoutLeft
 * (`colex`, the default) or LayoutRight.
 *
 * @throws E_SYNTAX with the column
 */
export function parseLayout(text: string, order: Order = 'colex'): Layout {
  checkKinds('parseLayout', { text: [text, 'string'], order: [order, 'string'] });
  const scan = new LayoutScanner(text);
  const layout = scan.layout(order);
  scan.end();
  return layout;
}

/** Reads texts of layouts; columns in errors count from 1. */
export class LayoutScanner extends NotationScanner {
  private count = 0;

  constructor(text: string) {
    super(text, MAX_TEXT, 'a text of layouts');
  }

  protected override isBlank(char: string): boolean {
    return char === ' ' || char === '\t' || char === '\n';
  }

  override get done(): boolean {
    this.blanks();
    return super.done;
  }
  /** 1-based column of the next character that is not blank. */
  get column(): number {
    this.blanks();
    return this.at + 1;
  }

  /** Letters, digits, `_` and `-`, such as the name of a function. */
  word(what: string): string {
    this.blanks();
    const start = this.at;
    while (this.at < this.text.length && /[A-Za-z0-9_-]/.test(this.text[this.at])) this.at++;
    if (this.at === start) this.fail(what);
    return this.text.slice(start, this.at);
  }

  layout(order: Order): Layout {
    const column = this.column;
    const shape = this.tree();
    return this.stridesOf(shape, column) ?? this.placed(column, () => compact(shape, order));
  }

  /**
   * The second argument of a function by mode: a layout; a list `<3:4, 8:2>` with one part for each
   * mode, `_` where the mode is left alone; or a bare shape, which means its sizes with stride 1,
   * mode by mode.
   */
  tiler(): Tiler {
    return this.tilerAt(0);
  }

  private tilerAt(depth: number): Tiler {
    if (this.peek() === '_') {
      this.at++;
      return null;
    }
    if (this.peek() === '<') {
      if (depth >= MAX_TREE_DEPTH) this.fail(`lists nested at most ${MAX_TREE_DEPTH} deep`);
      this.at++;
      const parts: Tiler[] = [];
      do parts.push(this.tilerAt(depth + 1));
      while (this.take(','));
      if (!this.take('>')) this.fail("',' or '>'");
      return parts;
    }
    const column = this.column;
    const shape = this.tree();
    return this.stridesOf(shape, column) ?? shape;
  }

  /** An integer of at most 2^53 - 1. */
  integer(): number {
    this.blanks();
    const start = this.at;
    while (this.at < this.text.length && this.text[this.at] >= '0' && this.text[this.at] <= '9')
      this.at++;
    if (this.at === start) this.fail('an integer');
    const value = Number(this.text.slice(start, this.at));
    if (Number.isSafeInteger(value)) return value;
    this.back(start);
    return this.fail('an integer of at most 2^53 - 1');
  }

  tree(): IntTree {
    if (this.peek() !== '(') {
      if (!/[0-9]/.test(this.peek())) this.fail("an integer or '('");
      return this.counted();
    }
    // Open lists are kept here instead of on the stack of calls: the text may be as deep as it
    // likes.
    const open: IntTree[][] = [];
    for (;;) {
      while (this.peek() === '(') {
        if (open.length >= MAX_TREE_DEPTH) this.fail(`lists nested at most ${MAX_TREE_DEPTH} deep`);
        this.at++;
        open.push([]);
      }
      if (!/[0-9]/.test(this.peek())) this.fail("an integer or '('");
      open[open.length - 1].push(this.counted());
      for (;;) {
        // `(24,)` is how Python writes a list of one.
        const comma = this.take(',');
        if (comma && this.peek() !== ')') break;
        if (!this.take(')')) this.fail("',' or ')'");
        const closed = open.pop() ?? [];
        if (open.length === 0) return closed;
        open[open.length - 1].push(closed);
      }
    }
  }

  override fail(
    expected: string,
    hint = 'a layout is SHAPE:STRIDE, as in ((2,2),3):((24,2),8)',
  ): never {
    const got = this.at < this.text.length ? `'${this.text[this.at]}'` : 'the end';
    throw new ShardwrightError(
      'E_SYNTAX',
      `expected ${expected}, got ${got} at column ${this.at + 1}`,
      {
        ...this.place(this.at),
        hint,
      },
    );
  }

  private stridesOf(shape: IntTree, column: number): Layout | undefined {
    if (!this.take(':')) return undefined;
    const strideColumn = this.column;
    const stride = this.tree();
    if (!sameNesting(shape, stride))
      throw new ShardwrightError(
        'E_SYNTAX',
        `strides ${brief(stride)} are not nested as the shape ${brief(shape)} is, at column ` +
          `${strideColumn}`,
        {
          ...this.place(strideColumn - 1),
          hint: 'give one stride for each size, in the same brackets',
        },
      );
    return this.placed(column, () => new Layout(shape, stride));
  }

  /** An error about a layout states its place. */
  private placed(column: number, make: () => Layout): Layout {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      throw error.with(this.place(column - 1));
    }
  }

  private counted(): number {
    if (++this.count > MAX_TREE_LEAVES) this.fail(`at most ${MAX_TREE_LEAVES} integers`);
    return this.integer();
  }
  override peek(): string {
    this.blanks();
    return super.peek();
  }
}

/** A tree as errors show it. */
function brief(tree: IntTree): string {
  const text = treeText(tree);
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}

/**
 * Reads `print_readable()` text: the classes and their order; `forward.ts` reads their contents.
 */

import { CHAR } from '../../text/char.ts';
import { END, NAME, NEWLINE, Scanner } from '../file/scan.ts';
import { ForwardBody } from './forward.ts';
import type { FxClass } from './record.ts';
import { Annotations } from './text/annotation.ts';

const MAX_CLASS_DEPTH = 256;
export const MAX_NODES = 2_000_000;

/**
 * Parses one top-level class with its nested classes, between `start` and `end`.
 *
 * @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_LIMIT, E_UNSUPPORTED, each with line and column
 */
export function parseFx(
  text: string,
  file?: string,
  end?: number,
  start = 0,
): { root: FxClass; scanner: Scanner } {
  const scanner = new Scanner(text, file, end);
  const parser = new FxParser(scanner);
  return { root: parser.file(start), scanner };
}

class FxParser {
  private readonly annotations = new Annotations();
  private nodeCount = 0;

  constructor(private readonly scanner: Scanner) {}

  file(start: number): FxClass {
    const { scanner } = this;
    this.preamble(start);
    const root = this.classBody(scanner.indent(), 0);
    if (scanner.is('class'))
      scanner.fail(
        'E_UNSUPPORTED',
        'a second top-level class: the text holds more than one graph',
        scanner.start,
        'import each graph from its own file',
      );
    if (!scanner.at(END)) scanner.expected('the end of the text');
    return root;
  }

  /**
   * Comments, imports and the path that logs print before the class; leaves the scanner on `class`.
   */
  private preamble(start: number): void {
    const { scanner } = this;
    const { text } = scanner;
    let pos = start;
    for (;;) {
      const stop = text.indexOf('\n', pos);
      const line = text.slice(
        pos,
        stop < 0 ? Math.min(text.length, pos + 4096) : Math.min(stop, pos + 4096),
      );
      const code = line.trimStart();
      const at = pos + line.length - code.length;
      const behindPath = /^\S+ class /.test(code) ? code.indexOf('class ') : 0;
      if (code.startsWith('class ') || behindPath > 0) {
        // Counted by hand, as the scanner starts in the middle of the text.
        for (let i = text.indexOf('\n'); i >= 0 && i < at; i = text.indexOf('\n', i + 1))
          scanner.line++;
        scanner.lineStart = behindPath > 0 ? at + behindPath : pos;
        scanner.end = at + behindPath;
        scanner.next();
        return;
      }
      const skip =
        code === '' ||
        code.startsWith('#') ||
        code.startsWith('import ') ||
        code.startsWith('from ');
      if (!skip || stop < 0) {
        scanner.start = scanner.end = at;
        const what = code === '' ? 'the end of the text' : `'${code.slice(0, 40)}'`;
        scanner.fail('E_SYNTAX', `expected 'class NAME(torch.nn.Module):', found ${what}`, at);
      }
      pos = stop + 1;
    }
  }

  /** From `class` to the first line that is no deeper than it. */
  private classBody(indent: number, depth: number): FxClass {
    const { scanner } = this;
    const offset = scanner.start;
    if (depth > MAX_CLASS_DEPTH)
      scanner.fail('E_LIMIT', `classes nest deeper than ${MAX_CLASS_DEPTH}`);
    scanner.next();
    const name = this.className();
    scanner.expect(CHAR.OPEN_PAREN, `'('`);
    scanner.next();
    this.dotted();
    scanner.expect(CHAR.CLOSE_PAREN, `')'`);
    scanner.next();
    scanner.expect(CHAR.COLON, `':'`);
    scanner.next();
    scanner.expect(NEWLINE, 'the end of the line');
    scanner.next();
    let forward: ForwardBody | undefined;
    const classes: FxClass[] = [];
    const names = new Set<string>();
    while (!scanner.atEnd() && scanner.indent() > indent) {
      if (scanner.is('class')) {
        const at = scanner.start;
        const nested = this.classBody(scanner.indent(), depth + 1);
        if (names.has(nested.name))
          scanner.fail(
            'E_DUP',
            `class '${nested.name}' is defined twice`,
            at,
            'rename one of them',
          );
        names.add(nested.name);
        classes.push(nested);
      } else if (scanner.is('def')) {
        const at = scanner.start;
        const body = this.definition();
        if (body !== undefined && forward !== undefined)
          scanner.fail('E_DUP', `'forward' is defined twice`, at);
        forward ??= body;
      } else scanner.expected(`'def' or 'class'`);
    }
    if (forward === undefined)
      throw scanner.error(
        'E_SYNTAX',
        `class ${name} has no 'def forward'; found ${scanner.found()} instead`,
        scanner.start,
      );
    const { inputs, nodes, returns, joint } = forward;
    return { name, offset, inputs, nodes, returns, classes, joint };
  }

  private className(): string {
    const { scanner } = this;
    if (scanner.at(CHAR.LESS)) {
      // '<lambda>', the name of a nameless module
      scanner.next();
      if (!scanner.is('lambda')) scanner.expected(`'lambda'`);
      scanner.next();
      scanner.expect(CHAR.GREATER, `'>'`);
      scanner.next();
      return '<lambda>';
    }
    scanner.expect(NAME, 'the name of the class');
    const name = scanner.word();
    scanner.next();
    return name;
  }

  private dotted(): void {
    const { scanner } = this;
    scanner.expect(NAME, 'a name');
    scanner.next();
    while (scanner.at(CHAR.DOT)) {
      scanner.next();
      scanner.expect(NAME, 'a name');
      scanner.next();
    }
  }

  private definition(): ForwardBody | undefined {
    const { scanner } = this;
    const indent = scanner.indent();
    scanner.next();
    if (scanner.is('__init__')) {
      do {
        scanner.next();
        while (scanner.at(NEWLINE)) scanner.next();
      } while (!scanner.atEnd() && scanner.indent() > indent);
      return undefined;
    }
    if (!scanner.is('forward')) scanner.expected(`'forward'`);
    const body = new ForwardBody(scanner, this.annotations, (at) => this.countNode(at));
    body.read(indent);
    return body;
  }

  private countNode(at: number): void {
    if (++this.nodeCount > MAX_NODES)
      this.scanner.fail('E_LIMIT', `more than ${MAX_NODES} nodes`, at);
  }
}

/**
 * Names of one function of FX text: defines each once, and gives its meaning or an error that says
 * where it is defined.
 */

import { suggestion } from '../../../errors.ts';
import type { Arg } from '../../../graph/types.ts';
import type { Scanner } from '../../file/scan.ts';
import { namedConstant } from './literal.ts';

export class Names {
  private readonly values = new Map<string, Arg>();

  constructor(private readonly scanner: Scanner) {}

  has(name: string): boolean {
    return this.values.has(name);
  }

  get(name: string): Arg | undefined {
    return this.values.get(name);
  }

  clear(): void {
    this.values.clear();
  }

  /** @throws E_DUP for a name that has a meaning already */
  define(name: string, value: Arg, offset: number): void {
    if (this.values.has(name))
      this.scanner.fail(
        'E_DUP',
        `'${name}' is defined twice`,
        offset,
        'every value needs its own name; rename the second',
      );
    this.values.set(name, value);
  }

  /** The meaning of a name: a value of the graph, else a constant of Python. @throws E_REF */
  lookup(name: string, start: number): Arg {
    const value = this.values.get(name);
    if (value !== undefined) return value;
    const constant = namedConstant(name);
    return constant === undefined ? this.unknown(name, start) : constant;
  }

  unknown(name: string, start: number): never {
    const lines = this.definedAfter(name, start);
    if (lines !== undefined)
      this.scanner.fail(
        'E_REF',
        lines === 0
          ? `'${name}' is used in its own definition`
          : `'${name}' is used ${lines} line${lines === 1 ? '' : 's'} above its definition`,
        start,
        'a value is defined above its uses: move its line up; values that need each other in a ' +
          'circle are not a graph',
      );
    this.scanner.fail(
      'E_REF',
      `'${name}' is not defined`,
      start,
      suggestion(name, [...this.values.keys()], 'values'),
    );
  }

  /**
   * How many lines further down in the same function a name is defined; 0 in this line, undefined
   * where it is not.
   */
  private definedAfter(name: string, start: number): number | undefined {
    const { text } = this.scanner;
    const lines = text.slice(text.lastIndexOf('\n', start - 1) + 1).split('\n');
    for (const [ahead, line] of lines.entries()) {
      const words = line.trimStart();
      if (words.startsWith('return ') || words.startsWith('class ')) return undefined;
      if (words.startsWith(name) && /^\s*(:|=(?!=))/.test(words.slice(name.length))) return ahead;
    }
    return undefined;
  }
}

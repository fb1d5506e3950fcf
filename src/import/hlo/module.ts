/**
 * Reads HLO text (`HloModule ...`): what XLA made of a program, for one device. It is read to
 * compare a plan with what the compiler did; a plan starts from the program before that
 * (StableHLO).
 */

import { suggestion } from '../../errors.ts';
import { HloReader } from './reader.ts';
import type { HloComputation, HloInstruction, HloModule, Span } from './syntax.ts';

const MAX_INSTRUCTIONS = 2_000_000;
const TABLES = ['FileNames', 'FunctionNames', 'FileLocations', 'StackFrames'];

/** @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_LIMIT with line and column */
export function parseHlo(
  text: string,
  file?: string,
): { readonly module: HloModule; readonly reader: HloReader } {
  const reader = new HloReader(text, file);
  return { module: new ModuleParser(reader).module(), reader };
}

class ModuleParser {
  private instructions = 0;

  constructor(private readonly reader: HloReader) {}

  module(): HloModule {
    const { reader } = this;
    reader.expectWord('HloModule');
    const name = reader.name('the name of the module');
    const attributes = reader.attributes();
    for (const table of TABLES) this.table(table);
    const computations: HloComputation[] = [];
    const names = new Map<string, number>();
    while (!reader.atEnd()) {
      const at = reader.pos;
      const computation = this.computation();
      if (names.has(computation.name))
        reader.fail(
          `computation '${computation.name}' is defined twice`,
          at,
          'E_DUP',
          'rename one of them',
        );
      names.set(computation.name, at);
      computations.push(computation);
    }
    const entries = computations.filter((c) => c.isEntry).length;
    if (entries !== 1)
      reader.fail(
        entries === 0
          ? 'no computation is marked ENTRY'
          : `${entries} computations are marked ENTRY`,
        0,
      );
    this.checkCalls(computations, [...names.keys()]);
    return { name, attributes, computations };
  }

  /** `FileNames` and its like: numbered entries that only metadata refers to. */
  private table(name: string): void {
    const { reader } = this;
    if (!reader.acceptWord(name)) return;
    while (/^\d/.test((reader.skip(), reader.text.slice(reader.pos, reader.pos + 1)))) {
      reader.integer('the number of an entry');
      if (reader.peek('{')) reader.brackets();
      else {
        const stop = reader.text.indexOf('\n', reader.pos);
        reader.pos = stop < 0 ? reader.end : stop;
      }
    }
  }

  /** `[ENTRY] %name [(parameters) -> type] { instructions }`. */
  private computation(): HloComputation {
    const { reader } = this;
    const isEntry = reader.acceptWord('ENTRY');
    const name = reader.name('a computation');
    if (reader.peek('(')) {
      reader.brackets();
      reader.expect('->');
      reader.type();
    }
    reader.skip();
    const at = reader.pos;
    reader.expect('{');
    const instructions: HloInstruction[] = [];
    const defined = new Set<string>();
    while (!reader.accept('}')) {
      if (reader.atEnd()) reader.expected(`'}' at the end of computation '${name}'`);
      instructions.push(this.instruction(defined));
    }
    reader.attributes();
    const roots = instructions.filter((i) => i.isRoot).length;
    if (roots !== 1)
      reader.fail(
        `computation '${name}' has ${roots} ROOT instructions`,
        at,
        'E_SYNTAX',
        'mark one',
      );
    return { name, isEntry, instructions };
  }

  /** `[ROOT] %name = type opcode(operands), key=value`. */
  private instruction(defined: Set<string>): HloInstruction {
    const { reader } = this;
    if (++this.instructions > MAX_INSTRUCTIONS)
      reader.fail(
        `more than ${MAX_INSTRUCTIONS} instructions`,
        reader.pos,
        'E_LIMIT',
        'read a smaller program',
      );
    const isRoot = reader.acceptWord('ROOT');
    reader.skip();
    const at = reader.pos;
    const name = reader.name('an instruction');
    if (defined.has(name))
      reader.fail(`'%${name}' is defined twice`, at, 'E_DUP', 'rename one of them');
    reader.expect('=');
    const type = reader.type();
    const opcode = reader.name('an operation');
    const operands = LITERAL.has(opcode) ? this.literal(opcode) : this.operands(defined);
    defined.add(name);
    return { name, at, isRoot, type, opcode, operands, attributes: reader.attributes() };
  }

  /**
   * The number of a parameter or the value of a constant (of several lines), which nothing here
   * needs.
   */
  private literal(opcode: string): string[] {
    if (!this.reader.peek('(')) this.reader.expected(`'('`);
    this.reader.brackets(opcode === 'parameter');
    return [];
  }

  /** `%a, f32[8] %b`. */
  private operands(defined: ReadonlySet<string>): string[] {
    const { reader } = this;
    return reader.list('(', ')', () => {
      if (!reader.peek('%') && /^(\(|\w+\[)/.test(reader.text.slice(reader.pos, reader.pos + 24)))
        reader.type();
      reader.skip();
      const at = reader.pos;
      const name = reader.name('an operand such as %param');
      if (!defined.has(name))
        reader.fail(
          `'%${name}' is not defined`,
          at,
          'E_REF',
          suggestion(name, [...defined].slice(-2000), 'values'),
        );
      return name;
    });
  }

  /** Computations that instructions name exist. */
  private checkCalls(computations: readonly HloComputation[], known: readonly string[]): void {
    const names = new Set(known);
    for (const { instructions } of computations)
      for (const { attributes } of instructions)
        for (const key of CALLS) {
          const span = attributes.get(key);
          if (span !== undefined) this.checkNames(span, names, known);
        }
  }

  private checkNames(span: Span, names: ReadonlySet<string>, known: readonly string[]): void {
    const inner = this.reader.within(span);
    const one = (): void => {
      inner.skip();
      const at = inner.pos;
      const name = inner.name('a computation');
      if (!names.has(name))
        inner.fail(
          `computation '${name}' is not defined`,
          at,
          'E_REF',
          suggestion(name, known, 'computations'),
        );
    };
    if (inner.peek('{')) inner.list('{', '}', one);
    else one();
    if (!inner.atEnd()) inner.expected('the end of the attribute');
  }
}

const LITERAL = new Set(['constant', 'parameter']);
const CALLS = [
  'calls',
  'to_apply',
  'body',
  'condition',
  'branch_computations',
  'true_computation',
  'false_computation',
];

/** Operations and regions. What an operation of either form says ends up in the same record. */

import { defined } from '../../../defined.ts';
import { optionalDictionary, readDictionary } from './attributes.ts';
import type { Draft, FormReader } from './forms.ts';
import { optionalLocation } from './location.ts';
import { readPretty } from './pretty.ts';
import type { MlirReader } from './reader.ts';
import {
  type BlockArgument,
  type MlirAttribute,
  type MlirType,
  NO_ATTRIBUTES,
  type Operation,
  type Region,
  type Use,
} from './syntax.ts';
import { readType } from './types.ts';

/** Operations of one text, over all functions. */
const MAX_OPERATIONS = 2_000_000;

/** Reads operations; holds the count that the limit is about. */
export class OperationReader implements FormReader {
  private count = 0;

  constructor(readonly reader: MlirReader) {}

  /** `{ ^bb0(%a: T): op* }`, or `{ op* }` with arguments that the operation names. */
  region(given: readonly BlockArgument[] = []): Region {
    const { reader } = this;
    return reader.nested(() => {
      reader.skip();
      const at = reader.pos;
      reader.expect('{');
      let args = given;
      if (reader.peek('^')) {
        reader.sigil('^', 'a block');
        args = reader.peek('(') ? reader.list('(', ')', () => this.argument()) : [];
        reader.expect(':');
      }
      const operations: Operation[] = [];
      while (!reader.peek('}')) {
        if (reader.peek('^'))
          reader.fail(
            'the region has several blocks',
            reader.pos,
            'E_UNSUPPORTED',
            'structured control flow (stablehlo.while, case, if) is read; branches between ' +
              'blocks are not',
          );
        operations.push(this.operation());
      }
      reader.expect('}');
      return { args, operations, at };
    });
  }

  /** `%a: T {attributes} loc(...)`. */
  argument(): BlockArgument {
    const { reader } = this;
    reader.skip();
    const at = reader.pos;
    const id = reader.sigil('%', 'an argument');
    reader.expect(':');
    const type = readType(reader);
    const attributes = optionalDictionary(reader) ?? NO_ATTRIBUTES;
    const location = optionalLocation(reader);
    return { id, type, at, attributes, ...defined({ location }) };
  }

  operation(): Operation {
    const { reader } = this;
    reader.skip();
    const start = reader.pos;
    if (++this.count > MAX_OPERATIONS)
      reader.fail(
        `more than ${MAX_OPERATIONS} operations`,
        start,
        'E_LIMIT',
        'import a smaller part of the program',
      );
    const results: { id: string; count: number; at: number }[] = [];
    if (reader.peek('%')) {
      do {
        reader.skip();
        const at = reader.pos;
        const id = reader.sigil('%', 'a result');
        const count = reader.accept(':') ? reader.size('the number of results') : 1;
        results.push({ id, count, at });
      } while (reader.accept(','));
      reader.expect('=');
    }
    reader.skip();
    const at = reader.pos;
    const generic = reader.peek('"');
    const name = generic ? reader.string('an operation') : reader.word('an operation');
    const full = FULL_NAMES[name] ?? name;
    const draft = generic ? this.generic() : readPretty(this, full, at);
    const location = optionalLocation(reader);
    const named = results.reduce((n, r) => n + r.count, 0);
    if (results.length > 0 && named !== draft.resultTypes.length)
      reader.fail(
        `${named} results are named, ${full} has ${draft.resultTypes.length}`,
        start,
        'E_TYPE',
        'write %name:count for several results',
      );
    // Written out: a spread costs more than all else here, and there are millions.
    const { operands, attributes, regions, operandTypes, resultTypes } = draft;
    const read = {
      name: full,
      at,
      results,
      operands,
      attributes,
      regions,
      operandTypes,
      resultTypes,
    };
    return location === undefined ? read : { ...read, location };
  }

  /** `(%a, %b) <{properties}> (regions) {attributes} : (T, U) -> V`. */
  private generic(): Draft {
    const { reader } = this;
    const operands = reader.list('(', ')', () => this.use());
    if (reader.peek('['))
      reader.fail(
        'the operation branches to blocks',
        reader.pos,
        'E_UNSUPPORTED',
        'use structured control flow',
      );
    const attributes = new Map<string, MlirAttribute>();
    if (reader.accept('<')) {
      for (const [key, value] of readDictionary(reader)) attributes.set(key, value);
      reader.expect('>');
    }
    const regions = reader.peek('(') ? reader.list('(', ')', () => this.region()) : [];
    reader.skip();
    const at = reader.pos;
    for (const [key, value] of optionalDictionary(reader) ?? NO_ATTRIBUTES) {
      if (attributes.has(key))
        reader.fail(`attribute '${key}' is given twice`, at, 'E_DUP', 'keep one of them');
      attributes.set(key, value);
    }
    reader.expect(':');
    const { operandTypes, resultTypes } = this.functionType();
    return { operands, attributes, regions, operandTypes, resultTypes };
  }

  /** `(T, U) -> V`. */
  functionType(): { operandTypes: readonly MlirType[]; resultTypes: readonly MlirType[] } {
    const { reader } = this;
    if (!reader.peek('(')) reader.expected(`a type such as (tensor<4xf32>) -> tensor<4xf32>`);
    const type = readType(reader);
    if (type.kind !== 'function') return reader.expected('a function type');
    return { operandTypes: type.inputs, resultTypes: type.results };
  }

  /** `%id` or `%id#2`. */
  use(): Use {
    const { reader } = this;
    reader.skip();
    const at = reader.pos;
    const id = reader.sigil('%', 'a value such as %0');
    const result =
      reader.text[reader.pos] === '#' && reader.pos < reader.end ? this.resultNumber() : 0;
    return { id, result, at };
  }

  private resultNumber(): number {
    this.reader.pos++;
    return this.reader.size('the number of a result');
  }

  /** Uses separated by commas, up to what is no use. */
  uses(): Use[] {
    const out: Use[] = [];
    if (!this.reader.peek('%')) return out;
    do out.push(this.use());
    while (this.reader.accept(','));
    return out;
  }
}

/** Operations of `func` are written without their dialect. */
const FULL_NAMES: Readonly<Record<string, string>> = Object.assign(
  Object.create(null) as Record<string, string>,
  {
    return: 'func.return',
    call: 'func.call',
  },
);

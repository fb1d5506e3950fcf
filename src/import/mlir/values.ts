/**
 * Attribute values as arguments of calls: lists of integers from lists or dense tensors, words of
 * enumerations, structs.
 */

import type { Arg } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import { elements } from '../../ops/record/record.ts';
import { readAttribute } from './syntax/attributes.ts';
import { denseValue } from './syntax/dense.ts';
import { readConvolutionDims } from './syntax/pretty-structured.ts';
import type { MlirReader } from './syntax/reader.ts';
import type { Attributes, MlirAttribute } from './syntax/syntax.ts';

export class AttributeValues {
  constructor(
    private readonly reader: MlirReader,
    private readonly aliases: ReadonlyMap<string, MlirAttribute>,
  ) {}

  /** The attribute, with an alias followed. @throws E_REF where the alias is not defined */
  resolve(value: MlirAttribute): MlirAttribute {
    let at = value;
    for (let hops = 0; at.kind === 'alias'; hops++) {
      const next = this.aliases.get(at.name);
      if (next === undefined || hops > 64)
        throw this.reader.error(
          'E_REF',
          `'#${at.name}' is not defined`,
          at.at,
          'the alias is missing from the text',
        );
      at = next;
    }
    return at;
  }

  /**
   * Integers of `[1, 2]`, `array<i64: 1, 2>` or `dense<[1, 2]>`, nested lists row-major; a splat is
   * repeated.
   */
  ints(value: MlirAttribute, at: number): number[] {
    const found = this.resolve(value);
    const out: number[] = [];
    const take = (item: Arg): void => {
      if (Array.isArray(item)) (item as readonly Arg[]).forEach(take);
      else if (typeof item === 'number') out.push(item);
      else if (typeof item === 'boolean') out.push(item ? 1 : 0);
      else throw this.reader.error('E_TYPE', 'expected a list of integers', at);
    };
    if (found.kind === 'dense') {
      const count = elements(found.type.shape);
      if (count > MAX_LIST)
        throw this.reader.error(
          'E_LIMIT',
          `a list of ${count} integers`,
          at,
          'no operation needs this',
        );
      take(denseValue(this.reader, found.payload, found.type, MAX_LIST));
      if (out.length === 1 && count !== 1) return new Array<number>(count).fill(itemAt(out, 0));
      return out;
    }
    const walk = (item: MlirAttribute): void => {
      const one = this.resolve(item);
      if (one.kind === 'list') one.items.forEach(walk);
      else if (one.kind === 'int' && typeof one.value === 'number') out.push(one.value);
      else if (one.kind === 'bool') out.push(one.value ? 1 : 0);
      else throw this.reader.error('E_TYPE', 'expected a list of integers', at);
    };
    walk(found.kind === 'list' ? found : { kind: 'list', items: [found] });
    return out;
  }

  /** Members of a struct: a dictionary, or `#stablehlo.gather<key = value, ...>`. */
  struct(value: MlirAttribute, at: number): Attributes {
    const found = this.resolve(value);
    if (found.kind === 'dict') return found.entries;
    if (found.kind !== 'dialect' || found.body === undefined)
      throw this.reader.error('E_TYPE', 'expected a structure such as #stablehlo.gather<...>', at);
    const reader = this.reader.within(found.body);
    if (/\.conv$/.test(found.name)) {
      if (!reader.acceptWord('raw')) {
        const dims = readConvolutionDims(reader);
        return dims.kind === 'dict' ? dims.entries : new Map();
      }
      return this.rawConvolution(members(reader), at);
    }
    return members(reader);
  }

  private rawConvolution(raw: Attributes, at: number): Attributes {
    const all = (side: string, first: string, second: string): MlirAttribute => {
      const one = (name: string): number[] => {
        const value = raw.get(`${side}_${name}`);
        return value === undefined ? [] : this.ints(value, at);
      };
      const items = [...one(first), ...one(second), ...one('spatial_dimensions')];
      return { kind: 'list', items: items.map((n): MlirAttribute => ({ kind: 'int', value: n })) };
    };
    return new Map([
      ['input_dimensions', all('input', 'batch_dimension', 'feature_dimension')],
      ['kernel_dimensions', all('kernel', 'input_feature_dimension', 'output_feature_dimension')],
      ['output_dimensions', all('output', 'batch_dimension', 'feature_dimension')],
    ]);
  }

  /** The word of an enumeration: `LT`, `"LT"`, `#stablehlo<comparison_direction LT>`. */
  word(value: MlirAttribute, at: number): string {
    const found = this.resolve(value);
    if (found.kind === 'string') return found.value;
    if (found.kind === 'dialect' && found.body !== undefined) {
      const reader = this.reader.within(found.body);
      let last = reader.word('a word');
      while (!reader.atEnd()) last = reader.word('a word');
      return last;
    }
    throw this.reader.error('E_TYPE', 'expected a word', at);
  }

  words(value: MlirAttribute, at: number): string[] {
    const found = this.resolve(value);
    if (found.kind !== 'list') throw this.reader.error('E_TYPE', 'expected a list of words', at);
    return found.items.map((item) => this.word(item, at));
  }

  /**
   * Any plain value, for operations that are not known; undefined for what an argument cannot hold.
   */
  plain(value: MlirAttribute): Arg | undefined {
    const found = this.resolve(value);
    switch (found.kind) {
      case 'int':
      case 'bool':
      case 'string':
        return found.value;
      case 'float':
        return found.bits ?? { kind: 'float', value: found.value };
      case 'symbol':
        return `@${found.name}`;
      case 'list': {
        const items = found.items.map((item) => this.plain(item));
        return items.includes(undefined) ? undefined : (items as Arg[]);
      }
      case 'dialect':
        return found.body === undefined
          ? found.name
          : `#${found.name}<${this.reader.text.slice(found.body.from, found.body.to)}>`;
      default:
        return undefined;
    }
  }

  /** Strings of a list, or of Shardy's `#sdy<manual_axes{"x"}>`. */
  strings(value: MlirAttribute, at: number): string[] {
    const found = this.resolve(value);
    if (found.kind === 'dialect' && found.body !== undefined) {
      const reader = this.reader.within(found.body);
      reader.wordHere();
      return reader.list('{', '}', () => reader.string('a string'));
    }
    if (found.kind !== 'list') throw this.reader.error('E_TYPE', 'expected a list of strings', at);
    return found.items.map((item) => this.word(item, at));
  }
}

const MAX_LIST = 1 << 16;

/** `key = value, ...` without brackets. */
function members(reader: MlirReader): Map<string, MlirAttribute> {
  const out = new Map<string, MlirAttribute>();
  if (reader.atEnd()) return out;
  do {
    reader.skip();
    const at = reader.pos;
    const key = reader.word('the name of a member');
    if (out.has(key)) reader.fail(`'${key}' is given twice`, at, 'E_DUP', 'keep one of them');
    reader.expect('=');
    out.set(key, readAttribute(reader));
  } while (reader.accept(','));
  if (!reader.atEnd()) reader.expected(`','`);
  return out;
}

/**
 * Reads a Hugging Face `config.json`: every value is checked for its kind and range, every default
 * taken is noted, and what nobody asked for is listed, or refused if its name says that it decides
 * a shape.
 */

import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { parseJson } from '../text/json.ts';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
export type JsonRecord = Readonly<Record<string, Json>>;

/** A configuration of a model is a few kilobytes; label tables make it some hundred. */
export const MAX_CONFIG_BYTES = 4 * 2 ** 20;
/** Layers, heads and experts beyond this are a mistake, and would only make an endless graph. */
const MAX_COUNT = 4096;
const MAX_SIZE = 2 ** 31 - 1;

/** Names that decide a shape: an unread one means that the family is not the one that we build. */
const DECIDES_A_SHAPE = /(_lora_rank|(^|_)head_dim|^(num|n)_\w*experts\w*)$/;

/**
 * The object in a JSON text.
 *
 * @throws E_LIMIT for a text above `MAX_CONFIG_BYTES`, E_SYNTAX with line and column for one that
 *   is not a JSON object
 */
export function parseConfigText(text: string, file?: string): JsonRecord {
  const place = file === undefined ? {} : { file };
  if (text.length > MAX_CONFIG_BYTES)
    throw new ShardwrightError(
      'E_LIMIT',
      `the config has ${text.length} characters, more than ${MAX_CONFIG_BYTES}`,
      place,
    );
  const value = parseJson(text, place, { what: 'the config' });
  if (!isRecord(value as Json))
    throw new ShardwrightError('E_SYNTAX', 'the config is not a JSON object', {
      ...place,
      path: '$',
    });
  return value as JsonRecord;
}

export function isRecord(value: Json | undefined): value is JsonRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export class ConfigReader {
  private readonly read = new Set<string>();
  /** `num_key_value_heads = 32`, in the order of reading. */
  readonly defaults: string[] = [];

  constructor(
    private readonly values: JsonRecord,
    /** JSON path of the record, `$` for the whole file. */
    private readonly path = '$',
    private readonly file?: string,
  ) {}

  /**
   * The reader of a nested record, undefined where there is none. @throws E_SYNTAX for another kind
   * of value
   */
  record(name: string): ConfigReader | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (!isRecord(value)) throw this.wrong(name, 'an object', value);
    return new ConfigReader(value, `${this.path}.${name}`, this.file);
  }

  /**
   * A whole number from 1. The first of `names` that is present counts; without any, the fallback.
   */
  size(names: string | readonly string[], fallback?: number): number {
    return this.whole(names, 1, MAX_SIZE, fallback);
  }
  /** A whole number from 1 to `MAX_COUNT`. */
  count(names: string | readonly string[], fallback?: number): number {
    return this.whole(names, 1, MAX_COUNT, fallback);
  }
  /** Reads a count that may be 0. */
  countFromZero(names: string | readonly string[], fallback?: number): number {
    return this.whole(names, 0, MAX_COUNT, fallback);
  }
  /** A size, or undefined where it is absent or null. */
  optionalSize(name: string): number | undefined {
    return this.value(name) === undefined ? undefined : this.size(name);
  }

  /** A number above 0, or undefined. */
  positive(name: string): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
      throw this.wrong(name, 'a number above 0', value);
    return value;
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.value(name);
    if (value === undefined) {
      this.tookDefault(name, fallback);
      return fallback;
    }
    if (typeof value !== 'boolean') throw this.wrong(name, 'true or false', value);
    return value;
  }

  text(name: string): string | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') throw this.wrong(name, 'a text', value);
    return value;
  }

  /** A list of texts or numbers, or undefined. */
  list(name: string, kind: 'string' | 'number'): readonly Json[] | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw this.wrong(name, 'a list', value);
    const items = value as readonly Json[];
    if (items.length > MAX_COUNT)
      throw this.wrong(name, `a list of at most ${MAX_COUNT} entries`, items.length);
    items.forEach((item, i) => {
      if (typeof item !== kind)
        throw this.wrong(`${name}[${i}]`, kind === 'string' ? 'a text' : 'a number', item);
    });
    return items;
  }

  /** True for a value that is neither null, nor false, nor empty. */
  isSet(name: string): boolean {
    const value = this.value(name);
    if (value === undefined || value === false) return false;
    return typeof value !== 'object' || value === null || Object.keys(value).length > 0;
  }

  isText(name: string): boolean {
    return typeof this.value(name) === 'string';
  }

  has(name: string): boolean {
    return this.value(name) !== undefined;
  }
  /** Number of entries of a record that is only counted, such as a table of labels. */
  entries(name: string): number | undefined {
    const value = this.value(name);
    return isRecord(value) ? Object.keys(value).length : undefined;
  }
  /** Marks keys that the graph does not depend on as known. */
  known(...names: readonly string[]): void {
    for (const name of names) this.read.add(name);
  }
  tookDefault(name: string, value: number | boolean | string): void {
    this.defaults.push(`${name} = ${value}`);
  }

  /**
   * The keys that nobody read, sorted. @throws E_UNSUPPORTED for one whose name says that it
   * decides a shape
   */
  ignored(family: string): string[] {
    const rest = Object.keys(this.values).filter(
      (name) => !this.read.has(name) && this.values[name] !== null,
    );
    const deciding = rest.find((name) => DECIDES_A_SHAPE.test(name));
    if (deciding !== undefined)
      throw this.inconsistent(
        deciding,
        `decides a shape, and the family ${family} does not know it`,
        'choose the model_type of the family that has it, or remove it.',
        'E_UNSUPPORTED',
      );
    return rest.sort();
  }

  /** Refuses a word that is none of the known ones of its field. @throws E_UNSUPPORTED */
  checkKnown(name: string, word: string, known: readonly string[]): void {
    if (!known.includes(word))
      throw this.inconsistent(name, `is '${word}'`, `known: ${known.join(', ')}`, 'E_UNSUPPORTED');
  }

  /**
   * Refuses a class whose head is another than those that are built; an absent class has the first.
   *
   * @param heads ends of class names
   * @throws E_UNSUPPORTED
   */
  checkHead(className: string | undefined, heads: readonly string[]): void {
    if (className === undefined || heads.some((head) => className.endsWith(head))) return;
    throw this.inconsistent(
      'architectures[0]',
      `is '${className}', a head that is not built`,
      `classes that end in ${heads.join(' or ')} are built; any other model is planned from a ` +
        'capture: torch.export.save, or the Python package.',
      'E_UNSUPPORTED',
    );
  }

  /** An error about values that are right alone and wrong together. */
  inconsistent(name: string, problem: string, hint?: string, code = 'E_TYPE'): ShardwrightError {
    return new ShardwrightError(code, `${this.path}.${name} ${problem}`, this.details(name, hint));
  }

  private value(name: string): Json | undefined {
    this.read.add(name);
    const value = Object.hasOwn(this.values, name) ? this.values[name] : undefined;
    return value === null ? undefined : value;
  }

  private whole(
    names: string | readonly string[],
    least: number,
    most: number,
    fallback?: number,
  ): number {
    const all = typeof names === 'string' ? [names] : names;
    const found = all.filter((name) => this.has(name))[0];
    if (found === undefined) {
      if (fallback === undefined)
        throw new ShardwrightError(
          'E_SYNTAX',
          `${this.path}.${all[0]} is missing`,
          this.details(all[0], `add "${all[0]}".`),
        );
      this.tookDefault(all[0], fallback);
      return fallback;
    }
    const value = this.value(found);
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < least || value > most)
      throw this.wrong(found, `a whole number from ${least} to ${most}`, value ?? null);
    return value;
  }

  private wrong(name: string, expected: string, got: Json): ShardwrightError {
    const shown = JSON.stringify(got).slice(0, 60);
    return new ShardwrightError(
      'E_SYNTAX',
      `${this.path}.${name} is ${shown}, expected ${expected}`,
      this.details(name),
    );
  }

  private details(name: string, hint?: string): Record<string, string> {
    return {
      path: `${this.path}.${name}`,
      ...defined({ file: this.file, hint }),
    };
  }
}

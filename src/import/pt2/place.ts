/** Reads fields of JSON with their kinds checked, and names the path in every refusal. */

import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../file/json.ts';

/**
 * A position in a JSON document, as a chain to its root: the path text is only made when something
 * is wrong there.
 */
export class Place {
  constructor(
    private readonly up: Place | undefined,
    private readonly key: string | number,
  ) {}

  at(key: string | number): Place {
    return new Place(this, key);
  }

  /** `$.graph_module.graph.nodes[12].inputs[0].arg` */
  get path(): string {
    return pathOf(this);
  }

  /** The member of the place around; undefined at the root. */
  get member(): string | undefined {
    if (this.up === undefined) return undefined;
    return typeof this.key === 'number' ? `[${this.key}]` : memberText(this.key);
  }

  get around(): Place | undefined {
    return this.up;
  }

  /**
   * The error at this place; the path is also in the message, as JSON has no lines worth showing.
   */
  error(code: string, message: string, hint?: string, node?: string): ShardwrightError {
    const { path } = this;
    return new ShardwrightError(code, `${message}, at ${path}`, {
      path,
      hint: hint ?? 'the file may be cut or edited; write it again with torch.export.save',
      ...defined({ node }),
    });
  }
}

function pathOf(place: Place): string {
  const parts: string[] = [];
  for (let here: Place | undefined = place; here !== undefined; here = here.around)
    parts.push(here.member ?? '$');
  return parts.reverse().join('');
}

function memberText(key: string): string {
  return /^[A-Za-z_]\w{0,80}$/.test(key) ? `.${key}` : `[${JSON.stringify(key.slice(0, 80))}]`;
}

/** Reads fields of JSON with their kind checked; every refusal is `E_SYNTAX` with the path. */

export function objectAt(value: JsonValue | undefined, place: Place): JsonObject {
  if (isJsonObject(value)) return value;
  throw place.error('E_SYNTAX', `expected an object, found ${kindOf(value)}`);
}

export function listAt(value: JsonValue | undefined, place: Place): readonly JsonValue[] {
  if (Array.isArray(value)) return value as readonly JsonValue[];
  throw place.error('E_SYNTAX', `expected a list, found ${kindOf(value)}`);
}

export function stringAt(value: JsonValue | undefined, place: Place): string {
  if (typeof value === 'string') return value;
  throw place.error('E_SYNTAX', `expected a string, found ${kindOf(value)}`);
}

export function integerAt(value: JsonValue | undefined, place: Place): number | bigint {
  if (typeof value === 'bigint' || (typeof value === 'number' && Number.isSafeInteger(value)))
    return value;
  throw place.error('E_SYNTAX', `expected an integer, found ${kindOf(value)}`);
}

export function booleanAt(value: JsonValue | undefined, place: Place): boolean {
  if (typeof value === 'boolean') return value;
  throw place.error('E_SYNTAX', `expected true or false, found ${kindOf(value)}`);
}

/** A number; the words that torch writes for values that JSON has not. */
export function floatAt(value: JsonValue | undefined, place: Place): number {
  if (typeof value === 'number') return value;
  if (typeof value === 'bigint') return Number(value);
  if (value === 'Infinity') return Infinity;
  if (value === '-Infinity') return -Infinity;
  if (value === 'NaN') return NaN;
  throw place.error('E_SYNTAX', `expected a number, found ${kindOf(value)}`);
}

/** A size or position: an integer from 0 to 2^53. */
export function sizeAt(value: JsonValue | undefined, place: Place): number {
  const size = integerAt(value, place);
  if (typeof size === 'bigint') throw place.error('E_LIMIT', `the size ${size} is beyond 2^53`);
  if (size < 0)
    throw place.error('E_TYPE', `${size} is not a size`, 'a size is an integer of at least 0');
  return size;
}

/** The one key of a tagged value, such as `as_tensor`. */
export function onlyKey(
  value: JsonValue | undefined,
  place: Place,
  known: readonly string[],
): string {
  const keys = Object.keys(objectAt(value, place));
  const [key, ...others] = keys;
  if (key === undefined || others.length > 0)
    throw place.error(
      'E_SYNTAX',
      `expected exactly one key, found ${keys.length === 0 ? 'none' : keys.slice(0, 4).join(', ')}`,
    );
  if (!known.includes(key))
    throw place.error(
      'E_UNSUPPORTED',
      `'${key.slice(0, 60)}' is not known here`,
      suggestion(key, known, 'keys'),
    );
  return key;
}

function kindOf(value: JsonValue | undefined): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'an object';
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value);
  return text.length > 40 ? `${text.slice(0, 40)}...` : text;
}

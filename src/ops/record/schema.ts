/**
 * Argument schemas in the notation that PyTorch prints: `Tensor self, int dim=0, *, ScalarType?
 * dtype=None`. Foreign texts drop trailing defaults, so every record needs its schema to name and
 * complete a call's arguments.
 */

import { ShardwrightError } from '../../errors.ts';

/**
 * `TensorOrScalar` is a Tensor argument for which traced graphs also write a plain number:
 * `sub.Tensor(1, x)`.
 */
type ArgType =
  | 'Tensor'
  | 'TensorOrScalar'
  | 'Tensor?'
  | 'Tensor[]'
  | 'Tensor?[]'
  | 'int'
  | 'int?'
  | 'int[]'
  | 'int[]?'
  | 'float'
  | 'float?'
  | 'bool'
  | 'bool[]'
  | 'Scalar'
  | 'Scalar?'
  | 'str'
  | 'str?'
  | 'ScalarType'
  | 'ScalarType?'
  | 'Any';

export interface ArgSchema {
  readonly name: string;
  readonly type: ArgType;
  readonly kwargOnly: boolean;
  readonly required: boolean;
  /** Present when not required. */
  readonly default?: number | boolean | string | null | readonly number[];
  /** The default is a floating-point literal (`1.0`). */
  readonly defaultIsFloat?: boolean;
}

const TYPES = new Set<string>([
  'Tensor',
  'TensorOrScalar',
  'Tensor?',
  'Tensor[]',
  'Tensor?[]',
  'int',
  'int?',
  'int[]',
  'int[]?',
  'float',
  'float?',
  'bool',
  'bool[]',
  'Scalar',
  'Scalar?',
  'str',
  'str?',
  'ScalarType',
  'ScalarType?',
  'Any',
]);

/** Parses a schema written by us; a malformed one is a defect, found when the record is defined. */
export function parseSchema(text: string): readonly ArgSchema[] {
  const out: ArgSchema[] = [];
  let kwargOnly = false;
  for (const part of splitTop(text)) {
    if (part === '') continue;
    if (part === '*') {
      kwargOnly = true;
      continue;
    }
    const equals = part.indexOf('=');
    const head = (equals < 0 ? part : part.slice(0, equals)).trim();
    const space = head.lastIndexOf(' ');
    const type = head.slice(0, space).trim();
    const name = head.slice(space + 1);
    if (space < 0 || !TYPES.has(type))
      throw new ShardwrightError('E_INTERNAL', `internal: bad schema '${part}'`);
    if (equals < 0) {
      out.push({ name, type: type as ArgType, kwargOnly, required: true });
    } else {
      const raw = part.slice(equals + 1).trim();
      const isFloat = /^-?\d+\.\d*(e-?\d+)?$|^-?\d+e-?\d+$|^-?inf$/.test(raw);
      out.push({
        name,
        type: type as ArgType,
        kwargOnly,
        required: false,
        default: parseDefault(raw),
        ...(isFloat ? { defaultIsFloat: true } : {}),
      });
    }
  }
  return out;
}

function parseDefault(raw: string): number | boolean | string | null | readonly number[] {
  if (raw === 'None') return null;
  if (raw === 'True') return true;
  if (raw === 'False') return false;
  if (raw === 'inf') return Infinity;
  if (raw === '-inf') return -Infinity;
  if (raw.startsWith('[')) {
    const inner = raw.slice(1, -1).trim();
    return inner === '' ? [] : inner.split(',').map((x) => Number(x.trim()));
  }
  if (raw.startsWith('"') || raw.startsWith("'")) return raw.slice(1, -1);
  const value = Number(raw);
  if (Number.isNaN(value)) return raw;
  return value;
}

function splitTop(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i <= text.length; i++) {
    const c = text[i];
    if (c === '[' && text[i + 1] !== ']') depth++;
    else if (c === ']' && text[i - 1] !== '[') depth--;
    if (i === text.length || (c === ',' && depth === 0)) {
      parts.push(text.slice(start, i).trim());
      start = i + 1;
    }
  }
  return parts;
}

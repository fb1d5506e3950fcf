/** Descriptions of what a traced function takes: tensors, and dims of a size that is not fixed. */

import { checkKinds } from '../../arguments.ts';
import {
  checkOptions,
  isList,
  ShardwrightError,
  suggestion,
  valueText,
  wrongArgument,
} from '../../errors.ts';
import { usualSize } from '../../graph/text/size-value.ts';
import { type DType, DTYPES } from '../../graph/types.ts';
import type { DimRange } from '../sizes/sizes.ts';

/** A dim of any admissible size; made by `dim`. */
export class DimSpec {
  /** This constructor is not part of the public surface. */
  constructor(readonly range: DimRange) {
    Object.freeze(this);
  }
}

/** The range of a dynamic dim. */
export interface DimOptions {
  /** Smallest size, 2 by default: 0 and 1 behave unlike the others and always specialise. */
  readonly min?: number;
  readonly max?: number;
  readonly multiple?: number;
  /** Size that tracing runs with; by default the smallest admissible one of at least 8. */
  readonly example?: number;
  /** The size comes from data: no host decision may rest on it. */
  readonly unbacked?: boolean;
}

const DIM_OPTIONS: Readonly<Record<keyof DimOptions, true>> = {
  min: true,
  max: true,
  multiple: true,
  example: true,
  unbacked: true,
};

/**
 * A named dim of variable size, for use in a shape.
 *
 * @throws E_TRACE_INPUT when the range holds no size, or the example is outside it
 */
export function dim(name: string, options: DimOptions = {}): DimSpec {
  if (typeof name !== 'string')
    throw wrongArgument('dim', 'name', valueText(name), "give dim('batch').");
  checkOptions('dim', options, DIM_OPTIONS);
  const { min = 2, max = Infinity, multiple = 1, unbacked = false } = options;
  const fail = (message: string): never => {
    throw new ShardwrightError('E_TRACE_INPUT', `dim '${name}': ${message}`, {
      hint: 'dim("batch", { min: 2, max: 512, multiple: 8 })',
    });
  };
  if (!/^[A-Za-z_]\w*$/.test(name)) fail('the name is not an identifier');
  if (!Number.isSafeInteger(min) || min < 0) fail(`min is ${min}; a size is a whole number from 0`);
  if (max !== Infinity && !Number.isSafeInteger(max))
    fail(`max is ${max}; a size is a whole number`);
  if (!Number.isSafeInteger(multiple) || multiple < 1)
    fail(`multiple is ${multiple}; expected a whole number from 1`);
  const example =
    options.example ??
    usualSize({ min, max, multiple }) ??
    fail(`no multiple of ${multiple} lies in [${min}, ${max}]`);
  if (!admissible({ min, max, multiple }, example))
    fail(`the example ${example} is not a multiple of ${multiple} in [${min}, ${max}]`);
  return new DimSpec({ name, min, max, multiple, example, unbacked });
}

export function admissible(
  { min, max, multiple }: Pick<DimRange, 'min' | 'max' | 'multiple'>,
  size: number,
): boolean {
  return Number.isSafeInteger(size) && size >= min && size <= max && size % multiple === 0;
}

/** Roles that a described input can have. */
type SpecRole = 'input' | 'parameter' | 'buffer' | 'key';

/** The description of a tensor. */
export class TensorSpec {
  /**
   * This constructor is not part of the public surface; use `spec`, `input`, `parameter`,
   * `randomKey`.
   */
  constructor(
    readonly shape: readonly (number | DimSpec)[],
    readonly dtype: DType,
    readonly role: SpecRole,
    /** True if a gradient with respect to it is wanted. */
    readonly grad: boolean,
  ) {
    checkKinds('TensorSpec', {
      shape: [shape, 'list'],
      dtype: [dtype, 'string'],
      role: [role, 'string'],
      grad: [grad, 'boolean'],
    });
    for (const size of shape)
      if (!(size instanceof DimSpec) && (!Number.isSafeInteger(size) || size < 0))
        throw new ShardwrightError(
          'E_TRACE_INPUT',
          `a shape [${shape.map(String).join(', ')}] has the size ${String(size)}`,
          {
            hint: 'a size is a whole number from 0, or a dim(name).',
          },
        );
    knownDtype(dtype);
    Object.freeze(this.shape);
    Object.freeze(this);
  }
}

/** @throws E_TRACE_INPUT for a name that is not a dtype; programs without types may say anything */
export function knownDtype(dtype: string): void {
  if (DTYPES.some((known) => known === dtype)) return;
  throw new ShardwrightError('E_TRACE_INPUT', `'${String(dtype)}' is not a dtype`, {
    hint: suggestion(String(dtype), DTYPES, 'dtypes'),
  });
}

/**
 * Description of a tensor; f32 without gradient unless said otherwise. @throws E_TRACE_INPUT for a
 * size that is none
 */
export function spec(
  shape: readonly (number | DimSpec)[],
  dtype: DType = 'f32',
  options: { readonly grad?: boolean } = {},
): TensorSpec {
  checkOptions('spec', options, { grad: true });
  return new TensorSpec(sizesOf('spec', shape), dtype, 'input', options.grad ?? false);
}

/** Description of an input, f32 unless said otherwise. The same as `spec`. */
export function input(shape: readonly (number | DimSpec)[], dtype: DType = 'f32'): TensorSpec {
  return new TensorSpec(sizesOf('input', shape), dtype, 'input', false);
}

/**
 * Description of a parameter that is handed to the function, f32 unless said otherwise. See `param`
 * for declaring one inside.
 */
export function parameter(shape: readonly (number | DimSpec)[], dtype: DType = 'f32'): TensorSpec {
  return new TensorSpec(sizesOf('parameter', shape), dtype, 'parameter', true);
}

/** @throws E_USAGE for a shape that is not a list, as in `input(8, 16)` */
function sizesOf(call: string, shape: readonly (number | DimSpec)[]): (number | DimSpec)[] {
  if (isList(shape)) return [...shape];
  throw wrongArgument(call, 'shape', valueText(shape), `give ${call}([8, 16]).`);
}

/**
 * Description of a random key: a scalar seed below 2^31 - 1, from which `splitKey` derives others.
 */
export function randomKey(): TensorSpec {
  return new TensorSpec([], 'i64', 'key', false);
}

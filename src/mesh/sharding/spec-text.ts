/** Prints a tensor with its sharding as DTensor does. */

import { checkKinds } from '../../arguments.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import { Scanner } from '../placements/scan.ts';
import { type ParseOptions, parseSharding } from './parse.ts';
import type { Sharding } from './sharding.ts';

/** A tensor with its sharding as DTensor prints it: `Spec(f32[8, 8](S(0)S(1)))`. */
interface TensorSpecText {
  readonly dtype: string;
  /** Global sizes. */
  readonly shape: readonly number[];
  readonly sharding: Sharding;
}

/** The text of a typed sharding, `Spec(f32[8, 16](S(0)R))`, as `parseSpec` reads it. */
export function printSpec(input: TensorSpecText): string {
  checkKinds('printSpec', { input: [input, ['dtype', 'shape', 'sharding']] });
  const { dtype, shape, sharding } = input;
  return `Spec(${dtype}[${shape.join(', ')}](${sharding.text}))`;
}

/**
 * Reads `Spec(f32[8, 8](S(0)S(1)))`.
 *
 * @throws E_SYNTAX with the column (inside the sharding, the column of the sharding's own text),
 *   E_PLACEMENT
 */
export function parseSpec(
  text: string,
  mesh: DeviceMesh,
  options: Omit<ParseOptions, 'rank'> = {},
): TensorSpecText {
  checkKinds('parseSpec', {
    text: [text, 'string'],
    mesh: [mesh, 'mesh'],
    options: [options, 'record', 'undefined'],
  });
  const scan = new Scanner(text, undefined, 'as in Spec(f32[8, 8](S(0)S(1)))');
  scan.expect('Spec(');
  const dtype = scan.match(/[a-z][a-z0-9_]*/y) ?? scan.fail('a dtype');
  const shape = scan.counts('a size', 0);
  scan.expect('(');
  const inner = /^(.*)\)\s*\)\s*$/s.exec(text.slice(scan.position));
  if (inner === null) return scan.fail("a sharding and '))'");
  return {
    dtype,
    shape,
    sharding: parseSharding(inner[1], mesh, { ...options, rank: shape.length }),
  };
}

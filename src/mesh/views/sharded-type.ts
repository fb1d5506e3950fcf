/** Tensor types with their sharding, as JAX prints them: `f32[8@(tp,dp),16]{U:cp}`. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { REDUCE_OPS } from '../placements/partials/partial.ts';
import { Scanner } from '../placements/scan.ts';
import { PartitionSpec } from './partition-spec.ts';

/**
 * A tensor type with its dim view written in, as JAX prints types: `f32[8@(tp,dp),16]{U:cp}`. Sizes
 * are global. Marks: V (varying: the value differs over a manual mesh dim), R (reduced), U
 * (unreduced; `U(max)` for reductions other than sum).
 */
export class ShardedType {
  /** Equal iff the types are. */
  readonly text: string;
  /** The spec, with as many dims as the shape. */
  readonly spec: PartitionSpec;

  /**
   * @param dtype a word such as `f32`
   * @param shape global sizes
   * @param varying mesh dims over which the value varies and that cut no dim that the type knows of
   * @throws E_PLACEMENT when the spec cuts more dims than the shape has, or a mesh dim has two
   *   marks
   */
  constructor(
    readonly dtype: string,
    readonly shape: readonly number[],
    spec: PartitionSpec,
    readonly varying: readonly string[] = [],
  ) {
    checkKinds('ShardedType', {
      dtype: [dtype, 'string'],
      shape: [shape, 'integers'],
      spec: [spec, ['dims', 'unreduced', 'reduced']],
      varying: [varying, 'names', 'undefined'],
    });
    this.spec = spec.forRank(shape.length);
    const { dims, unreduced, reduced } = this.spec;
    const used = new Set([...dims.flat(), ...unreduced.keys(), ...reduced]);
    for (const axis of varying) {
      if (used.has(axis))
        throw new ShardwrightError('E_PLACEMENT', `mesh dim '${axis}' has two states in one type`, {
          hint: 'it varies, or cuts a dim, or is reduced, or is unreduced',
        });
      used.add(axis);
    }
    const sizes = shape.map((size, d) =>
      dims[d].length === 0 ? String(size) : `${size}@${axes(dims[d])}`,
    );
    const marks: string[] = [];
    if (varying.length > 0) marks.push(`V:${axes(varying)}`);
    if (reduced.length > 0) marks.push(`R:${axes(reduced)}`);
    for (const op of REDUCE_OPS) {
      const of = [...unreduced].flatMap(([axis, o]) => (o === op ? [axis] : []));
      if (of.length > 0) marks.push(`${op === 'sum' ? 'U' : `U(${op})`}:${axes(of)}`);
    }
    this.text = `${dtype}[${sizes.join(',')}]${marks.length > 0 ? `{${marks.join(', ')}}` : ''}`;
  }

  equals(other: ShardedType): boolean {
    return this.text === other.text;
  }
  toString(): string {
    return this.text;
  }
}

function axes(names: readonly string[]): string {
  return names.length === 1 ? names[0] : `(${names.join(',')})`;
}

const HELP = 'as in f32[8@(tp,dp),16]{U:cp}';

/**
 * Reads a type text.
 *
 * @throws E_SYNTAX with the column, E_PLACEMENT when a mesh dim has two states
 */
export function parseShardedType(text: string): ShardedType {
  checkKinds('parseShardedType', { text: [text, 'string'] });
  const scan = new Scanner(text, undefined, HELP);
  const dtype = scan.match(/[a-z][a-z0-9_]*/y) ?? scan.fail('a dtype');
  scan.expect('[');
  const shape: number[] = [];
  const dims: string[][] = [];
  while (!scan.take(']')) {
    if (shape.length > 0) scan.expect(',');
    shape.push(scan.count('a size', 0));
    dims.push(scan.take('@') ? axisList(scan) : []);
  }
  const varying: string[] = [];
  const reduced: string[] = [];
  const unreduced: (readonly [string, (typeof REDUCE_OPS)[number]])[] = [];
  if (scan.take('{')) {
    for (let i = 0; !scan.take('}'); i++) {
      if (i > 0) scan.expect(',');
      if (scan.take('V')) varying.push(...afterColon(scan));
      else if (scan.take('R')) reduced.push(...afterColon(scan));
      else if (scan.take('U')) {
        let op: (typeof REDUCE_OPS)[number] = 'sum';
        if (scan.take('(')) {
          const word = scan.match(/[a-z]+/y);
          op =
            REDUCE_OPS.find((o) => o === word) ??
            scan.fail(`one of ${REDUCE_OPS.join(', ')} before this place`);
          scan.expect(')');
        }
        for (const axis of afterColon(scan)) unreduced.push([axis, op]);
      } else scan.fail('a mark V:, R: or U:');
    }
  }
  scan.blanks();
  if (!scan.done) scan.fail('nothing more after the type');
  const twice = unreduced.find(
    ([axis], i) => unreduced.findIndex(([other]) => other === axis) !== i,
  );
  if (twice !== undefined)
    throw new ShardwrightError('E_PLACEMENT', `mesh dim '${twice[0]}' has two states in one type`);
  return new ShardedType(dtype, shape, new PartitionSpec(dims, { unreduced, reduced }), varying);
}

function afterColon(scan: Scanner): string[] {
  scan.expect(':');
  return axisList(scan);
}

/** `tp` or `(tp,dp)`. */
function axisList(scan: Scanner): string[] {
  if (!scan.take('(')) return [axis(scan)];
  const out: string[] = [];
  while (!scan.take(')')) {
    if (out.length > 0) scan.expect(',');
    out.push(axis(scan));
  }
  if (out.length === 0) scan.fail('a name of a mesh dim before this place');
  return out;
}

function axis(scan: Scanner): string {
  return scan.match(/[A-Za-z_][\w.-]*/y) ?? scan.fail('a name of a mesh dim');
}

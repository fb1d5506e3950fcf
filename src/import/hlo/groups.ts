/**
 * Devices that take part in a collective, in the four notations of HLO: lists `{{0,1},{2,3}}`, a
 * reshaped and transposed count `[4,2]<=[2,4]T(1,0)`, axes of a mesh `mesh['a'=2,'b'=4] {'b'}`, and
 * pairs `{{0,1},{1,0}}` of a permutation.
 */

import { firstItems, itemAt } from '../../item-at.ts';
import { product } from '../../product.ts';
import { tileDevices } from '../mlir/sharding/gspmd.ts';
import type { HloReader } from './reader.ts';
import type { Span } from './syntax.ts';

const MAX_DEVICES = 1 << 20;

/**
 * The groups; an empty list means one group of all devices. @throws E_SYNTAX, E_TYPE, E_LIMIT with
 * line and column
 */
export function replicaGroups(outer: HloReader, span: Span): number[][] {
  const reader = outer.within(span);
  const groups = reader.peek('{')
    ? lists(reader)
    : reader.peekWord('mesh')
      ? meshGroups(reader)
      : iotaGroups(reader);
  if (!reader.atEnd()) reader.expected('the end of the groups');
  const all = groups.flat();
  if (new Set(all).size !== all.length)
    reader.fail('a device is in two groups', span.from, 'E_TYPE', 'every device takes part once');
  return groups;
}

/** Sender and receiver of every transfer. */
export function sourceTargetPairs(outer: HloReader, span: Span): (readonly [number, number])[] {
  const reader = outer.within(span);
  const pairs = lists(reader).map((pair): readonly [number, number] => {
    if (pair.length !== 2)
      reader.fail(`a pair of ${pair.length} devices`, span.from, 'E_TYPE', 'write {source,target}');
    return firstItems(pair, 2);
  });
  if (!reader.atEnd()) reader.expected('the end of the pairs');
  return pairs;
}

function lists(reader: HloReader): number[][] {
  return reader.list('{', '}', () => reader.list('{', '}', () => reader.integer('a device')));
}

/** `[groups,size]<=[shape]T(permutation)`. */
function iotaGroups(reader: HloReader): number[][] {
  const at = reader.pos;
  const tiles = reader.list('[', ']', () => reader.integer('a size'));
  if (tiles.length !== 2)
    reader.fail(`groups of ${tiles.length} dims`, at, 'E_TYPE', 'write [groups,size]');
  reader.expect('<=');
  const ids = iota(reader);
  const [groups, size] = firstItems(tiles, 2);
  if (groups * size !== ids.length || size < 1)
    reader.fail(
      `${groups} groups of ${size} for ${ids.length} devices`,
      at,
      'E_TYPE',
      'the sizes must have one product',
    );
  return Array.from({ length: groups }, (_, g) => [...ids.subarray(g * size, (g + 1) * size)]);
}

/** `[2,4]T(1,0)`: the devices 0, 1, ... shaped, transposed and numbered again. */
function iota(reader: HloReader): Int32Array {
  reader.skip();
  const at = reader.pos;
  const shape = reader.list('[', ']', () => reader.integer('a size'));
  const count = product(shape);
  if (count < 1 || count > MAX_DEVICES)
    reader.fail(`${count} devices`, at, 'E_LIMIT', `between 1 and ${MAX_DEVICES} are read`);
  let permutation = shape.map((_, i) => i);
  if (reader.accept('T')) {
    permutation = reader.list('(', ')', () => reader.integer('a dim'));
    const sorted = [...permutation].sort((a, b) => a - b);
    if (permutation.length !== shape.length || sorted.some((d, i) => d !== i))
      reader.fail(
        `(${permutation.join(',')}) is not an order of ${shape.length} dims`,
        at,
        'E_TYPE',
        'name every dim once',
      );
  }
  return tileDevices({ kind: 'iota', shape, permutation });
}

interface MeshAxis {
  readonly name: string;
  readonly size: number;
}
/** An axis, or the part of it of `size` behind parts of `before` in all. */
interface AxisPart {
  readonly axis: number;
  readonly before: number;
  readonly size: number;
}

/**
 * `mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a', 'b':(1)2}`: devices that differ along these
 * axes alone form a group.
 */
function meshGroups(reader: HloReader): number[][] {
  const at = reader.pos;
  reader.expectWord('mesh');
  const axes = reader.list('[', ']', (): MeshAxis => {
    const name = axisName(reader);
    reader.expect('=');
    return { name, size: reader.integer('the size of the axis') };
  });
  const count = product(axes.map((axis) => axis.size));
  if (count < 1 || count > MAX_DEVICES)
    reader.fail(
      `a mesh of ${count} devices`,
      at,
      'E_LIMIT',
      `between 1 and ${MAX_DEVICES} are read`,
    );
  let ids: Int32Array = tileDevices({ kind: 'iota', shape: [count], permutation: [0] });
  if (reader.accept(',')) {
    reader.expectWord('device_ids');
    reader.expect('=');
    reader.expect('(');
    ids = reader.peek('[') ? iota(reader) : listed(reader);
    reader.expect(')');
    if (ids.length !== count)
      reader.fail(`${ids.length} device ids for ${count} places`, at, 'E_TYPE');
  }
  const parts = reader.list('{', '}', () => axisPart(reader, axes));
  return grouped(ids, axes, parts, reader, at);
}

function listed(reader: HloReader): Int32Array {
  const ids: number[] = [];
  do ids.push(reader.integer('a device'));
  while (reader.accept(','));
  return Int32Array.from(ids);
}

function axisName(reader: HloReader): string {
  reader.expect(`'`);
  const name = reader.name('the name of a mesh axis');
  reader.expect(`'`);
  return name;
}

function axisPart(reader: HloReader, axes: readonly MeshAxis[]): AxisPart {
  reader.skip();
  const at = reader.pos;
  const name = axisName(reader);
  const axis = axes.findIndex((a) => a.name === name);
  if (axis < 0)
    reader.fail(
      `the mesh has no axis '${name}'`,
      at,
      'E_REF',
      `its axes: ${axes.map((a) => a.name).join(', ')}`,
    );
  if (!reader.accept(':')) return { axis, before: 1, size: itemAt(axes, axis).size };
  reader.expect('(');
  const before = reader.integer('the size of the parts before');
  reader.expect(')');
  const size = reader.integer('the size of the part');
  if (before < 1 || size < 1 || itemAt(axes, axis).size % (before * size) !== 0)
    reader.fail(
      `part (${before})${size} does not fit axis '${name}' of size ${itemAt(axes, axis).size}`,
      at,
      'E_TYPE',
    );
  return { axis, before, size };
}

/**
 * One group for each setting of everything but `parts`; within a group the first part varies
 * slowest.
 */
function grouped(
  ids: Int32Array,
  axes: readonly MeshAxis[],
  parts: readonly AxisPart[],
  reader: HloReader,
  at: number,
): number[][] {
  const strideOf = (axis: number): number => product(axes.slice(axis + 1).map(({ size }) => size));
  // Place in the mesh = sum of digit * step over the factors of all axes.
  const own = parts.map(({ axis, before, size }) => ({
    size,
    step: strideOf(axis) * (itemAt(axes, axis).size / (before * size)),
  }));
  const inside = offsets(own);
  if (new Set(inside).size !== inside.length)
    reader.fail('the groups name one axis twice', at, 'E_DUP', 'name each axis once');
  const seen = new Uint8Array(ids.length);
  const groups: number[][] = [];
  // The first place that is in no group yet has digit 0 along every part.
  for (let place = 0; place < ids.length; place++) {
    if (seen[place] === 1) continue;
    groups.push(
      inside.map((offset) => {
        seen[place + offset] = 1;
        return itemAt(ids, place + offset);
      }),
    );
  }
  return groups;
}

function offsets(factors: readonly { readonly size: number; readonly step: number }[]): number[] {
  let out = [0];
  for (const { size, step } of factors)
    out = out.flatMap((base) => Array.from({ length: size }, (_, digit) => base + digit * step));
  return out;
}

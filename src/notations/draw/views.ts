/**
 * Gives the texts in the cells of a drawing: values, offsets of a layout, or the devices of a
 * placement.
 */

import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { Partial } from '../../mesh/placements/partials/partial.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { heldRows, isPending, type Sharding } from '../../mesh/sharding/sharding.ts';
import { product } from '../../product.ts';
import { offsets } from '../layout/coordinates.ts';
import { type Order, treeModes, treeProduct } from '../layout/int-tree.ts';
import type { Layout } from '../layout/layout.ts';
import { deviceList } from './blocks.ts';
import { checkShape, type Cuts, type Drawing, matrixOfMatrices } from './matrix.ts';

/** The values 0, 1, 2 ... in row-major order. */
export function valuesDrawing(shape: readonly number[], cuts: Cuts = new Map()): Drawing {
  return matrixOfMatrices(shape, String, cuts);
}

/**
 * The offsets of a layout: the element at some coordinates shows the offset of the index that the
 * coordinates have in the given order. For a shape that lists the modes of the layout this is the
 * offset of the coordinates themselves.
 *
 * @param shape default: the size of each top-level mode
 * @throws E_DRAW when shape and layout differ in size
 */
export function offsetsDrawing(
  layout: Layout,
  order: Order,
  shape: readonly number[] = treeModes(layout.shape).map(treeProduct),
  cuts: Cuts = new Map(),
): Drawing {
  checkShape(shape);
  const total = product(shape);
  if (total !== layout.size)
    throw new ShardwrightError(
      'E_DRAW',
      `layout ${layout.text} has ${layout.size} coordinates, but shape (${shape.join(', ')}) ` +
        `has ${total} elements`,
      { hint: 'give a shape of the same size, or none to draw one dim for each mode.' },
    );
  const at = offsets(layout, order);
  const index = order === 'lex' ? (element: number): number => element : colexIndex(shape);
  return matrixOfMatrices(shape, (element) => String(at[index(element)]), cuts);
}

/** A placement as a drawing, with what colours it. */
interface PlacementDrawing {
  readonly drawing: Drawing;
  /**
   * Device ids of every element by row-major number, ascending and joined by commas; `0+1` where
   * each has an addend of it.
   */
  readonly holders: readonly string[];
}

/**
 * The devices that hold each element. A copy on several devices lists them all, `0,1`; a pending
 * sum joins those whose addends make the element, `0+1`, and other reductions name themselves,
 * `max(0,1)`.
 *
 * @param options.borders draw a cut where the devices change (default true)
 * @param options.cuts further cuts
 * @throws E_DRAW for a cut of a dim that the shape does not have, E_LIMIT above 1,024 devices, 2^23
 *   rows times devices or 2^20 device ids in all
 */
export function placementDrawing(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
  options: { readonly borders?: boolean; readonly cuts?: Cuts } = {},
): PlacementDrawing {
  checkShape(shape);
  if (mesh.size > MAX_DEVICES)
    throw new ShardwrightError(
      'E_LIMIT',
      `the mesh has ${mesh.size} devices, more than the ${MAX_DEVICES} drawn`,
      {
        hint: 'draw a smaller mesh that cuts in the same way.',
      },
    );
  for (const size of shape)
    if (size * mesh.size > MAX_ROWS)
      throw new ShardwrightError(
        'E_LIMIT',
        `${size} rows on ${mesh.size} devices are more than the ${MAX_ROWS} drawn`,
        {
          hint: 'draw a smaller shape that is cut in the same way, or fewer devices.',
        },
      );
  for (const dim of sharding.orders.keys())
    if (dim >= shape.length)
      throw new ShardwrightError(
        'E_DRAW',
        `${sharding.text} cuts dim ${dim} of a ${shape.length}-D tensor`,
      );
  const rows = shape.map((size, dim) => heldRows(sharding, mesh, dim, size));
  const holders = holdersOf(rows, mesh, shape).map(holderText(sharding, mesh));
  const cuts = new Map<number, readonly number[] | 'all'>(options.cuts);
  if (options.borders !== false)
    shape.forEach((size, dim) => {
      const wanted = cuts.get(dim) ?? [];
      if (wanted !== 'all') cuts.set(dim, [...wanted, ...borders(rows[dim], size)]);
    });
  return { drawing: matrixOfMatrices(shape, (element) => holders[element], cuts), holders };
}

/** A note on the cells of a pending reduction, for a caption. */
export function pendingNote(pending: Placement): string {
  return pending.text === 'P(sum)'
    ? 'joined by + are devices with an addend each (a pending sum)'
    : `devices in brackets have a part each, which ${pending.text} puts together`;
}

/** `0,2` for copies, `0+1` for addends, `0+1,2+3` for copies of addends. */
function holderText(
  { placements }: Sharding,
  mesh: DeviceMesh,
): (devices: readonly number[]) => string {
  const pending = placements.flatMap((p, m) => (isPending(p) && mesh.sizes[m] > 1 ? [m] : []));
  if (pending.length === 0) return deviceList;
  const p = placements[pending[0]];
  const word = p instanceof Partial ? p.op : p.kind;
  // Devices that differ on the pending mesh dims alone make one copy together.
  const copyOf = new Map(
    mesh.devices.map((device, rank) => [
      device,
      pending.reduce(
        (r, m) => r - (Math.floor(rank / mesh.strides[m]) % mesh.sizes[m]) * mesh.strides[m],
        rank,
      ),
    ]),
  );
  return (devices) => {
    const copies = new Map<number, number[]>();
    for (const device of [...devices].sort((a, b) => a - b)) {
      const copy = copyOf.get(device) ?? 0;
      const list = copies.get(copy);
      if (list === undefined) copies.set(copy, [device]);
      else list.push(device);
    }
    return [...copies.values()]
      .map((list) => (word === 'sum' ? list.join('+') : `${word}(${list.join(',')})`))
      .join();
  };
}

const MAX_DEVICES = 1024;
/** Rows of a dim times devices: what finding the shards takes. */
const MAX_ROWS = 1 << 23;
const MAX_HOLDINGS = 1 << 20;

/** Device ids of every element, by row-major number. */
function holdersOf(
  rows: readonly (readonly number[][])[],
  mesh: DeviceMesh,
  shape: readonly number[],
): number[][] {
  let holdings = 0;
  for (let rank = 0; rank < mesh.size; rank++)
    holdings += product(rows.map((owned) => owned[rank].length));
  if (holdings > MAX_HOLDINGS)
    throw new ShardwrightError(
      'E_LIMIT',
      `the drawing has ${holdings} device ids, more than ${MAX_HOLDINGS}`,
      {
        hint: 'draw a smaller shape that is cut in the same way, or fewer devices.',
      },
    );
  const total = product(shape);
  const out: number[][] = Array.from({ length: total }, () => []);
  mesh.devices.forEach((device, rank) => {
    let elements = [0];
    rows.forEach((owned, dim) => {
      elements = elements.flatMap((base) => owned[rank].map((row) => base * shape[dim] + row));
    });
    for (const element of elements) out[element].push(device);
  });
  return out;
}

/** Positions p of a dim where slice p is held by other ranks than slice p - 1. */
function borders(owned: readonly (readonly number[])[], size: number): number[] {
  const ranks: number[][] = Array.from({ length: size }, () => []);
  owned.forEach((rows, rank) => {
    for (const row of rows) ranks[row].push(rank);
  });
  const texts = ranks.map((list) => list.join());
  const out: number[] = [];
  for (let p = 1; p < size; p++) if (texts[p] !== texts[p - 1]) out.push(p);
  return out;
}

/** From the row-major number of an element to its index with the first dim fastest. */
function colexIndex(shape: readonly number[]): (element: number) => number {
  const steps: number[] = [];
  let step = 1;
  for (const size of shape) {
    steps.push(step);
    step *= size;
  }
  return (element) => {
    let index = 0;
    let rest = element;
    for (let dim = shape.length - 1; dim >= 0; dim--) {
      index += (rest % shape[dim]) * steps[dim];
      rest = Math.floor(rest / shape[dim]);
    }
    return index;
  };
}

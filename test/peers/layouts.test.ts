import { describe, expect, it } from 'vitest';

import { parseGspmd, tileDevices } from '../../src/import/mlir/sharding/gspmd.ts';
import { offsets } from '../../src/notations/layout/coordinates.ts';
import { compact, concat, flatModes, fromModes } from '../../src/notations/layout/layout.ts';

/**
 * XLA's tile assignment: tiles along each tensor dim (then the replicated rest), devices in tile
 * order.
 */
interface Tiling {
  readonly tiles: readonly number[];
  readonly devices: readonly number[];
}

/**
 * The tiling of a tensor whose dims[i] is cut by mesh axis axes[i]: the mesh as a layout, its modes
 * in the order of the tensor's dims, the axes that cut nothing last. Undefined where no axis of
 * several devices cuts.
 */
function tilingOf(
  mesh: readonly number[],
  rank: number,
  dims: readonly number[],
  axes: readonly number[],
): Tiling | undefined {
  const modes = flatModes(compact(mesh, 'lex'));
  const used = axes.filter((a) => mesh[a] > 1);
  if (used.length === 0) return undefined;
  const tiles = new Array<number>(rank).fill(1);
  dims.forEach((d, i) => (tiles[d] *= mesh[axes[i]]));
  const ordered = dims
    .map((d, i) => [d, axes[i]] as const)
    .sort((a, b) => a[0] - b[0])
    .map(([, a]) => modes[a]);
  const rest = modes.filter((_, a) => !axes.includes(a));
  const spare = rest.reduce((n, mode) => n * mode.size, 1);
  const layout =
    rest.length === 0 ? fromModes(ordered) : concat(fromModes(ordered), fromModes(rest));
  return { tiles: spare > 1 ? [...tiles, spare] : tiles, devices: offsets(layout, 'lex') };
}

const text = ({ tiles, devices }: Tiling): string => `[${tiles.join()}]${devices.join()}`;

describe('layouts of Alpa', () => {
  it.each([
    ['[0,1]@[0,1]', [2, 3], 2, [0, 1], [0, 1], '[2,3]0,1,2,3,4,5'],
    ['[1,0]@[1,0]', [2, 3], 2, [1, 0], [1, 0], '[2,3]0,1,2,3,4,5'],
    ['[0,1]@[1,0]', [2, 3], 2, [0, 1], [1, 0], '[3,2]0,3,1,4,2,5'],
    ['[0]@[0]', [2, 3], 2, [0], [0], '[2,1,3]0,1,2,3,4,5'],
    ['[0]@[1]', [2, 3], 2, [0], [1], '[3,1,2]0,3,1,4,2,5'],
    ['[1]@[1]', [2, 3], 2, [1], [1], '[1,3,2]0,3,1,4,2,5'],
    ['[1]@[0]', [2, 3], 2, [1], [0], '[1,2,3]0,1,2,3,4,5'],
    ['3-D [1]@[0]', [2, 3], 3, [1], [0], '[1,2,1,3]0,1,2,3,4,5'],
    ['[1]@[1] on (1,4)', [1, 4], 2, [1], [1], '[1,4]0,1,2,3'],
  ] as const)('%s', (_, mesh, rank, dims, axes, expected) => {
    const tiling = tilingOf(mesh, rank, dims, axes);
    expect(tiling === undefined ? undefined : text(tiling)).toBe(expected);
    if (tiling === undefined) return;
    // The importer of XLA's own strings reads the same devices.
    const rest = tiling.tiles.length > rank ? ' last_tile_dim_replicate' : '';
    const read = parseGspmd(`{devices=[${tiling.tiles.join()}]${tiling.devices.join()}${rest}}`);
    expect(read.kind).toBe('tiled');
    if (read.kind !== 'tiled') return;
    expect(read.rank).toBe(rank);
    expect([...tileDevices(read.devices)]).toEqual(tiling.devices);
  });

  it('[1]@[0] on (1,4) is replicated', () => {
    expect(tilingOf([1, 4], 2, [1], [0])).toBeUndefined();
  });
});

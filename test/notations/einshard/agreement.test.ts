import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { DeviceMesh } from '../../../src/mesh/devices/mesh.ts';
import { toMeshView } from '../../../src/mesh/sharding/mesh-view.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { heldRows, Sharding } from '../../../src/mesh/sharding/sharding.ts';
import { fromDimView, toDimView } from '../../../src/mesh/views/dim-view.ts';
import { parsePartitionSpec, PartitionSpec } from '../../../src/mesh/views/partition-spec.ts';
import { placementDrawing } from '../../../src/notations/draw/views.ts';
import { blockCounts, einshardBlocks } from '../../../src/notations/einshard/blocks.ts';
import { fromPlacements } from '../../../src/notations/einshard/placements.ts';
import { resolveEinshard } from '../../../src/notations/einshard/resolve.ts';
import { formatEinshard } from '../../../src/notations/einshard/syntax.ts';
import { complement } from '../../../src/notations/layout/complement.ts';
import { offsets } from '../../../src/notations/layout/coordinates.ts';
import { meshLayout } from '../../../src/notations/layout/mesh-layout.ts';
import { FULL } from '../../support/full.ts';

/**
 * Every notation says the same about who holds element k. The truth is arithmetic on coordinates,
 * written here: it shares no code with any of the notations.
 */

interface Case {
  readonly sizes: readonly number[];
  /** Device of every rank. */
  readonly devices: readonly number[];
  readonly shape: readonly number[];
  /** Mesh dims that cut each tensor dim, major first. */
  readonly cuts: readonly (readonly number[])[];
  /** Mesh dims over which a sum is pending. */
  readonly pending: readonly number[];
}

const product = (list: readonly number[]): number => list.reduce((a, b) => a * b, 1);

/** Device ids of every element in row-major order, ascending. */
function truth({ sizes, devices, shape, cuts }: Case): string[] {
  const ranks = product(sizes);
  const coordinate = (rank: number, m: number): number =>
    Math.floor(rank / product(sizes.slice(m + 1))) % sizes[m];
  const out: string[] = [];
  for (let k = 0; k < product(shape); k++) {
    const holders: number[] = [];
    for (let rank = 0; rank < ranks; rank++) {
      const has = shape.every((size, d) => {
        const x = Math.floor(k / product(shape.slice(d + 1))) % size;
        // What is left of the dim after each cut: [from, from + length).
        let from = 0;
        let length = size;
        for (const m of cuts[d]) {
          const chunk = Math.ceil(length / sizes[m]);
          const start = Math.min(coordinate(rank, m) * chunk, length);
          from += start;
          length = Math.min(chunk, length - start);
        }
        return x >= from && x < from + length;
      });
      if (has) holders.push(devices[rank]);
    }
    out.push(holders.sort((a, b) => a - b).join());
  }
  return out;
}

/**
 * What a drawing writes of the holders of an element: devices that differ on pending mesh dims
 * alone have an addend each.
 */
function withAddends({ sizes, devices, pending }: Case, holders: string): string {
  const rankOf = new Map(devices.map((device, rank) => [device, rank]));
  const copies = new Map<string, number[]>();
  for (const device of holders.split(',').map(Number)) {
    const rank = rankOf.get(device) ?? NaN;
    const copy = sizes.map((size, m) =>
      pending.includes(m) ? 0 : Math.floor(rank / product(sizes.slice(m + 1))) % size,
    );
    copies.set(copy.join(), [...(copies.get(copy.join()) ?? []), device]);
  }
  return [...copies.values()].map((addends) => addends.join('+')).join(',');
}

/** The same from the rows that each rank holds of each dim. */
function fromRows(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): string[] {
  const held = shape.map((size, dim) =>
    heldRows(sharding, mesh, dim, size).map((rows) => new Set(rows)),
  );
  return Array.from({ length: product(shape) }, (_, k) =>
    mesh.devices
      .filter((_, rank) =>
        shape.every((size, d) =>
          held[d][rank].has(Math.floor(k / product(shape.slice(d + 1))) % size),
        ),
      )
      .sort((a, b) => a - b)
      .join(),
  );
}

/**
 * The same from layouts: the cutting axes of a block give its first rank, their complement its
 * copies.
 */
function fromLayouts(
  mesh: DeviceMesh,
  shape: readonly number[],
  cuts: readonly (readonly number[])[],
): string[] {
  const layouts = cuts.map((axes) => offsets(meshLayout(mesh, axes), 'lex'));
  const copies = offsets(complement(meshLayout(mesh, cuts.flat()), mesh.size, 'lex'), 'lex');
  return Array.from({ length: product(shape) }, (_, k) => {
    let first = 0;
    shape.forEach((size, d) => {
      const x = Math.floor(k / product(shape.slice(d + 1))) % size;
      first += layouts[d][Math.floor((x * layouts[d].length) / size)];
    });
    return copies
      .map((c) => mesh.devices[first + c])
      .sort((a, b) => a - b)
      .join();
  });
}

/** The same from einshard text. */
function fromEinshard(text: string, devices: number, shape: readonly number[]): string[] {
  const einshard = resolveEinshard(text, { devices, shape });
  const counts = blockCounts(einshard);
  const blocks = new Map(einshardBlocks(einshard).map((b) => [b.index.join(), b.devices.join()]));
  return Array.from({ length: product(shape) }, (_, k) => {
    const index = shape.map((size, d) =>
      Math.floor((Math.floor(k / product(shape.slice(d + 1))) % size) / (size / counts[d])),
    );
    return blocks.get(index.join()) ?? 'no block';
  });
}

/**
 * Tells whether other devices hold the slice in which b lies than the one before, along the
 * outermost dim in which a and b differ.
 */
function borderBetween(
  a: number,
  b: number,
  shape: readonly number[],
  holders: readonly string[],
): boolean {
  const at = (k: number, d: number): number =>
    Math.floor(k / product(shape.slice(d + 1))) % shape[d];
  const dim = shape.findIndex((_, d) => at(a, d) !== at(b, d));
  const step = product(shape.slice(dim + 1));
  return holders.some((held, k) => at(k, dim) === at(b, dim) && held !== holders[k - step]);
}

/**
 * Random cases: up to 4 mesh dims of size 1 to 4, every one cutting a dim, replicating, or holding
 * a pending sum.
 */
const cases = (even: boolean): fc.Arbitrary<Case> =>
  fc
    .record({
      sizes: fc
        .array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 })
        .filter((s) => product(s) <= 48),
      rank: fc.integer({ min: 1, max: 3 }),
    })
    .chain(({ sizes, rank }) =>
      fc.record({
        sizes: fc.constant(sizes),
        // Which dim a mesh dim cuts; beyond the rank it replicates, and one further it holds a
        // pending sum.
        roles: fc.array(fc.integer({ min: 0, max: rank + 1 }), {
          minLength: sizes.length,
          maxLength: sizes.length,
        }),
        sequence: fc.shuffledSubarray(
          sizes.map((_, m) => m),
          { minLength: sizes.length },
        ),
        table: fc.option(
          fc.shuffledSubarray(
            Array.from({ length: product(sizes) }, (_, i) => i),
            { minLength: product(sizes) },
          ),
          { freq: 4 },
        ),
        factors: fc.array(fc.integer({ min: 1, max: even ? 2 : 9 }), {
          minLength: rank,
          maxLength: rank,
        }),
      }),
    )
    .map(({ sizes, roles, sequence, table, factors }) => {
      const cuts = factors.map((_, d) => sequence.filter((m) => roles[m] === d));
      return {
        sizes,
        devices: table ?? Array.from({ length: product(sizes) }, (_, i) => i),
        shape: factors.map((f, d) => (even ? f * product(cuts[d].map((m) => sizes[m])) : f)),
        cuts,
        pending: sizes.map((_, m) => m).filter((m) => roles[m] === factors.length + 1),
      };
    });

const runs = FULL ? 10_000 : 300;

describe('who holds element k', () => {
  test(`dim view, mesh view, einshard text, axis layouts and drawing agree (${runs} cases)`, () => {
    let withEinshard = 0;
    let strided = 0;
    fc.assert(
      fc.property(cases(true), (c) => {
        const { sizes, shape, cuts } = c;
        const expected = truth(c);
        const mesh = new DeviceMesh(
          sizes.map((size, m) => ({ name: `m${m}`, size })),
          c.devices,
        );
        const spec = new PartitionSpec(
          cuts.map((axes) => axes.map((m) => `m${m}`)),
          { unreduced: c.pending.map((m) => [`m${m}`, 'sum']) },
        );

        // Dim view, through its text.
        const { sharding } = fromDimView(parsePartitionSpec(spec.text), mesh);
        expect(fromRows(sharding, mesh, shape)).toEqual(expected);
        const back = toDimView(sharding, mesh, shape);
        expect('spec' in back ? back.spec.text : back.refused).toBe(spec.text);

        // Mesh view: a plain or strided list, in mesh order; and what its text is read as.
        const view = toMeshView(sharding, mesh, shape);
        if ('refused' in view) throw new Error(view.refused);
        if (view.placements.some((p) => p.kind === 'strided')) strided++;
        expect(fromRows(new Sharding(view.placements), mesh, shape)).toEqual(expected);
        const read = parseSharding(view.placements.map((p) => p.text).join(''), mesh, {
          rank: shape.length,
        });
        expect(fromRows(read, mesh, shape)).toEqual(expected);
        expect(fromRows(parseSharding(sharding.text, mesh), mesh, shape)).toEqual(expected);

        // Axis layouts.
        expect(fromLayouts(mesh, shape, cuts)).toEqual(expected);

        // The drawing: colours, cells, and where its lines run.
        const { drawing, holders } = placementDrawing(sharding, mesh, shape);
        const drawn = expected.map((held) => withAddends(c, held));
        expect(holders).toEqual(drawn);
        for (const row of drawing.cells)
          for (const cell of row) expect(cell.text).toBe(drawn[cell.element]);
        drawing.columnGaps.forEach((gap, i) => {
          expect(gap.cut).toBe(
            borderBetween(
              drawing.cells[0][i].element,
              drawing.cells[0][i + 1].element,
              shape,
              expected,
            ),
          );
        });
        drawing.rowGaps.forEach((gap, i) => {
          expect(gap.cut).toBe(
            borderBetween(
              drawing.cells[i][0].element,
              drawing.cells[i + 1][0].element,
              shape,
              expected,
            ),
          );
        });

        // einshard text, where there is one: no dim cut twice, no pending sum, ids that count up.
        const real = (axes: readonly number[]): readonly number[] =>
          axes.filter((m) => sizes[m] > 1);
        const sayable =
          cuts.every((axes) => real(axes).length <= 1) &&
          real(c.pending).length === 0 &&
          c.devices.every((id, rank) => id === rank);
        const einshard = fromPlacements(sharding, mesh, shape);
        expect('expression' in einshard).toBe(sayable);
        if ('expression' in einshard) {
          withEinshard++;
          expect(fromEinshard(formatEinshard(einshard.expression), mesh.size, shape)).toEqual(
            expected,
          );
        }
      }),
      { numRuns: runs, seed: 159 },
    );
    // The interesting cases did come up.
    expect(withEinshard).toBeGreaterThan(runs / 10);
    expect(strided).toBeGreaterThan(runs / 20);
  });

  test('on dims that do not divide, dim view and drawing agree and the other notations refuse', () => {
    let refused = 0;
    fc.assert(
      fc.property(cases(false), (c) => {
        const { sizes, shape, cuts } = c;
        const expected = truth(c);
        const mesh = new DeviceMesh(
          sizes.map((size, m) => ({ name: `m${m}`, size })),
          c.devices,
        );
        const spec = new PartitionSpec(cuts.map((axes) => axes.map((m) => `m${m}`)));
        const { sharding } = fromDimView(parsePartitionSpec(spec.text), mesh);
        expect(fromRows(sharding, mesh, shape)).toEqual(expected);
        expect(placementDrawing(sharding, mesh, shape).holders).toEqual(expected);
        const uneven = shape.some((size, d) => size % product(cuts[d].map((m) => sizes[m])) !== 0);
        const view = toMeshView(sharding, mesh, shape);
        if ('placements' in view)
          expect(fromRows(new Sharding(view.placements), mesh, shape)).toEqual(expected);
        else expect(uneven).toBe(true);
        if (uneven) {
          refused++;
          expect('refused' in fromPlacements(sharding, mesh, shape)).toBe(true);
        }
      }),
      { numRuns: Math.ceil(runs / 3), seed: 159 },
    );
    expect(refused).toBeGreaterThan(runs / 20);
  });
});

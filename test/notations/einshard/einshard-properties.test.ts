import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { heldRows, Sharding } from '../../../src/mesh/sharding/sharding.ts';
import { einshardBlocks } from '../../../src/notations/einshard/blocks.ts';
import { commonMesh } from '../../../src/notations/einshard/common-mesh.ts';
import { einshardOnMesh } from '../../../src/notations/einshard/on-mesh.ts';
import {
  einshardMesh,
  fromPlacements,
  toPlacements,
} from '../../../src/notations/einshard/placements.ts';
import { einshardLocalShape, resolveEinshard } from '../../../src/notations/einshard/resolve.ts';
import {
  formatEinshard,
  type LeftElement,
  parseEinshard,
  type RightElement,
} from '../../../src/notations/einshard/syntax.ts';
import { FULL } from '../../support/full.ts';

const NAMES = ['a', 'b', 'B', '_', 'ab', 'xyz', 'é', '字', 'Ω_m'];
const space = (n: number): fc.Arbitrary<string> =>
  fc.integer({ min: n, max: 3 }).map((k) => ' '.repeat(k));

/** Elements without positions: what two readings have to agree on. */
function meaning(elements: readonly (LeftElement | RightElement)[]): unknown[] {
  return elements.map((e) => ({ ...e, at: 0 }));
}

/** Any text of the grammar, whether it has a meaning or not, with the elements it is made of. */
const anyText = fc
  .record({
    left: fc.array(fc.constantFrom(...NAMES, '...'), { minLength: 1, maxLength: 6 }),
    right: fc.array(
      fc.oneof(
        fc.constant('...'),
        fc
          .record({
            name: fc.constantFrom('', ...NAMES),
            base: fc.constantFrom('', '1', '2', '10', '907'),
            star: fc.constantFrom('', '*'),
          })
          .map((r) => r.name + r.base + r.star)
          .filter((text) => text !== ''),
      ),
      { minLength: 1, maxLength: 6 },
    ),
    gaps: fc.array(space(1), { minLength: 12, maxLength: 12 }),
    ends: fc.array(space(0), { minLength: 4, maxLength: 4 }),
  })
  .map(({ left, right, gaps, ends }) => {
    const join = (list: readonly string[], from: number): string =>
      list.map((item, i) => (i === 0 ? item : gaps[from + i - 1] + item)).join('');
    return {
      text: `${ends[0]}${join(left, 0)}${ends[1]}->${ends[2]}${join(right, 6)}${ends[3]}`,
      left,
      right,
    };
  });

/** One tensor dim of a legal expression. */
interface DrawnDim {
  readonly hidden: boolean;
  readonly pieces: number;
  readonly rows: number;
}

/** A legal expression with the plain facts that it is made from. */
const legal = fc
  .record({
    dims: fc.array(
      fc.record({
        hidden: fc.boolean(),
        pieces: fc.constantFrom(1, 1, 2, 2, 3, 4),
        rows: fc.integer({ min: 1, max: 3 }),
      }),
      { minLength: 1, maxLength: 4 },
    ),
    copies: fc.array(fc.constantFrom(1, 2, 2, 3), { maxLength: 2 }),
    order: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 8, maxLength: 8 }),
    star: fc.boolean(),
  })
  .map(({ dims, copies, order, star }) => {
    // Hidden dims must be neighbours: the first run of them is the ellipsis, others are named.
    const from = dims.findIndex((d) => d.hidden);
    let to = from;
    while (from >= 0 && dims[to]?.hidden === true) to++;
    const list: DrawnDim[] = dims.map((d, i) =>
      from >= 0 && i >= from && i < to ? { ...d, pieces: 1 } : { ...d, hidden: false },
    );
    const left: string[] = [];
    const right: { text: string; dim: number | null; size: number; key: number }[] = [];
    list.forEach((d, i) => {
      const name = 'abcd'[i];
      if (d.hidden && i > from) return;
      left.push(d.hidden ? '...' : name);
      if (d.hidden) right.push({ text: '...', dim: null, size: 1, key: order[i] });
      else right.push({ text: `${name}${d.pieces}`, dim: i, size: d.pieces, key: order[i] });
    });
    copies.forEach((size, i) =>
      right.push({ text: `${size}`, dim: null, size, key: order[4 + i] }),
    );
    right.sort((x, y) => x.key - y.key);
    // A lone star is the last unstarred number: the other numbers fix what it stands for.
    const starred = right.findIndex((r) => r.text !== '...');
    if (star && starred >= 0) {
      const r = right[starred];
      right[starred] = { ...r, text: `${r.dim === null ? '' : 'abcd'[r.dim]}*` };
    }
    const devices = right.reduce((n, r) => n * r.size, 1);
    return {
      text: `${left.join(' ')} -> ${right.map((r) => r.text).join(' ')}`,
      devices,
      shape: list.map((d) => d.pieces * d.rows),
      dims: list,
      right,
    };
  })
  .filter(({ devices, right }) => devices <= 200 && right.length > 0);

describe('einshard text', () => {
  it('parsing what is printed gives the expression back, and canonical text prints as itself', () => {
    fc.assert(
      fc.property(anyText, ({ text, left, right }) => {
        const read = parseEinshard(text);
        const canonical = formatEinshard(read);
        const again = parseEinshard(canonical);
        expect(meaning(again.left)).toEqual(meaning(read.left));
        expect(meaning(again.right)).toEqual(meaning(read.right));
        expect(formatEinshard(again)).toBe(canonical);
        // Elements stand where they were written.
        expect(read.left.map((e, i) => text.startsWith(left[i], e.at))).not.toContain(false);
        expect(read.right.map((e, i) => text.startsWith(right[i], e.at))).not.toContain(false);
        expect(read.left.length + read.right.length).toBe(left.length + right.length);
      }),
      { numRuns: FULL ? 500 : 170 },
    );
  });
});

describe('who holds what', () => {
  it('blocks, placements and a count by hand agree on every element (einshard)', () => {
    fc.assert(
      fc.property(legal, ({ text, devices, shape, dims, right }) => {
        const found = resolveEinshard(text, { devices, shape });
        const local = einshardLocalShape(found, shape);
        expect(local).toEqual(dims.map((d) => d.rows));
        const mesh = einshardMesh(found);
        const rows = shape.map((size, d) =>
          heldRows(new Sharding(toPlacements(found)), mesh, d, size),
        );
        const blocks = einshardBlocks(found);
        expect(blocks.reduce((n, b) => n + b.devices.length, 0)).toBe(devices);
        const blockOf = new Map(
          blocks.flatMap((b) => b.devices.map((id) => [id, b.index] as const)),
        );
        for (let device = 0; device < devices; device++) {
          // Digits of the id, last element on the right fastest.
          let rest = device;
          const start = new Array<number>(shape.length).fill(0);
          for (const r of [...right].reverse()) {
            if (r.dim !== null) start[r.dim] = (rest % r.size) * dims[r.dim].rows;
            rest = Math.floor(rest / r.size);
          }
          shape.forEach((_, d) => {
            const mine = Array.from({ length: local[d] }, (__, i) => start[d] + i);
            expect(rows[d][device]).toEqual(mine);
            expect((blockOf.get(device)?.[d] ?? -1) * local[d]).toBe(start[d]);
          });
        }
      }),
      { numRuns: FULL ? 300 : 100 },
    );
  });

  it('on a mesh whose dims are split into primes every device keeps what it had', () => {
    fc.assert(
      fc.property(legal, ({ text, devices, shape, right }) => {
        const found = resolveEinshard(text, { devices, shape });
        const primes = right.flatMap((r) => ({ 4: [2, 2], 1: [] })[r.size] ?? [r.size]);
        const fine = resolveEinshard(`... -> ${primes.join(' ')} ...`, { devices, rank: 1 });
        const { mesh, shardings } = commonMesh([found, fine]);
        expect(mesh.sizes).toEqual(primes);
        shape.forEach((size, d) =>
          expect(heldRows(shardings[0], mesh, d, size)).toEqual(
            heldRows(new Sharding(toPlacements(found)), einshardMesh(found), d, size),
          ),
        );
      }),
      { numRuns: FULL ? 300 : 100 },
    );
  });

  it('fromPlacements gives back an expression of the same blocks', () => {
    fc.assert(
      fc.property(legal, ({ text, devices, shape }) => {
        const found = resolveEinshard(text, { devices, shape });
        const mesh = einshardMesh(found);
        const made = fromPlacements(new Sharding(toPlacements(found)), mesh, shape);
        if (!('expression' in made)) throw new Error(made.refused);
        expect(einshardBlocks(resolveEinshard(made.expression, { devices, shape }))).toEqual(
          einshardBlocks(found),
        );
        expect(einshardOnMesh(text, mesh, shape).placements.length).toBe(mesh.rank);
      }),
      { numRuns: FULL ? 300 : 100 },
    );
  });
});

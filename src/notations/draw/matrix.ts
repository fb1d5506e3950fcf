/**
 * A tensor of any rank as a matrix of matrices: dims alternate between horizontal and vertical from
 * the innermost outwards, so that every dim keeps one direction of the page (E. Yang, "Draw high
 * dimensional tensors as a matrix of matrices"). With n dims, dim d is horizontal iff n-1-d is
 * even, and its level is floor((n-1-d)/2). Sizes of 2 give Morton order.
 */

import { ShardwrightError } from '../../errors.ts';

/** The gap between two neighbouring rows or columns. */
export interface Gap {
  /** Level of the outermost dim that changes here. */
  readonly level: number;
  /** True if a cut runs through it. */
  readonly cut: boolean;
}

interface Cell {
  readonly text: string;
  /** Row-major number of the element that the cell shows. */
  readonly element: number;
}

/** The picture before it is text or SVG: cells and the gaps between them. */
export interface Drawing {
  readonly shape: readonly number[];
  readonly rows: number;
  readonly columns: number;
  readonly cells: readonly (readonly Cell[])[];
  /** One between each row and the next: `rows - 1`. */
  readonly rowGaps: readonly Gap[];
  /** One between each column and the next: `columns - 1`. */
  readonly columnGaps: readonly Gap[];
}

/** The cuts of each dim: between slices p-1 and p for every p of the list, or everywhere. */
export type Cuts = ReadonlyMap<number, readonly number[] | 'all'>;

/** Cells of one drawing. A page of 256 x 256 is already past reading. */
const MAX_CELLS = 1 << 16;
const MAX_RANK = 32;

export function isHorizontal(dim: number, rank: number): boolean {
  return (rank - 1 - dim) % 2 === 0;
}

function levelOf(dim: number, rank: number): number {
  return Math.floor((rank - 1 - dim) / 2);
}

/**
 * Lays a tensor out on the page.
 *
 * @param shape sizes of the dims, outermost first; empty for a scalar
 * @param label text of an element, given its row-major number
 * @throws E_DRAW for a shape without elements and for cuts that the shape does not have, E_LIMIT
 *   for one that is too large
 */
export function matrixOfMatrices(
  shape: readonly number[],
  label: (element: number) => string,
  cuts: Cuts = new Map(),
): Drawing {
  checkShape(shape);
  const cutAt = cutPositions(shape, cuts);
  const down = side(shape, cutAt, false);
  const right = side(shape, cutAt, true);
  const cells = down.offsets.map((base) =>
    right.offsets.map((offset): Cell => ({ text: label(base + offset), element: base + offset })),
  );
  return {
    shape: [...shape],
    rows: down.offsets.length,
    columns: right.offsets.length,
    cells,
    rowGaps: down.gaps,
    columnGaps: right.gaps,
  };
}

/** @throws E_DRAW unless every size is a positive integer, E_LIMIT above the limits */
export function checkShape(shape: readonly number[]): void {
  const text = `(${shape.join(', ')})`;
  if (shape.length > MAX_RANK)
    throw new ShardwrightError(
      'E_LIMIT',
      `a tensor of ${shape.length} dims has more than the ${MAX_RANK} drawn`,
    );
  let total = 1;
  shape.forEach((size, dim) => {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new ShardwrightError(
        'E_DRAW',
        `dim ${dim} of ${text} has size ${size}: there is nothing to draw`,
        {
          hint: 'give every dim a size of at least 1.',
        },
      );
    total *= size;
  });
  if (total > MAX_CELLS)
    throw new ShardwrightError(
      'E_LIMIT',
      `a drawing of ${text} has ${total} cells, more than ${MAX_CELLS}`,
      {
        hint: 'draw a smaller shape that is cut in the same way.',
      },
    );
}

/** Offsets of the rows (or columns) in reading order, and the gap before each but the first. */
function side(
  shape: readonly number[],
  cutAt: readonly ReadonlySet<number>[],
  horizontal: boolean,
): { offsets: number[]; gaps: Gap[] } {
  const rank = shape.length;
  let stride = 1;
  let offsets = [0];
  let gaps: Gap[] = [];
  // Innermost dim first: each further dim repeats what is there, with its own gap between the
  // copies.
  for (let dim = rank - 1; dim >= 0; dim--) {
    if (isHorizontal(dim, rank) === horizontal) {
      const level = levelOf(dim, rank);
      const allOffsets: number[] = [];
      const allGaps: Gap[] = [];
      for (let p = 0; p < shape[dim]; p++) {
        if (p > 0) allGaps.push({ level, cut: cutAt[dim].has(p) });
        for (const offset of offsets) allOffsets.push(offset + p * stride);
        for (const gap of gaps) allGaps.push(gap);
      }
      offsets = allOffsets;
      gaps = allGaps;
    }
    stride *= shape[dim];
  }
  return { offsets, gaps };
}

function cutPositions(shape: readonly number[], cuts: Cuts): ReadonlySet<number>[] {
  for (const dim of cuts.keys())
    if (!Number.isInteger(dim) || dim < 0 || dim >= shape.length)
      throw new ShardwrightError('E_DRAW', `cannot cut dim ${dim} of a ${shape.length}-D tensor`, {
        hint:
          shape.length === 0
            ? 'a scalar has no dims.'
            : `its dims are ${range(0, shape.length - 1)}, outermost first.`,
      });
  return shape.map((size, dim) => {
    const wanted = cuts.get(dim) ?? [];
    if (wanted === 'all') return new Set(Array.from({ length: size - 1 }, (_, i) => i + 1));
    for (const p of wanted)
      if (!Number.isInteger(p) || p < 1 || p >= size)
        throw new ShardwrightError('E_DRAW', `cannot cut dim ${dim} of size ${size} at ${p}`, {
          hint:
            size === 1
              ? 'a dim of size 1 cannot be cut.'
              : `a cut can stand before slice ${range(1, size - 1)}.`,
        });
    return new Set(wanted);
  });
}

function range(first: number, last: number): string {
  return first === last ? String(first) : `${first} to ${last}`;
}

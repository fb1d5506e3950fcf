/**
 * Collects the relations between the sizes of a program: each relation of axes is kept once,
 * however often it is found.
 */

import { leastMultiple } from '../../divisors.ts';
import type { Node } from '../../graph/types.ts';
import type { ProgramAxes, ProgramNode } from './dims.ts';
import type { Slide } from './windows.ts';

export interface Relation {
  readonly kind: 'product' | 'sum' | 'shift' | 'multiple' | 'atMost' | 'window';
  /**
   * Axes. `product`, `sum`: both sides give the same. `shift`: right is left times `times` plus
   * `by`. `multiple`: left is a multiple of right. `atMost`: left <= right. `window`: left, rows
   * and kernel, has right many windows.
   */
  readonly left: readonly number[];
  readonly right: readonly number[];
  /** Further factor of the right side of a product, or of the left side of a shift. */
  readonly times?: number;
  readonly by?: number;
  /** The slide of a window. A kernel that is a literal and not a size is in it. */
  readonly slide?: Slide & { readonly kernel?: number };
}

export class SizeRelations {
  /** Axes of more than one row that occur. */
  readonly axes = new Set<number>();
  readonly fixed = new Set<number>();
  /** Smallest new size, where a literal asks for one. */
  readonly atLeast = new Map<number, number>();
  /**
   * Axes of spatial dims. Windows decide what they can be, so they need not stay divisible by a
   * mesh.
   */
  readonly spatial = new Set<number>();
  /**
   * Rows of which a piece of an axis has a multiple, by what an operator asks of its cut operands:
   * kernels that read rows of 16 bytes. A size that can be cut so stays one that can.
   */
  readonly units = new Map<number, number>();
  /** Axes of positions, which no mesh cuts. */
  readonly free = new Set<number>();
  /** Axes of literals, by call and name of the argument. */
  readonly literals = new Map<Node, Readonly<Record<string, number>>>();
  private readonly byText = new Map<string, Relation>();

  constructor(readonly program: ProgramAxes) {}

  get relations(): Relation[] {
    return [...this.byText.values()];
  }

  sizeOf(axis: number): number {
    return this.program.sizeOf(axis);
  }

  /** Keeps every size of a call: of its results and its operands. */
  fixNode(at: ProgramNode): void {
    for (const dims of this.program.around(at)) for (const axis of dims) this.fix(axis);
  }

  /**
   * Two axes are related only where their sizes are: a relation that does not hold of the sizes
   * there are is none.
   */
  relate(relation: Relation): void {
    const above = (axis: number): boolean => this.sizeOf(axis) !== 1;
    const plain =
      relation.kind === 'product'
        ? { ...relation, left: relation.left.filter(above), right: relation.right.filter(above) }
        : relation;
    for (const axis of [...plain.left, ...plain.right]) this.meet(axis);
    const sides =
      plain.kind === 'window'
        ? [plain.left, plain.right]
        : [sorted(plain.left), sorted(plain.right)];
    if (
      plain.kind === 'product' &&
      plain.times === undefined &&
      String(sides[0]) === String(sides[1])
    )
      return;
    const text =
      `${plain.kind} ${sides.join(' | ')} | ${plain.times ?? 1} ${plain.by ?? 0} ` +
      `${JSON.stringify(plain.slide ?? null)}`;
    this.byText.set(text, plain);
  }

  meet(axis: number): void {
    if (this.sizeOf(axis) > 1) this.axes.add(axis);
  }

  fix(axis: number): void {
    this.meet(axis);
    this.fixed.add(axis);
  }

  least(axis: number, bound: number): void {
    this.atLeast.set(axis, Math.max(this.atLeast.get(axis) ?? 0, bound));
  }

  inUnits(axis: number, unit: number): void {
    this.units.set(axis, leastMultiple(this.units.get(axis) ?? 1, unit));
  }

  /** A literal that counts rows along an axis: its axis, or none for 0. */
  along(axis: number, n: number): number[] {
    if (n <= 0) return [];
    const made = this.program.along(axis, n);
    this.meet(made);
    this.free.add(made);
    return [made];
  }
}

function sorted(list: readonly number[]): number[] {
  return [...list].sort((a, b) => a - b);
}

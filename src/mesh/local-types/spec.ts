/**
 * Reads the types of a value on all axes as a program writes them: a PartitionSpec as JAX writes it
 * (`P(None, "tp")`), or a record (`{ dp: 'S(0)', tp: 'P' }`). It gives one type for each axis that
 * is named, checked against mesh and shape.
 */
import { ShardwrightError, suggestion } from '../../errors.ts';
import { product } from '../../product.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import { parsePartitionSpec, type PartitionSpec } from '../views/partition-spec.ts';
import { type AxisType, cutOf, isAxisType, S } from './types.ts';

/** `P("dp", None, unreduced={"tp"})`, or `{ dp: 'S(0)', tp: 'P' }`. */
export type TypeSpec = string | Readonly<Record<string, AxisType>>;

/** `{ dp: S(0) }` or the PartitionSpec as written. */
function specText(spec: TypeSpec): string {
  if (typeof spec === 'string') return spec;
  return `{ ${Object.entries(spec)
    .map(([axis, type]) => `${axis}: ${type}`)
    .join(', ')} }`;
}

/** @throws E_SYNTAX; E_PLACEMENT, with the spec, for an axis that is listed twice */
function parsed(spec: string): PartitionSpec {
  try {
    return parsePartitionSpec(spec);
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_PLACEMENT') throw error;
    throw new ShardwrightError(
      error.code,
      `${spec}: ${error.message.replace(/ in a PartitionSpec$/, '')}`,
      error.details,
    );
  }
}

/**
 * Types by axis; an axis that the spec does not name has none.
 *
 * @param axes names of the axes that the spec may speak of
 * @param shape global sizes; undefined where a size is open
 * @throws E_SPMD_TYPE for an axis that there is not, a dim that the value does not have or that
 *   does not divide; E_SYNTAX
 */
export function readTypeSpec(
  spec: TypeSpec,
  mesh: DeviceMesh,
  axes: readonly string[],
  shape: readonly (number | undefined)[],
): Map<string, AxisType> {
  return new TypeSpecReader(spec, mesh, axes, shape).read();
}

class TypeSpecReader {
  private readonly types = new Map<string, AxisType>();

  constructor(
    private readonly spec: TypeSpec,
    private readonly mesh: DeviceMesh,
    private readonly axes: readonly string[],
    private readonly shape: readonly (number | undefined)[],
  ) {}

  read(): Map<string, AxisType> {
    const { spec, types, mesh } = this;
    if (typeof spec === 'string') this.readPartitionSpec(parsed(spec));
    else
      for (const [axis, type] of Object.entries(spec)) {
        this.checkAxis(axis);
        if (!isAxisType(type))
          this.refuse(`'${String(type)}' is not a type`, 'write V, R, I, P or S(0)');
        types.set(axis, type);
      }
    this.checkSizes();
    this.checkDims();
    return new Map(
      mesh.names.flatMap((axis) =>
        types.has(axis) ? [[axis, types.get(axis) as AxisType] as const] : [],
      ),
    );
  }

  private readPartitionSpec({ dims, unreduced, reduced }: PartitionSpec): void {
    const { types, mesh, shape } = this;
    if (dims.length > shape.length && dims.slice(shape.length).some((list) => list.length > 0))
      this.refuse(
        `it cuts dim ${dims.length - 1}, the value has ${shape.length} dims`,
        'write one entry for each dim',
      );
    dims.forEach((list, dim) => {
      list.forEach((axis, i) => {
        this.checkAxis(axis);
        if (i > 0 && mesh.indexOf(axis) < mesh.indexOf(list[i - 1]))
          this.refuse(
            `the axes of dim ${dim} stand in another order than in the mesh ${mesh.text}`,
            `write (${[...list]
              .sort((a, b) => mesh.indexOf(a) - mesh.indexOf(b))
              .map((a) => `"${a}"`)
              .join(', ')}), or name the mesh's dims in that order`,
          );
        types.set(axis, S(dim));
      });
    });
    for (const [axis, op] of unreduced) {
      this.checkAxis(axis);
      if (op !== 'sum')
        this.refuse(`a pending ${op} has no type`, 'only sums are pending in typed programs');
      types.set(axis, 'P');
    }
    for (const axis of reduced) {
      this.checkAxis(axis);
      types.set(axis, 'R');
    }
  }

  private checkAxis(axis: string): void {
    const { mesh, axes } = this;
    if (!mesh.names.includes(axis))
      this.refuse(
        `the mesh ${mesh.text} has no axis '${axis}'`,
        suggestion(axis, mesh.names, 'axes'),
      );
    if (!axes.includes(axis))
      this.refuse(
        `axis '${axis}' is not per device here (those are: ${axes.join(', ')})`,
        `add '${axis}' to axes, or leave it out of the spec: it keeps its global meaning`,
      );
  }

  /** The pieces of every dim are equal. */
  private checkSizes(): void {
    const { mesh, types } = this;
    for (const [dim, size] of this.shape.entries()) {
      const cutting = mesh.names.filter((axis) => types.get(axis) === S(dim));
      const pieces = product(cutting.map((axis) => mesh.sizes[mesh.indexOf(axis)]));
      if (size === undefined && pieces > 1)
        this.refuse(`dim ${dim} has an open size, which cannot be cut`, 'fix the size');
      if (size !== undefined && size % pieces !== 0)
        this.refuse(
          `dim ${dim} has ${size} rows, which do not divide by ` +
            `${cutting.map((axis) => `${axis}=${mesh.sizes[mesh.indexOf(axis)]}`).join(' x ')}`,
          `pad it to ${Math.ceil(size / pieces) * pieces}, or cut another dim`,
        );
    }
  }

  /** Every dim that is cut is one of the value. */
  private checkDims(): void {
    for (const [axis, type] of this.types) {
      const dim = cutOf(type);
      if (dim !== undefined && dim >= this.shape.length)
        this.refuse(
          `${type} on ${axis} cuts a dim that the value does not have: it has ` +
            `${this.shape.length}`,
          'count dims from 0',
        );
    }
  }

  private refuse(message: string, hint: string): never {
    throw new ShardwrightError('E_SPMD_TYPE', `${specText(this.spec)}: ${message}`, { hint });
  }
}

/** Sizes of one device's piece. */
export function pieceShape(
  types: ReadonlyMap<string, AxisType>,
  mesh: DeviceMesh,
  shape: readonly number[],
): number[] {
  return shape.map((size, d) =>
    mesh.names.reduce((n, axis, m) => (types.get(axis) === S(d) ? n / mesh.sizes[m] : n), size),
  );
}

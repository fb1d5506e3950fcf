/**
 * Shardings that a program states, as placements over one mesh. Shardy names the mesh, and parts of
 * an axis split it (`a` becomes `a.0`, `a.1`); GSPMD strings have the axes in common that `axes.ts`
 * finds.
 */

import { ShardwrightError } from '../../../errors.ts';
import { NameSet } from '../../../graph/names.ts';
import { itemAt } from '../../../item-at.ts';
import { meshSize } from '../../../mesh/devices/mesh.ts';
import { Partial } from '../../../mesh/placements/partials/partial.ts';
import type { Placement } from '../../../mesh/placements/placement.ts';
import { REPLICATE } from '../../../mesh/placements/replicate.ts';
import { Shard } from '../../../mesh/placements/shards/shard.ts';
import { Sharding } from '../../../mesh/sharding/sharding.ts';
import type { MlirReader } from '../syntax/reader.ts';
import type {
  Attributes,
  MlirAttribute,
  MlirMesh,
  MlirModule,
  MlirType,
  Operation,
} from '../syntax/syntax.ts';
import { axesOf, commonAxes, type Factor, type Tiling, tilingOf as newTiling } from './axes.ts';
import { type GspmdSharding, parseGspmd } from './gspmd.ts';
import {
  type AxisRef,
  readShardingList,
  readTensorSharding,
  type TensorSharding,
} from './sharding.ts';

/** The sharding that is stated of one value. */
export interface Stated {
  readonly sharding: string;
  readonly strength: 'pin' | 'hint';
  readonly priority?: number;
}

interface Axis {
  /** Name in the graph's mesh. */
  readonly name: string;
  readonly size: number;
  /** Shardy: the axis that it is (a part of), and the size of the parts before it. */
  readonly of?: string;
  readonly before?: number;
  /** GSPMD: steps of the device number. */
  readonly stride?: number;
}

export class StatedShardings {
  /** Axes of the mesh, outermost first; empty where nothing is sharded. */
  readonly axes: readonly Axis[];
  /** Remarks on what the graph cannot say. */
  readonly notes: string[] = [];
  private readonly gspmd = new Map<string, GspmdSharding>();
  private readonly tilings = new Map<GspmdSharding, Tiling | undefined>();

  /**
   * @throws E_SYNTAX, E_REF, E_UNSUPPORTED where the shardings of the module name no common mesh
   */
  constructor(
    private readonly module: MlirModule,
    private readonly reader: MlirReader,
  ) {
    const shardy: TensorSharding[] = [];
    const strings = new Map<string, number>();
    for (const [attributes, at] of everyAttributes(module)) {
      for (const value of attributes.values()) shardy.push(...this.shardyOf(value));
      const text = attributes.get('mhlo.sharding');
      if (text?.kind === 'string' && !strings.has(text.value)) strings.set(text.value, at);
    }
    this.axes =
      shardy.length > 0 || strings.size === 0 ? this.shardyAxes(shardy) : this.gspmdAxes(strings);
  }

  /** `p=2,q=4`; undefined where no sharding is stated. */
  get mesh(): string | undefined {
    return this.axes.length === 0
      ? undefined
      : this.axes.map(({ name, size }) => `${name}=${size}`).join(',');
  }

  /**
   * The sharding of an argument or a result: `sdy.sharding` or `mhlo.sharding` of its attributes.
   */
  ofAttributes(attributes: Attributes, type: MlirType, at: number): Stated | undefined {
    const value = attributes.get('sdy.sharding');
    if (value !== undefined) {
      const [found] = this.shardyOf(value);
      return found === undefined ? undefined : this.shardy(found, type);
    }
    const text = attributes.get('mhlo.sharding');
    return text?.kind === 'string' ? this.fromGspmd(text.value, type, at) : undefined;
  }

  /** The sharding of each result of an operation. */
  perValue(attributes: Attributes, types: readonly MlirType[], at: number): (Stated | undefined)[] {
    const value = attributes.get('sdy.sharding');
    const found = value === undefined ? [] : this.shardyOf(value);
    if (found.length > 0)
      return types.map((type, i) =>
        found[i] === undefined ? undefined : this.shardy(found[i], type),
      );
    const text = attributes.get('mhlo.sharding');
    if (text?.kind !== 'string') return [];
    const parsed = this.parse(text.value, at);
    if (parsed.kind === 'tuple')
      return types.map((type, i) =>
        parsed.items[i] === undefined ? undefined : this.tiled(parsed.items[i], type, at),
      );
    return types.map((type) => this.tiled(parsed, type, at));
  }

  /**
   * The shardings in one attribute that holds Shardy shardings or a list of GSPMD strings, for
   * values of these types.
   */
  list(
    value: MlirAttribute | undefined,
    types: readonly MlirType[],
    at: number,
  ): (Stated | undefined)[] {
    if (value?.kind === 'list')
      return types.map((type, i) => {
        const item = value.items[i] as MlirAttribute | undefined;
        return item?.kind === 'string' ? this.fromGspmd(item.value, type, at) : undefined;
      });
    return value === undefined
      ? []
      : this.shardyOf(value).map((s, i) =>
          i < types.length ? this.shardy(s, itemAt(types, i)) : undefined,
        );
  }

  /** Axes that a GSPMD string makes manual: all of them, or those of its subgroups of that kind. */
  manualAxes(text: string, at: number): string[] {
    const sharding = this.parse(text, at);
    if (sharding.kind !== 'tiled')
      return sharding.kind === 'manual' ? this.axes.map(({ name }) => name) : [];
    const tiling = this.tilingOf(sharding);
    const own = this.axes.map(({ size, stride }): Factor => ({ size, stride: stride ?? 1 }));
    return sharding.subgroups.flatMap((word, i) =>
      word === 'manual' && tiling !== undefined
        ? axesOf(itemAt(tiling.dims, sharding.rank + i), own).map(
            (axis) => itemAt(this.axes, axis).name,
          )
        : [],
    );
  }

  /** Sizes of the part that one device has of a value in a region where these axes are manual. */
  localSizes(stated: Stated, shape: readonly number[], manual: readonly string[]): number[] {
    const sizes = [...shape];
    [...stated.sharding.matchAll(PLACEMENT)].forEach(([, dim], axis) => {
      const { name, of, size } = itemAt(this.axes, axis);
      if (dim !== undefined && manual.includes(of ?? name))
        sizes[Number(dim)] = itemAt(sizes, Number(dim)) / size;
    });
    return sizes;
  }

  fromGspmd(text: string, type: MlirType, at: number): Stated | undefined {
    return this.tiled(this.parse(text, at), type, at);
  }

  // ---- Shardy
  // ---------------------------------------------------------------------------

  private shardyOf(value: MlirAttribute): readonly TensorSharding[] {
    const resolved = value.kind === 'alias' ? this.module.attributeAliases.get(value.name) : value;
    if (resolved?.kind !== 'dialect' || resolved.body === undefined) return [];
    if (resolved.name === 'sdy.sharding') return [readTensorSharding(this.reader, resolved.body)];
    return resolved.name === 'sdy.sharding_per_value'
      ? readShardingList(this.reader, resolved.body)
      : [];
  }

  private meshOf(sharding: TensorSharding): { readonly name: string; readonly mesh: MlirMesh } {
    if ('inline' in sharding.mesh) return { name: 'mesh<...>', mesh: sharding.mesh.inline };
    const { name } = sharding.mesh;
    const mesh = this.module.meshes.get(name);
    if (mesh !== undefined) return { name: `@${name}`, mesh };
    const known = [...this.module.meshes.keys()].map((n) => `@${n}`).join(', ');
    throw this.reader.error(
      'E_REF',
      `mesh '@${name}' is not defined`,
      sharding.at,
      known === '' ? 'declare it with sdy.mesh' : `meshes of the module: ${known}`,
    );
  }

  /** One mesh for all shardings, its axes split where a sharding uses parts. */
  private shardyAxes(shardings: readonly TensorSharding[]): Axis[] {
    let chosen: { readonly name: string; readonly mesh: MlirMesh } | undefined;
    const cuts = new Map<string, Set<number>>();
    for (const sharding of shardings) {
      const used = this.meshOf(sharding);
      // A mesh of one place says where, not how.
      if (used.mesh.axes.length === 0) continue;
      if (chosen !== undefined && meshKey(chosen.mesh) !== meshKey(used.mesh))
        throw this.reader.error(
          'E_UNSUPPORTED',
          `shardings over two meshes, ${chosen.name} and ${used.name}`,
          sharding.at,
          'state all shardings over one mesh; --ignore-shardings drops them',
        );
      chosen ??= used;
      for (const axis of namedAxes(sharding)) this.cut(axis, used.mesh, cuts, sharding.at);
    }
    if (chosen === undefined) return [];
    const { mesh, name } = chosen;
    const total = meshSize(mesh.axes);
    if (
      mesh.devices !== undefined &&
      mesh.devices.some((id, i) => id !== i) &&
      mesh.devices.length === total
    )
      this.notes.push(
        `Mesh ${name} places its devices in the order ` +
          `${mesh.devices.slice(0, 16).join(', ')}${mesh.devices.length > 16 ? ' ...' : ''}; ` +
          'plans number them from 0.',
      );
    const taken = new NameSet();
    return mesh.axes.flatMap(({ name: axis, size }): Axis[] => {
      const points = [...(cuts.get(axis) ?? []), 1, size].sort((a, b) => a - b);
      const parts = [...new Set(points)];
      if (parts.length <= 2) return [{ name: dimName(axis, taken), size, of: axis, before: 1 }];
      return parts.slice(1).map((point, i) => {
        const before = itemAt(parts, i);
        if (point % before !== 0)
          throw this.reader.error(
            'E_UNSUPPORTED',
            `parts of axis '${axis}' that cross`,
            itemAt(shardings, 0).at,
            'use parts that divide each other',
          );
        return {
          name: dimName(`${axis}.${i}`, taken),
          size: point / before,
          of: axis,
          before,
        };
      });
    });
  }

  private cut(axis: AxisRef, mesh: MlirMesh, cuts: Map<string, Set<number>>, at: number): void {
    const known = mesh.axes.find(({ name }) => name === axis.name);
    if (known === undefined)
      throw this.reader.error(
        'E_REF',
        `the mesh has no axis '${axis.name}'`,
        at,
        `its axes: ${mesh.axes.map((a) => a.name).join(', ')}`,
      );
    if (axis.part === undefined) return;
    const { before, size } = axis.part;
    if (known.size % (before * size) !== 0)
      throw this.reader.error(
        'E_TYPE',
        `part (${before})${size} does not fit axis '${axis.name}' of size ${known.size}`,
        at,
      );
    let points = cuts.get(axis.name);
    if (points === undefined) cuts.set(axis.name, (points = new Set()));
    points.add(before).add(before * size);
  }

  /** Mesh dims of an axis or a part of one, major first. */
  private dimsOf(ref: AxisRef): number[] {
    const from = ref.part?.before ?? 1;
    const to = ref.part === undefined ? Infinity : ref.part.before * ref.part.size;
    return this.axes.flatMap((axis, i) => {
      const before = axis.before ?? 1;
      return axis.of === ref.name && before >= from && before * axis.size <= to ? [i] : [];
    });
  }

  private shardy(sharding: TensorSharding, type: MlirType): Stated | undefined {
    const rank = type.kind === 'tensor' ? type.shape.length : 0;
    if (sharding.dims.length !== rank)
      throw this.reader.error(
        'E_TYPE',
        `a sharding of ${sharding.dims.length} dims for a tensor of ${rank}`,
        sharding.at,
      );
    const cut = sharding.dims.map(({ axes }) => axes.flatMap((axis) => this.dimsOf(axis)));
    const pending = sharding.unreduced.flatMap((axis) => this.dimsOf(axis));
    const open = sharding.dims.some((dim) => dim.open || (dim.priority ?? 0) > 0);
    if (open && cut.every((axes) => axes.length === 0) && pending.length === 0) return undefined;
    const priorities = sharding.dims.flatMap(({ priority }) =>
      priority === undefined ? [] : [priority],
    );
    return {
      sharding: this.text(cut, pending, sharding.at),
      strength: open ? 'hint' : 'pin',
      ...(open && priorities.length > 0 ? { priority: Math.max(...priorities) } : {}),
    };
  }

  // ---- GSPMD
  // ---------------------------------------------------------------------------

  private parse(text: string, at: number): GspmdSharding {
    let parsed = this.gspmd.get(text);
    if (parsed === undefined) {
      try {
        parsed = parseGspmd(text);
      } catch (error) {
        if (!(error instanceof ShardwrightError)) throw error;
        throw this.reader.error(error.code, error.message, at, error.details.hint);
      }
      this.gspmd.set(text, parsed);
    }
    return parsed;
  }

  private gspmdAxes(strings: ReadonlyMap<string, number>): Axis[] {
    const factors: Factor[] = [];
    let devices: number | undefined;
    for (const [text, at] of strings) {
      for (const sharding of flatten(this.parse(text, at))) {
        if (sharding.kind !== 'tiled') continue;
        const tiling = this.tilingOf(sharding);
        if (tiling === undefined)
          throw this.reader.error(
            'E_UNSUPPORTED',
            `the devices of "${text}" lie on no mesh`,
            at,
            'use a regular order of devices',
          );
        if (devices !== undefined && devices !== tiling.devices)
          throw this.reader.error(
            'E_UNSUPPORTED',
            `shardings over ${devices} and over ${tiling.devices} devices`,
            at,
          );
        devices = tiling.devices;
        factors.push(...tiling.dims.flat());
      }
    }
    if (devices === undefined || devices === 1) return [];
    const axes = commonAxes(factors, devices);
    if (axes === undefined)
      throw this.reader.error(
        'E_UNSUPPORTED',
        'the shardings split the devices in ways that cross',
        itemAt([...strings.values()], 0),
      );
    return axes.map(({ size, stride }, i) => ({ name: `axis_${i}`, size, stride }));
  }

  private tiled(sharding: GspmdSharding, type: MlirType, at: number): Stated | undefined {
    if (this.axes.length === 0 || sharding.kind === 'manual' || sharding.kind === 'unknown')
      return undefined;
    const rank = type.kind === 'tensor' ? type.shape.length : 0;
    if (sharding.kind === 'replicated') return { sharding: this.text([], [], at), strength: 'pin' };
    // One device alone holds the value; a plan has no such placement.
    if (sharding.kind !== 'tiled') return undefined;
    const tiling = this.tilingOf(sharding);
    if (tiling === undefined) return undefined;
    if (tiling.rank !== rank)
      throw this.reader.error(
        'E_TYPE',
        `a sharding of ${tiling.rank} dims for a tensor of ${rank}`,
        at,
      );
    const own = this.axes.map(({ size, stride }): Factor => ({ size, stride: stride ?? 1 }));
    const cut = tiling.dims.slice(0, rank).map((factors) => axesOf(factors, own));
    const pending = tiling.subgroups.flatMap((word, i) =>
      word === 'unreduced' ? axesOf(itemAt(tiling.dims, rank + i), own) : [],
    );
    return { sharding: this.text(cut, pending, at), strength: 'pin' };
  }

  /** Every value with one string shares its tiling. */
  private tilingOf(sharding: Extract<GspmdSharding, { kind: 'tiled' }>): Tiling | undefined {
    if (!this.tilings.has(sharding)) this.tilings.set(sharding, newTiling(sharding));
    return this.tilings.get(sharding);
  }

  // ---- both
  // ---------------------------------------------------------------------------

  /** Placements of a tensor whose dim `d` the mesh dims `cut[d]` cut, major first. */
  private text(
    cut: readonly (readonly number[])[],
    pending: readonly number[],
    at: number,
  ): string {
    const placements: Placement[] = this.axes.map(() => REPLICATE);
    const used = new Set<number>();
    const orders = new Map<number, readonly number[]>();
    const use = (axis: number, placement: Placement): void => {
      if (used.has(axis))
        throw this.reader.error(
          'E_TYPE',
          `mesh axis '${itemAt(this.axes, axis).name}' is used twice in one sharding`,
          at,
        );
      used.add(axis);
      placements[axis] = placement;
    };
    cut.forEach((axes, dim) => {
      for (const axis of axes) use(axis, Shard.of(dim));
      if (axes.length > 1) orders.set(dim, axes);
    });
    for (const axis of pending) use(axis, Partial.of('sum'));
    return new Sharding(placements, orders).text;
  }
}

/** One placement of a sharding's text; the group is the tensor dim that it cuts. */
const PLACEMENT = /S\((\d+)\)(?:\[\d+\])?|R|P\(\w+\)/g;

function meshKey({ axes }: MlirMesh): string {
  return axes.map(({ name, size }) => `${name}=${size}`).join();
}

function namedAxes(sharding: TensorSharding): AxisRef[] {
  return [
    ...sharding.dims.flatMap((dim) => dim.axes),
    ...sharding.replicated,
    ...sharding.unreduced,
  ];
}

function flatten(sharding: GspmdSharding): GspmdSharding[] {
  return sharding.kind === 'tuple' ? sharding.items.flatMap(flatten) : [sharding];
}

/** A name that meshes accept: letters, digits and `_.-`, not taken yet. */
function dimName(axis: string, taken: NameSet): string {
  const plain = axis.replaceAll(/[^A-Za-z0-9_.-]/g, '_');
  return taken.take(/^[A-Za-z_]/.test(plain) ? plain : `_${plain}`);
}

/** Attributes of all arguments, results and operations of a module, with their places. */
function* everyAttributes(module: MlirModule): Generator<readonly [Attributes, number]> {
  for (const func of module.functions.values()) {
    for (const arg of func.args) yield [arg.attributes, arg.at];
    for (const result of func.results) yield [result.attributes, func.at];
    const work: Operation[] = [...(func.body?.operations ?? [])];
    for (let op = work.pop(); op !== undefined; op = work.pop()) {
      yield [op.attributes, op.at];
      for (const region of op.regions) for (const inner of region.operations) work.push(inner);
    }
  }
}

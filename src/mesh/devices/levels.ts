/**
 * Finds the place of the groups of mesh dims in the machine. Hardware is data here: units of so
 * many consecutive device ids, the smallest first, such as 8 devices a host and 64 a rack.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from './mesh.ts';

/** One level of the machine, such as a host: how many consecutive devices it holds. */
export interface PhysicalLevel {
  readonly name: string;
  /** Consecutive device ids that one unit of the level holds. */
  readonly devices: number;
}

/** How the groups of some mesh dims lie over the levels; over several groups the worst counts. */
export interface GroupLevels {
  /** Devices in each group. */
  readonly devices: number;
  /**
   * The smallest level whose units hold every group whole; `device` for groups of one, `cluster`
   * where no level does.
   */
  readonly inside: string;
  /**
   * For each level, in the order given: most units that a group touches, fewest members that share
   * a unit.
   */
  readonly spans: readonly {
    readonly level: string;
    readonly units: number;
    readonly members: number;
  }[];
  /**
   * True if every group has one member in each unit of the first level that it touches, all at the
   * same place of their units: rail-aligned traffic, which a rail-wired network carries without
   * crossing rails. False for groups inside one unit.
   */
  readonly rail: boolean;
}

/** One level: hosts of so many devices. */
export function hostLevel(devicesPerHost: number): PhysicalLevel[] {
  return [{ name: 'host', devices: devicesPerHost }];
}

/**
 * Levels of the groups of mesh dims; device ids are read from the mesh's table.
 *
 * @param levels smallest units first, each a multiple of the one before
 * @throws E_MESH for dims that the mesh does not have, or levels that are not nested
 */
export function groupLevels(
  mesh: DeviceMesh,
  dims: readonly (number | string)[],
  levels: readonly PhysicalLevel[],
): GroupLevels {
  checkKinds('groupLevels', {
    mesh: [mesh, 'mesh'],
    dims: [dims, 'places'],
    levels: [levels, 'levels'],
  });
  checkLevels(levels);
  const groups = mesh.groups(dims);
  const devices = groups[0].length;
  const spans = levels.map(({ name, devices: unit }) => {
    let units = 1;
    let members = devices;
    for (const group of groups) {
      const counts = new Map<number, number>();
      for (const id of group)
        counts.set(Math.floor(id / unit), (counts.get(Math.floor(id / unit)) ?? 0) + 1);
      units = Math.max(units, counts.size);
      for (const count of counts.values()) members = Math.min(members, count);
    }
    return { level: name, units, members };
  });
  const inside = devices === 1 ? 'device' : (spans.find((s) => s.units === 1)?.level ?? 'cluster');
  const unit = levels[0].devices;
  const rail =
    devices > 1 &&
    groups.every(
      (group) =>
        new Set(group.map((id) => Math.floor(id / unit))).size === devices &&
        group.every((id) => id % unit === group[0] % unit),
    );
  return { devices, inside, spans, rail };
}

/** Levels of every mesh dim by itself, outermost dim first, as in `tp=8 inside a host`. */
export function meshLevels(mesh: DeviceMesh, levels: readonly PhysicalLevel[]): GroupLevels[] {
  checkKinds('meshLevels', { mesh: [mesh, 'mesh'], levels: [levels, 'levels'] });
  return mesh.dims.map((_, d) => groupLevels(mesh, [d], levels));
}

/**
 * `tp=8 inside a host`, `dp=16 across 16 hosts on rails`, `ep=16 across 2 hosts, 8 members in
 * each`.
 */
export function levelText(name: string, found: GroupLevels): string {
  checkKinds('levelText', {
    name: [name, 'string'],
    found: [found, ['devices', 'inside', 'spans']],
  });
  const axis = `${name}=${found.devices}`;
  const [first] = found.spans;
  if (found.devices === 1) return `${axis} on one device`;
  if (first.units === 1) return `${axis} inside a ${first.level}`;
  const across = `${axis} across ${first.units} ${first.level}s`;
  if (found.rail) return `${across} on rails`;
  return first.members > 1 ? `${across}, ${first.members} members in each` : across;
}

function checkLevels(levels: readonly PhysicalLevel[]): void {
  if (levels.length === 0) throw new ShardwrightError('E_MESH', 'no physical levels were given');
  levels.forEach(({ name, devices }, i) => {
    if (!Number.isSafeInteger(devices) || devices < 1)
      throw new ShardwrightError(
        'E_MESH',
        `level '${name}' has ${devices} devices a unit, expected at least 1`,
      );
    if (i > 0 && devices % levels[i - 1].devices !== 0)
      throw new ShardwrightError(
        'E_MESH',
        `level '${name}' of ${devices} devices does not hold whole units of ` +
          `'${levels[i - 1].name}' (${levels[i - 1].devices})`,
      );
  });
}

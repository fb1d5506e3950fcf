/**
 * Finds the mesh axes that are per device at a place of a program: the axes of the regions around
 * the body that is recorded.
 */
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Recorder } from '../record/recorder.ts';

const regions = new WeakMap<Recorder, ReadonlyMap<string, number>>();

/** Marks the body of a region. */
export function enterRegion(recorder: Recorder, axes: readonly string[], mesh: DeviceMesh): void {
  regions.set(recorder, new Map(axes.map((axis) => [axis, mesh.sizes[mesh.indexOf(axis)]])));
}

/** Sizes of the axes that are per device, by name; empty outside of regions. */
export function axesOf(recorder: Recorder | undefined): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (let at = recorder; at !== undefined; at = at.parent)
    for (const [axis, size] of regions.get(at) ?? []) found.set(axis, size);
  return found;
}

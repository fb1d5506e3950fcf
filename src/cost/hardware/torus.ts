/**
 * Prices collectives over axes of a TPU torus: takes bytes and the links of the axes, gives
 * seconds.
 */

import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { TorusLinks } from './cluster.ts';

/**
 * Collectives over axes of a torus of chips (TPU slices). A ring on one axis runs both ways where
 * the axis closes, so it gets two links; an open axis gets one. Groups over several axes use the
 * links of all of them at once.
 *
 * Form: the bidirectional ring model of "How to Scale Your Model" (jax-ml/scaling-book, sharding
 * chapter): all_gather is bytes over the rate of the axis, all_reduce twice that, all_to_all a
 * quarter; short messages pay a hop each.
 */
export function torusSeconds(
  kind: CollectiveKind,
  bytes: number,
  devices: number,
  meshDims: number,
  torus: TorusLinks,
): number {
  if (devices === 1) return 0;
  const axes = groupAxes(devices, meshDims, torus);
  const link = torus.linkBytesPerSecond;
  // Per-axis rates add up; every byte passes each axis once.
  let rate = 0;
  let hops = 0;
  for (const axis of axes) {
    const closed = closes(axis, torus);
    rate += closed ? 2 * link : link;
    hops += closed ? Math.floor(axis / 2) : axis - 1;
  }
  const share = (devices - 1) / devices;
  const gather = (bytes * share) / rate + hops * torus.hopSeconds;
  switch (kind) {
    case 'all_gather':
    case 'reduce_scatter':
      return gather;
    case 'all_reduce':
      return 2 * gather;
    case 'all_to_all': {
      // Half of what one half of the axis holds passes the cut in its middle: two links where the
      // axis closes, else one.
      const longest = Math.max(...axes);
      return (
        (bytes * longest) / 4 / (closes(longest, torus) ? 2 * link : link) + hops * torus.hopSeconds
      );
    }
    case 'collective_permute':
      return bytes / link + hops * torus.hopSeconds;
  }
}

/** Tells whether an axis of this size is a ring. */
function closes(axis: number, torus: TorusLinks): boolean {
  return axis > 2 && axis % torus.wrapMultiple === 0;
}

/**
 * Sizes of the torus axes that a group takes: one for each mesh dim, and more where one axis is not
 * long enough. Split as evenly as the factors of the group allow, longest first.
 */
function groupAxes(devices: number, meshDims: number, torus: TorusLinks): number[] {
  const most = torus.longestAxes.length;
  const longest = torus.longestAxes[0];
  let count = Math.min(Math.max(meshDims, 1), most);
  while (count < most && Math.ceil(devices ** (1 / count)) > longest) count++;
  const axes: number[] = [];
  let rest = devices;
  for (let left = count; left > 1; left--) {
    const even = Math.round(rest ** (1 / left));
    let axis = even;
    while (axis > 1 && rest % axis !== 0) axis--;
    axes.push(axis);
    rest /= axis;
  }
  axes.push(rest);
  return axes.filter((axis) => axis > 1).sort((a, b) => b - a);
}

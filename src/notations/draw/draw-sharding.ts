/** Draws which devices hold which element of a sharded tensor, as text and as SVG. */

import { checkKinds } from '../../arguments.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';
import { drawSvg } from './svg.ts';
import { drawText } from './text.ts';
import { placementDrawing } from './views.ts';

/** The drawing of a sharded tensor. */
export interface ShardingDrawing {
  readonly text: string;
  readonly svg: string;
}

/**
 * Draws a tensor as a matrix of matrices, its last two dims innermost: each cell shows the devices
 * that hold its element.
 *
 * @param shape sizes of the tensor
 * @throws E_LIMIT for a tensor of more than 65,536 elements or 32 dims
 */
export function drawSharding(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): ShardingDrawing {
  checkKinds('drawSharding', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
  });
  const { drawing, holders } = placementDrawing(sharding, mesh, shape, { borders: true });
  const svg = drawSvg(drawing, {
    title: `${sharding.text} on ${mesh.text}, shape (${shape.join(', ')})`,
    caption: 'Each cell shows the devices that hold it; lines are shard borders.',
    holders,
  });
  return { text: drawText(drawing), svg };
}

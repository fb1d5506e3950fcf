/** Names that users of DTensor and JAX know, for what is a matter of meshes alone. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { DeviceMesh } from './mesh.ts';

/**
 * PyTorch's `init_device_mesh(type, shape, mesh_dim_names)`. The device type names no hardware here
 * and is only checked to be a word. Without names the mesh dims are `dim_0`, `dim_1`, ...
 *
 * @throws E_MESH when the names do not fit the shape, and what DeviceMesh throws
 */
export function init_device_mesh(
  deviceType: string,
  meshShape: readonly number[],
  options: { readonly mesh_dim_names?: readonly string[] } = {},
): DeviceMesh {
  checkKinds('init_device_mesh', {
    deviceType: [deviceType, 'string'],
    meshShape: [meshShape, 'integers'],
    options: [options, 'record', 'undefined'],
  });
  if (!/^[a-z]+$/.test(deviceType))
    throw new ShardwrightError('E_MESH', `device type '${deviceType}' is not a word such as cuda`, {
      hint: 'give the type without an index',
    });
  return named(meshShape, options.mesh_dim_names ?? meshShape.map((_, i) => `dim_${i}`));
}

/**
 * JAX's `make_mesh(axis_shapes, axis_names)`.
 *
 * @throws E_MESH when the names do not fit the shape, and what DeviceMesh throws
 */
export function make_mesh(axisShapes: readonly number[], axisNames: readonly string[]): DeviceMesh {
  checkKinds('make_mesh', {
    axisShapes: [axisShapes, 'integers'],
    axisNames: [axisNames, 'names'],
  });
  return named(axisShapes, axisNames);
}

function named(shape: readonly number[], names: readonly string[]): DeviceMesh {
  if (names.length !== shape.length)
    throw new ShardwrightError('E_MESH', `${shape.length} mesh sizes but ${names.length} names`, {
      hint: `sizes (${shape.join(', ')}), names (${names.join(', ')})`,
    });
  return new DeviceMesh(shape.map((size, i) => ({ name: names[i], size })));
}

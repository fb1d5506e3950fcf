/**
 * Meshes of Megatron-LM's order strings, in which the first axis is the fastest: `tp-cp-ep-dp-pp`.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { fillSizes, requireGroupSizes } from '../../recipes/expert-mesh.ts';

/** Orders that have names. */
export const MEGATRON_ORDERS = {
  /** Pipeline stages outermost (default). */
  megatron: 'tp-cp-ep-dp-pp',
  /** Data parallelism outermost (its tp-pp-dp option). */
  'megatron-dp-outer': 'tp-cp-ep-pp-dp',
} as const;

const AXES = ['tp', 'cp', 'ep', 'dp', 'pp'] as const;

/**
 * Sizes by axis; missing ones are 1. `dp` may be -1: it becomes devices / (tp * cp * pp). `etp`
 * defaults to tp.
 */
export interface MegatronSizes {
  readonly tp?: number;
  readonly cp?: number;
  readonly ep?: number;
  readonly etp?: number;
  readonly dp?: number;
  readonly pp?: number;
}

/** The meshes of dense and of expert layers that an order of Megatron-LM makes. */
export interface MegatronMeshes {
  /** Every axis of the order but ep, outermost first. */
  readonly dense: DeviceMesh;
  /**
   * pp, edp, ep, etp in the order's places, cp folded away; undefined without experts (ep = 1 and
   * etp = tp).
   */
  readonly expert: DeviceMesh | undefined;
}

/**
 * Dense and expert mesh of an order.
 *
 * @param order an order string, or a name of `MEGATRON_ORDERS`
 * @throws E_MESH for an unknown or repeated axis, an axis above 1 that the order leaves out, sizes
 * that do not make the devices, and meshes whose pipeline groups differ: stages of dense and expert
 * layers must be the same devices
 */
export function megatronMeshes(
  order: string,
  sizes: MegatronSizes,
  devices: number,
): MegatronMeshes {
  checkKinds('megatronMeshes', {
    order: [order, 'string'],
    sizes: [sizes, 'record'],
    devices: [devices, 'number'],
  });
  const listed = parseOrder(order, sizes);
  const filled = fillSizes(
    AXES.filter((a) => a !== 'ep'),
    { ...sizes },
    devices,
  );
  const outermostFirst = [...listed].reverse();
  const dense = new DeviceMesh(
    outermostFirst.filter((a) => a !== 'ep').map((name) => ({ name, size: filled.get(name) ?? 1 })),
  );
  const { ep = 1 } = sizes;
  const tp = filled.get('tp') ?? 1;
  const etp = sizes.etp ?? tp;
  const pp = filled.get('pp') ?? 1;
  if (ep === 1 && etp === tp) return { dense, expert: undefined };
  requireGroupSizes({ ep, etp });
  if (devices % (ep * etp * pp) !== 0)
    throw new ShardwrightError(
      'E_MESH',
      `ep ${ep} x etp ${etp} x pp ${pp} = ${ep * etp * pp} does not divide ${devices} devices`,
    );
  const expertSizes = new Map<string, [string, number]>([
    ['tp', ['etp', etp]],
    ['ep', ['ep', ep]],
    ['dp', ['edp', devices / (ep * etp * pp)]],
    ['pp', ['pp', pp]],
  ]);
  const expert = new DeviceMesh(
    outermostFirst.flatMap((a) => {
      const own = expertSizes.get(a);
      return own === undefined ? [] : [{ name: own[0], size: own[1] }];
    }),
  );
  if (JSON.stringify(dense.groups(['pp'])) !== JSON.stringify(expert.groups(['pp'])))
    throw new ShardwrightError(
      'E_MESH',
      `order ${order}: the pipeline groups of ${dense.text} and ${expert.text} are not the ` +
        'same devices',
      { hint: `put pp last, as in ${MEGATRON_ORDERS.megatron}, or make tp x cp = etp x ep` },
    );
  return { dense, expert };
}

function parseOrder(order: string, sizes: MegatronSizes): string[] {
  const text = Object.hasOwn(MEGATRON_ORDERS, order)
    ? MEGATRON_ORDERS[order as keyof typeof MEGATRON_ORDERS]
    : order;
  const listed = text.split('-');
  const seen = new Set<string>();
  for (const axis of listed) {
    if (!(AXES as readonly string[]).includes(axis))
      throw new ShardwrightError('E_MESH', `order '${order}' names an unknown axis '${axis}'`, {
        hint: suggestion(axis, AXES, 'axes'),
      });
    if (seen.has(axis))
      throw new ShardwrightError('E_MESH', `order '${order}' lists '${axis}' twice`);
    seen.add(axis);
  }
  for (const axis of AXES) {
    if (seen.has(axis)) continue;
    if ((sizes[axis] ?? 1) !== 1)
      throw new ShardwrightError(
        'E_MESH',
        `order '${order}' leaves out '${axis}', which has size ${sizes[axis]}`,
      );
    listed.push(axis);
  }
  return listed;
}

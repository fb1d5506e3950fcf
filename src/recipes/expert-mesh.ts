/**
 * Who talks to whom when parallelism strategies are combined: the dense mesh, the expert mesh
 * folded out of the same devices, and the axes that are derived by flattening. Pure functions over
 * meshes; nothing here knows of graphs or prices. Sources: torchtitan's ParallelDims (dense [pp,
 * dp_replicate, dp_shard, cp, tp], expert [pp, dp_replicate, efsdp, ep, etp]).
 */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import { DeviceMesh } from '../mesh/devices/mesh.ts';

/** Axes of the dense mesh, outermost first. */
const DENSE_AXES = ['pp', 'dp_replicate', 'dp_shard', 'cp', 'tp'] as const;
type DenseAxis = (typeof DENSE_AXES)[number];

/** Sizes by axis name; missing ones are 1, and one may be -1: it becomes what the devices leave. */
type DenseSizes = Readonly<Partial<Record<DenseAxis, number>>>;

/**
 * Sizes with the expert axes: `ep` experts' groups, `etp` tensor parallelism inside an expert
 * (default 1).
 */
export type FoldSizes = DenseSizes & { readonly ep?: number; readonly etp?: number };

/** Axes that are several dense axes flattened, the last listed fastest. */
export const DERIVED_AXES = {
  /** Data loading: devices that read different samples. */
  batch: ['dp_replicate', 'dp_shard'],
  /** Parameters and optimizer states are sharded over it. */
  fsdp: ['dp_shard', 'cp'],
  /** Mean of the loss over all tokens. */
  loss: ['dp_replicate', 'dp_shard', 'cp'],
  /** Devices that hold one copy of the model between them. */
  model: ['pp', 'tp'],
} as const satisfies Readonly<Record<string, readonly DenseAxis[]>>;

/**
 * Sizes with -1 replaced by devices / product of the others.
 *
 * @throws E_MESH when a size is wrong, two are -1, or the product is not the number of devices
 *   (with the nearest that fit)
 */
export function fillSizes(
  axes: readonly string[],
  sizes: Readonly<Record<string, number | undefined>>,
  devices: number,
): Map<string, number> {
  if (!Number.isSafeInteger(devices) || devices < 1)
    throw new ShardwrightError(
      'E_MESH',
      `the number of devices is ${devices}, expected an integer of at least 1`,
    );
  const out = new Map<string, number>();
  let free: string | undefined;
  let product = 1;
  for (const axis of axes) {
    const size = (Object.hasOwn(sizes, axis) ? sizes[axis] : undefined) ?? 1;
    if (size === -1) {
      if (free !== undefined)
        throw new ShardwrightError('E_MESH', `both '${free}' and '${axis}' are -1; one may be`);
      free = axis;
    } else if (!Number.isSafeInteger(size) || size < 1)
      throw new ShardwrightError(
        'E_MESH',
        `'${axis}' has size ${size}, expected at least 1, or -1 to fill`,
      );
    else product *= size;
    out.set(axis, size);
  }
  const terms = axes.filter((a) => a !== free && out.get(a) !== 1).map((a) => `${a} ${out.get(a)}`);
  const told = terms.length === 0 ? 'nothing else' : terms.join(' x ');
  if (free !== undefined) {
    if (devices % product !== 0)
      throw new ShardwrightError(
        'E_MESH',
        `'${free}' cannot fill ${devices} devices: ${devices} mod ${product} (${told}) is ` +
          `${devices % product}`,
        { hint: nearest(devices, product) },
      );
    out.set(free, devices / product);
  } else if (product !== devices)
    throw new ShardwrightError(
      'E_MESH',
      `${told} makes ${product} devices, but there are ${devices}`,
      {
        hint: 'change a size, or set one of them to -1 to fill',
      },
    );
  return out;
}

function nearest(devices: number, product: number): string {
  const below = Math.floor(devices / product) * product;
  const counts = below > 0 ? [below, below + product] : [product];
  return `use ${counts.join(' or ')} devices`;
}

/** The dense mesh, all five axes, also those of size 1. @throws E_MESH as `fillSizes` */
export function denseMesh(devices: number, sizes: DenseSizes): DeviceMesh {
  checkKinds('denseMesh', { devices: [devices, 'number'], sizes: [sizes, 'record'] });
  const filled = fillSizes(DENSE_AXES, sizes, devices);
  return new DeviceMesh([...filled].map(([name, size]) => ({ name, size })));
}

/** Dense mesh and expert mesh over the same devices; neither need factor the other. */
export interface ExpertFold {
  readonly dense: DeviceMesh;
  /** [pp, dp_replicate, efsdp, ep], and etp innermost when it is above 1. */
  readonly expert: DeviceMesh;
  /** Size of efsdp: what of the folded axes shards the states of an expert. */
  readonly modEp: number;
  /**
   * Part of dp_shard that lies inside an expert group; undefined when the group is smaller than
   * what it must swallow first.
   */
  readonly inEp: number | undefined;
  /** Dense axes that are folded into efsdp, ep and etp together. */
  readonly folded: readonly DenseAxis[];
}

/** @throws E_MESH for a size of an expert axis that is not an integer of at least 1 */
export function requireGroupSizes(sizes: { readonly ep: number; readonly etp: number }): void {
  for (const name of ['ep', 'etp'] as const) {
    const value = sizes[name];
    if (!Number.isSafeInteger(value) || value < 1)
      throw new ShardwrightError(
        'E_MESH',
        `'${name}' has size ${value}, expected an integer of at least 1`,
      );
  }
}

/**
 * Folds an expert mesh out of the dense axes dp_shard, cp and tp: dp_shard * cp * tp = efsdp * ep *
 * etp.
 *
 * With etp = tp above 1 the fold stays inside dp_shard and cp: ep = in_ep * cp at fixed tp. With
 * etp = 1 the expert groups swallow tp too and are runs of consecutive devices.
 *
 * @throws E_MESH with the equation that fails and the valid values of ep
 */
export function expertFold(devices: number, sizes: FoldSizes): ExpertFold {
  checkKinds('expertFold', { devices: [devices, 'number'], sizes: [sizes, 'record'] });
  const dense = denseMesh(devices, sizes);
  const size = (axis: DenseAxis): number => dense.sizes[dense.indexOf(axis)];
  const [shard, cp, tp] = [size('dp_shard'), size('cp'), size('tp')];
  const { ep = 1, etp = 1 } = sizes;
  requireGroupSizes({ ep, etp });
  const total = shard * cp * tp;
  const found = foldProblem({ shard, cp, tp }, ep, etp);
  if (found !== undefined) {
    const valid = expertGroups({ shard, cp, tp }, etp);
    throw new ShardwrightError(
      'E_MESH',
      `expert groups of ep ${ep} with etp ${etp} do not fold: ${found}`,
      {
        hint:
          valid.length > 0
            ? `valid values of ep: ${valid.join(', ')}`
            : `no ep fits etp ${etp}; use an etp that divides ${total}`,
      },
    );
  }
  const modEp = total / (ep * etp);
  const swallowed = etp === tp ? cp : cp * tp;
  const dims = [
    { name: 'pp', size: size('pp') },
    { name: 'dp_replicate', size: size('dp_replicate') },
    { name: 'efsdp', size: modEp },
    { name: 'ep', size: ep },
  ];
  if (etp > 1) dims.push({ name: 'etp', size: etp });
  return {
    dense,
    expert: new DeviceMesh(dims),
    modEp,
    inEp: ep % swallowed === 0 ? ep / swallowed : undefined,
    folded: etp === tp ? ['dp_shard', 'cp'] : ['dp_shard', 'cp', 'tp'],
  };
}

/** Sizes of the dense axes that an expert mesh folds out of. */
export interface FoldedSizes {
  readonly shard: number;
  readonly cp: number;
  readonly tp: number;
}

/**
 * Sizes of expert groups that fold with an etp, ascending; none where etp does not divide the
 * devices.
 */
export function expertGroups(sizes: FoldedSizes, etp: number): number[] {
  const total = sizes.shard * sizes.cp * sizes.tp;
  const valid: number[] = [];
  for (let ep = 1; ep * etp <= total; ep++)
    if (foldProblem(sizes, ep, etp) === undefined) valid.push(ep);
  return valid;
}

/** The conditions of a fold that fail, with their numbers; undefined where it folds. */
export function foldProblem(
  { shard, cp, tp }: FoldedSizes,
  ep: number,
  etp: number,
): string | undefined {
  const total = shard * cp * tp;
  const failing: string[] = [];
  if (total % (ep * etp) !== 0)
    failing.push(
      `dp_shard ${shard} x cp ${cp} x tp ${tp} = ${total}, and ${total} mod ${ep * etp} (ep ` +
        `x etp) is ${total % (ep * etp)}`,
    );
  // One expert group of one device folds nothing.
  if (etp === tp && tp > 1 && ep > 1) {
    if (ep % cp !== 0)
      failing.push(`with etp = tp, ep ${ep} mod cp ${cp} is ${ep % cp}, expected 0`);
    else if (shard % (ep / cp) !== 0)
      failing.push(`with etp = tp, ep / cp = ${ep / cp} does not divide dp_shard ${shard}`);
  }
  return failing.length === 0 ? undefined : failing.join('; ');
}

/**
 * The axis of a strategy: one of its own, that of another strategy, or one of a second mesh over
 * the same devices.
 */
type AxisUse = 'new' | 'reused' | 'second mesh';

/** Devices that one strategy joins. */
interface StrategyGroups {
  readonly strategy: string;
  readonly use: AxisUse;
  /** Whose axes are reused. */
  readonly of: readonly string[];
  readonly mesh: 'dense' | 'expert';
  readonly dims: readonly string[];
  /** Device ids, ascending inside a group. */
  readonly groups: readonly (readonly number[])[];
}

const STRATEGIES: readonly Omit<StrategyGroups, 'groups'>[] = [
  { strategy: 'pp', use: 'new', of: [], mesh: 'dense', dims: ['pp'] },
  { strategy: 'dp', use: 'new', of: [], mesh: 'dense', dims: DERIVED_AXES.batch },
  { strategy: 'fsdp', use: 'reused', of: ['dp', 'cp'], mesh: 'dense', dims: DERIVED_AXES.fsdp },
  { strategy: 'hsdp replicas', use: 'reused', of: ['dp'], mesh: 'dense', dims: ['dp_replicate'] },
  { strategy: 'cp', use: 'new', of: [], mesh: 'dense', dims: ['cp'] },
  { strategy: 'tp', use: 'new', of: [], mesh: 'dense', dims: ['tp'] },
  { strategy: 'sp', use: 'reused', of: ['tp'], mesh: 'dense', dims: ['tp'] },
  { strategy: 'loss', use: 'reused', of: ['dp', 'cp'], mesh: 'dense', dims: DERIVED_AXES.loss },
  { strategy: 'ep', use: 'second mesh', of: ['dp', 'cp', 'tp'], mesh: 'expert', dims: ['ep'] },
  {
    strategy: 'expert fsdp',
    use: 'second mesh',
    of: ['dp', 'cp', 'tp'],
    mesh: 'expert',
    dims: ['efsdp'],
  },
  { strategy: 'etp', use: 'second mesh', of: ['tp'], mesh: 'expert', dims: ['etp'] },
];

/**
 * Groups of every strategy that a fold admits, in a fixed order; strategies whose axis has size 1
 * are left out.
 */
export function strategyGroups(fold: ExpertFold): StrategyGroups[] {
  checkKinds('strategyGroups', { fold: [fold, ['dense', 'expert', 'modEp']] });
  return STRATEGIES.filter(({ mesh, dims }) => {
    const own = fold[mesh];
    return dims.every((d) => own.names.includes(d)) && own.sizeOf(own.resolve(dims)) > 1;
  }).map((s) => ({ ...s, groups: fold[s.mesh].groups(s.dims) }));
}

/**
 * Why a layout of routed experts with tensor parallelism has sequence parallelism too. Source:
 * `MoELayer.forward` of megatron-core 0.16.1 (`transformer/moe/moe_layer.py`), which raises a
 * ValueError in training without it.
 */
export const UNCUT_STREAM =
  'tokens are sent to experts from where they lie, so tensor parallelism cuts the sequence ' +
  'between layers too, and megatron-core 0.16 refuses to train without';

import type { ComparedPlan, Comparison } from '../../src/recipes/compare/comparison.ts';
import { bytesText } from '../../src/units.ts';

/** A parallel layout as a source states it; what it leaves open is absent. */
export interface PublishedLayout {
  readonly model: string;
  readonly devices: number;
  /** Node design. */
  readonly cluster: string;
  /** What the devices of the run had instead of those of the node design. */
  readonly device?: { readonly memoryBytes: number; readonly memoryBytesPerSecond: number };
  readonly sequence: number;
  readonly globalBatch: number;
  readonly pp: number;
  readonly cp: number;
  readonly tp: number;
  readonly ep: number;
  /** FSDP or HSDP instead of replicated parameters. */
  readonly sharded: boolean;
  /** The layout in words. */
  readonly text: string;
}

/** The cluster that a layout was run on, as `loadCluster` takes it. */
export function publishedCluster({ cluster, device }: PublishedLayout): string {
  return device === undefined ? cluster : JSON.stringify({ base: cluster, ...device });
}

/** Where a published layout stands among all layouts that have a plan that fits. */
export interface PublishedRank {
  readonly seconds?: number;
  /** From 1. */
  readonly rank?: number;
  /** Layouts that fit. */
  readonly of: number;
  /** rank / of. */
  readonly share?: number;
  /**
   * The same among single plans, where every state sharding and every use of a dim counts for
   * itself.
   */
  readonly plan?: { readonly rank: number; readonly of: number };
  /** Why it has no rank, or is not among the first tenth. */
  readonly says: string;
}

/** Share of the fitting layouts that a published one is expected in. */
const FIRST = 0.1;

/**
 * What a layout is: a mesh, what its dims are for, and whether parameters are sharded over data
 * ranks. Sources say that much and leave the rest open (ZeRO stage, sequence parallelism, gathered
 * or passed keys and values, schedule, checkpointing, sequences of a microbatch), so that the best
 * of it counts: for the published layout and, to compare like with like, for all others.
 */
export function layoutOf({ plan, layout }: ComparedPlan): string | undefined {
  if (layout === undefined) return undefined;
  const { pp, dp_replicate, dp_shard, cp, tp, ep } = layout.sizes;
  const parts = plan.split('+');
  const isSharded = parts.includes('fsdp') || parts.includes('hsdp');
  const context = cp > 1 && parts.includes('ulysses') ? 'sp' : 'cp';
  return layoutText({ pp, dp: dp_replicate * dp_shard, cp, tp, ep, context, isSharded });
}

interface LayoutKey {
  readonly pp: number;
  readonly dp: number;
  readonly cp: number;
  readonly tp: number;
  readonly ep: number;
  readonly context: 'cp' | 'sp';
  readonly isSharded: boolean;
}

function layoutText({ pp, dp, cp, tp, ep, context, isSharded }: LayoutKey): string {
  // One rank has nothing to shard.
  const states = dp * cp === 1 ? '' : isSharded ? ' sharded' : '';
  return `pp=${pp},dp=${dp},${context}=${cp},tp=${tp} ep=${ep}${states}`;
}

/**
 * Finds the layout in a comparison: its fastest fitting plan, and the layouts whose fastest one is
 * faster.
 */
export function publishedRank(
  comparison: Pick<Comparison, 'plans' | 'meshes'>,
  published: PublishedLayout,
): PublishedRank {
  const { pp, cp, tp, ep, sharded: isSharded, devices } = published;
  const own = layoutText({
    pp,
    dp: devices / (pp * cp * tp),
    cp,
    tp,
    ep,
    context: 'cp',
    isSharded,
  });
  const fitting = comparison.plans.filter((p) => p.fits && p.origin === 'zoo');
  const layouts = [...new Set(fitting.map((p) => layoutOf(p) ?? p.name))];
  const at = layouts.indexOf(own);
  const of = layouts.length;
  if (at >= 0) {
    const index = fitting.findIndex((p) => layoutOf(p) === own);
    const share = (at + 1) / of;
    return {
      seconds: fitting[index].seconds,
      rank: at + 1,
      of,
      share,
      plan: { rank: index + 1, of: fitting.length },
      says: share > FIRST ? (fitting[index].why ?? '') : '',
    };
  }
  const over = comparison.plans.find((p) => !p.fits && layoutOf(p) === own);
  if (over !== undefined)
    return {
      seconds: over.seconds,
      of,
      says: `does not fit: ${bytesText(over.overBytes ?? 0)} over`,
    };
  const dims: readonly (readonly [string, number])[] = [
    ['pp', pp],
    ['dp', devices / (pp * cp * tp)],
    ['cp', cp],
    ['tp', tp],
  ];
  const text = dims
    .filter(([, n]) => n > 1)
    .map(([name, n]) => `${name}=${n}`)
    .join(',');
  const mesh = comparison.meshes.find((m) => m.mesh === text);
  return {
    of,
    says:
      mesh === undefined ? 'not among the meshes' : `${mesh.status} ${mesh.reason ?? ''}`.trim(),
  };
}

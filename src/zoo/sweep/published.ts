import { bytesText } from '../../units.ts';
import type { ComparedPlan, Comparison } from '../comparison.ts';

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

/** Where a published layout stands among the plans that fit. */
export interface PublishedRank {
  readonly seconds?: number;
  /** From 1. */
  readonly rank?: number;
  readonly of: number;
  /** rank / of. */
  readonly share?: number;
  /** Why it has no rank, or is not among the first tenth. */
  readonly says: string;
}

/** Share of the fitting plans that a published layout is expected in. */
const FIRST = 0.1;

/** Finds the layout among the plans of a comparison: the fastest fitting plan with the sizes that are published. */
export function publishedRank(comparison: Comparison, layout: PublishedLayout): PublishedRank {
  const fitting = comparison.plans.filter((p) => p.fits && p.origin === 'zoo');
  const own = (p: ComparedPlan): boolean => {
    const sizes = p.layout?.sizes;
    if (sizes === undefined) return false;
    const { pp, cp, tp, ep, sharded } = layout;
    if (sizes.pp !== pp || sizes.cp !== cp || sizes.tp !== tp || sizes.ep !== ep) return false;
    const parts = p.plan.split('+');
    return !parts.includes('ulysses') && (parts.includes('fsdp') || parts.includes('hsdp')) === sharded;
  };
  const at = fitting.findIndex(own);
  const of = fitting.length;
  if (at >= 0) {
    const share = (at + 1) / of;
    return {
      seconds: fitting[at].seconds,
      rank: at + 1,
      of,
      share,
      says: share > FIRST ? (fitting[at].why ?? '') : '',
    };
  }
  const over = comparison.plans.find((p) => !p.fits && own(p));
  if (over !== undefined)
    return { seconds: over.seconds, of, says: `does not fit: ${bytesText(over.overBytes ?? 0)} over` };
  const { pp, cp, tp } = layout;
  const dp = layout.devices / (pp * cp * tp);
  const text = [`pp=${pp}`, `dp=${dp}`, `cp=${cp}`, `tp=${tp}`].filter((t) => !t.endsWith('=1')).join(',');
  const mesh = comparison.meshes.find((m) => m.mesh === text);
  return { of, says: mesh === undefined ? 'not among the meshes' : `${mesh.status} ${mesh.reason ?? ''}`.trim() };
}

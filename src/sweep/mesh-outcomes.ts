/** The outcome of each mesh of a sweep. */

import { coreKey, type CoreRequest, coreRequest } from './model/types.ts';
import type { LayoutRow, MeshRows } from './step/layouts.ts';

export interface SweepMesh {
  readonly mesh: string;
  readonly sizes: readonly number[];
  readonly status: 'solved' | 'beaten' | 'refused' | 'not asked' | 'not reached';
  readonly boundSeconds?: number;
  readonly code?: string;
  readonly reason?: string;
}

/** A plan that no program has, by its own limits or by those of its program. */
export interface RefusedPlan {
  readonly plan: string;
  readonly mesh: string;
  readonly code?: string;
  readonly reason: string;
}

interface MeshFates {
  /** Places of the meshes that have a priced plan (`LayoutRow.meshIndex`). */
  readonly solved: ReadonlySet<number>;
  /** Bounds of the programs that are above the best plan, by their keys. */
  readonly beaten: ReadonlyMap<string, number>;
  /** Keys of the programs that the time did not suffice for. */
  readonly late: ReadonlySet<string>;
  readonly refused: readonly RefusedPlan[];
  /** Sequences of a microbatch that are tried. */
  readonly sizes: readonly number[];
}

export function meshOutcome(
  { mesh, sizes, rows, refused: stopped }: MeshRows,
  fates: MeshFates,
): SweepMesh {
  const at = { mesh, sizes };
  if (rows.some((r) => fates.solved.has(r.meshIndex))) return { ...at, status: 'solved' };
  const keys = rows.flatMap((row) => fates.sizes.map((size) => coreKey(requestOf(row, size))));
  if (keys.some((key) => fates.late.has(key)))
    return { ...at, status: 'not reached', reason: 'the time was over' };
  const bounds = keys.flatMap((key) => fates.beaten.get(key) ?? []);
  if (bounds.length > 0) return { ...at, status: 'beaten', boundSeconds: Math.min(...bounds) };
  if (rows.length > 0) {
    const reason = fates.refused.find((r) => rows.some((row) => row.mesh === r.mesh))?.reason;
    return { ...at, status: 'refused', reason: reason ?? 'the batch does not divide' };
  }
  const [first] = stopped;
  if (first === undefined)
    return { ...at, status: 'not asked', reason: 'no plan of it is asked for' };
  return { ...at, status: 'refused', code: first.finding.code, reason: first.finding.message };
}

/** Plans that their own sizes refuse, mesh by mesh. */
export function refusedBySizes(meshes: readonly MeshRows[]): RefusedPlan[] {
  return meshes.flatMap(({ refused }) =>
    refused.map(({ name, mesh, finding }) => ({
      plan: name,
      mesh,
      code: finding.code,
      reason: finding.message,
    })),
  );
}

function requestOf(row: LayoutRow, microbatch: number): CoreRequest {
  return coreRequest(row.sizes, row.kind, microbatch);
}

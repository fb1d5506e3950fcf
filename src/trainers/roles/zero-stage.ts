/**
 * Tells the ZeRO stage of a plan whose program updates its parameters: whether optimizer states,
 * and gradients before the update, are cut over devices on which their parameter is whole
 * (arXiv:1910.02054).
 */

import type { ExportSource } from '../../backend/target.ts';
import { eachOperand } from '../../graph/value.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { PlanRoles } from './roles.ts';

export interface ZeroStage {
  readonly stage: 0 | 1 | 2;
  /** Parameters with states of their own, and those whose states are cut further than they are. */
  readonly trained: number;
  readonly cut: number;
}

export function zeroStage(
  { parameters }: PlanRoles,
  { mesh, table, plan, program }: ExportSource,
): ZeroStage {
  const placed = new Map(plan.nodes.map((node) => [node.name, node.outputs[0]]));
  /** Mesh dims that cut a value. */
  const cutBy = (name: string): ReadonlySet<number> => {
    const text = placed.get(name);
    const { placements } =
      text === undefined ? { placements: [] } : parseSharding(text, mesh, { kinds: table.kinds });
    return new Set(
      placements.flatMap((p, m) => (p.dim !== undefined && mesh.sizes[m] > 1 ? [m] : [])),
    );
  };
  const stored = new Map(parameters.map((p) => [p.name, p.stored]));
  const trained = new Map<string, boolean>();
  for (const { kind, name, type, meta } of program.nodes) {
    const own = stored.get(meta.roleName ?? '');
    if (
      kind !== 'placeholder' ||
      meta.role !== 'state' ||
      own === undefined ||
      type.kind !== 'tensor' ||
      type.shape.length === 0
    )
      continue;
    const further = [...cutBy(name)].some((m) => own.placements[m].dim === undefined);
    trained.set(meta.roleName ?? '', further || trained.get(meta.roleName ?? '') === true);
  }
  const cut = [...trained.values()].filter(Boolean).length;
  // A gradient's own name follows the call that makes it, and its update reads it.
  const updates = new Set<string>();
  for (const node of program.nodes)
    if (node.meta.phase === 'optimizer') eachOperand(node, (name) => updates.add(name));
  const gradients = program.nodes.filter(
    (n) => n.target === 'aten.alias.default' && updates.has(n.name),
  );
  const early = gradients.filter((n) => cutBy(n.name).size > 0).length;
  return { stage: cut === 0 ? 0 : early >= cut ? 2 : 1, trained: trained.size, cut };
}

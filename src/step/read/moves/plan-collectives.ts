/**
 * Takes the moves of a solved plan of one data rank and gives its collectives: by unit for the
 * traffic of a step, and those of data ranks.
 */

import { COLLECTIVE_KINDS } from '../../../mesh/collective-kinds.ts';
import type { Model } from '../../../plan/model/model.ts';
import { collectivesInside } from '../../../plan/model/node-costs.ts';
import { ringBytes } from '../../traffic.ts';
import type { CoreTraffic, DataExtra } from '../../units.ts';
import type { GraphUnits } from '../graph-units.ts';
import type { Move } from './pending-sums.ts';

/** Kinds of steps that are collectives, not copies. */
export const COLLECTIVES: ReadonlySet<string> = new Set<string>(COLLECTIVE_KINDS);

/** Collectives of activations by unit, kind and mesh dims; `repeated` calls run in both passes. */
export function unitTraffic(
  model: Model,
  units: GraphUnits,
  moves: readonly Move[],
  repeated: ReadonlySet<number>,
): CoreTraffic[] {
  const { mesh } = model.space;
  const sums = new Map<string, CoreTraffic>();
  for (const { kind: what, node, steps } of moves) {
    if (what === 'gradient') continue;
    const unit = units.unit[node];
    const times = repeated.has(node) ? 2 : 1;
    for (const { kind, meshDims, bytes, seconds } of steps) {
      if (!COLLECTIVES.has(kind)) continue;
      const axes = meshDims.map((d) => mesh.names[d]).join('+');
      const key = `${unit} ${kind} ${axes}`;
      const known = sums.get(key);
      sums.set(key, {
        unit,
        kind,
        axes,
        count: (known?.count ?? 0) + times,
        sentBytes: (known?.sentBytes ?? 0) + times * ringBytes(kind, bytes, mesh.sizeOf(meshDims)),
        seconds: (known?.seconds ?? 0) + times * seconds,
      });
    }
  }
  return [...sums.values()];
}

/** Collectives of a plan for data ranks that are neither of parameters nor of gradients. */
export function dataExtras(
  model: Model,
  choice: Int32Array,
  units: GraphUnits,
  moves: readonly Move[],
): DataExtra[] {
  const out: DataExtra[] = [];
  const add = (kind: string, bytes: number, n: number): void => {
    const pass = units.pass[n] === 'forward' ? 'forward' : 'input';
    out.push({ kind, bytes, unit: units.unit[n], pass });
  };
  for (const { kind: what, node, steps } of moves) {
    if (what !== 'activation') continue;
    for (const { kind, bytes } of steps) if (COLLECTIVES.has(kind)) add(kind, bytes, node);
  }
  model.graph.nodes.forEach((_, n) => {
    const entry = model.strategies.nodes[n];
    if (entry?.call === undefined || entry.record === undefined) return;
    for (const { kind, bytes } of collectivesInside(
      entry,
      choice[model.nodeVariable[n]],
      model.space,
    ))
      add(kind, bytes, n);
  });
  return out;
}

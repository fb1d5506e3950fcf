/** Counts the equations of a jaxpr by primitive, nested ones included. */

import type { Jaxpr } from './text/syntax.ts';

/**
 * Equations of the outermost jaxpr, and by primitive over all nested ones; a shared body counts at
 * every use.
 */
export function countEquations(root: Jaxpr): {
  readonly nodes: number;
  readonly ops: Readonly<Record<string, number>>;
} {
  const known = new Map<Jaxpr, ReadonlyMap<string, number>>();
  const count = (jaxpr: Jaxpr): ReadonlyMap<string, number> => {
    const done = known.get(jaxpr);
    if (done !== undefined) return done;
    const counts = new Map<string, number>();
    for (const { primitive, parameters } of jaxpr.equations) {
      counts.set(primitive, (counts.get(primitive) ?? 0) + 1);
      for (const { bodies } of parameters.values()) {
        for (const body of bodies)
          for (const [name, n] of count(body)) counts.set(name, (counts.get(name) ?? 0) + n);
      }
    }
    known.set(jaxpr, counts);
    return counts;
  };
  const ops: Record<string, number> = Object.create(null) as Record<string, number>;
  for (const [name, n] of [...count(root)].sort(([a], [b]) => (a < b ? -1 : 1))) ops[name] = n;
  return { nodes: root.equations.length, ops };
}

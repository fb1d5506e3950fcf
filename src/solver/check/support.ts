/**
 * Deletes values without support (arc consistency) from the checker's model: values that cost
 * infinity or have no finite partner in some factor. It deletes no value of a choice of finite
 * cost. It is written for the checker alone.
 */
import type { Model } from './model.ts';

/** Looks at what has changed since the last time, and at what that changes. */
export function support(model: Model): void {
  const { store } = model;
  const neighbours = (i: number): number[] =>
    model.incident[i].flatMap((f) => model.parts[f]?.vars ?? []);
  const queue = new Set(model.changed ?? model.size.keys());
  for (const i of model.changed ?? []) for (const v of neighbours(i)) queue.add(v);
  // A set goes on with what is added while it is gone through.
  for (const i of queue) {
    queue.delete(i);
    if (model.gone[i]) continue;
    const costs = store.vectors[model.unary[i]];
    // In its smallest form a factor has no class for a value without a partner.
    const classes = model.incident[i].map((f) => {
      const { vars, maps } = model.part(f);
      return store.maps[maps[vars.indexOf(i)]];
    });
    const keep: number[] = [];
    store.work.spend(costs.length * (1 + classes.length));
    for (let a = 0; a < costs.length; a++)
      if (costs[a] !== Infinity && classes.every((map) => map[a] >= 0)) keep.push(a);
    if (keep.length === costs.length) continue;
    model.restrict(i, store.map(Int32Array.from(keep)));
    if (model.empty) return;
    for (const v of neighbours(i)) queue.add(v);
  }
  model.changed = new Set();
}

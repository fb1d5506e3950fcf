/** The checker's elimination of a variable: exact minimisation over it, remembered by content. */
import { minimise, type Summand } from './minimise.ts';
import type { Elimination, Model } from './model.ts';
import { Refused } from './refused.ts';
import { shrink } from './shrink.ts';
import type { Part } from './store.ts';

/** Largest cost that may still matter, over the constant. */
function slackOf(model: Model): number {
  if (model.whole || !model.nonNegative || model.cut === undefined) return Infinity;
  return Number(model.cut - model.constant);
}

/** Minimises over v. */
export function eliminate(model: Model, v: number): void {
  model.needs(v);
  if (model.rows.some((row) => row.amounts[v] >= 0))
    throw new Refused(`variable ${v} is in a row: it cannot go alone`);
  const { store } = model;
  const parts = model.incident[v].map((f) => model.part(f));
  const slack = slackOf(model);
  const local: number[] = [];
  let key = store.tuple(store.tuple(-1, model.unary[v]), model.memos.nameOf(slack));
  for (const p of parts) {
    key = store.tuple(key, p.grid.id);
    for (let k = 0; k < p.vars.length; k++) {
      let place = -1;
      if (p.vars[k] !== v) {
        place = local.indexOf(p.vars[k]);
        if (place < 0) place = local.push(p.vars[k]) - 1;
      }
      key = store.tuple(store.tuple(key, place + 1), p.maps[k]);
    }
  }
  const result = model.memos.eliminations.get(key, 0, () =>
    minimised(model, v, parts, local, slack),
  );
  for (const f of model.incident[v].slice()) model.remove(f);
  model.changed = undefined;
  model.gone[v] = true;
  const vars = result.neighbours.map((k) => local[k]);
  if (result.least === Infinity) {
    model.empty = true;
    return;
  }
  model.constant += BigInt(result.least);
  if (result.shrunk === undefined) return;
  const { grid, maps } = result.shrunk;
  if (vars.length === 1) {
    model.unary[vars[0]] = store.sum(
      model.unary[vars[0]],
      store.gather(store.vector(grid.cells), maps[0]),
    );
  } else {
    model.addPart({ vars, maps, grid, tidy: true });
  }
}

function minimised(
  model: Model,
  v: number,
  parts: readonly Part[],
  local: readonly number[],
  slack: number,
): Elimination {
  const { store } = model;
  let own = store.identity(model.size[v]);
  if (parts.length > 0)
    own = parts.map((p) => p.maps[p.vars.indexOf(v)]).reduce((a, b) => store.join(a, b));
  const joints = local.map((u) => {
    const maps = parts.filter((p) => p.vars.includes(u)).map((p) => p.maps[p.vars.indexOf(u)]);
    return maps.reduce((a, b) => store.join(a, b));
  });
  // The longest axis goes last, where the loop is tight.
  const order = [...local.keys()].sort(
    (a, b) => store.classes[joints[a]] - store.classes[joints[b]] || a - b,
  );
  const summands = parts.map((p): Summand => ({
    grid: p.grid,
    maps: p.maps,
    places: p.vars.map((u) => (u === v ? -1 : order.indexOf(local.indexOf(u)))),
  }));
  const axes = order.map((k) => joints[k]);
  const cells = minimise(store, model.unary[v], own, axes, summands, slack);
  const least = leastOf(cells);
  if (least === Infinity || order.length === 0)
    return { least, neighbours: order, shrunk: undefined };
  for (let k = 0; k < cells.length; k++) cells[k] -= least;
  const dims = axes.map((m) => store.classes[m]);
  return { least, neighbours: order, shrunk: shrink(store, dims, cells, axes) };
}

function leastOf(cells: Float64Array): number {
  let least = Infinity;
  for (let k = 0; k < cells.length; k++) if (cells[k] < least) least = cells[k];
  return least;
}

/**
 * Finds mesh dims and tensor dims that are interchangeable, so that the planner searches from one
 * source of each symmetry class.
 */

import type { StateGraph } from './states.ts';

/**
 * Tensor dims that cost the same may be exchanged, and so may mesh dims of equal size and equal
 * links: the price from one state to another stays the same when both are relabelled. So only one
 * source of each orbit is searched; the others read its row through a permutation of states.
 */
interface Relabelling {
  /** The state that represents the orbit of the source. */
  readonly canonical: number;
  /** The image of each state under the exchange that takes the source to `canonical`. */
  readonly states: Int32Array;
}

/** Two mesh dims (axes of the state graph) that may change places. */
interface AxisExchange {
  readonly a: number;
  readonly b: number;
  /** The image of each state. */
  readonly states: Int32Array;
  /** The image of each price slot. */
  readonly slots: Int32Array;
}

/**
 * Exchanges of two mesh dims of equal size that map the state graph onto itself; which of them keep
 * prices, prices say.
 */
export class AxisExchanges {
  private readonly all: readonly AxisExchange[];

  constructor(graph: StateGraph) {
    const all: AxisExchange[] = [];
    const sizes = graph.axisSizes;
    for (let b = 1; b < sizes.length && !graph.hasSpecialCuts; b++)
      for (let a = 0; a < b; a++) {
        if (sizes[a] !== sizes[b]) continue;
        const states = graph.swapped(a, b);
        const slots = states === undefined ? undefined : graph.swappedSlots(a, b);
        if (states !== undefined && slots !== undefined) all.push({ a, b, states, slots });
      }
    this.all = all;
  }

  /** The exchanges under which every step keeps its price. @param prices seconds of each slot */
  withEqualPrices(prices: Float64Array): readonly AxisExchange[] {
    return this.all.filter(({ slots }) =>
      slots.every((mirror, slot) => prices[mirror] === prices[slot]),
    );
  }
}

export class DimSymmetry {
  private readonly found: (Relabelling | undefined)[];
  private readonly maps = new Map<string, Int32Array>();
  private readonly composed = new Map<string, Int32Array>();
  private readonly identity: Int32Array;
  /** The group that the exchanges of mesh dims generate, the identity first. */
  private readonly group: readonly Int32Array[];

  /**
   * @param classes class of each tensor dim: dims of one class cost the same
   * @param exchanges of mesh dims that keep all prices
   */
  constructor(
    private readonly graph: StateGraph,
    private readonly classes: readonly string[],
    exchanges: readonly AxisExchange[],
  ) {
    this.found = new Array<Relabelling | undefined>(graph.stateCount).fill(undefined);
    this.identity = Int32Array.from({ length: graph.stateCount }, (_, s) => s);
    this.group = generated(this.identity, exchanges);
  }

  of(state: number): Relabelling {
    return (this.found[state] ??= this.best(state));
  }

  /**
   * The smallest state among the representatives of the images of a state under exchanges of mesh
   * dims.
   */
  private best(state: number): Relabelling {
    if (this.group.length === 1) return this.find(state).relabelling;
    let least = this.find(state);
    let element = 0;
    for (let g = 1; g < this.group.length; g++) {
      const other = this.find(this.group[g][state]);
      if (other.relabelling.canonical >= least.relabelling.canonical) continue;
      least = other;
      element = g;
    }
    const { relabelling, name } = least;
    if (element === 0) return relabelling;
    const key = `${element}:${name}`;
    let states = this.composed.get(key);
    if (states === undefined) {
      states = this.group[element].map((s) => relabelling.states[s]);
      this.composed.set(key, states);
    }
    return { canonical: relabelling.canonical, states };
  }

  /**
   * Relabels the cut dims of a class to its first dims, in the order in which the mesh dims meet
   * them.
   */
  private find(state: number): { readonly relabelling: Relabelling; readonly name: string } {
    const { graph, classes } = this;
    const same = { relabelling: { canonical: state, states: this.identity }, name: '' };
    if (graph.hasSpecialCuts) return same;
    const met: number[] = [];
    for (let a = 0; a < graph.active.length; a++) {
      const dim = graph.dimAt(state, a);
      if (dim >= 0 && !met.includes(dim)) met.push(dim);
    }
    const to = classes.map((_, d) => d);
    for (const c of new Set(classes)) {
      const members = graph.dims.filter((d) => classes[d] === c);
      const order = [
        ...met.filter((d) => classes[d] === c),
        ...members.filter((d) => !met.includes(d)),
      ];
      order.forEach((d, i) => (to[d] = members[i]));
    }
    if (to.every((t, d) => t === d)) return same;
    const name = to.join(',');
    let states = this.maps.get(name);
    if (states === undefined) this.maps.set(name, (states = graph.relabelled(to)));
    return { relabelling: { canonical: states[state], states }, name };
  }
}

/** All products of the exchanges, as permutations of states. */
function generated(identity: Int32Array, exchanges: readonly AxisExchange[]): Int32Array[] {
  const group = [identity];
  const known = new Set([identity.join()]);
  // The list grows while it is walked, until no exchange leads out of it.
  for (const element of group)
    for (const { states } of exchanges) {
      const next = element.map((s) => states[s]);
      const key = next.join();
      if (known.has(key)) continue;
      known.add(key);
      group.push(next);
    }
  return group;
}

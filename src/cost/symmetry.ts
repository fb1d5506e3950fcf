import type { StateGraph } from './states.ts';

/**
 * Tensor dims that cost the same may be exchanged: the price from one state to another stays the same when both are
 * relabelled. So only one source of each orbit is searched; the others read its row through a permutation of states.
 */
export interface Relabelling {
  /** The state that stands for the orbit of the source. */
  readonly canonical: number;
  /** Where each state goes under the exchange that takes the source to `canonical`. */
  readonly states: Int32Array;
}

export class DimSymmetry {
  private readonly found: (Relabelling | undefined)[];
  private readonly maps = new Map<string, Int32Array>();
  private readonly identity: Int32Array;

  /**
   * @param classes class of each tensor dim: dims of one class cost the same
   */
  constructor(
    private readonly graph: StateGraph,
    private readonly classes: readonly string[],
  ) {
    this.found = new Array<Relabelling | undefined>(graph.stateCount).fill(undefined);
    this.identity = Int32Array.from({ length: graph.stateCount }, (_, s) => s);
  }

  of(state: number): Relabelling {
    return (this.found[state] ??= this.find(state));
  }

  /** Relabels the cut dims of a class to its first dims, in the order in which the mesh dims meet them. */
  private find(state: number): Relabelling {
    const { graph, classes } = this;
    if (graph.hasSpecialCuts) return { canonical: state, states: this.identity };
    const met: number[] = [];
    for (let a = 0; a < graph.active.length; a++) {
      const dim = graph.dimAt(state, a);
      if (dim >= 0 && !met.includes(dim)) met.push(dim);
    }
    const to = classes.map((_, d) => d);
    for (const c of new Set(classes)) {
      const members = graph.dims.filter((d) => classes[d] === c);
      const order = [...met.filter((d) => classes[d] === c), ...members.filter((d) => !met.includes(d))];
      order.forEach((d, i) => (to[d] = members[i]));
    }
    if (to.every((t, d) => t === d)) return { canonical: state, states: this.identity };
    const k = to.join(',');
    let states = this.maps.get(k);
    if (states === undefined) this.maps.set(k, (states = graph.relabelled(to)));
    return { canonical: states[state], states };
  }
}

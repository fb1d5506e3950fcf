/** Finds the names that the unsharded program has for the members of a tuple. */
import type { Graph } from '../graph/types.ts';
import type { Dataflow } from '../strategy/dataflow.ts';

export class MemberNames {
  /** Names of the calls that take a member out of its tuple, by value. */
  private readonly taken = new Map<number, string>();

  constructor(
    graph: Graph,
    private readonly flow: Dataflow,
  ) {
    for (const [i, node] of graph.nodes.entries()) {
      const id = flow.alias[i];
      if (id >= 0 && node.target === 'operator.getitem' && !this.taken.has(id))
        this.taken.set(id, node.name);
    }
  }

  /**
   * Names of the members of what node `n` gives, by their places; members that nobody takes have
   * none.
   */
  of(n: number): Map<number, string> {
    const names = new Map<number, string>();
    for (const [k, id] of this.flow.results[n].entries()) {
      const name = id < 0 ? undefined : this.taken.get(id);
      if (name !== undefined) names.set(k, name);
    }
    return names;
  }
}

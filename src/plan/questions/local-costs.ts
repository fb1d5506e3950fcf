/**
 * Computes the incremental cost of one node: the cost of each value of a variable with its
 * neighbours fixed.
 */
import { defined } from '../../defined.ts';
import type { Model } from '../model/model.ts';
import { edgeCost, edgeName } from './attribution.ts';

/** The cost of the edges of a node, in units of the problem. */
interface Around {
  /** Moves of its inputs; of a copy that it shares with others, what this node adds to it. */
  readonly into: number;
  /** Moves of its results, and of every copy of them. */
  readonly out: number;
  /** The first move that is refused. */
  readonly blocked?: string;
}

interface End {
  readonly edge: number;
  /** True if the node asked about is the first end. */
  readonly first: boolean;
}

/**
 * One node with everything around it fixed, but the shared copies of its inputs and results: those
 * follow the placements that they are copies of, so they are chosen again, each for itself (no two
 * copies meet).
 */
export class LocalCosts {
  private readonly direct: End[] = [];
  /** By copy variable: every edge of it, those to the node apart. */
  private readonly copies = new Map<
    number,
    { readonly own: End[]; readonly others: number[]; readonly made: boolean }
  >();

  constructor(
    private readonly model: Model,
    private readonly choice: Int32Array,
    private readonly variable: number,
  ) {
    const { first, second } = model.problem.edges;
    for (let e = 0; e < first.length; e++) {
      if (first[e] !== variable && second[e] !== variable) continue;
      const end: End = { edge: e, first: first[e] === variable };
      const other = end.first ? second[e] : first[e];
      const kind = model.variables[other];
      if (kind.kind !== 'copy') {
        this.direct.push(end);
        continue;
      }
      const { node } = model.flow.values[model.copies[kind.copy].value];
      let group = this.copies.get(other);
      if (group === undefined)
        this.copies.set(
          other,
          (group = { own: [], others: [], made: model.nodeVariable[node] === variable }),
        );
      group.own.push(end);
    }
    for (let e = 0; e < first.length; e++) {
      if (first[e] === variable || second[e] === variable) continue;
      (this.copies.get(first[e]) ?? this.copies.get(second[e]))?.others.push(e);
    }
  }

  /** Cost of the edges when the node takes strategy `s`. */
  cost(s: number): Around {
    const { model, choice } = this;
    const { first, second } = model.problem.edges;
    let into = 0;
    let out = 0;
    let blocked: string | undefined;
    const note = (edge: number, cost: number): void => {
      if (cost === Infinity) blocked ??= edgeName(model, edge);
    };
    for (const { edge, first: produces } of this.direct) {
      const cost = produces
        ? edgeCost(model, edge, s, second[edge] === this.variable ? s : choice[second[edge]])
        : edgeCost(model, edge, choice[first[edge]], s);
      note(edge, cost);
      if (produces) out += cost;
      else into += cost;
    }
    for (const [variable, group] of this.copies) {
      const costs = model.problem.vectors[model.problem.unary[variable]];
      let whole = Infinity;
      let without = Infinity;
      for (let z = 0; z < costs.length; z++) {
        let rest = costs[z];
        for (const e of group.others)
          rest +=
            first[e] === variable
              ? edgeCost(model, e, z, choice[second[e]])
              : edgeCost(model, e, choice[first[e]], z);
        without = Math.min(without, rest);
        for (const { edge, first: produces } of group.own)
          rest += produces ? edgeCost(model, edge, s, z) : edgeCost(model, edge, z, s);
        whole = Math.min(whole, rest);
      }
      note(group.own[0].edge, whole);
      // The producer pays for its copies whole; a consumer for what it adds to a copy of another's
      // value.
      if (group.made) out += whole;
      else into += whole - without;
    }
    return { into, out, ...defined({ blocked }) };
  }
}

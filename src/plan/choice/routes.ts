/** Finds the redistributions of a plan that bring a value to each of its uses. */
import { copyIn, isKeptCopy, type Model, type Use } from '../model/model.ts';

/** One redistribution on the way of a value to a use. */
export interface Hop {
  readonly from: number;
  readonly to: number;
  /**
   * `made`: its result is the shared copy that later uses of the phase, or of both, take; `reused`:
   * it is taken, nothing moves.
   */
  readonly copy?: 'made' | 'reused';
  /** The number of a shared copy: copies are numbered in the order in which they are made. */
  readonly copyId?: number;
  /** True if the copy stays from the forward to the backward pass. */
  readonly kept?: true;
}

const NONE: readonly Hop[] = [];

/**
 * How values get from the placement that their producer leaves to the placements that uses demand,
 * under a choice. A shared copy is made by the first use that asks for it, so uses are to be asked
 * in program order, once each.
 */
export class Routes {
  /** Number of each copy that is made, by its variable and the pass that makes its own. */
  private readonly made = new Map<string, number>();

  constructor(
    private readonly model: Model,
    private readonly choice: Int32Array,
  ) {}

  /** Sharding id that the producer of a value leaves. */
  owned(value: number): number {
    const { node, result } = this.model.flow.values[value];
    const { set } = this.model.strategies.nodes[node]!;
    const s = this.choice[this.model.nodeVariable[node]];
    return set.specs[s * (set.inputCount + set.outputCount) + set.inputCount + result];
  }

  /** Sharding id that a use demands. */
  demanded(use: Use): number {
    return use.demands.specs[use.demands.map[this.choice[use.variable]]];
  }

  /** The redistributions of a use, in order; none when the value is where it is wanted. */
  of(use: Use): readonly Hop[] {
    const { model } = this;
    const owned = this.owned(use.value);
    const wanted = this.demanded(use);
    if (owned === wanted) return NONE;
    const { copy, kept } = this.copyFor(use);
    if (copy < 0) return [{ from: owned, to: wanted }];
    const type = model.charges.typeOf(model.flow.values[use.value]);
    const direct = model.charges.seconds(type, owned, wanted);
    if (model.charges.seconds(type, copy, wanted) >= direct) return [{ from: owned, to: wanted }];
    const key = `${use.copy}:${kept ? '' : use.phase}`;
    const first = !this.made.has(key);
    const copyId = this.made.get(key) ?? this.made.size;
    this.made.set(key, copyId);
    const shared: Hop = {
      from: owned,
      to: copy,
      copy: first ? 'made' : 'reused',
      copyId,
      ...(kept ? { kept: true } : {}),
    };
    return copy === wanted ? [shared] : [shared, { from: copy, to: wanted }];
  }

  /** The placement of the copy that a use may take, -1 where there is none. */
  private copyFor(use: Use): { readonly copy: number; readonly kept: boolean } {
    if (use.copy < 0) return { copy: -1, kept: false };
    const variable = this.model.copies[use.copy];
    const z = this.choice[variable.variable];
    return { copy: copyIn(variable, z, use.phase), kept: isKeptCopy(variable, z) };
  }
}

/**
 * Finds the rules of a program's forward calls, and the dims of its values that are one index by
 * those rules.
 */

import { isPartialCode, shardDimOfCode } from '../../mesh/sharding/space.ts';
import { elements } from '../../ops/record/record.ts';
import { P, R, type Rule, type RuleSlot, S } from '../../ops/record/rule.ts';
import { isPlain, type Program } from './program.ts';

/**
 * Rules of forward calls: those of the record, or for what has none (marks of bodies) those that
 * its strategies show.
 */
export class RuleLists {
  private readonly byContent = new Map<number, readonly Rule[]>();
  private readonly shown: number;

  constructor(private readonly model: Program) {
    this.shown = model.space.mesh.sizes.findIndex((size) => size > 1);
  }

  /** Undefined for a node that is not a forward call, or another name of a value. */
  of(n: number): readonly Rule[] | undefined {
    const { graph, flow, strategies } = this.model;
    const entry = strategies.nodes[n];
    if (entry === null || graph.nodes[n].kind !== 'call' || flow.phases[n] !== 'forward')
      return undefined;
    let rules = this.byContent.get(entry.content);
    if (rules === undefined) {
      const all =
        entry.record !== undefined && entry.call !== undefined
          ? entry.record.shard(entry.call)
          : this.shownBy(n);
      // A loss may add up how many labels count: what meets there is a number.
      const isNumber =
        entry.call?.outputs.every((meta) => meta === null || elements(meta.shape) <= 1) === true;
      rules = isNumber ? all : all.filter((r) => r.collectives === undefined);
      this.byContent.set(entry.content, rules);
    }
    return rules;
  }

  isNorm(n: number): boolean {
    return this.of(n) !== undefined && this.model.strategies.nodes[n]?.record?.cls === 'norm';
  }

  private shownBy(n: number): Rule[] {
    const set = this.model.strategies.nodes[n]?.set;
    const { space } = this.model;
    if (set === undefined || this.shown < 0) return [];
    const width = set.inputCount + set.outputCount;
    return Array.from({ length: set.count }, (_, a) => {
      const slots = Array.from(set.specs.subarray(a * width, (a + 1) * width), (id): RuleSlot => {
        if (id < 0) return null;
        const code = space.kindAt(id, this.shown);
        const dim = shardDimOfCode(code);
        return dim >= 0 ? S(dim) : isPartialCode(code) ? P('sum') : R;
      });
      return {
        inputs: slots.slice(0, set.inputCount),
        outputs: slots.slice(set.inputCount),
        origin: 'ext' as const,
      };
    });
  }
}

/** Dims that are one index of the program, by the rules that cut them together. */
export class Indices {
  private readonly parent = new Map<number, number>();

  constructor(
    { graph, flow }: Program,
    private readonly rules: RuleLists,
  ) {
    graph.nodes.forEach((_, n) => {
      for (const { inputs, outputs } of this.rules.of(n) ?? []) {
        const first = new Map<string, number>();
        const join = (slot: RuleSlot, value: number): void => {
          if (!isPlain(slot) || value < 0) return;
          const at = value * MOST_DIMS + slot.dim;
          const mate = first.get(slot.tie);
          if (mate === undefined) first.set(slot.tie, at);
          else this.join(at, mate);
        };
        inputs.forEach((slot, i) => join(slot, flow.inputs[n][i]));
        outputs.forEach((slot, k) => join(slot, flow.results[n][k]));
      }
      // A normalisation gives each element a place of its own, whatever its rules can cut.
      if (this.rules.isNorm(n)) {
        const [x, y] = [flow.inputs[n][0], flow.results[n][0]];
        flow.values[x].meta.shape.forEach((size, d) => {
          if (flow.values[y].meta.shape[d] === size)
            this.join(x * MOST_DIMS + d, y * MOST_DIMS + d);
        });
      }
    });
  }

  of(value: number, dim: number): number {
    return this.root(value * MOST_DIMS + dim);
  }

  private join(a: number, b: number): void {
    const [from, to] = [this.root(a), this.root(b)];
    if (from !== to) this.parent.set(from, to);
  }

  private root(at: number): number {
    let root = at;
    for (let next = this.parent.get(root); next !== undefined; next = this.parent.get(root))
      root = next;
    for (
      let next = this.parent.get(at);
      next !== undefined && next !== root;
      next = this.parent.get(at)
    ) {
      this.parent.set(at, root);
      at = next;
    }
    return root;
  }
}

const MOST_DIMS = 64;

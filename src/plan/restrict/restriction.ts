/**
 * Removes the values that pins exclude from a model's domains, and makes the compact problem on the
 * rest.
 */
import { latin1 } from '../../platform/platform.ts';
import { allowOnly, Recosting } from '../../solver/problem/recost.ts';
import {
  type AllowedValues,
  type CompactProblem,
  compactProblem,
  KeptLists,
} from '../../solver/problem/restrict.ts';
import type { Problem } from '../../solver/types.ts';
import type { Model } from '../model/model.ts';

/** No value of a variable was taken away. */
const ALL = -1;

/**
 * Restrictions of a model: values of variables that are taken away, and by what. A pin is a
 * restriction; so is a recipe. Restricting never changes the model: it makes a problem of its own,
 * and dropping the restriction restores the earlier one exactly.
 */
export class Restriction {
  private readonly masks = new Masks();
  /** Id of the mask of the values that are left of each variable, or ALL. */
  private readonly allowed: Int32Array;
  /** The removals: variables and reasons, in the order in which they were done. */
  private readonly cut: number[] = [];
  private readonly reasons: string[] = [];

  constructor(private readonly model: Model) {
    this.allowed = new Int32Array(model.problem.domains.length).fill(ALL);
  }

  /**
   * Keeps only the values of a variable that the predicate accepts. `reason` is named if nothing is
   * left.
   */
  keep(variable: number, reason: string, accepts: (value: number) => boolean): void {
    const before = this.left(variable);
    const mask = before?.slice() ?? new Uint8Array(this.model.problem.domains[variable]).fill(1);
    let removed = 0;
    for (let a = 0; a < mask.length; a++) {
      if (mask[a] === 1 && !accepts(a)) {
        mask[a] = 0;
        removed++;
      }
    }
    if (removed > 0) this.set(variable, this.masks.of(mask), reason);
  }

  /**
   * `keep` with a list that says 1 of every value to keep; what many variables share is worked out
   * once.
   *
   * @param marked not to be changed afterwards
   */
  keepMarked(variable: number, reason: string, marked: Uint8Array): void {
    const before = this.allowed[variable];
    const given = this.masks.shared(marked);
    const after = before === ALL ? given : this.masks.both(before, given);
    if (after !== before && !(before === ALL && this.masks.isFull(given)))
      this.set(variable, after, reason);
  }

  private set(variable: number, mask: number, reason: string): void {
    this.allowed[variable] = mask;
    this.cut.push(variable);
    this.reasons.push(reason);
  }

  /** 1 for every value that is left of a variable; undefined where all are. Not to be changed. */
  left(variable: number): Readonly<Uint8Array> | undefined {
    const id = this.allowed[variable];
    return id === ALL ? undefined : this.masks.get(id);
  }

  /**
   * Number of the list of values that are left of a variable: equal lists have one. -1 where all
   * are left.
   */
  leftId(variable: number): number {
    return this.allowed[variable];
  }

  allows(variable: number, value: number): boolean {
    return (this.left(variable)?.[value] ?? 1) === 1;
  }

  /**
   * Reasons that together leave some variable nothing; empty when every variable still has a value.
   */
  contradictions(): string[] {
    const reasons = new Map<number, string[]>();
    for (let variable = 0; variable < this.allowed.length; variable++) {
      const id = this.allowed[variable];
      if (id !== ALL && this.masks.isEmpty(id)) reasons.set(variable, []);
    }
    if (reasons.size > 0)
      this.cut.forEach((variable, k) => reasons.get(variable)?.push(this.reasons[k]));
    return [...new Set([...reasons.values()].flat())];
  }

  /**
   * The values that are left, undefined where all are; equal lists are one. A copy variable also
   * loses the pairs whose owned placement its producer can no longer leave.
   */
  kept(): (AllowedValues | undefined)[] {
    const lists = new KeptLists();
    const byMask: (AllowedValues | undefined)[] = [];
    const kept: (AllowedValues | undefined)[] = Array.from(this.allowed, (id) =>
      id === ALL ? undefined : (byMask[id] ??= lists.ofMask(this.masks.get(id))),
    );
    for (const copy of this.model.copies) {
      const { node, result } = this.model.flow.values[copy.value];
      const left = kept[this.model.nodeVariable[node]];
      if (left === undefined) continue;
      const entry = this.model.strategies.nodes[node]!;
      // Equal producers with equal values left, and equal copy domains, lose the same pairs.
      kept[copy.variable] = lists.of(
        `${entry.content}:${result}:${left.id}:${lists.idOf(copy.owned)}`,
        () => {
          const { set } = entry;
          const column = set.inputCount + result;
          const width = set.inputCount + set.outputCount;
          const owned = new Set(Array.from(left.values, (a) => set.specs[a * width + column]));
          return Int32Array.from(copy.owned.keys()).filter((z) => owned.has(copy.owned[z]));
        },
      );
    }
    return kept;
  }

  /** The model's problem with the removed values left out: same variables, smaller domains. */
  compact(): CompactProblem {
    return compactProblem(this.model.problem, this.reasons.length === 0 ? [] : this.kept());
  }

  /**
   * The model's problem without the removed values: same variables and values, removed ones cost
   * Infinity.
   */
  problem(): Problem {
    const { problem } = this.model;
    if (this.reasons.length === 0) return problem;
    const recosting = new Recosting(problem);
    this.allowed.forEach((id, variable) => {
      if (id === ALL) return;
      const mask = this.masks.get(id);
      recosting.variable(variable, id, (costs) => allowOnly(costs, (a) => mask[a] === 1));
    });
    return recosting.problem;
  }
}

/**
 * Masks of values by content: equal nodes of equal layers share one, and what two of them leave is
 * worked out once.
 */
class Masks {
  private readonly list: Uint8Array[] = [];
  /** True if a mask leaves some value, and whether it takes one away. */
  private readonly some: boolean[] = [];
  private readonly cuts: boolean[] = [];
  private readonly byText = new Map<string, number>();
  private readonly byArray = new Map<Uint8Array, number>();
  private readonly pairs = new Map<number, number>();

  of(mask: Uint8Array): number {
    const text = latin1(mask);
    let id = this.byText.get(text);
    if (id === undefined) {
      id = this.list.push(mask) - 1;
      this.some.push(mask.includes(1));
      this.cuts.push(mask.includes(0));
      this.byText.set(text, id);
    }
    return id;
  }

  /** `of` for an array that is handed in for many variables. */
  shared(mask: Uint8Array): number {
    let id = this.byArray.get(mask);
    if (id === undefined) this.byArray.set(mask, (id = this.of(mask)));
    return id;
  }

  get(id: number): Uint8Array {
    return this.list[id];
  }

  /** The values that both leave. */
  both(a: number, b: number): number {
    if (a === b) return a;
    const key = a * 2 ** 26 + b;
    let id = this.pairs.get(key);
    if (id === undefined) {
      const other = this.list[b];
      this.pairs.set(key, (id = this.of(this.list[a].map((yes, k) => yes & other[k]))));
    }
    return id;
  }

  isFull(id: number): boolean {
    return !this.cuts[id];
  }

  isEmpty(id: number): boolean {
    return !this.some[id];
  }
}

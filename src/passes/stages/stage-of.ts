/**
 * Gives every value of a training program its pipeline stage, for forward calls that are cut into
 * runs. The backward call of a stage reads what the stage has: its weights, the values that it made
 * and those that it received.
 */

import { placeholdersByRoleName } from '../../graph/carried.ts';
import { type Dataflow, eachOperandOf, GETITEM } from './dataflow.ts';

/** Stages of values, by position in `graph.nodes`. */
export interface Assignment {
  /** The stage that makes a forward or backward value; -1 for a kept one, and what any may have. */
  readonly stage: Int32Array;
  /**
   * Stages that have a value in their forward pass, ascending: a forward value from where it is
   * made to where it is last read, a weight where it is read. Empty for what none reads.
   */
  readonly present: readonly (readonly number[])[];
}

/**
 * @param bounds places of the first forward calls of the stages but the first, ascending
 */
export function assignStages(flow: Dataflow, bounds: readonly number[]): Assignment {
  return new Assigner(flow, bounds).assign();
}

class Assigner {
  readonly stage: Int32Array;
  readonly present: (readonly number[])[];

  constructor(
    private readonly flow: Dataflow,
    private readonly bounds: readonly number[],
  ) {
    const { nodes } = flow.graph;
    this.stage = new Int32Array(nodes.length).fill(-1);
    this.present = nodes.map(() => []);
  }

  assign(): Assignment {
    this.placeForward();
    this.placeKept();
    this.placeBackward();
    return { stage: this.stage, present: this.present };
  }

  /** Forward values by the bounds; weights and forward values are present where they are read. */
  private placeForward(): void {
    const { flow, bounds, stage } = this;
    const { graph, index, parts, place } = flow;
    const readers = graph.nodes.map(() => new Set<number>());
    for (let i = graph.nodes.length - 1; i >= 0; i--) {
      if (parts[i] === 'forward') stage[i] = bounds.filter((bound) => bound <= place[i]).length;
      else if (parts[i] !== 'replicated') continue;
      const own = parts[i] === 'forward' ? [stage[i]] : [...readers[i]];
      eachOperandOf(index, i, (operand) => own.forEach((s) => readers[operand].add(s)));
    }
    graph.nodes.forEach((_, i) => {
      const read = [...readers[i]].sort((a, b) => a - b);
      // A value travels from stage to stage, so those between have it too.
      this.present[i] = parts[i] === 'forward' ? range(stage[i], read.at(-1) ?? stage[i]) : read;
    });
  }

  /** A value that only the backward pass reads can be made where all that it reads is. */
  private placeKept(): void {
    const { flow, present } = this;
    flow.graph.nodes.forEach((_, i) => {
      const isKept = flow.parts[i] === 'kept';
      if (!isKept && (flow.parts[i] !== 'replicated' || present[i].length > 0)) return;
      const made: (readonly number[])[] = [];
      const given: (readonly number[])[] = [];
      eachOperandOf(flow.index, i, (operand) => {
        const part = flow.parts[operand];
        if (part === 'forward' || part === 'kept') made.push(present[operand]);
        else if (present[operand].length > 0) given.push(present[operand]);
      });
      const everywhere = common(made);
      const withGiven = common([...(everywhere.length > 0 ? [everywhere] : made), ...given]);
      if (withGiven.length > 0) present[i] = withGiven;
      else if (everywhere.length > 0) present[i] = everywhere;
      // A forward value goes from the first of these stages to the others.
      else if (isKept) present[i] = [Math.max(0, ...made.map(([first]) => first))];
    });
  }

  /**
   * A backward call runs in the last stage that has all that it reads of the forward pass, and
   * never behind what it reads of the backward pass. Tangents are inputs of any stage.
   */
  private placeBackward(): void {
    const { flow, stage } = this;
    const { graph, index, parts } = flow;
    graph.nodes.forEach((node, i) => {
      if (parts[i] !== 'backward') return;
      let latest = this.bounds.length;
      const read: (readonly number[])[] = [];
      eachOperandOf(index, i, (operand) => {
        if (parts[operand] === 'backward') latest = Math.min(latest, stage[operand]);
        else if (this.present[operand].length > 0) read.push(this.present[operand]);
      });
      const before = read.map((stages) => stages.filter((s) => s <= latest));
      const wanted = common(before);
      // What a call reads may be in no stage together: in the last that has any of it.
      stage[i] = Math.max(...(wanted.length > 0 ? wanted : before.flat()), -1);
      if (stage[i] < 0 || node.target === GETITEM) stage[i] = latest;
    });
  }
}

/**
 * Tells the stage that returns a value: of a gradient the last, up to where it is made, that has
 * the tensor that it is of, under any of its names.
 */
export function gradientStages(
  { graph, parts }: Dataflow,
  { stage, present }: Assignment,
): (of: string | undefined, at: number) => number {
  const placeholders = placeholdersByRoleName(graph);
  const ties = new Map((graph.ties ?? []).flatMap((group) => group.map((name) => [name, group])));
  return (of, at) => {
    const isMade = parts[at] === 'backward' || parts[at] === 'forward';
    const own = isMade ? stage[at] : (present[at][0] ?? 0);
    const names = of === undefined ? [] : (ties.get(of) ?? [of]);
    const holders = names.flatMap((name) => present[placeholders.get(name) ?? -1] ?? []);
    return lastUpTo(holders, own) ?? own;
  };
}

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, k) => first + k);
}

/** The stages that all lists have; none of no lists. */
function common(lists: readonly (readonly number[])[]): readonly number[] {
  const [first = [], ...others] = lists;
  return first.filter((s) => others.every((list) => list.includes(s)));
}

function lastUpTo(stages: readonly number[], latest: number): number | undefined {
  const before = stages.filter((s) => s <= latest);
  return before.length === 0 ? undefined : Math.max(...before);
}

/**
 * Finds what each pipeline stage makes and receives, from the results that it returns backwards:
 * what no result needs is in no stage.
 */

import { internalError, ShardwrightError } from '../../errors.ts';
import { typeText } from '../../graph/value.ts';
import { type Dataflow, eachOperandOf } from './dataflow.ts';
import type { Assignment } from './stage-of.ts';

/** The contents of a stage, by positions in the whole graph. */
export interface StageNeeds {
  /** Nodes that it has of its own: inputs, attributes and calls. */
  readonly own: Set<number>;
  /** Values that it receives from the stage in front, to read them or to send them on. */
  readonly receives: Set<number>;
  /** Values that it receives from the stage behind. */
  readonly receivesBack: Set<number>;
}

/** Collects the needs of all stages; every need is followed to the inputs of the program. */
export class Needs {
  readonly stages: readonly StageNeeds[];

  constructor(
    private readonly flow: Dataflow,
    private readonly assignment: Assignment,
    count: number,
  ) {
    this.stages = Array.from({ length: count }, () => ({
      own: new Set<number>(),
      receives: new Set<number>(),
      receivesBack: new Set<number>(),
    }));
  }

  /** A stage needs the value at a position, with everything that it is made of. */
  add(value: number, stage: number): void {
    const open = [[value, stage] as const];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [v, at] = next;
      const { own, receives, receivesBack } = this.stages[at];
      if (own.has(v) || receives.has(v) || receivesBack.has(v)) continue;
      const maker = this.makerFor(v, at);
      if (maker === at) {
        own.add(v);
        eachOperandOf(this.flow.index, v, (operand) => open.push([operand, at]));
      } else {
        this.send(v, maker, at);
        open.push([v, maker]);
      }
    }
  }

  /** The stage that makes a value for another. */
  private makerFor(v: number, at: number): number {
    const { parts, graph } = this.flow;
    const { stage, present } = this.assignment;
    switch (parts[v]) {
      case 'given':
      case 'replicated':
        return at;
      case 'kept': {
        const before = present[v].filter((s) => s <= at);
        return before.length > 0 ? Math.max(...before) : present[v][0];
      }
      case 'forward':
        return stage[v];
      case 'backward':
        // A tangent is an input, which any stage may have.
        if (graph.nodes[v].kind === 'placeholder') return at;
        if (stage[v] < at)
          throw internalError(`${graph.nodes[v].name} goes forward, and is a gradient`);
        return stage[v];
    }
  }

  private send(v: number, from: number, to: number): void {
    const { name, type } = this.flow.graph.nodes[v];
    if (type.kind !== 'tensor')
      throw new ShardwrightError(
        'E_UNSUPPORTED',
        `stage ${to} reads ${name} of stage ${from}, ${typeText(type)}: stages send tensors`,
        { node: name, hint: 'choose other cuts.' },
      );
    for (let s = Math.min(from, to); s <= Math.max(from, to); s++) {
      if (s === from) continue;
      if (from < to) this.stages[s].receives.add(v);
      else this.stages[s].receivesBack.add(v);
    }
  }
}

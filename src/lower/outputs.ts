/**
 * Writes the outputs of the per-device program: values at their planned placements, moved as soon
 * as they are made.
 */
import { defined } from '../defined.ts';
import { ownersOfOutputs } from '../graph/carried.ts';
import type { Graph, Node, NodeMeta, Output } from '../graph/types.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import { refuseChangedReturn } from '../plan/record/damage.ts';
import type { LowerablePlan } from '../plan/record/planned.ts';
import type { PlannedOutput } from '../plan/record/types.ts';
import type { Dataflow } from '../strategy/dataflow.ts';
import type { Mover } from './mover.ts';
import type { Emitter } from './program/emitter.ts';
import type { Frame } from './program/frame.ts';

interface OutputSite {
  readonly graph: Graph;
  readonly plan: LowerablePlan;
  readonly flow: Dataflow;
  readonly space: ShardingSpace;
  readonly emit: Pick<Emitter, 'meta'>;
  readonly mover: Mover;
}

export class OutputWriter {
  /** Shardings of the outputs that were written; null for an output without a placement. */
  readonly shardings: (number | null)[] = [];
  /**
   * Planned outputs by position in the graph's, those of them that are moved by value, and the
   * names of those that are there.
   */
  private readonly planned: readonly (PlannedOutput | undefined)[];
  private readonly moved = new Map<number, number[]>();
  private readonly delivered = new Map<number, string>();

  constructor(private readonly site: OutputSite) {
    const { flow, plan } = site;
    let k = 0;
    this.planned = flow.outputs.map(({ value }) => (value < 0 ? undefined : plan.outputs[k++]));
    flow.outputs.forEach(({ value }, i) => {
      const moves = this.planned[i]?.redistributions ?? [];
      // A copy that a node makes is there with that node only.
      if (moves.length === 0 || moves.some(({ copy }) => copy === 'reused')) return;
      this.moved.set(value, [...(this.moved.get(value) ?? []), i]);
    });
  }

  /** The values that the program returns, each at its planned placement. */
  write(frame: Frame): Output[] {
    const ownerOf = ownersOfOutputs(this.site.graph);
    return this.site.flow.outputs.map(({ output }, i): Output => {
      const planned = this.planned[i];
      if (planned === undefined) {
        this.shardings.push(null);
        return output;
      }
      const to = this.site.space.parse(planned.placement);
      refuseChangedReturn(
        this.site.plan,
        { graph: this.site.graph, space: this.site.space },
        output,
        planned,
        ownerOf(output),
      );
      this.shardings.push(to);
      return { ...output, value: this.delivered.get(i) ?? this.outputOf(frame, i, planned) };
    });
  }

  /**
   * Moves what the program returns as soon as it is there, as the plan's memory and times say:
   * gradients while others are made.
   */
  deliver(frame: Frame, value: number): void {
    for (const i of this.moved.get(value) ?? []) {
      const planned = this.planned[i];
      if (planned !== undefined) this.delivered.set(i, this.outputOf(frame, i, planned));
    }
  }

  private outputOf(frame: Frame, i: number, planned: PlannedOutput): string {
    const { output, value } = this.site.flow.outputs[i];
    const phase = output.role === 'output' ? 'forward' : 'backward';
    this.site.emit.meta = moveMeta(this.site.graph.nodes[this.site.flow.values[value].node], phase);
    const to = this.site.space.parse(planned.placement);
    return this.site.mover.bring(frame, {
      value,
      phase,
      moves: planned.redistributions,
      to,
      scope: 0,
      use: `output ${i}`,
    });
  }
}

/**
 * Metadata of a redistribution. One that the backward pass needs may also serve forward values that
 * are recomputed there, so it has no phase of its own.
 */
export function moveMeta({ meta }: Node, phase: 'forward' | 'backward'): NodeMeta {
  return {
    ...(phase === 'forward' ? { phase } : {}),
    ...defined({ path: meta.path, source: meta.source }),
  };
}

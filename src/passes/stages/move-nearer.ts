/**
 * Moves backward calls to the pipeline stages that read them, where that sends no more bytes:
 * views, casts to more bits, the sum that is the gradient of a bias.
 */

import { valueBytes } from '../../graph/value.ts';
import { type Dataflow, eachOperandOf } from './dataflow.ts';
import type { StageResult } from './results.ts';
import type { Assignment } from './stage-of.ts';

/** The same stages with backward calls moved towards their readers. */
export function movedNearer(
  flow: Dataflow,
  assignment: Assignment,
  results: readonly StageResult[],
): Assignment {
  const mover = new Mover(flow, assignment, results);
  // What moved reads may be sent for its sake by now, so that others can move as well.
  while (mover.move());
  return { ...assignment, stage: mover.stage };
}

class Mover {
  readonly stage: Int32Array;
  /** 1 for what a result is made of. */
  private readonly isRead: Uint8Array;
  /** The last stage that returns a value. */
  private readonly returnedBy = new Map<number, number>();

  constructor(
    private readonly flow: Dataflow,
    private readonly assignment: Assignment,
    results: readonly StageResult[],
  ) {
    this.stage = Int32Array.from(assignment.stage);
    this.isRead = new Uint8Array(flow.graph.nodes.length);
    for (const { at, stage } of results) {
      this.isRead[at] = 1;
      this.returnedBy.set(at, Math.max(this.returnedBy.get(at) ?? -1, stage));
    }
    for (let i = this.isRead.length - 1; i >= 0; i--)
      if (this.isRead[i] === 1)
        eachOperandOf(flow.index, i, (operand) => (this.isRead[operand] = 1));
  }

  /** Moves what can be moved, readers first; tells whether anything was. */
  move(): boolean {
    const { flow, stage } = this;
    let hasMoved = false;
    for (let i = stage.length - 1; i >= 0; i--) {
      const { kind, type } = flow.graph.nodes[i];
      if (flow.parts[i] !== 'backward' || kind === 'placeholder' || type.kind !== 'tensor')
        continue;
      const nearest = this.lastReader(i);
      if (nearest < 0 || nearest >= stage[i] || !this.hasForward(i, nearest)) continue;
      if (this.bytesToSend(i, nearest) > valueBytes(type)) continue;
      stage[i] = nearest;
      hasMoved = true;
    }
    return hasMoved;
  }

  private lastReader(i: number): number {
    const { userStart, users } = this.flow.index;
    let last = this.returnedBy.get(i) ?? -1;
    for (let k = userStart[i]; k < userStart[i + 1]; k++)
      if (this.isRead[users[k]] === 1) last = Math.max(last, this.stage[users[k]]);
    return last;
  }

  /** Tells whether a stage has what a call reads of the forward pass. */
  private hasForward(i: number, stage: number): boolean {
    const { present } = this.assignment;
    let has = true;
    eachOperandOf(this.flow.index, i, (operand) => {
      if (this.flow.parts[operand] !== 'backward' && present[operand].length > 0)
        has &&= present[operand].includes(stage);
    });
    return has;
  }

  /** Bytes of backward operands that no other call at the stage or in front of it reads. */
  private bytesToSend(i: number, nearest: number): number {
    const { graph, index, parts } = this.flow;
    const operands = new Set<number>();
    eachOperandOf(index, i, (operand) => operands.add(operand));
    let bytes = 0;
    for (const operand of operands) {
      const { kind, type } = graph.nodes[operand];
      if (parts[operand] !== 'backward' || this.stage[operand] <= nearest) continue;
      // A tangent is an input of any stage.
      if (kind === 'placeholder') continue;
      if (type.kind !== 'tensor') return Infinity;
      if (!this.isSent(operand, i, nearest)) bytes += valueBytes(type);
    }
    return bytes;
  }

  /** Tells whether another call than `reader` has a value sent to a stage, or in front of it. */
  private isSent(value: number, reader: number, stage: number): boolean {
    const { userStart, users } = this.flow.index;
    for (let k = userStart[value]; k < userStart[value + 1]; k++) {
      const user = users[k];
      if (user !== reader && this.isRead[user] === 1 && this.stage[user] <= stage) return true;
    }
    return (this.returnedBy.get(value) ?? Infinity) <= stage;
  }
}

/**
 * Prices the gathers of tensor-parallel ranks for products on a narrow unit, where operands are
 * cast before they are gathered: the share of bytes for each use, and the price of a step of its
 * redistribution at so many bytes. Source: Transformer Engine (`gather_along_first_dim` with a
 * quantizer), torchao (`Float8ColwiseParallel`).
 */

import type { StepSystem } from '../../../cost/kernels/call.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Model, Use } from '../../../plan/model/model.ts';
import type { GraphUnits } from '../graph-units.ts';
import type { Step } from './pending-sums.ts';

export class NarrowGathers {
  private readonly share: number;
  /** Products of the layers, and views that they read. */
  private readonly feeds: Uint8Array;

  constructor(
    private readonly model: Model,
    { unit, count, index }: GraphUnits,
    table: OperatorTable,
    system: StepSystem | undefined,
  ) {
    const { nodes } = model.graph;
    const { narrowUnit, gatheredBytes } = system?.software ?? {};
    this.share = narrowUnit === undefined || gatheredBytes === undefined ? 1 : gatheredBytes / 2;
    this.feeds = new Uint8Array(nodes.length);
    if (this.share === 1) return;
    for (let i = nodes.length - 1; i >= 0; i--) {
      if (table.get(nodes[i].target)?.cls === 'matmul')
        this.feeds[i] = Number(unit[i] > 0 && unit[i] < count - 1);
      if (this.feeds[i] === 0) continue;
      for (let k = index.operandStart[i]; k < index.operandStart[i + 1]; k++) {
        const operand = index.operands[k];
        if (table.get(nodes[operand].target)?.cls === 'view') this.feeds[operand] = 1;
      }
    }
  }

  /** A step of a use's redistribution as it is gathered. */
  stepOf({ at }: Use, step: Step): Step {
    const { space, collectives } = this.model;
    if (at.kind !== 'input' || this.feeds[at.node] === 0 || step.kind !== 'all_gather') return step;
    if (!step.meshDims.every((d) => space.mesh.names[d] === 'tp')) return step;
    const bytes = this.share * step.bytes;
    return { ...step, bytes, seconds: collectives.seconds(step.kind, bytes, step.meshDims) };
  }
}

/**
 * Counts transient memory: the bytes that are alive at one program point because of a single
 * decision. A redistribution step holds its operand and its result, a node its inputs and its
 * results. No linear row over one variable at a time knows of the former, and rows of other points
 * know of neither. Decisions that hold more than a limit are taken out of the problem.
 *
 * With the limit `budget - least states` every plan within the budget is left (states are alive
 * throughout, and what is counted here is no state): bounds stay bounds. With a further limit on
 * single copies, the problem is a part of that one, in which plans are searched.
 */
import { movedType } from '../../../cost/redistribution/pricing.ts';
import { DTYPE_BYTES } from '../../../graph/types.ts';
import { elements } from '../../../ops/record/record.ts';
import { allowOnly, Recosting } from '../../../solver/problem/recost.ts';
import type { CompactProblem } from '../../../solver/problem/restrict.ts';
import { copyIn, type CopyVariable, type Model, type Use } from '../../model/model.ts';
import type { Liveness } from './liveness.ts';

/** Limits on the bytes that one decision may hold at a program point, see `Transients`. */
interface TransientLimits {
  /** Operand and result of a step, inputs and results of a node. */
  readonly transientBytes: number;
  /** The result of one step of a redistribution. */
  readonly copyBytes: number;
}

export class Transients {
  private readonly moves = new Map<string, TransientLimits>();
  private readonly full: Float64Array;

  constructor(
    private readonly model: Model,
    private readonly live: Liveness,
  ) {
    this.full = Float64Array.from(
      model.flow.types,
      (meta) => elements(meta.shape) * DTYPE_BYTES[meta.dtype],
    );
  }

  /**
   * Bytes of parameters, optimizer state and program inputs in the placements that take least: in
   * every plan.
   */
  leastStates(): number {
    const { model } = this;
    let total = 0;
    for (const { localElements, parameter, optimizer } of model.stateBytes.values())
      total += localElements.reduce((a, b) => Math.min(a, b), Infinity) * (parameter + optimizer);
    return total;
  }

  /**
   * The node that holds most where each is placed to hold least: its inputs and results; -1 without
   * nodes.
   */
  heaviestNode(compact: CompactProblem): number {
    const { model } = this;
    const { problem } = compact;
    let [heaviest, most] = [-1, 0];
    model.graph.nodes.forEach((node, n) => {
      const v = model.nodeVariable[n];
      if (v < 0 || node.kind !== 'call' || this.live.view[n] === 1) return;
      const bytes = this.nodeBytes(n);
      const costs = problem.vectors[problem.unary[v]];
      const least = compact
        .valuesOf(v)
        .reduce((a, s, at) => (costs[at] === Infinity ? a : Math.min(a, bytes[s])), Infinity);
      if (least < Infinity && least > most) [heaviest, most] = [n, least];
    });
    return heaviest;
  }

  /** A compact problem of the model without decisions that hold more than the limits at a point. */
  restrict(compact: CompactProblem, limits: TransientLimits): CompactProblem {
    const asked = Math.min(limits.transientBytes / 2, limits.copyBytes);
    const { model } = this;
    const recosting = new Recosting(compact.problem);
    model.edges.forEach((edge, e) => {
      if (edge.kind !== 'use') return;
      const use = model.uses[edge.use];
      const { type } = model.flow.values[use.value];
      if (this.full[type] <= asked) return;
      recosting.edge(e, Number(this.isInput(use.value)), (costs) => {
        const over = this.useOver(use, limits);
        return allowOnly(costs, (i) => over[i] === 0);
      });
    });
    // Values of copies and nodes that hold too much by themselves.
    const { flow, nodeVariable } = model;
    const over = new Map<number, Uint8Array>();
    for (const copy of model.copies)
      if (this.full[flow.values[copy.value].type] > asked)
        over.set(copy.variable, this.copyOver(copy, limits));
    model.graph.nodes.forEach((node, n) => {
      if (nodeVariable[n] < 0 || node.kind !== 'call' || this.live.view[n] === 1) return;
      const most = [...flow.inputs[n], ...flow.results[n]].reduce(
        (sum, v) => sum + (v < 0 ? 0 : this.full[flow.values[v].type]),
        0,
      );
      if (most > limits.transientBytes)
        over.set(nodeVariable[n], this.nodeOver(n, limits.transientBytes));
    });
    for (const [v, all] of over) {
      if (!all.includes(1)) continue;
      const out = Uint8Array.from(compact.valuesOf(v), (a) => all[a]);
      recosting.variable(v, out.join(''), (costs) =>
        costs.map((c, a) => (out[a] === 1 ? Infinity : c)),
      );
    }
    return { ...compact, problem: recosting.problem };
  }

  /** Row-major over the values that the producer or the copy leaves, and the demands of the use. */
  private useOver(use: Use, limits: TransientLimits): Uint8Array {
    const { model } = this;
    const { charges } = model;
    const { node, result } = model.flow.values[use.value];
    const type = charges.typeOf(model.flow.values[use.value]);
    const wanted = use.demands.specs;
    const copy = use.copy < 0 ? undefined : model.copies[use.copy];
    const from = copy === undefined ? this.leftBy(node, result) : copy.owned;
    const out = new Uint8Array(from.length * wanted.length);
    from.forEach((owned, i) => {
      const shared = copy === undefined ? -1 : copyIn(copy, i, use.phase);
      wanted.forEach((to, j) => {
        const viaCopy =
          shared >= 0 && charges.seconds(type, shared, to) < charges.seconds(type, owned, to);
        if (
          viaCopy
            ? this.moveOver(use.value, shared, to, false, limits)
            : this.moveOver(use.value, owned, to, this.isInput(use.value), limits)
        )
          out[i * wanted.length + j] = 1;
      });
    });
    return out;
  }

  private copyOver({ value, owned, copy }: CopyVariable, limits: TransientLimits): Uint8Array {
    const ofInput = this.isInput(value);
    return Uint8Array.from(owned, (from, z) =>
      copy[z] >= 0 && this.moveOver(value, from, copy[z], ofInput, limits) ? 1 : 0,
    );
  }

  private nodeOver(n: number, limitBytes: number): Uint8Array {
    return Uint8Array.from(this.nodeBytes(n), (bytes) => (bytes > limitBytes ? 1 : 0));
  }

  /**
   * By strategy: inputs, each storage once, and results. Inputs of the program and views that
   * change the size are left out.
   */
  private nodeBytes(n: number): Float64Array {
    const { flow, strategies } = this.model;
    const { set } = strategies.nodes[n]!;
    const width = set.inputCount + set.outputCount;
    const slots: [value: number, slot: number][] = [];
    const seen = new Set<number>();
    flow.inputs[n].forEach((value, i) => {
      const root = this.live.root[value];
      const sameSize = this.full[flow.values[root].type] === this.full[flow.values[value].type];
      if (seen.has(root) || this.isInput(value) || !sameSize) return;
      seen.add(root);
      slots.push([value, i]);
    });
    flow.results[n].forEach((value, k) => value >= 0 && slots.push([value, set.inputCount + k]));
    const out = new Float64Array(set.count);
    for (let s = 0; s < set.count; s++)
      for (const [value, slot] of slots) out[s] += this.bytes(value, set.specs[s * width + slot]);
    return out;
  }

  private moveOver(
    value: number,
    from: number,
    to: number,
    ofInput: boolean,
    limits: TransientLimits,
  ): boolean {
    if (from === to) return false;
    const { transientBytes, copyBytes } = this.move(value, from, to, ofInput);
    return transientBytes > limits.transientBytes || copyBytes > limits.copyBytes;
  }

  /**
   * Most bytes that a step of a redistribution holds: its result and, unless a state or input of
   * the program, its operand.
   */
  private move(value: number, from: number, to: number, ofInput: boolean): TransientLimits {
    const { flow, redistributor } = this.model;
    const { type, order } = flow.values[value];
    const key = `${type}@${order?.join() ?? ''}:${from}:${to}:${ofInput}`;
    let known = this.moves.get(key);
    if (known === undefined) {
      let [transientBytes, copyBytes] = [0, 0];
      let operand = ofInput ? 0 : this.bytes(value, from);
      for (const step of redistributor.plan(movedType(flow.values[value]), from, to)?.steps ?? []) {
        if (
          step.kind === 'relabel' ||
          (step.kind === 'slice' && step.bytes === 0) ||
          step.groupSize === 1
        )
          continue;
        const result = this.bytes(value, step.to);
        const [more, less] = [Math.max(operand, result), Math.min(operand, result)];
        transientBytes = Math.max(transientBytes, more + Math.max(less, step.pieceBytes ?? 0));
        copyBytes = Math.max(copyBytes, result);
        operand = result;
      }
      known = { transientBytes, copyBytes };
      this.moves.set(key, known);
    }
    return known;
  }

  /** Distinct shardings that a node leaves a result in, in the order of the tables. */
  private leftBy(node: number, result: number): Int32Array {
    const { set } = this.model.strategies.nodes[node]!;
    const width = set.inputCount + set.outputCount;
    const seen = new Set<number>();
    for (let s = 0; s < set.count; s++) seen.add(set.specs[s * width + set.inputCount + result]);
    return Int32Array.from(seen);
  }

  private isInput(value: number): boolean {
    const { graph, flow } = this.model;
    return graph.nodes[flow.values[this.live.root[value]].node].kind === 'placeholder';
  }

  private bytes(value: number, sharding: number): number {
    const { meta } = this.model.flow.values[value];
    return (
      elements(sharding < 0 ? meta.shape : this.model.space.localShape(sharding, meta.shape)) *
      DTYPE_BYTES[meta.dtype]
    );
  }
}

/**
 * Writes the derivatives of control-flow calls, and refuses bodies that change tensors in place.
 */

import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { LOCAL_MAP } from '../../../graph/local-map.ts';
import { linePosition, typesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node, ValueRef } from '../../../graph/types.ts';
import { isRef, ref } from '../../../graph/value.ts';
import { functionalForm } from '../../../ops/record/in-place.ts';
import type { CallBuilder } from '../../../ops/vjp/build.ts';
import { BodyWriter } from '../../control/body-writer.ts';
import { controlForm, inputNames, type ScanForm } from '../../control/control-form.ts';
import { Activity } from '../activity.ts';
import { type KeptRegion, keptRegion } from '../kept-region.ts';
import { hasGradient } from '../wanted.ts';
import type { Contribution, Differentiate } from './body-gradients.ts';
import { branchBackward } from './branch-vjp.ts';
import { type CustomDerivative, customDerivative } from './custom-vjp.ts';
import { type LocalMapPlan, planLocalMap } from './local-map-vjp.ts';
import { planScan, type ScanPlan } from './scan-vjp.ts';

/**
 * Derivatives of control flow. A condition becomes a second one on the same predicate, whose bodies
 * run their branch again and apply its derivative. A scan also stacks what its backward scan reads,
 * unless that is the same on every trip; the backward scan goes the other way, carries the
 * gradients of the carry and the sums of those of captured values, and yields those of the scanned
 * rows. A map has no carry, and sums after the loop.
 */
export class ControlVjp {
  private readonly plans = new Map<string, ScanPlan>();
  private readonly stated = new Map<string, CustomDerivative>();
  private readonly kept = new Map<string, KeptRegion>();
  private readonly regions = new Map<string, LocalMapPlan>();
  private readonly writer: BodyWriter;

  constructor(
    private readonly calls: CallBuilder,
    private readonly source: Graph,
    private readonly activity: Activity,
    /** Names on the way to where gradients start. */
    private readonly needed: ReadonlySet<string>,
    private readonly differentiate: Differentiate,
  ) {
    this.writer = new BodyWriter(calls.graph, (base) => calls.freshName(base));
  }

  /** Tells whether a call has a derivative here. */
  handles({ kind, target }: Node): boolean {
    return kind === 'call' && HANDLED.has(target);
  }

  /**
   * The forward call as the backward pass needs it, after whatever it captures beyond the given
   * operands.
   */
  forward(node: Node): Node {
    const stated = customDerivative(node, this.source.subgraphs, this.calls);
    if (stated !== undefined) {
      this.stated.set(node.name, stated);
      return stated.forward;
    }
    if (node.target === LOCAL_MAP) {
      const plan = planLocalMap({
        node,
        subgraphs: this.source.subgraphs,
        isActive: (operand) => this.isActive(operand),
        wanted: this.wantedResults(node),
        calls: this.calls,
        differentiate: this.differentiate,
      });
      if (plan === undefined) return node;
      this.regions.set(node.name, plan);
      return plan.forward;
    }
    const form = controlForm(node, this.source.subgraphs);
    if (form?.kind === 'branch') {
      const kept = keptRegion(node, form, this.calls);
      if (kept === undefined) return node;
      this.kept.set(node.name, kept);
      return kept.forward;
    }
    if (form?.kind !== 'scan') return node;
    const wanted = this.wantedResults(node);
    const wrt = this.activeInputs(form);
    if (wrt.length === 0) return node;
    refuseMutation(node, form.step);
    const plan = planScan({
      node,
      form,
      wrt,
      wanted,
      calls: this.calls,
      writer: this.writer,
      differentiate: this.differentiate,
    });
    if (plan === undefined) return node;
    this.plans.set(node.name, plan);
    return plan.forward;
  }

  /** The contributions of the gradients of a call's results to the gradients of its operands. */
  backward(node: Node, gradients: readonly (ValueRef | undefined)[]): Contribution[] {
    const plan = this.plans.get(node.name);
    if (plan !== undefined) return plan.backward(gradients);
    const region = this.regions.get(node.name);
    if (region !== undefined) return region.backward(gradients);
    const stated = this.stated.get(node.name);
    if (stated !== undefined)
      return stated.backward(gradients, (operand) => this.isActive(operand));
    const kept = this.kept.get(node.name);
    const form = kept?.form ?? controlForm(node, this.source.subgraphs);
    if (form?.kind === 'branch') {
      for (const body of form.bodies) refuseMutation(node, body.graph);
      const wrt = form.operands.flatMap((operand, i) => (this.isActive(operand) ? [i] : []));
      const saved =
        kept?.saved.map((output) => ({
          output,
          value: this.calls.item(ref(node.name), output),
        })) ?? [];
      return branchBackward({
        node,
        form,
        wrt,
        gradients,
        saved,
        calls: this.calls,
        differentiate: this.differentiate,
      });
    }
    return [];
  }

  private isActive(operand: Arg): boolean {
    return (
      isRef(operand) && this.activity.has(operand.name) && hasGradient(this.calls.typeOf(operand))
    );
  }

  /** Results that a read leads on to where gradients start. */
  private wantedResults(node: Node): Set<number> {
    const wanted = new Set<number>();
    for (const { target, args, name } of this.source.nodes) {
      const [read, index] = args;
      if (
        target !== 'operator.getitem' ||
        read === undefined ||
        !isRef(read) ||
        read.name !== node.name
      )
        continue;
      if (this.needed.has(name) && typeof index === 'number') wanted.add(index);
    }
    return wanted;
  }

  /**
   * Inputs of a scan's body that depend on what is differentiated; a carry may come to do so on a
   * later trip.
   */
  private activeInputs({ step, init, xs, captured }: ScanForm): string[] {
    const names = inputNames(step);
    const types = typesByName(step);
    const operands = [...init, ...xs, ...captured];
    const real = (name: string): boolean => hasGradient(types.get(name) ?? { kind: 'none' });
    const active = new Set(names.filter((name, i) => real(name) && this.isActive(operands[i])));
    for (let grows = active.size > 0; grows;) {
      const activity = new Activity(this.calls.table, active);
      for (const inner of step.nodes) activity.visit(inner);
      const before = active.size;
      for (let i = 0; i < init.length; i++) {
        const { value } = step.outputs[i];
        if (value !== null && activity.has(value) && real(names[i])) active.add(names[i]);
      }
      grows = active.size > before;
    }
    return names.filter((name) => active.has(name));
  }
}

const HANDLED: ReadonlySet<string> = new Set([
  'call',
  'cond',
  'case',
  'scan',
  'map',
  'map_impl',
  LOCAL_MAP,
]);

/** @throws E_HOP_MUTATION when a body, or a body inside it, changes a tensor in place */
function refuseMutation(node: Node, body: Graph): void {
  for (const call of body.nodes) {
    const functional = functionalForm(call.target);
    if (functional === undefined) continue;
    throw new ShardwrightError(
      'E_HOP_MUTATION',
      `${node.name}: ${call.target} changes a tensor in place inside the body @${body.name}`,
      {
        node: call.name,
        ...defined({ position: linePosition(call.meta.line) }),
        hint: `bodies are functional: use ${functional} and return its result`,
      },
    );
  }
  for (const inner of Object.values(body.subgraphs)) refuseMutation(node, inner);
}

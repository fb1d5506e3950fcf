/**
 * Copies the forward calls into the joint graph, with composite operators decomposed and in-place
 * ones made functional.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { linePosition } from '../../graph/nodes.ts';
import { indexGraph, lastUses } from '../../graph/order.ts';
import type { Graph, Node, Output, ValueRef } from '../../graph/types.ts';
import { isRef, mapOperands, ref } from '../../graph/value.ts';
import { functionalForm } from '../../ops/record/in-place.ts';
import { bind } from '../../ops/record/infer.ts';
import type { CallBuilder } from '../../ops/vjp/build.ts';
import { compositeOf } from '../../ops/vjp/composite/composite.ts';
import { VjpCall } from '../../ops/vjp/vjp.ts';
import { Activity } from './activity.ts';
import type { ControlVjp } from './bodies/control-vjp.ts';

/**
 * The forward calls as the backward pass needs them: composite operators on the way of a gradient
 * replaced by what they are made of, in-place operators by their functional form. Other calls keep
 * their names.
 */
export class ForwardCopy {
  /** Calls in order, those that replace others included. */
  readonly nodes: Node[] = [];
  /** New values of inputs that an in-place operator or running statistics change, by role name. */
  readonly mutations = new Map<string, string>();
  readonly activity: Activity;
  private readonly renamed = new Map<string, string>();
  private readonly placeholders = new Map<string, Node>();
  /** The value whose storage a view shares, by the name of the view. */
  private readonly base = new Map<string, string>();

  constructor(
    private readonly source: Graph,
    readonly calls: CallBuilder,
    wanted: ReadonlySet<string>,
  ) {
    this.activity = new Activity(calls.table, wanted);
  }

  /**
   * @param control derivatives of control flow, asked for the form that its calls take in the
   *   forward pass
   */
  run(control: ControlVjp): this {
    for (const node of this.source.nodes) {
      if (node.kind === 'placeholder') this.placeholders.set(node.name, node);
      else if (node.kind === 'get_attr') this.keep(node);
      else this.copy(node, control);
    }
    return this;
  }

  /** The output with its value by the name that it has now. */
  output(output: Output): Output {
    return output.value === null ? output : { ...output, value: this.nameOf(output.value) };
  }

  /** Changed inputs that the source does not return by itself. */
  newMutations(outputs: readonly Output[]): Output[] {
    const stated = new Set(
      outputs.flatMap((output) => (output.role === 'mutation' ? [output.of] : [])),
    );
    return [...this.mutations].flatMap(([of, value]) =>
      stated.has(of) ? [] : [{ role: 'mutation', of, value }],
    );
  }

  /** The name that a value of the source has now. */
  nameOf(name: string): string {
    return this.renamed.get(name) ?? name;
  }

  private copy(original: Node, control: ControlVjp): void {
    const node = mapOperands(original, (name) => this.nameOf(name));
    if (control.handles(node)) {
      this.keep(this.activity.visit(node) ? control.forward(node) : node);
      return;
    }
    const record = this.calls.table.get(node.target);
    const inPlace = record === undefined ? undefined : functionalForm(node.target);
    if (inPlace !== undefined && this.calls.table.get(inPlace) !== undefined) {
      this.replaceInPlace(original, { ...node, target: inPlace });
      return;
    }
    const composite = record === undefined ? undefined : compositeOf(record);
    if (record === undefined || composite === undefined || !this.activity.visit(node)) {
      this.noteView(original);
      this.keep(node);
      return;
    }
    const ctx = bind(this.calls.table, node, (name) => this.calls.typeOf(ref(name)));
    if (ctx === undefined) return;
    const from = this.calls.made.length;
    const { save, ...meta } = node.meta;
    // The parts of a composite are recomputed with it; `save` is for its result, see `retained`.
    this.calls.meta = save === 'recompute' ? node.meta : meta;
    const active = (name: string): boolean => {
      const arg = call.arg(name);
      return arg !== undefined && isRef(arg) && this.activity.has(arg.name);
    };
    const call: VjpCall = new VjpCall(this.calls, node, record, ctx, [], active);
    const result = composite(call, (operand, value) => this.update(operand, value));
    for (const made of this.calls.made.slice(from)) {
      this.nodes.push(made);
      this.activity.visit(made);
    }
    this.renamed.set(original.name, result.name);
  }

  private keep(node: Node): void {
    this.calls.keep(node);
    this.activity.visit(node);
    this.nodes.push(node);
  }

  /** From here on the operand's name means the new value. */
  private replaceInPlace(original: Node, functional: Node): void {
    const [target] = original.args;
    if (target !== undefined && isRef(target)) {
      this.refuseAliases(original, target.name);
      this.keep(functional);
      this.update(target, ref(functional.name));
    } else this.keep(functional);
  }

  /** Other names of the same storage must not be read again: they would show the change. */
  private refuseAliases(original: Node, target: string): void {
    const root = this.base.get(target) ?? target;
    const { position } = indexGraph(this.source);
    const last = lastUses(this.source);
    const at = position.get(original.name) ?? 0;
    const shares = (name: string): boolean =>
      name !== target && (this.base.get(name) ?? name) === root;
    const alias = this.source.nodes.find(
      (node, i) =>
        shares(node.name) && (last[i] > at || (node.kind === 'placeholder' && node.name === root)),
    );
    if (alias === undefined) return;
    throw new ShardwrightError(
      'E_MUTATION',
      `${original.name}: ${original.target} changes ${target} in place, which shares its ` +
        `storage with ${alias.name}`,
      {
        node: original.name,
        ...defined({ position: linePosition(original.meta.line) }),
        hint: 'use the functional operator, or a graph that AOTAutograd has made functional',
      },
    );
  }

  /** An operand takes a new value: later uses read it, and an input returns it. */
  private update(operand: ValueRef, value: ValueRef): void {
    const now = this.nameOf(operand.name);
    for (const [name, current] of [...this.renamed])
      if (current === now) this.renamed.set(name, value.name);
    for (const name of [operand.name, now]) this.renamed.set(name, value.name);
    for (const placeholder of this.placeholders.values())
      if (this.nameOf(placeholder.name) === value.name && placeholder.meta.roleName !== undefined)
        this.mutations.set(placeholder.meta.roleName, value.name);
  }

  /** Remembers what shares storage. */
  private noteView(node: Node): void {
    const [operand] = node.args;
    if (operand === undefined || !isRef(operand)) return;
    const shares = this.calls.table.get(node.target)?.cls === 'view';
    const member = node.target === 'operator.getitem' && this.base.has(operand.name);
    if (shares || member) this.base.set(node.name, this.base.get(operand.name) ?? operand.name);
  }
}

/**
 * Splits the joint graph of the body of a `scan` or `map` into a forward loop, which stacks what
 * the backward pass reads, and the calls of the backward loop. What is the same on every trip is
 * made before the loops.
 */

import { defined } from '../../../defined.ts';
import { internalError } from '../../../errors.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import { nodesByName } from '../../../graph/nodes.ts';
import type { Arg, Dim, Graph, Node, ValueRef, ValueType } from '../../../graph/types.ts';
import { eachOperand, isRef } from '../../../graph/value.ts';
import type { CallBuilder } from '../../../ops/vjp/build.ts';
import { BodyWriter, isBodyName } from '../../control/body-writer.ts';
import { type ScanForm, scanLength } from '../../control/control-form.ts';
import { drawsWithoutKey, isMovable } from '../../control/loops/hoist-invariants.ts';
import { type Differentiate, gradientSlots, neededNodes } from './body-gradients.ts';

export interface ScanGradient {
  readonly node: Node;
  readonly form: ScanForm;
  /** Inputs of the body that gradients are wanted of. */
  readonly wrt: readonly string[];
  /** Results that may have a gradient; those of the carry always may. */
  readonly wanted: ReadonlySet<number>;
  readonly calls: CallBuilder;
  readonly writer: BodyWriter;
  readonly differentiate: Differentiate;
}

/**
 * How the backward body comes by a value of the forward body: `given` on every trip (a captured
 * operand), `row` of a scanned operand, `stack` that the forward loop saves, `again` by the same
 * call.
 */
type Source = 'given' | 'row' | 'stack' | 'again';

/** The body of a loop with its gradient, split into what each of the two loops runs. */
export class ScanSplit {
  readonly inputs: readonly Node[];
  readonly carry: ReadonlySet<string>;
  readonly rows: ReadonlySet<string>;
  readonly captured: ReadonlyMap<string, Arg>;
  readonly nodes: ReadonlyMap<string, Node>;
  /** Calls that give the same on every trip, made before the loop. */
  private readonly fixed = new Map<string, ValueRef>();
  private readonly constants = new Set<string>();
  readonly sources = new Map<string, Source>();
  /** Saved values, in order, and the result of the forward call that each is. */
  readonly stacks = new Map<string, number>();
  readonly slots: readonly (string | null)[];

  constructor(
    readonly site: ScanGradient,
    readonly joint: Graph,
  ) {
    const { form, wrt } = site;
    this.inputs = placeholdersOf(form.step);
    const names = this.inputs.map((input) => input.name);
    const [c, x] = [form.init.length, form.init.length + form.xs.length];
    this.carry = new Set(names.slice(0, c));
    this.rows = new Set(names.slice(c, x));
    this.captured = new Map(names.slice(x).map((name, i) => [name, form.captured[i]]));
    this.nodes = nodesByName(joint);
    this.slots = gradientSlots(joint, wrt);
  }

  /** The forward call, with saved values as further results, and the calls of the backward loop. */
  forward(): { readonly forward: Node; readonly backward: readonly Node[] } {
    const { node } = this.site;
    this.findFixed();
    const returned = this.outputs();
    returned.forEach((name, i) => {
      // A result that is stacked anyhow serves as the saved value.
      if (name !== null && i >= this.carry.size && !this.stacks.has(name)) this.stacks.set(name, i);
    });
    const backward = [...this.backwardNodes()];
    const stacked = new Set<string>();
    for (const call of backward) this.readsOf(call, (name) => this.source(name, stacked));
    for (const slot of this.slots)
      if (slot !== null && !this.isBackward(slot)) this.source(slot, stacked);
    const extra = [...stacked].filter((name) => !this.stacks.has(name));
    extra.forEach((name, i) => this.stacks.set(name, returned.length + i));
    const all = [...returned, ...extra];
    const made = this.makeFixed(backward, all);
    const needed = neededNodes(this.joint, all, new Set(made));
    // Values that only the backward loop reads do not go through the forward loop.
    const hoisted = made.filter((name) => needed.has(name));
    const body = this.forwardBody(all, hoisted);
    const forward = this.forwardCall(node, body, extra, hoisted);
    return { forward, backward };
  }

  /** The loop's results in the joint graph of its body. */
  private outputs(): (string | null)[] {
    const { step } = this.site.form;
    const byIndex = new Map(
      this.joint.outputs.map((o) => [o.role === 'output' ? o.index : undefined, o.value]),
    );
    return step.outputs.map((output, i) => byIndex.get(output.index ?? i) ?? null);
  }

  isBackward(name: string): boolean {
    const node = this.nodes.get(name);
    return node?.meta.role === 'tangent' || node?.meta.phase === 'backward';
  }

  /** Backward calls that some gradient needs. */
  private backwardNodes(): Node[] {
    const needed = neededNodes(this.joint, this.slots);
    return this.joint.nodes.filter(
      (n) => n.kind !== 'placeholder' && needed.has(n.name) && this.isBackward(n.name),
    );
  }

  /** Calls that depend on captured values alone, and calls that depend on nothing. */
  private findFixed(): void {
    const { table } = this.site.calls;
    const fixed = new Set<string>(this.captured.keys());
    for (const node of this.joint.nodes) {
      if (node.kind === 'placeholder' || this.isBackward(node.name) || !isMovable(node, table))
        continue;
      let reads = 0;
      let loopFree = true;
      let constant = true;
      eachOperand(node, (name) => {
        reads++;
        constant &&= this.constants.has(name);
        loopFree &&= fixed.has(name) || this.constants.has(name);
      });
      if (reads === 0 || constant) this.constants.add(node.name);
      else if (loopFree) fixed.add(node.name);
    }
    for (const name of fixed) if (!this.captured.has(name)) this.sources.set(name, 'given');
    for (const name of this.captured.keys()) this.sources.set(name, 'given');
    for (const name of this.rows) this.sources.set(name, 'row');
    for (const name of this.constants) this.sources.set(name, 'again');
  }

  /**
   * Decides where the backward body gets a forward value, and notes what must be stacked for it.
   */
  private source(name: string, stacked: Set<string>): Source | undefined {
    const known = this.sources.get(name);
    if (known !== undefined || this.isBackward(name)) return known;
    const node = this.nodes.get(name);
    if (node === undefined)
      throw internalError(`the body of ${this.site.node.name} reads ${name}, which it lacks`);
    const { form, calls } = this.site;
    const cheap = calls.table.get(node.target)?.cls === 'view' || node.type.kind !== 'tensor';
    const again =
      node.kind !== 'placeholder' &&
      !this.stacks.has(name) &&
      (cheap || form.checkpoint) &&
      !this.draws(node);
    const made: Source = again ? 'again' : 'stack';
    this.sources.set(name, made);
    if (made === 'stack') stacked.add(name);
    else eachOperand(node, (operand) => void this.source(operand, stacked));
    return made;
  }

  /**
   * Tells whether another run of a call would draw other numbers; reads of several results are
   * judged by the call.
   */
  private draws(node: Node): boolean {
    const [read] = node.args;
    const call =
      node.target === 'operator.getitem' && isRef(read) ? this.nodes.get(read.name) : node;
    return call !== undefined && drawsWithoutKey(call, this.site.calls.table);
  }

  readsOf(node: Node, visit: (name: string) => void): void {
    eachOperand(node, (name) => {
      if (!this.isBackward(name)) visit(name);
    });
  }

  /**
   * Makes the fixed calls that either body reads, before the loop; returns those that are read, in
   * order.
   */
  private makeFixed(backward: readonly Node[], returned: readonly (string | null)[]): string[] {
    const isFixed = (name: string): boolean =>
      this.sources.get(name) === 'given' && !this.captured.has(name);
    const forward = neededNodes(this.joint, returned);
    const read = new Set<string>();
    const see = (name: string): void => void (isFixed(name) && read.add(name));
    for (const node of this.joint.nodes) {
      const runs =
        !this.isBackward(node.name) &&
        (forward.has(node.name) || this.sources.get(node.name) === 'again');
      if (runs && !isFixed(node.name)) eachOperand(node, see);
    }
    for (const node of backward) eachOperand(node, see);
    for (const name of [...returned, ...this.slots]) if (name !== null) see(name);
    const needed = neededNodes(this.joint, read);
    const { writer } = this.site;
    const names = new Map<string, Arg>(this.captured);
    for (const node of this.joint.nodes) {
      const constant = this.constants.has(node.name);
      if (
        !needed.has(node.name) ||
        node.kind === 'placeholder' ||
        !(constant || isFixed(node.name))
      )
        continue;
      const copy = writer.copy(node, this.joint, names, {
        ...node.meta,
        ...placeOf(this.site.node),
      });
      names.set(node.name, copy);
      if (isFixed(node.name)) this.fixed.set(node.name, copy);
    }
    const order = this.joint.nodes.filter(
      (node) => read.has(node.name) && node.type.kind === 'tensor',
    );
    return order.map((node) => node.name);
  }

  private forwardBody(returned: readonly (string | null)[], hoisted: readonly string[]): Graph {
    const { name } = this.site.form;
    const builder = new GraphBuilder(name);
    const writer = new BodyWriter(builder);
    const names = new Map<string, Arg>();
    for (const input of this.inputs) names.set(input.name, builder.keep(input));
    this.addInputs(builder, names, hoisted);
    const needed = neededNodes(this.joint, returned, new Set(hoisted));
    for (const node of this.joint.nodes)
      if (needed.has(node.name) && !names.has(node.name) && !isBodyName(node, this.joint))
        names.set(node.name, writer.copy(node, this.joint, names));
    returned.forEach((value, index) =>
      builder.output({ value: nameIn(names, value), role: 'output', index }),
    );
    return builder.build();
  }

  private addInputs(
    builder: GraphBuilder,
    names: Map<string, Arg>,
    added: readonly string[],
  ): void {
    for (const name of added) {
      const roleIndex = names.size;
      names.set(name, builder.placeholder(name, this.typeOf(name), { role: 'arg', roleIndex }));
    }
  }

  private forwardCall(
    node: Node,
    body: Graph,
    extra: readonly string[],
    hoisted: readonly string[],
  ): Node {
    const { form } = this.site;
    const name = this.site.writer.body(form.name, body);
    const captured: Arg[] = [...form.captured, ...hoisted.map((key) => this.outer(key))];
    const items = [
      ...tupleItems(node.type),
      ...extra.map((key) => this.stackedType(this.typeOf(key))),
    ];
    const scans = node.target === 'scan';
    const args: Arg[] = [{ kind: 'graph', name }, ...(scans ? [form.init] : []), form.xs, captured];
    return { ...node, args, type: { kind: 'tuple', items } };
  }

  outer(name: string): Arg {
    const value = this.fixed.get(name);
    if (value === undefined) throw internalError(`${name} was not made before the loop`);
    return value;
  }

  typeOf(name: string): ValueType {
    return this.nodes.get(name)?.type ?? { kind: 'none' };
  }

  length(): number {
    const { node, form, calls } = this.site;
    const length = scanLength(node, form, (name) => calls.typeOf({ kind: 'value', name }));
    if (length === undefined) throw internalError(`the length of ${node.name} is not known`);
    return length;
  }

  stackedType(type: ValueType): ValueType {
    if (type.kind !== 'tensor') return type;
    const shape: Dim[] = [this.length(), ...type.shape];
    return { kind: 'tensor', dtype: type.dtype, shape };
  }
}

/** The name that a value has among these; null for none. */
export function nameIn(names: ReadonlyMap<string, Arg>, value: string | null): string | null {
  const arg = value === null ? null : names.get(value);
  return arg !== undefined && isRef(arg) ? arg.name : null;
}

function tupleItems(type: ValueType): readonly ValueType[] {
  return type.kind === 'tuple' ? type.items : [];
}

/** The place of a call in the program. */
function placeOf({ meta }: Node): Pick<Node['meta'], 'path' | 'source'> {
  return {
    ...defined({ path: meta.path, source: meta.source }),
  };
}

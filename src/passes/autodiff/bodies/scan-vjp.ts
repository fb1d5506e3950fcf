/**
 * Writes the derivative of `scan` and `map`: a forward loop that stacks what the backward loop
 * reads.
 */

import { defined } from '../../../defined.ts';
import { internalError } from '../../../errors.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import { nodesByName } from '../../../graph/nodes.ts';
import type {
  Arg,
  Dim,
  Graph,
  Node,
  TensorType,
  ValueRef,
  ValueType,
} from '../../../graph/types.ts';
import { eachOperand, isRef, NO_KWARGS } from '../../../graph/value.ts';
import type { CallBuilder } from '../../../ops/vjp/build.ts';
import { BodyWriter, isBodyName } from '../../control/body-writer.ts';
import { type ScanForm, scanLength } from '../../control/control-form.ts';
import { drawsWithoutKey, isMovable } from '../../control/loops/hoist-invariants.ts';
import {
  type Contribution,
  type Differentiate,
  gradientSlots,
  neededNodes,
} from './body-gradients.ts';
import { zeros } from './branch-vjp.ts';

interface ScanGradient {
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

/** A scan or map that is to be differentiated. */
export interface ScanPlan {
  /** The call with the saved values as further results. */
  readonly forward: Node;
  /** Writes the backward loop. */
  backward(gradients: readonly (ValueRef | undefined)[]): Contribution[];
}

/**
 * How the backward body comes by a value of the forward body: `given` on every trip (a captured
 * operand), `row` of a scanned operand, `stack` that the forward loop saves, `again` by the same
 * call.
 */
type Source = 'given' | 'row' | 'stack' | 'again';

/**
 * The forward call of a loop, and what the backward loop will read. Undefined where no result
 * depends on what is wanted.
 */
export function planScan(site: ScanGradient): ScanPlan | undefined {
  const { form, wanted, wrt, differentiate } = site;
  const count = form.init.length;
  const from = form.step.outputs.flatMap((_, i) => (i < count || wanted.has(i) ? [i] : []));
  const joint = differentiate(form.step, wrt, from);
  return joint.nodes.some((node) => node.meta.role === 'tangent')
    ? new ScanSplit(site, joint).plan()
    : undefined;
}

class ScanSplit {
  private readonly inputs: readonly Node[];
  private readonly carry: ReadonlySet<string>;
  private readonly rows: ReadonlySet<string>;
  private readonly captured: ReadonlyMap<string, Arg>;
  private readonly nodes: ReadonlyMap<string, Node>;
  /** Calls that give the same on every trip, made before the loop. */
  private readonly fixed = new Map<string, ValueRef>();
  private readonly constants = new Set<string>();
  private readonly sources = new Map<string, Source>();
  /** Saved values, in order, and the result of the forward call that each is. */
  private readonly stacks = new Map<string, number>();
  private readonly slots: readonly (string | null)[];

  constructor(
    private readonly site: ScanGradient,
    private readonly joint: Graph,
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

  plan(): ScanPlan {
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
    return { forward, backward: (gradients) => this.backwardCall(forward, backward, gradients) };
  }

  // ---- what is read, and where it comes from
  // ---------------------------------------------------------------------------

  /** The loop's results in the joint graph of its body. */
  private outputs(): (string | null)[] {
    const { step } = this.site.form;
    const byIndex = new Map(
      this.joint.outputs.map((o) => [o.role === 'output' ? o.index : undefined, o.value]),
    );
    return step.outputs.map((output, i) => byIndex.get(output.index ?? i) ?? null);
  }

  private isBackward(name: string): boolean {
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

  private readsOf(node: Node, visit: (name: string) => void): void {
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

  // ---- the forward loop
  // ---------------------------------------------------------------------------

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

  private outer(name: string): Arg {
    const value = this.fixed.get(name);
    if (value === undefined) throw internalError(`${name} was not made before the loop`);
    return value;
  }

  // ---- the backward loop
  // ---------------------------------------------------------------------------

  /**
   * Backward body: inputs are d(carry) and the sums of d(captured), then rows of the gradients of
   * ys, saved values and scanned values, then captured values; results are the new d(carry) and
   * sums, then rows of d(xs). A map has neither carry nor sums.
   */
  private backwardCall(
    forward: Node,
    backward: readonly Node[],
    gradients: readonly (ValueRef | undefined)[],
  ): Contribution[] {
    const wanted = this.wantedParts();
    const body = new BackwardBody(new GraphBuilder(`${this.site.form.name}_backward`));
    const { carried, summed, scanned } = wanted;
    const results = [
      ...carried,
      ...(this.isScan ? [...summed, ...scanned] : [...scanned, ...summed]),
    ];
    if (results.length === 0) return [];
    const sums = this.addCarry(body, wanted, gradients);
    const zeroTangents = this.addTangents(body, gradients);
    const reads = this.backwardReads(backward);
    this.addReads(body, reads, forward);
    for (const tangent of zeroTangents)
      body.names.set(tangent.name, zeros(body.builder, tangent.type, this.site.calls.table));
    this.copyCalls(body, backward, reads);
    this.addResults(body, wanted, sums);
    const call = this.callOf(body);
    return results.flatMap((name, i) => this.contribution(name, call, i));
  }

  private get isScan(): boolean {
    return this.site.node.target === 'scan';
  }

  /** Inputs of the forward body that a gradient is wanted of, by how they come. */
  private wantedParts(): WantedParts {
    const { wrt } = this.site;
    return {
      carried: wrt.filter((name) => this.carry.has(name)),
      summed: wrt.filter((name, k) => this.captured.has(name) && this.slots[k] !== null),
      scanned: wrt.filter((name, k) => this.rows.has(name) && this.slots[k] !== null),
    };
  }

  /** Gradients of results of the forward body, by the index of the result. */
  private tangents(): Map<number | undefined, Node> {
    return new Map(
      placeholdersOf(this.joint).flatMap((p) =>
        p.meta.role === 'tangent' ? [[p.meta.roleIndex, p] as const] : [],
      ),
    );
  }

  /** The carry of the backward loop: gradients of the carry, and the sums, which it returns. */
  private addCarry(
    body: BackwardBody,
    { carried, summed }: WantedParts,
    gradients: readonly (ValueRef | undefined)[],
  ): ValueRef[] {
    const { calls } = this.site;
    const tangents = this.tangents();
    for (const name of carried) {
      const at = this.inputs.findIndex((i) => i.name === name);
      const ref = body.input(`d_${name}`, this.typeOf(name));
      const tangent = tangents.get(at);
      if (tangent !== undefined) body.names.set(tangent.name, ref);
      body.init.push(gradients[at] ?? calls.zerosOf(this.tensor(name)));
    }
    if (!this.isScan) return [];
    return summed.map((name) => {
      body.init.push(calls.zerosOf(this.tensor(name)));
      return body.input(`sum_${name}`, this.typeOf(name));
    });
  }

  /** Rows of the gradients of ys; returns those that are needed and did not come. */
  private addTangents(
    body: BackwardBody,
    gradients: readonly (ValueRef | undefined)[],
  ): readonly Node[] {
    const needed = neededNodes(this.joint, this.slots);
    const missing: Node[] = [];
    for (const [index, tangent] of this.tangents()) {
      if (index === undefined || index < this.carry.size || !needed.has(tangent.name)) continue;
      const gradient = gradients[index];
      if (gradient === undefined) missing.push(tangent);
      else {
        body.names.set(tangent.name, body.input(tangent.name, tangent.type));
        body.xs.push(gradient);
      }
    }
    return missing;
  }

  /** Saved and scanned values that it reads as rows, then those that are given on every trip. */
  private addReads(body: BackwardBody, reads: ReadonlySet<string>, forward: Node): void {
    const { form, calls } = this.site;
    for (const name of reads) {
      const source = this.sources.get(name);
      if (source !== 'stack' && source !== 'row') continue;
      body.names.set(name, body.input(name, this.typeOf(name)));
      body.xs.push(
        source === 'row'
          ? form.xs[[...this.rows].indexOf(name)]
          : calls.item({ kind: 'value', name: forward.name }, this.stackIndex(name)),
      );
    }
    for (const name of reads) {
      if (this.sources.get(name) !== 'given') continue;
      body.names.set(name, body.input(name, this.typeOf(name)));
      body.captured.push(this.captured.get(name) ?? this.outer(name));
    }
  }

  /** The calls of the backward pass, and those of the forward pass that run again. */
  private copyCalls(
    { builder, names }: BackwardBody,
    backward: readonly Node[],
    reads: ReadonlySet<string>,
  ): void {
    const writer = new BodyWriter(builder);
    const runs = new Set(backward.map((call) => call.name));
    for (const inner of this.joint.nodes) {
      const again = this.sources.get(inner.name) === 'again' && reads.has(inner.name);
      if (
        (again || runs.has(inner.name)) &&
        !names.has(inner.name) &&
        !isBodyName(inner, this.joint)
      )
        names.set(inner.name, writer.copy(inner, this.joint, names));
    }
  }

  /** The new carry, and rows of gradients; a map sums what it captures over its rows. */
  private addResults(body: BackwardBody, wanted: WantedParts, sums: readonly ValueRef[]): void {
    const { builder, names } = body;
    const gradientOf = (name: string): string | null =>
      nameIn(names, this.slots[this.site.wrt.indexOf(name)]);
    for (const name of wanted.carried) {
      const type = this.typeOf(name);
      const isZero = this.slots[this.site.wrt.indexOf(name)] === null;
      body.output(
        isZero ? zeros(builder, type, this.site.calls.table).name : gradientOf(name),
        type,
      );
    }
    if (this.isScan)
      wanted.summed.forEach((name, i) => {
        const type = this.typeOf(name);
        const args: Arg[] = [sums[i], { kind: 'value', name: gradientOf(name) ?? '' }];
        body.output(builder.call('aten.add.Tensor', args, type).name, type);
      });
    for (const name of this.isScan ? wanted.scanned : [...wanted.scanned, ...wanted.summed])
      body.output(gradientOf(name), this.stackedType(this.typeOf(name)));
  }

  /** The call of the backward loop. */
  private callOf({ builder, items, init, xs, captured }: BackwardBody): ValueRef {
    const { node, form, calls } = this.site;
    const body = numbered(builder.build());
    const length = xs.length === 0 ? { length: this.length() } : {};
    const kwargs = this.isScan
      ? { ...length, ...(form.reverse ? {} : { reverse: true }) }
      : NO_KWARGS;
    const name = this.site.writer.body(body.name, body);
    const carry = this.isScan ? [init] : [];
    return calls.graph.call(
      node.target,
      [{ kind: 'graph', name }, ...carry, xs, captured],
      { kind: 'tuple', items },
      { meta: calls.meta, kwargs, name: calls.freshName(node.target) },
    );
  }

  /** A result of the backward loop as the gradient of an operand of the forward loop. */
  private contribution(name: string, call: ValueRef, index: number): Contribution[] {
    const { calls } = this.site;
    const operand = this.operandOf(name);
    if (operand === undefined) return [];
    const gradient = calls.item(call, index);
    const isRows = !this.isScan && this.captured.has(name);
    return [{ operand, gradient: isRows ? calls.sum(gradient, [0]) : gradient }];
  }

  /** Forward values that the backward body reads, directly or by calling again. */
  private backwardReads(backward: readonly Node[]): Set<string> {
    const reads = new Set<string>();
    const add = (name: string): void => {
      if (reads.has(name) || this.isBackward(name)) return;
      reads.add(name);
      const node = this.nodes.get(name);
      if (this.sources.get(name) === 'again' && node !== undefined) eachOperand(node, add);
    };
    for (const node of backward) this.readsOf(node, add);
    for (const slot of this.slots) if (slot !== null) add(slot);
    return reads;
  }

  private operandOf(name: string): ValueRef | undefined {
    const { init, xs, captured } = this.site.form;
    const operand = [...init, ...xs, ...captured][
      this.inputs.findIndex((input) => input.name === name)
    ];
    return isRef(operand) ? operand : undefined;
  }

  private stackIndex(name: string): number {
    const index = this.stacks.get(name);
    if (index === undefined) throw internalError(`${name} was not saved`);
    return index;
  }

  private typeOf(name: string): ValueType {
    return this.nodes.get(name)?.type ?? { kind: 'none' };
  }

  private tensor(name: string): TensorType {
    const type = this.typeOf(name);
    if (type.kind !== 'tensor') throw internalError(`${name} is not a tensor`);
    return type;
  }

  private length(): number {
    const { node, form, calls } = this.site;
    const length = scanLength(node, form, (name) => calls.typeOf({ kind: 'value', name }));
    if (length === undefined) throw internalError(`the length of ${node.name} is not known`);
    return length;
  }

  private stackedType(type: ValueType): ValueType {
    if (type.kind !== 'tensor') return type;
    const shape: Dim[] = [this.length(), ...type.shape];
    return { kind: 'tensor', dtype: type.dtype, shape };
  }
}

/** Inputs of the forward body that a gradient is wanted of, by how they come. */
interface WantedParts {
  readonly carried: readonly string[];
  /** Captured operands: their gradients are summed over the trips. */
  readonly summed: readonly string[];
  readonly scanned: readonly string[];
}

/** The body of the backward loop as it is written, and the operands of its call. */
class BackwardBody {
  /** Values of the joint program, by their names there. */
  readonly names = new Map<string, Arg>();
  readonly init: Arg[] = [];
  readonly xs: Arg[] = [];
  readonly captured: Arg[] = [];
  readonly items: ValueType[] = [];

  constructor(readonly builder: GraphBuilder) {}

  input(base: string, type: ValueType): ValueRef {
    return this.builder.placeholder(base, type, { role: 'arg', roleIndex: 0 });
  }

  output(value: string | null, type: ValueType): void {
    this.builder.output({ value, role: 'output', index: this.items.length });
    this.items.push(type);
  }
}

/** The body with its inputs numbered. */
function numbered(body: Graph): Graph {
  let roleIndex = 0;
  const nodes = body.nodes.map((node) =>
    node.kind === 'placeholder'
      ? { ...node, meta: { ...node.meta, roleIndex: roleIndex++ } }
      : node,
  );
  return { ...body, nodes };
}

function nameIn(names: ReadonlyMap<string, Arg>, value: string | null): string | null {
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

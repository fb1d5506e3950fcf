/** Writes the backward loop of a `scan` or `map`. */

import { internalError } from '../../../errors.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { placeholdersOf } from '../../../graph/control.ts';
import type { Arg, Graph, Node, TensorType, ValueRef, ValueType } from '../../../graph/types.ts';
import { eachOperand, isRef, NO_KWARGS } from '../../../graph/value.ts';
import { BodyWriter, isBodyName } from '../../control/body-writer.ts';
import { type Contribution, neededNodes } from './body-gradients.ts';
import { zeros } from './branch-vjp.ts';
import { nameIn, type ScanSplit } from './scan-split.ts';

export class ScanBackward {
  /**
   * @param forward the call of the forward loop, whose results the backward loop reads
   * @param backward calls that some gradient needs
   */
  constructor(
    private readonly split: ScanSplit,
    private readonly forward: Node,
    private readonly backward: readonly Node[],
  ) {}

  /**
   * Backward body: inputs are d(carry) and the sums of d(captured), then rows of the gradients of
   * ys, saved values and scanned values, then captured values; results are the new d(carry) and
   * sums, then rows of d(xs). A map has neither carry nor sums.
   */
  write(gradients: readonly (ValueRef | undefined)[]): Contribution[] {
    const { forward, backward } = this;
    const wanted = this.wantedParts();
    const body = new BackwardBody(new GraphBuilder(`${this.split.site.form.name}_backward`));
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
      body.names.set(tangent.name, zeros(body.builder, tangent.type, this.split.site.calls.table));
    this.copyCalls(body, backward, reads);
    this.addResults(body, wanted, sums);
    const call = this.callOf(body);
    return results.flatMap((name, i) => this.contribution(name, call, i));
  }

  private get isScan(): boolean {
    return this.split.site.node.target === 'scan';
  }

  /** Inputs of the forward body that a gradient is wanted of, by how they come. */
  private wantedParts(): WantedParts {
    const { wrt } = this.split.site;
    return {
      carried: wrt.filter((name) => this.split.carry.has(name)),
      summed: wrt.filter(
        (name, k) => this.split.captured.has(name) && this.split.slots[k] !== null,
      ),
      scanned: wrt.filter((name, k) => this.split.rows.has(name) && this.split.slots[k] !== null),
    };
  }

  /** Gradients of results of the forward body, by the index of the result. */
  private tangents(): Map<number | undefined, Node> {
    return new Map(
      placeholdersOf(this.split.joint).flatMap((p) =>
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
    const { calls } = this.split.site;
    const tangents = this.tangents();
    for (const name of carried) {
      const at = this.split.inputs.findIndex((i) => i.name === name);
      const ref = body.input(`d_${name}`, this.split.typeOf(name));
      const tangent = tangents.get(at);
      if (tangent !== undefined) body.names.set(tangent.name, ref);
      body.init.push(gradients[at] ?? calls.zerosOf(this.tensor(name)));
    }
    if (!this.isScan) return [];
    return summed.map((name) => {
      body.init.push(calls.zerosOf(this.tensor(name)));
      return body.input(`sum_${name}`, this.split.typeOf(name));
    });
  }

  /** Rows of the gradients of ys; returns those that are needed and did not come. */
  private addTangents(
    body: BackwardBody,
    gradients: readonly (ValueRef | undefined)[],
  ): readonly Node[] {
    const needed = neededNodes(this.split.joint, this.split.slots);
    const missing: Node[] = [];
    for (const [index, tangent] of this.tangents()) {
      if (index === undefined || index < this.split.carry.size || !needed.has(tangent.name))
        continue;
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
    const { form, calls } = this.split.site;
    for (const name of reads) {
      const source = this.split.sources.get(name);
      if (source !== 'stack' && source !== 'row') continue;
      body.names.set(name, body.input(name, this.split.typeOf(name)));
      body.xs.push(
        source === 'row'
          ? form.xs[[...this.split.rows].indexOf(name)]
          : calls.item({ kind: 'value', name: forward.name }, this.stackIndex(name)),
      );
    }
    for (const name of reads) {
      if (this.split.sources.get(name) !== 'given') continue;
      body.names.set(name, body.input(name, this.split.typeOf(name)));
      body.captured.push(this.split.captured.get(name) ?? this.split.outer(name));
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
    for (const inner of this.split.joint.nodes) {
      const again = this.split.sources.get(inner.name) === 'again' && reads.has(inner.name);
      if (
        (again || runs.has(inner.name)) &&
        !names.has(inner.name) &&
        !isBodyName(inner, this.split.joint)
      )
        names.set(inner.name, writer.copy(inner, this.split.joint, names));
    }
  }

  /** The new carry, and rows of gradients; a map sums what it captures over its rows. */
  private addResults(body: BackwardBody, wanted: WantedParts, sums: readonly ValueRef[]): void {
    const { builder, names } = body;
    const gradientOf = (name: string): string | null =>
      nameIn(names, this.split.slots[this.split.site.wrt.indexOf(name)]);
    for (const name of wanted.carried) {
      const type = this.split.typeOf(name);
      const isZero = this.split.slots[this.split.site.wrt.indexOf(name)] === null;
      body.output(
        isZero ? zeros(builder, type, this.split.site.calls.table).name : gradientOf(name),
        type,
      );
    }
    if (this.isScan)
      wanted.summed.forEach((name, i) => {
        const type = this.split.typeOf(name);
        const args: Arg[] = [sums[i], { kind: 'value', name: gradientOf(name) ?? '' }];
        body.output(builder.call('aten.add.Tensor', args, type).name, type);
      });
    for (const name of this.isScan ? wanted.scanned : [...wanted.scanned, ...wanted.summed])
      body.output(gradientOf(name), this.split.stackedType(this.split.typeOf(name)));
  }

  /** The call of the backward loop. */
  private callOf({ builder, items, init, xs, captured }: BackwardBody): ValueRef {
    const { node, form, calls } = this.split.site;
    const body = numbered(builder.build());
    const length = xs.length === 0 ? { length: this.split.length() } : {};
    const kwargs = this.isScan
      ? { ...length, ...(form.reverse ? {} : { reverse: true }) }
      : NO_KWARGS;
    const name = this.split.site.writer.body(body.name, body);
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
    const { calls } = this.split.site;
    const operand = this.operandOf(name);
    if (operand === undefined) return [];
    const gradient = calls.item(call, index);
    const isRows = !this.isScan && this.split.captured.has(name);
    return [{ operand, gradient: isRows ? calls.sum(gradient, [0]) : gradient }];
  }

  /** Forward values that the backward body reads, directly or by calling again. */
  private backwardReads(backward: readonly Node[]): Set<string> {
    const reads = new Set<string>();
    const add = (name: string): void => {
      if (reads.has(name) || this.split.isBackward(name)) return;
      reads.add(name);
      const node = this.split.nodes.get(name);
      if (this.split.sources.get(name) === 'again' && node !== undefined) eachOperand(node, add);
    };
    for (const node of backward) this.split.readsOf(node, add);
    for (const slot of this.split.slots) if (slot !== null) add(slot);
    return reads;
  }

  private operandOf(name: string): ValueRef | undefined {
    const { init, xs, captured } = this.split.site.form;
    const operand = [...init, ...xs, ...captured][
      this.split.inputs.findIndex((input) => input.name === name)
    ];
    return isRef(operand) ? operand : undefined;
  }

  private stackIndex(name: string): number {
    const index = this.split.stacks.get(name);
    if (index === undefined) throw internalError(`${name} was not saved`);
    return index;
  }

  private tensor(name: string): TensorType {
    const type = this.split.typeOf(name);
    if (type.kind !== 'tensor') throw internalError(`${name} is not a tensor`);
    return type;
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

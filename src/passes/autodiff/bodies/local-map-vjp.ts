/**
 * Makes the derivative of a region of per-device code, a `local_map` call: a call that also returns
 * the values that its backward region reads, and that second region on the same axes. A saved value
 * leaves the first region and enters the second in its type on every axis: pieces (V) are stacked
 * on a new dim 0, so that their own dims stay free for other axes. Gradients enter and leave in the
 * types that belong to the specs.
 */
import { internalError } from '../../../errors.ts';
import { GraphBuilder } from '../../../graph/build.ts';
import { bodyResult, placeholdersOf } from '../../../graph/control.ts';
import { type LocalMapCall, localMapCall, localType } from '../../../graph/local-map.ts';
import { nodesByName } from '../../../graph/nodes.ts';
import type { Arg, Graph, Node, TensorType, ValueRef, ValueType } from '../../../graph/types.ts';
import { eachOperand, getOwn, isRef, ref, tensorType } from '../../../graph/value.ts';
import { type CheckedRegion, checkRegion } from '../../../local-spmd/region.ts';
import { type AxisType, gradientType } from '../../../mesh/local-types/types.ts';
import type { CallBuilder } from '../../../ops/vjp/build.ts';
import { BodyWriter } from '../../control/body-writer.ts';
import {
  type Contribution,
  type Differentiate,
  gradientSlots,
  neededNodes,
} from './body-gradients.ts';

interface LocalMapGradient {
  readonly node: Node;
  readonly subgraphs: Readonly<Record<string, Graph>>;
  /** Tells whether a gradient is wanted of an operand. */
  isActive(operand: Arg): boolean;
  /** Results whose gradient may come. */
  readonly wanted: ReadonlySet<number>;
  readonly calls: CallBuilder;
  readonly differentiate: Differentiate;
}

export interface LocalMapPlan {
  /** The call with the saved values as further results. */
  readonly forward: Node;
  backward(gradients: readonly (ValueRef | undefined)[]): Contribution[];
}

/**
 * A value that the first region saves: how it leaves, and under which name the second one reads it.
 */
interface Saved {
  readonly name: string;
  readonly spec: readonly AxisType[];
  /** The value varies, and takes a new dim 0 on which its pieces are stacked. */
  readonly stacked: boolean;
}

/** Undefined where nothing that the region returns depends on what is wanted. */
export function planLocalMap(site: LocalMapGradient): LocalMapPlan | undefined {
  const call = localMapCall(site.node);
  const body = getOwn(site.subgraphs, call.body);
  if (body === undefined) throw internalError(`${site.node.name} has no body`);
  const inputs = placeholdersOf(body);
  const wrt = inputs.filter((_, i) => site.isActive(call.operands[i])).map(({ name }) => name);
  const from = body.outputs.flatMap((_, i) => (site.wanted.has(i) ? [i] : []));
  if (wrt.length === 0 || from.length === 0) return undefined;
  const joint = site.differentiate(body, wrt, from);
  const tangents = joint.nodes.filter(({ meta }) => meta.role === 'tangent');
  if (tangents.length === 0) return undefined;
  return new RegionSplit(site, call, body, joint, wrt).plan();
}

class RegionSplit {
  private readonly nodes: ReadonlyMap<string, Node>;
  private readonly inputs: readonly string[];
  private readonly slots: readonly (string | null)[];
  private readonly returned: readonly (string | null)[];
  private readonly forwardTypes: CheckedRegion;

  constructor(
    private readonly site: LocalMapGradient,
    private readonly call: LocalMapCall,
    private readonly body: Graph,
    private readonly joint: Graph,
    private readonly wrt: readonly string[],
  ) {
    this.nodes = nodesByName(joint);
    this.inputs = placeholdersOf(body).map(({ name }) => name);
    this.slots = gradientSlots(joint, wrt);
    const byIndex = new Map(
      joint.outputs.map((o) => [o.role === 'output' ? o.index : undefined, o.value]),
    );
    this.returned = body.outputs.map((output, i) => byIndex.get(output.index ?? i) ?? null);
    this.forwardTypes = this.checked(
      this.forwardPart(this.returned.map((value) => ({ value }))),
      call.outSpecs,
    );
  }

  plan(): LocalMapPlan {
    const { site } = this;
    const needed = neededNodes(this.joint, this.slots);
    const backward = this.joint.nodes.filter(
      (n) => n.kind !== 'placeholder' && needed.has(n.name) && this.isBackward(n.name),
    );
    const again = new Set<string>();
    const read = new Set<string>();
    const reach = (name: string): void => {
      if (this.isBackward(name) || read.has(name) || again.has(name)) return;
      const node = this.nodes.get(name);
      if (node === undefined)
        throw internalError(`the region of ${site.node.name} reads ${name}, which it lacks`);
      const free = site.calls.table.get(node.target);
      const constant = node.kind === 'call' && isConstant(node);
      // Forward values that only the gradient reads are computed there, too.
      const unused = !this.forwardTypes.types.has(name);
      if (node.kind === 'call' && (free?.cls === 'view' || constant || unused)) {
        again.add(name);
        eachOperand(node, reach);
      } else read.add(name);
    };
    for (const node of backward) eachOperand(node, reach);
    for (const slot of this.slots) if (slot !== null) reach(slot);
    const saved = [...read]
      .filter((name) => !this.inputs.includes(name))
      .map((name) => this.savedAs(name));
    const first = this.forwardPart([
      ...this.returned.map((value) => ({ value })),
      ...saved.map(({ name, stacked }) => ({ value: name, stacked })),
    ]);
    const specs = [
      ...(this.call.outSpecs as readonly (readonly AxisType[])[]),
      ...saved.map(({ spec }) => spec),
    ];
    const checkedFirst = this.checked(first, specs);
    const forward = this.callOf(
      site.node,
      checkedFirst.body,
      `${this.call.body}_forward`,
      this.call.operands,
      this.call.inSpecs,
      specs,
    );
    const items = forward.type.kind === 'tuple' ? forward.type.items : [];
    return {
      forward,
      backward: (gradients) => this.backward(gradients, backward, again, read, saved, items),
    };
  }

  private isBackward(name: string): boolean {
    const node = this.nodes.get(name);
    return node?.meta.role === 'tangent' || node?.meta.phase === 'backward';
  }

  private savedAs(name: string): Saved {
    const types = this.forwardTypes.types.get(name);
    const node = this.nodes.get(name);
    if (types === undefined || node?.type.kind !== 'tensor')
      throw internalError(
        `the backward region of ${this.site.node.name} reads ${name}, whose type is not known`,
      );
    const spec = this.call.axes.map((axis): AxisType => {
      const type = types.get(axis.name) ?? 'I';
      return type === 'V' ? 'S(0)' : type;
    });
    return {
      name,
      spec,
      stacked: this.call.axes.some(({ name: axis }) => types.get(axis) === 'V'),
    };
  }

  /** The forward calls of the joint graph that these results need. */
  private forwardPart(results: readonly { value: string | null; stacked?: boolean }[]): Graph {
    const builder = new GraphBuilder(this.body.name);
    const writer = new BodyWriter(builder);
    const names = new Map<string, Arg>();
    for (const node of placeholdersOf(this.body)) names.set(node.name, builder.keep(node));
    const needed = neededNodes(
      this.joint,
      results.map(({ value }) => value),
    );
    for (const node of this.joint.nodes)
      if (node.kind !== 'placeholder' && needed.has(node.name) && !this.isBackward(node.name))
        names.set(node.name, writer.copy(node, this.joint, names, withoutPhase(node)));
    results.forEach(({ value, stacked }, index) => {
      const now = value === null ? undefined : names.get(value);
      builder.output({
        value:
          now === undefined || !isRef(now)
            ? null
            : stacked === true
              ? oneDimMore(builder, now).name
              : now.name,
        role: 'output',
        index,
      });
    });
    return builder.build();
  }

  private checked(
    body: Graph,
    outSpecs: readonly (readonly string[])[],
    inSpecs = this.call.inSpecs,
  ): CheckedRegion {
    return checkRegion(this.site.calls.table, {
      body,
      axes: this.call.axes,
      inSpecs: inSpecs as readonly (readonly AxisType[])[],
      claims: outSpecs as readonly (readonly AxisType[])[],
      autoCast: true,
    });
  }

  private callOf(
    like: Node,
    body: Graph,
    name: string,
    operands: readonly Arg[],
    inSpecs: readonly (readonly string[])[],
    outSpecs: readonly (readonly string[])[],
  ): Node {
    const written = this.site.calls.graph.subgraph(name, { ...body, name });
    const items = bodyResult(body).map((type, k): ValueType =>
      localType(type, outSpecs[k], this.call.axes, 'join', `result ${k}`),
    );
    return {
      ...like,
      args: [{ kind: 'graph', name: written }, operands],
      kwargs: { ...like.kwargs, in_specs: inSpecs, out_specs: outSpecs },
      type: { kind: 'tuple', items },
    };
  }

  private backward(
    gradients: readonly (ValueRef | undefined)[],
    nodes: readonly Node[],
    again: ReadonlySet<string>,
    read: ReadonlySet<string>,
    saved: readonly Saved[],
    items: readonly ValueType[],
  ): Contribution[] {
    const { node } = this.site;
    const live = this.wrt.flatMap((name, k) =>
      this.slots[k] === null ? [] : [{ name, slot: this.slots[k] }],
    );
    if (live.length === 0) return [];
    const region = new BackwardRegion(new GraphBuilder(`${this.body.name}_backward`));
    const { builder, names, operands, inSpecs } = region;
    const writer = new BodyWriter(builder);
    const squeezed = this.enterSaved(region, saved, items);
    this.inputs.forEach((name, i) => {
      if (read.has(name))
        region.enter(name, this.typeOf(name), this.call.operands[i], this.call.inSpecs[i]);
    });
    this.enterTangents(region, gradients, items);
    for (const { name, entered } of squeezed) {
      const { dtype, shape } = this.typeOf(name);
      names.set(name, builder.call('aten.squeeze.dim', [entered, 0], tensorType(dtype, shape)));
    }
    const own = new Set(nodes.map(({ name }) => name));
    for (const each of this.joint.nodes)
      if (own.has(each.name) || again.has(each.name))
        names.set(each.name, writer.copy(each, this.joint, names, withoutPhase(each)));
    live.forEach(({ slot }, index) => {
      const value = names.get(slot ?? '');
      if (value === undefined || !isRef(value))
        throw internalError(`a gradient of ${node.name} is lost`);
      builder.output({ value: value.name, role: 'output', index });
    });
    return this.contributions(
      live.map(({ name }) => this.inputs.indexOf(name)),
      builder.build(),
      { operands, inSpecs },
    );
  }

  /** Saved values enter the region; returns those that lost no dim yet. */
  private enterSaved(
    region: BackwardRegion,
    saved: readonly Saved[],
    items: readonly ValueType[],
  ): { readonly name: string; readonly entered: ValueRef }[] {
    const { calls, node } = this.site;
    const self: ValueRef = ref(node.name);
    return saved.flatMap(({ name, stacked, spec }, i) => {
      const type = this.typeOf(name);
      const local = tensorType(type.dtype, stacked ? [1, ...type.shape] : type.shape);
      const at = this.returned.length + i;
      if (items[at]?.kind !== 'tensor') throw internalError(`${node.name} saves no tensor`);
      const entered = region.enter(name, local, calls.item(self, at), spec);
      return stacked ? [{ name, entered }] : [];
    });
  }

  /** Gradients of the results enter the region. */
  private enterTangents(
    region: BackwardRegion,
    gradients: readonly (ValueRef | undefined)[],
    items: readonly ValueType[],
  ): void {
    const { calls, node } = this.site;
    for (const tangent of this.joint.nodes.filter(({ meta }) => meta.role === 'tangent')) {
      const at = this.body.outputs.findIndex(
        (output, i) => (output.index ?? i) === tangent.meta.roleIndex,
      );
      const global = items[at];
      if (at < 0 || global.kind !== 'tensor')
        throw internalError(`a tangent of ${node.name} belongs to no result`);
      const operand = gradients[at] ?? calls.zerosOf(global);
      const spec = this.call.outSpecs[at].map((type) => gradientType(type as AxisType));
      region.enter(tangent.name, this.typeOf(tangent.name), operand, spec);
    }
  }

  /** The call of the backward region, and its results as gradients of these inputs. */
  private contributions(
    inputs: readonly number[],
    body: Graph,
    { operands, inSpecs }: Pick<BackwardRegion, 'operands' | 'inSpecs'>,
  ): Contribution[] {
    const { calls, node } = this.site;
    const outSpecs = inputs.map((at) =>
      this.call.inSpecs[at].map((type) => gradientType(type as AxisType)),
    );
    const checked = this.checked(body, outSpecs, inSpecs);
    const written = this.callOf(
      node,
      checked.body,
      `${this.call.body}_backward`,
      operands,
      inSpecs,
      outSpecs,
    );
    const made = calls.graph.call(written.target, written.args, written.type, {
      meta: calls.meta,
      kwargs: written.kwargs,
      name: calls.freshName(written.target),
    });
    return inputs.flatMap((at, i): Contribution[] => {
      const operand = this.call.operands[at];
      return isRef(operand) ? [{ operand, gradient: calls.item(made, i) }] : [];
    });
  }

  private typeOf(name: string): TensorType {
    const type = this.nodes.get(name)?.type;
    if (type?.kind !== 'tensor')
      throw internalError(`${name} is not a tensor of the region of ${this.site.node.name}`);
    return type;
  }
}

/** The body of the backward region as it is written, and the operands of its call. */
class BackwardRegion {
  /** Values of the joint program, by their names there. */
  readonly names = new Map<string, Arg>();
  readonly operands: Arg[] = [];
  readonly inSpecs: (readonly string[])[] = [];

  constructor(readonly builder: GraphBuilder) {}

  /** A further input, under the name that it has in the joint program. */
  enter(name: string, type: TensorType, operand: Arg, spec: readonly string[]): ValueRef {
    this.operands.push(operand);
    this.inSpecs.push(spec);
    const roleIndex = this.operands.length - 1;
    const entered = this.builder.placeholder(name, type, { role: 'arg', roleIndex });
    this.names.set(name, entered);
    return entered;
  }
}

function isConstant(node: Node): boolean {
  let reads = 0;
  eachOperand(node, () => reads++);
  return reads === 0;
}

/** A body is forward or backward as a whole. */
function withoutPhase(node: Node): Node['meta'] {
  const { phase: _phase, of: _of, savedOnly: _saved, ...meta } = node.meta;
  return meta;
}

function oneDimMore(builder: GraphBuilder, value: ValueRef): ValueRef {
  const type = builder.typeOf(value);
  if (type.kind !== 'tensor') throw internalError(`${value.name} is saved and no tensor`);
  return builder.call(
    'aten.unsqueeze.default',
    [value, 0],
    tensorType(type.dtype, [1, ...type.shape]),
  );
}

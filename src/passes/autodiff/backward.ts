/** Writes the backward pass of a graph in reverse order and sums the gradients of each value. */

import { defined } from '../../defined.ts';
import { checkRecord, checkType, internalError, ShardwrightError } from '../../errors.ts';
import { linePosition } from '../../graph/nodes.ts';
import type { Graph, Node, TensorType, ValueRef, ValueType } from '../../graph/types.ts';
import { eachOperand, isRef } from '../../graph/value.ts';
import { bind } from '../../ops/record/infer.ts';
import type { OperatorRecord } from '../../ops/record/record.ts';
import { type CallBuilder, sameSizes } from '../../ops/vjp/build.ts';
import { passesComplex } from '../../ops/vjp/elementwise/complex.ts';
import { vjpOf } from '../../ops/vjp/table.ts';
import { type Gradient, VjpCall, type VjpEntry, type Vjps } from '../../ops/vjp/vjp.ts';
import type { ControlVjp } from './bodies/control-vjp.ts';
import type { ForwardCopy } from './forward.ts';

/**
 * The backward sweep: forward calls from the last to the first, each handing its gradient on to its
 * operands.
 */
export class Backward {
  /** Gradient of a value so far; of a value with several results, one each. */
  private readonly gradients = new Map<string, ValueRef | (ValueRef | undefined)[]>();
  private readonly producers = new Map<string, Node>();

  constructor(
    private readonly calls: CallBuilder,
    private readonly forward: ForwardCopy,
    /** Derivatives beyond the built-in ones. */
    private readonly more: Vjps,
    private readonly control: ControlVjp,
  ) {
    for (const node of forward.nodes) this.producers.set(node.name, node);
  }

  /** Starts at an output with a tangent or a constant. */
  start(value: string, gradient: ValueRef): void {
    this.add(value, gradient);
  }

  run(): void {
    const { nodes } = this.forward;
    for (let i = nodes.length - 1; i >= 0; i--) {
      const node = nodes[i];
      const gradient = this.gradients.get(node.name);
      if (gradient === undefined || node.kind !== 'call' || !this.forward.activity.has(node.name))
        continue;
      const { path, source, line } = node.meta;
      this.calls.meta = {
        of: node.name,
        ...defined({ path, source, line }),
      };
      if (node.target === 'operator.getitem') this.throughItem(node, gradient);
      else this.throughCall(node, Array.isArray(gradient) ? gradient : [gradient]);
    }
    this.calls.meta = {};
  }

  /** One slot per placeholder, in order: its gradient or null. */
  slots(
    placeholders: readonly Node[],
    ties: NonNullable<Graph['ties']>,
    wanted: ReadonlySet<string>,
    zeros: boolean,
  ): [string, string | null][] {
    const byRole = new Map(placeholders.map((node) => [node.meta.roleName, node]));
    const tiedTo = new Map<string, string>();
    for (const group of ties) {
      const [owner, ...others] = group.map((name) => byRole.get(name)?.name ?? name);
      for (const other of others) {
        tiedTo.set(other, owner);
        const gradient = this.gradients.get(other);
        if (gradient !== undefined && !Array.isArray(gradient)) this.add(owner, gradient);
      }
    }
    return placeholders.flatMap((node): [string, string | null][] => {
      if (node.meta.roleName === undefined || !SLOTS.has(node.meta.role ?? '')) return [];
      const gradient = this.gradients.get(node.name);
      if (!wanted.has(node.name) || tiedTo.has(node.name)) return [[node.meta.roleName, null]];
      if (gradient !== undefined && !Array.isArray(gradient))
        return [[node.meta.roleName, gradient.name]];
      const zero = zeros && node.type.kind === 'tensor' ? this.calls.zerosOf(node.type).name : null;
      return [[node.meta.roleName, zero]];
    });
  }

  private throughItem(node: Node, gradient: ValueRef | (ValueRef | undefined)[]): void {
    const [source, index] = node.args;
    if (!isRef(source) || typeof index !== 'number' || Array.isArray(gradient))
      throw internalError(`getitem ${node.name} is not of the form (value, index)`);
    const producer = this.producers.get(source.name);
    const count = producer?.type.kind === 'tuple' ? producer.type.items.length : 0;
    let slots = this.gradients.get(source.name);
    if (!Array.isArray(slots)) {
      slots = new Array<ValueRef | undefined>(count).fill(undefined);
      this.gradients.set(source.name, slots);
    }
    const at = index < 0 ? index + count : index;
    const before = slots[at];
    slots[at] = before === undefined ? gradient : this.calls.add(before, gradient);
  }

  private throughCall(node: Node, gradients: readonly (ValueRef | undefined)[]): void {
    if (this.control.handles(node)) {
      for (const { operand, gradient } of this.control.backward(node, gradients))
        this.contribute(operand, gradient);
      return;
    }
    const record = this.calls.table.get(node.target);
    const entry = record === undefined ? undefined : this.entryOf(record.name);
    const ctx = bind(this.calls.table, node, (name) => this.typeOf(name));
    if (record === undefined || entry === undefined || ctx === undefined) throw this.noVjp(node);
    if (this.isComplex(node) && !Object.hasOwn(this.more, record.name) && !passesComplex(record))
      throw this.noVjp(node, 'on complex numbers ');
    const results = entry.results ?? [0];
    gradients.forEach((gradient, i) => {
      if (gradient !== undefined && results !== 'all' && !results.includes(i))
        throw this.noVjp(node, `result ${i} of `);
    });
    const active = (ref: ValueRef | null): boolean =>
      ref !== null && this.forward.activity.has(ref.name);
    const wants = (name: string): boolean =>
      active(call.optional(name)) || call.list(name).some(active);
    const call: VjpCall = new VjpCall(this.calls, node, record, ctx, gradients, wants);
    const parts = entry.vjp(call);
    if (Object.hasOwn(this.more, record.name)) refuseOddGradients(record, parts);
    for (const s of record.schema)
      if (s.type.startsWith('Tensor') && wants(s.name) && !Object.hasOwn(parts, s.name))
        throw this.noVjp(node, `argument '${s.name}' of `);
    for (const [name, make] of Object.entries(parts)) {
      if (!call.argumentNames.includes(name) || !wants(name)) continue;
      const given: Gradient = make();
      const single = call.optional(name);
      if (isGradientList(given))
        call
          .list(name)
          .forEach((member, i) =>
            this.contribute(active(member) ? member : null, given[i] ?? null),
          );
      else this.contribute(single, given);
    }
  }

  /** Sums over what was broadcast, casts to the operand's dtype, and adds to what came before. */
  private contribute(operand: ValueRef | null, gradient: ValueRef | null): void {
    if (operand === null || gradient === null) return;
    const type = this.tensorType(operand.name);
    const shape = this.calls.shape(operand);
    const summed = sameSizes(this.calls.shape(gradient), shape)
      ? gradient
      : this.calls.sumTo(gradient, shape);
    this.add(operand.name, this.calls.cast(summed, type.dtype));
  }

  private add(name: string, gradient: ValueRef): void {
    const before = this.gradients.get(name);
    if (Array.isArray(before))
      throw internalError(`value ${name} has several results and a gradient of one`);
    this.gradients.set(name, before === undefined ? gradient : this.calls.add(before, gradient));
  }

  private entryOf(name: string): VjpEntry | undefined {
    const given = Object.hasOwn(this.more, name) ? this.more[name] : undefined;
    return typeof given === 'function' ? { vjp: given } : (given ?? vjpOf(name));
  }

  /** Tells whether an operand or a result has complex numbers. */
  private isComplex(node: Node): boolean {
    const names = new Set([node.name]);
    eachOperand(node, (name) => names.add(name));
    return [...names].some((name) => {
      const type = this.typeOf(name);
      return (type.kind === 'tuple' ? type.items : [type]).some(
        (t) => t.kind === 'tensor' && t.dtype.startsWith('c'),
      );
    });
  }

  private typeOf(name: string): ValueType {
    return this.calls.typeOf({ kind: 'value', name });
  }

  private tensorType(name: string): TensorType {
    return this.calls.tensorOf({ kind: 'value', name });
  }

  /**
   * The error for an operator that a gradient cannot pass: where it is, and the way from a
   * parameter.
   */
  private noVjp(node: Node, what = ''): ShardwrightError {
    const { line, path, source } = node.meta;
    const details = {
      node: node.name,
      ...defined({ position: linePosition(line) }),
      ...defined({ path }),
    };
    const place = source === undefined ? '' : ` (${source})`;
    const way = this.wayTo(node).join(' -> ');
    if (node.target === 'while_loop')
      return new ShardwrightError(
        'E_GRAD_WHILE',
        `${node.name}${place}: a gradient cannot pass a while loop; it comes from ${way}`,
        {
          ...details,
          hint: 'use fori with constant bounds, or give the loop maxTrips',
        },
      );
    return new ShardwrightError(
      'E_NO_VJP',
      `${node.name}${place}: ${what}${node.target} has no derivative, but a gradient is to ` +
        `pass it: ${way}`,
      {
        ...details,
        hint:
          'leave what it depends on out of `wrt`, cut the gradient with detach, or write it ' +
          'with other operators',
      },
    );
  }

  /** Names from a differentiated input to the node. */
  private wayTo(node: Node): string[] {
    const way = [node.name];
    let at: Node | undefined = node;
    while (at !== undefined) {
      let next: string | undefined;
      eachOperand(at, (name) => {
        if (next === undefined && this.forward.activity.has(name)) next = name;
      });
      if (next === undefined) break;
      way.unshift(next);
      at = this.producers.get(next);
    }
    return way.length <= 12 ? way : [...way.slice(0, 4), '...', ...way.slice(-7)];
  }
}

/** Placeholders that have a gradient slot. */
const SLOTS: ReadonlySet<string> = new Set(['parameter', 'buffer', 'input', 'constant']);

/** @throws E_USAGE for what a derivative of the user gives that is no record by argument */
function refuseOddGradients(record: OperatorRecord, parts: unknown): void {
  const names = record.schema.map((s) => s.name);
  checkRecord(`the derivative of ${record.name}`, 'result', parts, {
    fields: [],
    hint: `it gives a function for each argument: { ${names[0] ?? 'x'}: () => c.g() }.`,
  });
  for (const [name, make] of Object.entries(parts as Readonly<Record<string, unknown>>)) {
    if (!names.includes(name))
      throw new ShardwrightError('E_USAGE', `the derivative of ${record.name} names '${name}'`, {
        hint: `its arguments are ${names.join(', ')}.`,
      });
    checkType(`the derivative of ${record.name}`, `gradient of '${name}'`, make, 'function');
  }
}

function isGradientList(gradient: Gradient): gradient is readonly (ValueRef | null)[] {
  return Array.isArray(gradient);
}

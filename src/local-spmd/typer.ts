/**
 * Derives the types of all values of a program for each mesh axis, from the types of the inputs and
 * the meaning of a cut on each axis (pieces inside a `local_map`, the whole value outside). It
 * lists each violation of a law with the cast that solves it, and the places where casts are
 * inserted (an I next to a V becomes V), so that they can be written into the program. Source: the
 * typing rules of the package spmd_types and of JAX's `shard_map`.
 */
import { defined } from '../defined.ts';
import { internalError } from '../errors.ts';
import { type Frame, interpret } from '../graph/interpret.ts';
import { LOCAL_MAP, localMapCall } from '../graph/local-map.ts';
import { indexGraph } from '../graph/order.ts';
import type { Graph, Node, ValueType } from '../graph/types.ts';
import { eachOperand, exampleShape, getOwn, isRef, sameType } from '../graph/value.ts';
import { type AxisType, cutOf, type LocalType, typedText } from '../mesh/local-types/types.ts';
import { tensorInputs } from '../ops/record/context.ts';
import { bind } from '../ops/record/infer.ts';
import type { OperatorRecord, TypedContext } from '../ops/record/record.ts';
import type { Rule } from '../ops/record/rule.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { spmdName } from '../ops/spmd/operators.ts';
import { controlTypes } from './control-types.ts';
import { data, explicitly, type ModeTyping, typeInMode } from './modes.ts';
import { type Conflict, type OperandType, plainRules, typeOperator } from './operator-types.ts';
import {
  type ImplicitMove,
  type InsertedCast,
  isTuple,
  type Known,
  statedTypes,
  type Typed,
  type TypedAxis,
  typeIn,
  type Typing,
  type Violation,
} from './typed.ts';
import { verbTypes } from './verb-types.ts';

/** Types of the results of a call on an axis; what each operand is taken as, and by which rule. */
interface CallTypes {
  readonly results: readonly OperandType[];
  readonly taken?: readonly OperandType[];
  readonly rule?: Rule;
  /** The call leaves the sum over a cut dim pending. */
  readonly pending?: true;
}

/** A call on an axis whose mode does some things by itself: names and types of its operands. */
interface OnAxis {
  readonly record: OperatorRecord;
  readonly ctx: TypedContext;
  readonly names: readonly string[];
  readonly given: readonly OperandType[];
  /** The types as the mode of the axis gives them. */
  readonly made: ModeTyping;
}

export interface TyperOptions {
  /** An I next to a V or an R takes its type by a cast. Default true. */
  readonly autoCast?: boolean;
  /**
   * Types are those of a plan: sums over a dim that a global axis cuts may stay pending without
   * saying so, and I is R. Default false.
   */
  readonly pending?: boolean;
}

export class Typer implements Typing {
  readonly violations: Violation[] = [];
  readonly casts: InsertedCast[] = [];
  readonly settled = new Map<Graph, Map<string, AxisType>>();
  /** Redistributions that modes make by themselves, in order. */
  readonly implicit: ImplicitMove[] = [];
  /** By graph (a body that runs in two types has those of its last run), then by name. */
  readonly types = new Map<Graph, Map<string, Typed>>();

  /** The types that operators make of their operands, by graph, node and axis. */
  readonly calls = new Map<Graph, Map<string, readonly (CallTypes | undefined)[]>>();

  constructor(
    readonly table: OperatorTable,
    readonly axes: readonly TypedAxis[],
    private readonly options: TyperOptions = {},
  ) {}

  /** Types of what a graph returns; null where it returns nothing. */
  run(graph: Graph, inputs: readonly Typed[]): (Typed | null)[] {
    const own = new Map<string, Typed>();
    this.types.set(graph, own);
    let at = 0;
    for (const node of graph.nodes)
      if (node.kind === 'placeholder') own.set(node.name, inputs[at++]);
    const keep = (node: Node, typed: Typed): Typed => {
      own.set(node.name, typed);
      return typed;
    };
    const { outputs } = interpret<Typed>(
      graph,
      {
        placeholder: (node) => {
          throw internalError(`placeholder ${node.name} has no type`);
        },
        getAttr: (node) => keep(node, this.everywhere('number')),
        call: (node, _operands, frame) => keep(node, this.call(node, frame)),
      },
      inputs,
    );
    return [...outputs];
  }

  everywhere(type: Known): readonly Known[] {
    return this.axes.map(() => type);
  }

  /** The type of a value as JAX prints it. */
  text(type: ValueType, typed: Typed): string {
    if (type.kind !== 'tensor' || isTuple(typed)) return type.kind;
    const shape = exampleShape(type, 0);
    return typedText(type.dtype, shape, this.localType(typed));
  }

  /** Types by axis; what is made of numbers only counts as I. */
  localType(typed: readonly Known[]): LocalType {
    return new Map(
      this.axes.flatMap(({ name }, a): [string, AxisType][] => {
        const type = typed[a];
        return type === undefined ? [] : [[name, type === 'number' ? 'I' : type]];
      }),
    );
  }

  violate(
    graph: Graph,
    node: Node,
    axis: number,
    found: { rule: string; fix: string; reason: string; operands?: readonly string[] },
  ): void {
    const { source, path } = node.meta;
    const types = (found.operands ?? []).map((name) => `%${name}: ${this.textOf(graph, name)}`);
    const place = [source ?? '', path === undefined ? '' : `(${path})`]
      .filter((part) => part !== '')
      .join(' ');
    const meshDim = this.axes[axis].name;
    const subject = `${node.target} (%${node.name})`;
    const head = found.reason.startsWith('Implicit')
      ? `Implicit redistribution occurred for ${subject}`
      : `${subject}: ${found.rule} on ${meshDim}`;
    const rest = found.reason.replace(/^Implicit redistribution occurred for /, '');
    const list = types.length === 0 ? '' : `; ${types.join(', ')}`;
    const message = `${head}: ${rest}${list}${place === '' ? '' : ` at ${place}`}`;
    if (this.violations.some((v) => v.message === message && v.meshDim === meshDim)) return;
    this.violations.push({
      node: node.name,
      meshDim,
      rule: found.rule,
      types,
      fix: found.fix,
      message,
      ...defined({ source }),
    });
  }

  textOf(graph: Graph, name: string): string {
    const { position } = indexGraph(graph);
    const node = graph.nodes[position.get(name) ?? -1];
    const typed = this.types.get(graph)?.get(name);
    return node === undefined || typed === undefined ? '?' : this.text(node.type, typed);
  }

  cast(graph: Graph, node: Node, value: string, axis: number, dst: AxisType): void {
    const typed = this.types.get(graph)?.get(value);
    const src = typed === undefined || isTuple(typed) ? undefined : typed[axis];
    if (src === undefined || src === 'number' || src === dst) return;
    const op = src === 'I' && dst === 'R' ? 'convert' : 'reinterpret';
    const same = (c: InsertedCast): boolean =>
      c.graph === graph && c.node === node.name && c.value === value && c.axis === this.axes[axis];
    if (this.casts.some(same)) return;
    this.casts.push({ graph, node: node.name, value, axis: this.axes[axis], op, src, dst });
  }

  get autoCast(): boolean {
    return this.options.autoCast !== false;
  }

  private call(node: Node, frame: Frame<Typed>): Typed {
    if (node.target === 'operator.getitem') return this.item(node, frame);
    if (node.target === LOCAL_MAP) return this.localMap(node, frame);
    const name = spmdName(node.target);
    if (name !== undefined) return verbTypes(this, node, name, frame);
    return controlTypes(this, node, frame) ?? this.operator(node, frame);
  }

  private item(node: Node, frame: Frame<Typed>): Typed {
    const [source, index] = node.args;
    const from = source !== undefined && isRef(source) ? frame.value(source.name) : [];
    if (!isTuple(from) || typeof index !== 'number') return this.everywhere(undefined);
    return from.items[index < 0 ? index + from.items.length : index] ?? this.everywhere(undefined);
  }

  private operator(node: Node, frame: Frame<Typed>): Typed {
    const { graph } = frame;
    const typeOf = (name: string): ValueType => typeIn(graph, name);
    const record = this.table.get(node.target);
    const ctx = record === undefined ? undefined : bind(this.table, node, typeOf);
    if (record === undefined || ctx === undefined) {
      this.axes.forEach((_, a) => {
        this.violate(graph, node, a, {
          rule: 'unknown operator',
          reason: 'the operator has no record, so nothing is known of its types',
          fix: 'give it a record with defineOp',
        });
      });
      return this.everywhere(undefined);
    }
    const names = tensorInputs(record, node.args, node.kwargs);
    const typed = names.map((name) => frame.value(name));
    const operands = this.axes.map((_, a) => {
      const own = typed.map((t) => (isTuple(t) ? undefined : t[a]));
      if (!own.includes(undefined)) return this.castTogether(own as OperandType[], a);
      this.untyped(graph, node, a, names, own);
      return undefined;
    });
    const found = this.judged(graph, node, record, ctx, names, operands);
    const calls = this.calls.get(graph) ?? new Map<string, typeof found>();
    this.calls.set(graph, calls.set(node.name, found));
    const results = ctx.outputs.map((_, k) =>
      this.axes.map((_axis, a): Known => found[a]?.results[k]),
    );
    return record.results === 'tuple'
      ? { items: results }
      : (results[0] ?? this.everywhere(undefined));
  }

  /**
   * Operands of a call on a per-device axis after the casts that it wants: an R beside a V is used
   * by each rank in its own way, and that this is so stands in the program, so that its gradient is
   * P. An I is cast where casts are inserted.
   */
  private castTogether(operands: readonly OperandType[], a: number): readonly OperandType[] {
    if (this.axes[a].meaning !== 'manual' || operands.includes('P') || !operands.includes('V'))
      return operands;
    return operands.map((type) => (type === 'R' || (type === 'I' && this.autoCast) ? 'V' : type));
  }

  /** Types of the results of a call by axis; undefined where operands have none or a law breaks. */
  private judged(
    graph: Graph,
    node: Node,
    record: OperatorRecord,
    ctx: TypedContext,
    names: readonly string[],
    operands: readonly (readonly OperandType[] | undefined)[],
  ): (CallTypes | undefined)[] {
    const plain = this.axes.flatMap(({ meaning }, a) =>
      operands[a] === undefined || meaning === 'auto' || meaning === 'explicit' ? [] : [a],
    );
    const together = typeOperator(
      record,
      ctx,
      plain.map((a) => this.axes[a]),
      plain.map((a) => operands[a] ?? []),
      plain.map((a) => this.owed(graph, node, a, record, ctx, operands[a] ?? [])),
    );
    const lenient = this.inModes(record, ctx, operands);
    return operands.map((given, a): CallTypes | undefined => {
      if (given === undefined) return undefined;
      const made = lenient.get(a);
      const found =
        made === undefined
          ? together[plain.indexOf(a)]
          : this.inMode(graph, node, a, { record, ctx, names, given, made });
      if ('conflict' in found) {
        this.refuse(graph, node, a, names, found.conflict);
        return undefined;
      }
      given.forEach((type, i) => {
        if (type !== 'number') this.cast(graph, node, names[i], a, type);
      });
      if (found.typing.pending === true) this.claimed(graph, node, a, names);
      return found.typing;
    });
  }

  /** The types of a call on the axes whose modes do some things by themselves. */
  private inModes(
    record: OperatorRecord,
    ctx: TypedContext,
    operands: readonly (readonly OperandType[] | undefined)[],
  ): ReadonlyMap<number, ModeTyping> {
    const found = new Map<number, ModeTyping>();
    const stated: (readonly [axis: number, types: readonly OperandType[]])[] = [];
    operands.forEach((types, a) => {
      const { meaning, size } = this.axes[a];
      if (types === undefined) return;
      if (meaning === 'auto') found.set(a, typeInMode('auto', record, ctx, types, size));
      if (meaning === 'explicit') stated.push([a, types]);
    });
    const sizes = stated.map(([a]) => this.axes[a].size);
    const typings = explicitly(
      record,
      ctx,
      sizes,
      stated.map(([, types]) => types),
    );
    stated.forEach(([a], k) => found.set(a, typings[k]));
    return found;
  }

  /** A call on an axis whose mode does some things by itself, which are noted. */
  private inMode(
    graph: Graph,
    node: Node,
    a: number,
    { record, ctx, names, given, made }: OnAxis,
  ): { readonly typing: CallTypes } | { readonly conflict: Conflict } {
    const { size, name } = this.axes[a];
    // A value that is completed by name stays pending.
    if (this.isClaimed(graph, node, a)) {
      const [plain] = typeOperator(record, ctx, [{ size, meaning: 'strict' }], [given.map(data)]);
      if ('typing' in plain && plain.typing.pending === true)
        return { typing: { results: plain.typing.results } };
    }
    if ('conflict' in made) return made;
    this.implicit.push(
      ...made.implicit.map(({ operand, kind, from, to }) => ({
        node: node.name,
        meshDim: name,
        ...(operand === undefined ? {} : { value: names[operand] }),
        kind,
        from,
        to,
      })),
    );
    return { typing: { results: made.results } };
  }

  private refuse(
    graph: Graph,
    node: Node,
    a: number,
    names: readonly string[],
    conflict: Conflict,
  ): void {
    this.violate(graph, node, a, {
      rule: conflict.rule,
      reason: conflict.reason,
      operands: conflict.operands.map((i) => names[i]),
      fix:
        conflict.fix ??
        conflict.casts
          .map((c) => `${c.op}(${names[c.operand]}, "${this.axes[a].name}", ${c.src}→${c.dst})`)
          .join(' and '),
    });
  }

  /**
   * A sum over a cut dim is completed by name. In a gradient it is what the forward type owes: an
   * operand that was R.
   */
  private claimed(graph: Graph, node: Node, a: number, names: readonly string[]): void {
    if (
      this.options.pending === true ||
      node.meta.phase === 'backward' ||
      this.isClaimed(graph, node, a)
    )
      return;
    this.violate(graph, node, a, {
      rule: 'sum over S',
      operands: names,
      reason:
        'the sum over a dim that the axis cuts is left to a later reduction, without saying so',
      fix: `write outPartial(${node.name}, "${this.axes[a].name}")`,
    });
  }

  /**
   * The cut in which a call on whole operands is to make its result. A statement says it
   * (`assert_type` of the result, by all of its uses). So does the gradient of a sum over a cut
   * dim, which is spread over that dim, of which each rank makes its own rows. What it is owed to
   * is the operand of the forward call, and its cut is that operand's.
   */
  private owed(
    graph: Graph,
    node: Node,
    axis: number,
    record: OperatorRecord,
    ctx: TypedContext,
    operands: readonly OperandType[],
  ): AxisType | undefined {
    if (
      this.axes[axis].meaning !== 'strict' ||
      operands.some((type) => type !== 'R' && type !== 'number')
    )
      return undefined;
    const owed = this.statedCut(graph, node, axis) ?? this.cutOfForward(graph, node, axis);
    if (owed === undefined) return undefined;
    const makes = plainRules(record, ctx).some(
      ({ inputs, outputs }) =>
        inputs.every((slot) => slot?.kind === 'replicate') &&
        outputs.length === 1 &&
        outputs[0]?.kind === 'shard' &&
        `S(${outputs[0].dim})` === owed,
    );
    return makes ? owed : undefined;
  }

  /** The cut that every use of a value states of it. */
  private statedCut(graph: Graph, node: Node, axis: number): AxisType | undefined {
    const { position, userStart, users, returned } = indexGraph(graph);
    const at = position.get(node.name) ?? -1;
    if (at < 0 || returned[at] === 1) return undefined;
    const cuts = new Set<AxisType | undefined>();
    for (let k = userStart[at]; k < userStart[at + 1]; k++) {
      const user = graph.nodes[users[k]];
      const name = spmdName(user.target);
      if (name === 'out_partial') cuts.add(this.statedCut(graph, user, axis));
      else
        cuts.add(
          name === 'assert_type' ? statedTypes(user.args[1]).get(this.axes[axis].name) : undefined,
        );
    }
    const [cut, ...others] = cuts;
    return others.length > 0 || cut === undefined || cutOf(cut) === undefined ? undefined : cut;
  }

  /** The cut of the operand of the forward call that a gradient has the type of. */
  private cutOfForward(graph: Graph, { meta, type }: Node, axis: number): AxisType | undefined {
    if (meta.phase !== 'backward' || meta.of === undefined) return undefined;
    const { position } = indexGraph(graph);
    const forward = graph.nodes[position.get(meta.of) ?? -1];
    const cuts = new Set<AxisType>();
    if (forward !== undefined)
      eachOperand(forward, (name) => {
        const typed = this.types.get(graph)?.get(name);
        const own = typed === undefined || isTuple(typed) ? undefined : typed[axis];
        const isTheCut = own !== undefined && own !== 'number' && cutOf(own) !== undefined;
        if (isTheCut && sameType(typeIn(graph, name), type)) cuts.add(own);
      });
    const [cut] = cuts;
    return cut;
  }

  private untyped(
    graph: Graph,
    node: Node,
    axis: number,
    names: readonly string[],
    operands: readonly Known[],
  ): void {
    const at = operands.findIndex((type, i) => type === undefined && this.isInput(graph, names[i]));
    if (at < 0 || operands.every((type) => type === undefined || type === 'number')) return;
    this.violate(graph, node, axis, {
      rule: 'untyped',
      operands: [names[at]],
      reason: 'a value without a type meets one that has one',
      fix: `state its type: assertType(${names[at]}, { ${this.axes[axis].name}: I })`,
    });
  }

  private isInput(graph: Graph, name: string): boolean {
    const { position } = indexGraph(graph);
    return graph.nodes[position.get(name) ?? -1]?.kind === 'placeholder';
  }

  /**
   * Tells whether every use of a value leaves its sum over an axis to a later reduction by name.
   */
  private isClaimed(graph: Graph, node: Node, axis: number): boolean {
    const { position, userStart, users, returned } = indexGraph(graph);
    const at = position.get(node.name) ?? -1;
    if (at < 0 || returned[at] === 1 || userStart[at] === userStart[at + 1]) return false;
    for (let k = userStart[at]; k < userStart[at + 1]; k++) {
      const user = graph.nodes[users[k]];
      const [, , , src, dst] = user.args;
      if (spmdName(user.target) === 'reinterpret' && src === 'V' && dst === 'P') continue;
      if (spmdName(user.target) !== 'out_partial') return false;
      if (user.args[1] !== this.axes[axis].name && !this.isClaimed(graph, user, axis)) return false;
    }
    return true;
  }

  /**
   * A region of per-device code: its operands must be what its specs say, on its axes operators act
   * on pieces.
   */
  private localMap(node: Node, frame: Frame<Typed>): Typed {
    const call = localMapCall(node);
    const { graph } = frame;
    const specOf = (specs: readonly string[], name: string): string | undefined =>
      specs[call.axes.findIndex((axis) => axis.name === name)];
    const inputs = call.operands.map((operand, i) => {
      const given = isRef(operand) ? frame.value(operand.name) : this.everywhere('number');
      return this.axes.map(({ name }, a): Known => {
        const own = isTuple(given) ? undefined : given[a];
        const wanted = specOf(call.inSpecs[i], name) as AxisType | undefined;
        if (wanted === undefined) return own;
        if (own !== undefined && own !== 'number' && own !== this.lying(wanted, own))
          this.violate(graph, node, a, {
            rule: `${own} where ${wanted} is wanted`,
            operands: isRef(operand) ? [operand.name] : [],
            reason: `input ${i} of the region is ${own} on ${name}, its spec says ${wanted}`,
            fix:
              `redistribute(${isRef(operand) ? operand.name : `input ${i}`}, "${name}", ` +
              `${own}→${wanted}) before the region`,
          });
        return cutOf(wanted) === undefined ? wanted : 'V';
      });
    });
    const inner = this.inside(call.axes.map(({ name }) => name));
    const body = getOwn(graph.subgraphs, call.body);
    if (body === undefined) throw internalError(`${node.name} has no body`);
    inner.run(body, inputs);
    this.take(inner);
    return {
      items: call.outSpecs.map((spec, k) =>
        this.axes.map(({ name }, a): Known => {
          const stated = specOf(spec, name);
          if (stated !== undefined) return this.lying(stated as AxisType, 'R');
          const value = body.outputs[k]?.value;
          const typed = value === null ? undefined : inner.types.get(body)?.get(value);
          return typed === undefined || isTuple(typed) ? undefined : typed[a];
        }),
      ),
    };
  }

  /**
   * A type that a region states, or R for I where it is compared with R: plans know how values lie,
   * and both lie whole on every device.
   */
  private lying(stated: AxisType, own: Known): Known {
    return this.options.pending === true && stated === 'I' && own === 'R' ? 'R' : stated;
  }

  /** The same axes, where those named are per device. */
  private inside(names: readonly string[]): Typer {
    const axes = this.axes.map((axis) =>
      names.includes(axis.name) ? { ...axis, meaning: 'manual' as const } : axis,
    );
    return new Typer(this.table, axes, this.options);
  }

  private take(inner: Typer): void {
    this.violations.push(...inner.violations);
    this.casts.push(...inner.casts);
    this.implicit.push(...inner.implicit);
    for (const [graph, types] of inner.types) this.types.set(graph, types);
    for (const [graph, words] of inner.settled) this.settled.set(graph, words);
    for (const [graph, calls] of inner.calls) this.calls.set(graph, calls);
  }
}

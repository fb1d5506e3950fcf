/**
 * Lowers a graph of ATen or StableHLO calls with fixed sizes to HLO instructions, for the whole
 * program or the part of one device. Control flow becomes the control flow of HLO; calls of
 * functions are inlined.
 */
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { scanPositions } from '../../graph/control.ts';
import type { Arg, Dim, DType, Graph, Node, ValueType } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { collectiveKind, readCollective } from '../../lower/program/collectives.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { bindCall, tensorInputs, withOutputs } from '../../ops/record/context.ts';
import type { TensorMeta } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { HloCall, type RankTable } from './call.ts';
import { type HloBody, HloCode, type Instruction, type Val } from './code.ts';
import { withoutDead } from './dead.ts';
import type { CallNames } from './planned-names.ts';
import { writeStablehlo } from './stablehlo.ts';
import { loweringOf } from './table.ts';

interface HloInput {
  readonly node: Node;
  readonly value: Val;
}

export interface HloProgram {
  readonly inputs: readonly HloInput[];
  readonly code: readonly Instruction[];
  /** By position in the graph's outputs; null where it returns nothing. */
  readonly outputs: readonly (Val | null)[];
  /** Node whose result a value is, by id of the value. */
  readonly names: ReadonlyMap<number, string>;
  /**
   * Collectives of the program whose result nothing reads: they are left out, with all else that
   * nothing reads.
   */
  readonly unread: ReadonlySet<string>;
}

interface HloOptions {
  /** Value on each rank of the sizes that differ between ranks. */
  readonly symbols?: RankTable;
  /** Mesh of the collectives. */
  readonly mesh?: DeviceMesh;
  /** A scan as one instruction, or written as a while loop. Default `scan`. */
  readonly loops?: 'scan' | 'while';
  /** Constraints on the values of the program, which a plan lists by names. */
  readonly constraints?: Constraints;
}

/** Puts constraints on values; each gives the constrained value. */
export interface Constraints {
  /** Names in the plan of what belongs to calls with bodies, by their own names in the plan. */
  readonly names: ReadonlyMap<string, CallNames>;
  /** The call whose value a call repeats, as a second view of one tensor does; else undefined. */
  readonly sameAs: (call: string) => string | undefined;
  /** The value that a call reads for an operand. */
  readonly use: (hlo: HloCode, call: string, input: number, value: Val) => Val;
  /** The value that others read as a result of a call, or as an input. */
  readonly made: (hlo: HloCode, name: string, result: number, value: Val) => Val;
}

/** The names in a plan of the values of one body; absent where the plan does not list them. */
type NamesOf = (name: string) => string | undefined;

/** A body that is being written, and the names of its values in the plan. */
interface Body {
  readonly graph: Graph;
  readonly listed: NamesOf;
}

const UNLISTED: NamesOf = () => undefined;

type HloResult = Val | readonly (Val | null)[];
type Scope = Map<string, HloResult>;

/** @throws E_UNSUPPORTED, with the node, for what has no text in HLO */
export function hloProgram(
  graph: Graph,
  table: OperatorTable,
  options: HloOptions = {},
): HloProgram {
  return new Writer(table, options).run(graph);
}

class Writer {
  private readonly hlo = new HloCode();
  private readonly symbols: RankTable;
  private readonly names = new Map<number, string>();
  /** Results by the name in the plan. */
  private readonly results = new Map<string, HloResult>();
  /** Names in the plan of the calls that are being written. */
  private listed: NamesOf = UNLISTED;

  constructor(
    private readonly table: OperatorTable,
    private readonly options: HloOptions,
  ) {
    this.symbols = options.symbols ?? new Map();
  }

  run(graph: Graph): HloProgram {
    const scope: Scope = new Map();
    const inputs: HloInput[] = [];
    for (const node of graph.nodes) {
      if (node.kind !== 'placeholder') continue;
      const { dtype, shape } = this.tensorType(node.type, node);
      const own = this.hlo.value(dtype, shape);
      inputs.push({ node, value: own });
      scope.set(node.name, own);
    }
    this.listed = (name) => name;
    this.calls(graph, scope);
    const outputs = graph.outputs.map(({ value }) =>
      value === null ? null : this.value(scope, value),
    );
    const { code, unread } = withoutDead(this.hlo.code, outputs);
    return { inputs, code, outputs, names: this.names, unread };
  }

  private calls(graph: Graph, scope: Scope): void {
    for (const node of graph.nodes) {
      if (node.kind === 'placeholder') continue;
      this.hlo.note = node.name;
      const result = this.repeated(node) ?? this.constrained(node, this.node(graph, node, scope));
      scope.set(node.name, result);
      if (isValue(result) && !this.names.has(result.id)) this.names.set(result.id, node.name);
    }
    this.hlo.note = undefined;
  }

  /** The value of an earlier call that a call repeats by the plan. */
  private repeated(node: Node): HloResult | undefined {
    const call = this.listed(node.name);
    const earlier = call === undefined ? undefined : this.options.constraints?.sameAs(call);
    return earlier === undefined ? undefined : this.results.get(earlier);
  }

  /** The results of a call, each under the constraint that there is on it. */
  private constrained(node: Node, result: HloResult): HloResult {
    const { constraints } = this.options;
    const call = this.listed(node.name);
    if (constraints === undefined || call === undefined) return result;
    const change = (value: Val, k: number): Val => {
      const names = constraints.names.get(call);
      if (names === undefined) return constraints.made(this.hlo, call, k, value);
      const name = names.results[k];
      return name === undefined ? value : constraints.made(this.hlo, name, 0, value);
    };
    const results = isValue(result)
      ? change(result, 0)
      : result.map((value, k) => (value === null ? null : change(value, k)));
    this.results.set(call, results);
    return results;
  }

  private node(graph: Graph, node: Node, scope: Scope): HloResult {
    try {
      if (node.kind === 'get_attr')
        return this.refuse(node, 'a constant of the module has no values in the graph');
      if (node.target === 'operator.getitem') return this.member(node, scope);
      if (collectiveKind(node.target) !== undefined) return this.collective(node, scope);
      if (CONTROL.has(node.target)) return this.control(graph, node, scope);
      return this.call(graph, node, scope);
    } catch (error) {
      if (error instanceof ShardwrightError && error.details.node === undefined)
        throw error.with({ node: node.name });
      throw error;
    }
  }

  private call(graph: Graph, node: Node, scope: Scope): HloResult {
    const record = this.table.get(node.target);
    if (record === undefined)
      return this.refuse(node, `${node.target} has no record, so it has no text in HLO`);
    const ctx = bindCall(record, node.args, node.kwargs, (name) => metaOf(this.value(scope, name)));
    const listed = this.listed(node.name);
    const { constraints } = this.options;
    const values = tensorInputs(record, node.args, node.kwargs).map((name, i) => {
      const value = this.value(scope, name);
      return constraints === undefined || listed === undefined
        ? value
        : constraints.use(this.hlo, listed, i, value);
    });
    const typed = withOutputs(ctx, this.resultTypes(node));
    const call = new HloCall(this.hlo, node, record, typed, values, this.symbols);
    const lowering = loweringOf(record.name);
    if (lowering !== undefined) return lowering(call);
    if (!/^(stablehlo|chlo|sdy|jax)\./.test(record.name))
      return call.unsupported('has no text in HLO');
    return writeStablehlo(call, (name) => this.region(graph, node, name));
  }

  /** Types of the results as the graph states them. */
  private resultTypes(node: Node): (TensorMeta | null)[] {
    const items = node.type.kind === 'tuple' ? node.type.items : [node.type];
    return items.map((type) => (type.kind === 'tensor' ? this.tensorType(type, node) : null));
  }

  private tensorType(type: ValueType, node: Node): TensorMeta {
    if (type.kind !== 'tensor')
      return this.refuse(node, `${node.name} is a ${type.kind} value and no tensor`);
    return { dtype: type.dtype, shape: type.shape.map((dim) => this.size(dim, node)) };
  }

  private size(dim: Dim, node: Node): number {
    if (typeof dim === 'number') return dim;
    if (this.symbols.has(dim.sym))
      throw new ShardwrightError(
        'E_EXPORT_UNEVEN',
        `${node.name} has a dim of ${[...new Set(this.symbols.get(dim.sym))].join(' and ')} rows`,
        { node: node.name },
      );
    return dim.example ?? this.refuse(node, `the size ${dim.sym} is not known`);
  }

  private refuse(node: Node, message: string): never {
    throw new ShardwrightError('E_UNSUPPORTED', message, { node: node.name });
  }

  private value(scope: Scope, name: string): Val {
    const result = scope.get(name);
    if (result === undefined || !isValue(result))
      throw internalError(`${name} is not a single value`);
    return result;
  }

  private member({ args }: Node, scope: Scope): Val {
    const [source, k] = args;
    const result = isRef(source) ? scope.get(source.name) : undefined;
    const member = result === undefined || isValue(result) ? undefined : result.at(Number(k));
    if (member === undefined || member === null) throw internalError('a member that is not there');
    return member;
  }

  private collective(node: Node, scope: Scope): Val {
    const { mesh } = this.options;
    const [input] = node.args;
    if (mesh === undefined || !isRef(input))
      throw internalError('a collective outside of a device program');
    const { kind, meshDims, op, targets } = readCollective(mesh, node.target, node.args);
    const [out] = this.hlo.emit(
      'collective',
      [this.value(scope, input.name)],
      [this.tensorType(node.type, node)],
      {
        kind,
        axes: meshDims.map((m) => mesh.names[m]).join(','),
        members: mesh.sizeOf(meshDims),
        ...defined({ reduce: op, targets }),
      },
    );
    return out;
  }

  // ---- control flow
  // ---------------------------------------------------------------------------

  private control(graph: Graph, node: Node, scope: Scope): HloResult {
    const { target, args } = node;
    const operands = (at: number): Val[] => this.operands(node, args[at], scope);
    const names = this.namesOf(node);
    const body = (at: number, k = 0): Body => ({
      graph: this.bodyGraph(graph, node, args[at]),
      listed: names(k),
    });
    switch (target) {
      case 'call':
        return this.inline(body(0), operands(1), []);
      case 'wrap_with_set_grad_enabled':
      case 'wrap_with_autocast': {
        const at = target === 'wrap_with_autocast' ? 4 : 1;
        return this.inline(body(at), this.operands(node, args.slice(at + 1), scope), []);
      }
      case 'cond': {
        const [which] = this.operands(node, [args[0]], scope);
        const inputs = operands(3);
        const bodies = [body(1, 0), body(2, 1)].map((b) => this.branch(b, inputs));
        return this.emitControl('if', [this.hlo.convert(which, 'b8')], bodies);
      }
      case 'case': {
        const list = args[1];
        if (!isList(list)) throw internalError('a case without branches');
        const inputs = operands(2);
        const bodies = list.map((branch, k) =>
          this.branch({ graph: this.bodyGraph(graph, node, branch), listed: names(k) }, inputs),
        );
        const [which] = this.operands(node, [args[0]], scope);
        return this.emitControl('case', [this.branchNumber(which, bodies.length)], bodies);
      }
      case 'while_loop':
        return this.whileLoop(
          node,
          body(0, 0),
          body(1, 1),
          operands(2),
          args.length > 3 ? operands(3) : [],
        );
      case 'scan':
      case 'map':
      case 'map_impl': {
        const at = scanPositions(target);
        const captured = args.length > at.captured ? operands(at.captured) : [];
        return this.scan(
          node,
          body(0),
          at.init === undefined ? [] : operands(at.init),
          operands(at.xs),
          captured,
        );
      }
      default:
        return this.refuse(node, `control flow by ${target} has no text in HLO`);
    }
  }

  /** The names in the plan of what the bodies of a call hold, by body. */
  private namesOf(node: Node): (body: number) => NamesOf {
    const call = this.listed(node.name);
    const names = call === undefined ? undefined : this.options.constraints?.names.get(call);
    return (body) => (name) => names?.bodies[body]?.get(name);
  }

  /** The last branch for a number outside, as StableHLO has it. */
  private branchNumber(which: Val, branches: number): Val {
    const { hlo } = this;
    const index = hlo.convert(which, 'i32');
    const last = hlo.like(index, branches - 1);
    const outside = hlo.binary(
      'or',
      hlo.compare('LT', index, hlo.like(index, 0)),
      hlo.compare('GT', index, last),
    );
    return hlo.select(outside, last, index);
  }

  private emitControl(
    op: string,
    inputs: readonly Val[],
    bodies: readonly HloBody[],
  ): readonly Val[] {
    return this.hlo.emit(op, inputs, bodies[0].returns, {}, bodies);
  }

  private bodyGraph(graph: Graph, node: Node, arg: Arg | undefined): Graph {
    const body =
      arg !== undefined && arg !== null && isGraphRef(arg)
        ? getOwn(graph.subgraphs, arg.name)
        : undefined;
    if (body === undefined) throw internalError(`${node.target} names no body`);
    return body;
  }

  private operands(node: Node, arg: Arg | undefined, scope: Scope): Val[] {
    if (arg === undefined || !isList(arg))
      throw internalError(`${node.target} has no list of values`);
    return arg.map((member) => {
      if (isRef(member)) return this.value(scope, member.name);
      if (typeof member === 'number') return this.hlo.constant(member, 'i64');
      if (typeof member === 'boolean') return this.hlo.constant(member, 'b8');
      return this.refuse(node, `an operand of ${node.target} is not a tensor`);
    });
  }

  /** Values that a body returns for these inputs, inlined at the call. */
  private inline(
    { graph, listed }: Body,
    inputs: readonly Val[],
    captured: readonly Val[],
  ): (Val | null)[] {
    const scope: Scope = new Map();
    const given = [...inputs, ...captured];
    const outside = this.listed;
    this.listed = listed;
    let next = 0;
    for (const node of graph.nodes)
      if (node.kind === 'placeholder') scope.set(node.name, this.entering(node, given[next++]));
    const { note } = this.hlo;
    this.calls(graph, scope);
    this.hlo.note = note;
    this.listed = outside;
    return graph.outputs.map(({ value }) => (value === null ? null : this.value(scope, value)));
  }

  /** A value as a body reads it: a carry or a row lies as the plan lists it. */
  private entering(node: Node, value: Val): Val {
    const { constraints } = this.options;
    const name = this.listed(node.name);
    return constraints === undefined || name === undefined
      ? value
      : constraints.made(this.hlo, name, 0, value);
  }

  private returnsOf(body: Body, inputs: readonly Val[], captured: readonly Val[]): Val[] {
    return this.inline(body, inputs, captured).map((value) => {
      if (value === null) throw internalError(`a body of ${body.graph.name} returns nothing`);
      return value;
    });
  }

  private branch(body: Body, inputs: readonly Val[]): HloBody {
    return this.hlo.body([], () => this.returnsOf(body, inputs, []));
  }

  /** A region of single numbers: a reducer, a comparator. */
  private region(graph: Graph, node: Node, name: string): HloBody {
    const body = { graph: this.bodyGraph(graph, node, { kind: 'graph', name }), listed: UNLISTED };
    const types = body.graph.nodes.flatMap((n) =>
      n.kind === 'placeholder' ? [this.tensorType(n.type, n)] : [],
    );
    return this.hlo.body(types, (inputs) => this.returnsOf(body, inputs, []));
  }

  private whileLoop(
    node: Node,
    test: Body,
    step: Body,
    init: readonly Val[],
    captured: readonly Val[],
  ): HloResult {
    const { hlo } = this;
    const bound = getOwn(node.kwargs, 'max_trips');
    const counts = typeof bound === 'number';
    const carried = counts ? [...init, hlo.constant(0, 'i32')] : init;
    const testing = hlo.body(carried, (own) => {
      const [goesOn] = this.returnsOf(test, own.slice(0, init.length), captured);
      const decided = hlo.convert(hlo.reshape(goesOn, []), 'b8');
      if (!counts) return [decided];
      const trip = own[init.length];
      return [hlo.binary('and', hlo.compare('LT', trip, hlo.like(trip, bound)), decided)];
    });
    const stepping = hlo.body(carried, (own) => {
      const next = this.returnsOf(step, own.slice(0, init.length), captured);
      if (!counts) return next;
      const trip = own[init.length];
      return [...next, hlo.add(trip, hlo.like(trip, 1))];
    });
    return hlo.emit('while', carried, carried, {}, [testing, stepping]).slice(0, init.length);
  }

  private scan(
    node: Node,
    step: Body,
    init: readonly Val[],
    xs: readonly Val[],
    captured: readonly Val[],
  ): HloResult {
    const stated = getOwn(node.kwargs, 'length');
    const length = xs[0]?.shape[0] ?? stated;
    if (typeof length !== 'number')
      return this.refuse(node, 'a scan without scanned values needs a length');
    const reverse = getOwn(node.kwargs, 'reverse') === true;
    const rows = xs.map(({ dtype, shape }) => ({ dtype, shape: shape.slice(1) }));
    if (this.options.loops === 'while')
      return this.scanAsLoop(node, { step, init, xs, captured, length, reverse });
    const { hlo } = this;
    const body = hlo.body([...init, ...rows], (own) => this.returnsOf(step, own, captured));
    const stacked = body.returns
      .slice(init.length)
      .map(({ dtype, shape }) => ({ dtype, shape: [length, ...shape] }));
    const attributes = { length, reverse, carries: init.length };
    return hlo.emit('scan', [...init, ...xs], [...init, ...stacked], attributes, [body]);
  }

  /** Rows are read and written at the counter. */
  private scanAsLoop(node: Node, { step, init, xs, captured, length, reverse }: Scan): HloResult {
    const { hlo } = this;
    const stacks = this.resultTypes(node)
      .slice(init.length)
      .map((meta) => {
        if (meta === null) throw internalError('a scan stacks nothing');
        return hlo.constant(meta.dtype === 'b8' ? false : 0, meta.dtype, meta.shape);
      });
    const carried: readonly Val[] = [hlo.constant(0, 'i32'), ...init, ...stacks];
    const testing = hlo.body(carried, ([trip]) => [
      hlo.compare('LT', trip, hlo.like(trip, length)),
    ]);
    const stepping = hlo.body(carried, ([trip, ...own]) => {
      const row = reverse ? hlo.subtract(hlo.like(trip, length - 1), trip) : trip;
      const at = (x: Val): Val[] => x.shape.map((_, d) => (d === 0 ? row : hlo.constant(0, 'i32')));
      const read = xs.map((x) => {
        const shape = x.shape.slice(1);
        return hlo.reshape(hlo.dynamicSlice(x, at(x), [1, ...shape]), shape);
      });
      const next = this.returnsOf(step, [...own.slice(0, init.length), ...read], captured);
      const written = next.slice(init.length).map((y, k) => {
        const whole = own[init.length + k];
        return hlo.dynamicUpdateSlice(whole, hlo.reshape(y, [1, ...y.shape]), at(whole));
      });
      return [hlo.add(trip, hlo.like(trip, 1)), ...next.slice(0, init.length), ...written];
    });
    return hlo.emit('while', carried, carried, {}, [testing, stepping]).slice(1);
  }
}

/** A scan with its operands as values of the program that is written. */
interface Scan {
  readonly step: Body;
  readonly init: readonly Val[];
  readonly xs: readonly Val[];
  readonly captured: readonly Val[];
  readonly length: number;
  readonly reverse: boolean;
}

const CONTROL = new Set([
  'call',
  'cond',
  'case',
  'while_loop',
  'scan',
  'map',
  'map_impl',
  'wrap_with_set_grad_enabled',
  'wrap_with_autocast',
]);

function isValue(result: HloResult): result is Val {
  return 'id' in result;
}

function metaOf({ dtype, shape }: Val): { dtype: DType; shape: readonly number[] } {
  return { dtype, shape };
}

/** Builds the graph of one StableHLO function or region from its operations. */

import { nonEmpty } from '../../defined.ts';
import { freeKey } from '../../graph/names.ts';
import type { Arg, Graph, ValueRef } from '../../graph/types.ts';
import { NO_KWARGS, NONE_TYPE, ref, sameType, setOwn } from '../../graph/value.ts';
import { firstItems, itemAt } from '../../item-at.ts';
import { BodyCalls } from './body-calls.ts';
import type { Entry, Lowered } from './body-scope.ts';
import { convertCall } from './convert.ts';
import { manualKeywords } from './manual-boundary.ts';
import { TERMINATORS } from './reducer.ts';
import { denseValue } from './syntax/dense.ts';
import { baseName, canonicalName, plainName } from './syntax/names.ts';
import { freeUses } from './syntax/scope.ts';
import type { BlockArgument, MlirFunc, MlirType, Operation, Region, Use } from './syntax/syntax.ts';
import { sameMlirType, typeName } from './syntax/types.ts';

/**
 * Nodes when every call is written out; a chain of functions that call two others doubles it each
 * time.
 */
const MAX_EXPANDED = 2_000_000;

/** One region or function in the making. */
export class Body extends BodyCalls {
  make(
    args: readonly BlockArgument[],
    region: Region,
    func?: MlirFunc,
    captured: readonly Use[] = [],
  ): Lowered {
    for (const arg of args) this.argument(arg);
    this.capture(captured);
    const { outputs, returned } = this.operations(region);
    if (func !== undefined) this.checkReturn(func, returned);
    const graph: Graph = {
      name: this.name,
      nodes: [...this.inputs, ...this.nodes],
      outputs: outputs.map((value, index) => ({ value, role: 'output', index })),
      subgraphs: this.subgraphs,
      ...nonEmpty({ given: this.given }),
    };
    return { graph, size: this.size + graph.nodes.length };
  }

  /** An argument as inputs, one for each of its tensors. */
  private argument(arg: BlockArgument): void {
    const { context } = this;
    const tensors = context.tensors(arg.type, arg.at);
    const names = tensors.map((type, i) =>
      this.input(
        tensors.length === 1 ? plainName(arg.id) : `${plainName(arg.id)}_${i}`,
        type,
        arg.at,
      ),
    );
    this.define(arg.id, { types: [arg.type], node: '', tuple: false, offsets: [0], names }, arg.at);
    const stated = context.shardings?.ofAttributes(arg.attributes, arg.type, arg.at);
    if (stated !== undefined && names.length === 1)
      this.given.push({ value: itemAt(names, 0), ...stated });
  }

  /** Values of the region around it as inputs, under the names that they have there. */
  private capture(captured: readonly Use[]): void {
    const { context } = this;
    const seen = new Map<string, Entry>();
    for (const use of captured) {
      const source = this.outer!.entry(use);
      const names = context
        .tensors(itemAt(source.types, use.result), use.at)
        .map((type) => this.input(plainName(use.id), type, use.at));
      let kept = seen.get(use.id);
      if (kept === undefined) {
        const total = source.offsets.length === 0 ? 0 : source.names.length;
        const none = new Array<string | undefined>(total);
        kept = { ...source, node: '', tuple: false, names: none };
        seen.set(use.id, kept);
        this.scope.set(use.id, kept);
      }
      const { names: all } = kept;
      names.forEach((name, i) => (all[itemAt(source.offsets, use.result) + i] = name));
    }
  }

  /** The operations up to the return, and what it returns. */
  private operations(region: Region): {
    readonly outputs: readonly string[];
    readonly returned: Operation;
  } {
    const outputs: string[] = [];
    let returned: Operation | undefined;
    for (const operation of region.operations) {
      if (returned !== undefined)
        throw this.error('E_SYNTAX', `an operation follows the return`, operation.at);
      if (TERMINATORS.has(operation.name)) {
        this.checkOperands(operation);
        outputs.push(...operation.operands.flatMap((use) => this.tensorsOf(use)));
        returned = operation;
      } else this.operation(operation);
    }
    if (returned === undefined)
      throw this.error('E_SYNTAX', `'${this.name}' ends without a return`, region.at);
    return { outputs, returned };
  }

  private checkReturn(func: MlirFunc, returned: Operation): void {
    const { context } = this;
    if (func.results.length !== returned.operands.length)
      throw this.error(
        'E_TYPE',
        `@${func.name} returns ${returned.operands.length} values, its type says ` +
          `${func.results.length}`,
        returned.at,
      );
    let position = 0;
    func.results.forEach(({ type, attributes }, i) => {
      const given = itemAt(returned.operandTypes, i);
      if (!sameMlirType(type, given))
        throw this.error(
          'E_TYPE',
          `result ${i} of @${func.name} is ${typeName(given)}, its type ` +
            `says ${typeName(type)}`,
          returned.at,
        );
      const stated = context.shardings?.ofAttributes(attributes, type, func.at);
      if (stated !== undefined) this.given.push({ output: position, ...stated });
      position += context.tensors(type, func.at).length;
    });
  }

  // ---- operations
  // ---------------------------------------------------------------------------

  private operation(operation: Operation): void {
    this.checkOperands(operation);
    const base = baseName(operation.name);
    switch (
      operation.name.startsWith('func.') || operation.name.startsWith('sdy.')
        ? operation.name
        : base
    ) {
      case 'func.call':
        return this.call(operation, this.symbol(operation, 'callee'));
      case 'composite':
        return this.call(operation, this.symbol(operation, 'decomposition'));
      case 'while':
        return this.loop(operation);
      case 'case':
      case 'if':
        return this.branches(operation, base === 'if');
      case 'tuple':
      case 'get_tuple_element':
        return this.retuple(operation, base === 'tuple');
      case 'constant':
        return this.constant(operation);
      case 'custom_call':
        return this.customCall(operation);
      case 'sdy.manual_computation':
        return this.manual(operation);
      case 'sdy.sharding_group':
        return;
      default:
        return operation.name.startsWith('sdy.')
          ? this.resharding(operation)
          : this.plain(operation, base);
    }
  }

  private symbol(operation: Operation, key: string): string {
    const value = operation.attributes.get(key);
    if (value?.kind === 'symbol') return value.name;
    throw this.error(
      'E_TYPE',
      `${operation.name} does not say which function it runs`,
      operation.at,
      `write ${key} = @name`,
    );
  }

  private plain(
    operation: Operation,
    base: string,
    target = canonicalName(operation.name),
    extra?: Record<string, Arg>,
  ): void {
    const { context } = this;
    const call = convertCall(base, operation, this.operandRefs(operation), {
      reader: context.reader,
      values: context.values,
      operandTypes: this.tensorTypes(operation.operandTypes, operation.at),
      resultTypes: this.tensorTypes(operation.resultTypes, operation.at),
      region: (region, keyword) => this.closedRegion(operation, region, keyword),
    });
    this.emit(
      operation,
      target,
      extra === undefined ? call : { args: call.args, kwargs: { ...call.kwargs, ...extra } },
    );
  }

  private constant(operation: Operation): void {
    const { context } = this;
    const value = operation.attributes.get('value');
    const resolved = value === undefined ? undefined : context.values.resolve(value);
    const [type] = this.tensorTypes(operation.resultTypes, operation.at);
    if (type === undefined || (resolved?.kind !== 'dense' && resolved?.kind !== 'resource'))
      throw this.error('E_TYPE', 'a constant needs a dense value', operation.at);
    const literal =
      resolved.kind === 'dense'
        ? denseValue(context.reader, resolved.payload, resolved.type)
        : `dense_resource<${resolved.name}>`;
    const kwargs = { dtype: { kind: 'dtype', dtype: type.dtype } as const, shape: [...type.shape] };
    this.emit(operation, 'stablehlo.constant', { args: [literal], kwargs });
  }

  /** A region that the operation hands its own values to, such as a reducer. */
  private closedRegion(
    operation: Operation,
    region: Region,
    keyword: string,
  ): { kind: 'graph'; name: string } {
    const free = freeUses([region]);
    const [outer] = free;
    if (outer !== undefined)
      throw this.error(
        'E_UNSUPPORTED',
        `the body of ${operation.name} reads '%${outer.id}' from outside`,
        outer.at,
        'pass the value as an operand',
      );
    return this.subgraph(`${this.nameHint(operation)}_${keyword}`, region, region.args, []);
  }

  private nameHint(operation: Operation): string {
    const [first] = operation.results;
    return first === undefined ? baseName(operation.name) : plainName(first.id);
  }

  private subgraph(
    name: string,
    region: Region,
    args: readonly BlockArgument[],
    captured: readonly Use[],
  ): { kind: 'graph'; name: string } {
    const key = freeKey(this.subgraphs, name);
    const { graph, size } = new Body(this.context, key, this).make(
      args,
      region,
      undefined,
      captured,
    );
    return this.keep(key, graph, size, region.at);
  }

  private keep(
    key: string,
    graph: Graph,
    size: number,
    at: number,
  ): { kind: 'graph'; name: string } {
    setOwn(this.subgraphs, key, graph);
    this.size += size;
    if (this.size > MAX_EXPANDED)
      throw this.error(
        'E_LIMIT',
        `the program has more than ${MAX_EXPANDED} nodes when its calls are written out`,
        at,
        'import a smaller part',
      );
    return { kind: 'graph', name: key };
  }

  private call(operation: Operation, callee: string): void {
    const { graph, size } = this.context.function(callee, operation.at);
    if (!Object.hasOwn(this.subgraphs, callee)) this.keep(callee, graph, size, operation.at);
    else if (this.subgraphs[callee] !== graph)
      throw this.error(
        'E_UNSUPPORTED',
        `a body is called '${callee}' like the function`,
        operation.at,
        'rename the function',
      );
    const func = this.context.module.functions.get(callee)!;
    const check = (
      what: string,
      wanted: readonly MlirType[],
      stated: readonly MlirType[],
    ): void => {
      if (
        wanted.length !== stated.length ||
        wanted.some((type, i) => !sameMlirType(type, itemAt(stated, i)))
      )
        throw this.error(
          'E_TYPE',
          `@${callee} has ${what} (${wanted.map(typeName).join(', ')}), the call says ` +
            `(${stated.map(typeName).join(', ')})`,
          operation.at,
        );
    };
    check(
      'inputs',
      func.args.map((arg) => arg.type),
      operation.operandTypes,
    );
    check(
      'results',
      func.results.map((result) => result.type),
      operation.resultTypes,
    );
    const name = operation.attributes.get('name');
    const kwargs: Record<string, Arg> =
      operation.name.endsWith('composite') && name?.kind === 'string'
        ? { composite: name.value }
        : {};
    this.emit(operation, 'call', {
      args: [{ kind: 'graph', name: callee }, this.operandRefs(operation)],
      kwargs,
    });
  }

  private loop(operation: Operation): void {
    const [condition, body, ...others] = operation.regions;
    if (condition === undefined || body === undefined || others.length > 0)
      throw this.error('E_SYNTAX', 'a loop has a condition and a body', operation.at);
    const captured = freeUses([condition, body]);
    const carried = this.operandRefs(operation);
    const outside = captured.flatMap((use) => this.tensorsOf(use).map(ref));
    const hint = this.nameHint(operation);
    const test = this.subgraph(`${hint}_cond`, condition, condition.args, captured);
    const step = this.subgraph(`${hint}_body`, body, body.args, captured);
    this.emit(operation, 'while_loop', {
      args: [test, step, carried, ...(outside.length > 0 ? [outside] : [])],
      kwargs: NO_KWARGS,
    });
  }

  /**
   * `case` of a converted bool and `if` are `cond`; the branches read what they use as operands.
   */
  private branches(operation: Operation, isIf: boolean): void {
    const { regions } = operation;
    if (regions.length === 0 || (isIf && regions.length !== 2) || operation.operands.length !== 1)
      throw this.error(
        'E_SYNTAX',
        `${operation.name} needs one operand and its branches`,
        operation.at,
      );
    const captured = freeUses(regions);
    const [selector] = firstItems(this.operandRefs(operation), 1);
    const outside = captured.flatMap((use) => this.tensorsOf(use).map(ref));
    const hint = this.nameHint(operation);
    const graphs = regions.map((region, i) =>
      this.subgraph(`${hint}_branch${i}`, region, region.args, captured),
    );
    // Any number means the last branch where it names none, so that one branch is a call.
    if (graphs.length === 1)
      return this.emit(operation, 'call', {
        args: [itemAt(graphs, 0), outside],
        kwargs: NO_KWARGS,
      });
    const predicate = isIf
      ? selector
      : regions.length === 2
        ? this.boolBehind(selector)
        : undefined;
    if (predicate === undefined)
      this.emit(operation, 'case', { args: [selector, graphs, outside], kwargs: NO_KWARGS });
    else {
      // Branch 0 of a case is that of false, the first region of an `if` that of true.
      const [first, second] = firstItems(graphs, 2);
      const [whenTrue, whenFalse] = isIf ? [first, second] : [second, first];
      this.emit(operation, 'cond', {
        args: [predicate, whenTrue, whenFalse, outside],
        kwargs: NO_KWARGS,
      });
    }
  }

  /** The bool that an index was converted from. */
  private boolBehind(index: ValueRef): ValueRef | undefined {
    const source = this.converted.get(index.name);
    if (source === undefined) return undefined;
    const type = this.nodeTypes.get(source.name);
    return type?.kind === 'tensor' && type.dtype === 'b8' ? source : undefined;
  }

  /** Tuples are only names of their members. */
  private retuple(operation: Operation, makes: boolean): void {
    const members = operation.operands.flatMap((use) => this.tensorsOf(use));
    const [group] = operation.results;
    const [type] = operation.resultTypes;
    if (group === undefined || type === undefined) return;
    let names = members;
    if (!makes) {
      const tuple = itemAt(operation.operandTypes, 0);
      const index = operation.attributes.get('index');
      const at = index?.kind === 'int' ? Number(index.value) : -1;
      if (tuple.kind !== 'tuple' || tuple.items[at] === undefined)
        throw this.error('E_TYPE', `there is no element ${at} of ${typeName(tuple)}`, operation.at);
      const start = this.tensorTypes(tuple.items.slice(0, at), operation.at).length;
      names = members.slice(
        start,
        start + this.context.tensors(tuple.items[at], operation.at).length,
      );
    }
    const wanted = this.context.tensors(type, operation.at).map((t) => this.context.typeOf(t));
    if (
      names.length !== wanted.length ||
      names.some((name, i) => !sameType(this.nodeTypes.get(name) ?? NONE_TYPE, itemAt(wanted, i)))
    )
      throw this.error('E_TYPE', `${operation.name} does not give ${typeName(type)}`, operation.at);
    this.define(
      group.id,
      { types: [type], node: '', tuple: false, offsets: [0], names: [...names] },
      group.at,
    );
  }

  /** `@Sharding` is a constraint; others are named by their target. */
  private customCall(operation: Operation): void {
    const name = operation.attributes.get('call_target_name');
    if (name?.kind !== 'string')
      throw this.error('E_TYPE', 'a custom call without a target', operation.at);
    const same =
      operation.operandTypes.length === 1 &&
      operation.resultTypes.length === 1 &&
      sameMlirType(itemAt(operation.operandTypes, 0), itemAt(operation.resultTypes, 0));
    if (same && (name.value === 'Sharding' || name.value === 'annotate_device_placement'))
      return this.emit(operation, 'sdy.sharding_constraint', {
        args: this.operandRefs(operation),
        kwargs: NO_KWARGS,
      });
    const kwargs: Record<string, Arg> = {};
    for (const [key, value] of operation.attributes) {
      const plain =
        key === 'call_target_name' || key.startsWith('jax.')
          ? undefined
          : this.context.values.plain(value);
      if (plain !== undefined) setOwn(kwargs, key.replaceAll('.', '_'), plain);
    }
    this.emit(operation, `custom_call.${name.value}`, {
      args: this.operandRefs(operation),
      kwargs,
    });
  }

  /** A sharding written out for a value: an identity with a given sharding. */
  private resharding(operation: Operation): void {
    const target = operation.name === 'sdy.sharding_constraint' ? operation.name : 'sdy.reshard';
    if (operation.operands.length !== 1 || operation.resultTypes.length !== 1)
      throw this.error(
        'E_UNSUPPORTED',
        `${operation.name}`,
        operation.at,
        'constraints, reshards and manual computations are read',
      );
    this.emit(operation, target, { args: this.operandRefs(operation), kwargs: NO_KWARGS });
    const value = operation.attributes.get('sharding') ?? operation.attributes.get('out_sharding');
    this.give(
      operation,
      this.context.shardings?.list(value, operation.resultTypes, operation.at) ?? [],
    );
  }

  /**
   * A region in which each device runs its own part: local types inside, the shardings of the
   * boundary as arguments.
   */
  private manual(operation: Operation): void {
    const { context } = this;
    const [region] = operation.regions;
    if (region === undefined)
      throw this.error('E_SYNTAX', 'a manual computation without a body', operation.at);
    const free = freeUses([region]);
    const [outer] = free;
    if (outer !== undefined)
      throw this.error(
        'E_REF',
        `'%${outer.id}' is not an argument of the manual computation`,
        outer.at,
      );
    if (region.args.length !== operation.operands.length)
      throw this.error(
        'E_TYPE',
        `${operation.operands.length} operands for ${region.args.length} arguments`,
        operation.at,
      );
    const kwargs = manualKeywords(operation, region, context);
    const body = this.subgraph(`${this.nameHint(operation)}_manual`, region, region.args, []);
    this.emit(operation, 'sdy.manual_computation', {
      args: [body, this.operandRefs(operation)],
      kwargs,
    });
  }
}

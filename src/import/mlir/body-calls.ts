/**
 * How one operation becomes one call: its operands and its results are checked against what the
 * text says of them.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { NodeMeta, TensorType, ValueRef, ValueType } from '../../graph/types.ts';
import { NONE_TYPE, ref, sameType, typeText } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { controlMismatch } from '../complete/control-types.ts';
import { BodyScope } from './body-scope.ts';
import type { ConvertedCall } from './convert.ts';
import type { Stated } from './sharding/given.ts';
import { resolveLocation } from './syntax/location.ts';
import { baseName, plainName, scopeOf } from './syntax/names.ts';
import type { MlirTensor, MlirType, Operation, Use } from './syntax/syntax.ts';
import { sameMlirType, typeName } from './syntax/types.ts';

/** Calls whose bodies say what they return. */
const CONTROL = new Set(['call', 'cond', 'case', 'while_loop', 'sdy.manual_computation']);
/** Read through getitem even with one result. */
const TUPLES = new Set(
  ['reduce', 'reduce_window', 'scatter', 'sort', 'all_reduce', 'optimization_barrier'].map(
    (n) => `stablehlo.${n}`,
  ),
);

const FIRST: readonly number[] = [0];

/**
 * A region or function in the making that can add calls; what its operations mean is up to `Body`.
 */
export class BodyCalls extends BodyScope {
  /** Operands are defined and have the types that the operation states. */
  protected checkOperands({ operands, operandTypes, name, at }: Operation): void {
    if (operands.length !== operandTypes.length)
      throw this.error(
        'E_TYPE',
        `${name} has ${operands.length} operands and ${operandTypes.length} operand types`,
        at,
      );
    operands.forEach((use, i) => {
      const type = itemAt(this.entry(use).types, use.result);
      const said = itemAt(operandTypes, i);
      if (!sameMlirType(type, said))
        throw this.error(
          'E_TYPE',
          `'%${use.id}' is ${typeName(type)}, ${name} says ${typeName(said)}`,
          use.at,
        );
    });
  }

  /** The origin of an operation as the text states it. */
  private meta(operation: Operation): NodeMeta {
    const { name: original, location } = operation;
    const line = this.context.line(operation.at);
    if (location === undefined) return { original, line };
    const { name, place } = resolveLocation(location, this.context.module.locationAliases);
    const path = name === undefined ? undefined : scopeOf(name);
    return {
      original,
      ...defined({ path, source: place }),
      line,
    };
  }

  /** Adds the call of an operation and defines its results. */
  protected emit(
    operation: Operation,
    target: string,
    call: ConvertedCall,
    meta = this.meta(operation),
  ): void {
    const { context } = this;
    const [first] = operation.results;
    const name = this.unique(
      first === undefined ? plainName(baseName(operation.name)) : plainName(first.id),
    );
    const stated = this.tensorTypes(operation.resultTypes, operation.at).map((t) =>
      context.typeOf(t),
    );
    const type = this.checkedType(operation, target, call, name, stated);
    this.add({ name, kind: 'call', target, args: call.args, kwargs: call.kwargs, type, meta });
    this.results(operation, name, type.kind === 'tuple');
    const given = context.shardings?.perValue(
      operation.attributes,
      operation.resultTypes,
      operation.at,
    );
    if (given !== undefined && given.length > 0) this.give(operation, given);
  }

  /** Notes shardings of the results of an operation. */
  protected give(operation: Operation, given: readonly (Stated | undefined)[]): void {
    const uses = operation.results.flatMap(({ id, count, at }) =>
      Array.from({ length: count }, (_, result): Use => ({ id, result, at })),
    );
    given.forEach((one, i) => {
      if (one === undefined || uses[i] === undefined) return;
      const names = this.tensorsOf(uses[i]);
      if (names.length === 1) this.given.push({ value: itemAt(names, 0), ...one });
    });
  }

  /** Defines the results of an operation: the node itself, or members of its tuple. */
  private results(operation: Operation, node: string, tuple: boolean): void {
    const { context } = this;
    const [only] = operation.results;
    const { resultTypes } = operation;
    // Nearly every operation has one tensor.
    if (
      !tuple &&
      only !== undefined &&
      operation.results.length === 1 &&
      resultTypes.length === 1 &&
      resultTypes[0]?.kind === 'tensor'
    )
      return this.define(
        only.id,
        { types: resultTypes, node, tuple, offsets: FIRST, names: [node] },
        only.at,
      );
    let at = 0;
    let position = 0;
    for (const group of operation.results) {
      const types = resultTypes.slice(at, at + group.count);
      const offsets = types.map((type) => {
        const start = position;
        position += context.tensors(type, group.at).length;
        return start;
      });
      const names = new Array<string | undefined>(position).fill(undefined);
      if (!tuple && names.length > 0) names[0] = node;
      this.define(group.id, { types, node, tuple, offsets, names }, group.at);
      at += group.count;
    }
  }

  /** The type by the operator's own rule, compared with what the text says. */
  private checkedType(
    operation: Operation,
    target: string,
    call: ConvertedCall,
    name: string,
    stated: readonly TensorType[],
  ): ValueType {
    const { infer } = this.context.options;
    const fallback = (): ValueType =>
      stated.length === 1
        ? itemAt(stated, 0)
        : stated.length === 0
          ? NONE_TYPE
          : { kind: 'tuple', items: stated };
    if (CONTROL.has(target)) {
      const typeOf = (value: string): ValueType => this.nodeTypes.get(value) ?? NONE_TYPE;
      const wrong = controlMismatch({ target, ...call }, this.subgraphs, typeOf, stated);
      if (wrong !== undefined)
        throw this.error(
          'E_TYPE',
          `${operation.name}: ${wrong}`,
          operation.at,
          'correct the types of the body or of the operation',
        );
      return { kind: 'tuple', items: stated };
    }
    if (infer === undefined)
      return TUPLES.has(target) ? { kind: 'tuple', items: stated } : fallback();
    let ours: ValueType | undefined;
    try {
      ours = infer(
        { target, args: call.args, kwargs: call.kwargs, name },
        (value) => this.nodeTypes.get(value) ?? NONE_TYPE,
      );
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      throw this.error(
        error.code,
        `${operation.name}: ${error.message}`,
        operation.at,
        error.details.hint ?? 'correct the operation',
      );
    }
    if (ours === undefined) return fallback();
    const flat = ours.kind === 'tuple' ? ours.items : [ours];
    const fits =
      flat.length === stated.length && flat.every((type, i) => sameType(type, itemAt(stated, i)));
    if (!fits)
      throw this.error(
        'E_TYPE',
        `the text says (${stated.map((type) => typeText(type)).join(', ')}), but ` +
          `${operation.name} gives (${flat.map((type) => typeText(type)).join(', ')})`,
        operation.at,
        'correct the types, or the operation',
      );
    return ours;
  }

  /** The tensors of all operands. */
  protected operandRefs(operation: Operation): ValueRef[] {
    const refs: ValueRef[] = [];
    for (const use of operation.operands)
      for (const name of this.tensorsOf(use)) refs.push(ref(name));
    return refs;
  }

  /** Types of tensors, tuples flattened. */
  protected tensorTypes(types: readonly MlirType[], at: number): MlirTensor[] {
    if (types.every((type) => type.kind === 'tensor')) return types as MlirTensor[];
    return types.flatMap((type) => this.context.tensors(type, at));
  }
}

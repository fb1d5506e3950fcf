/** Finds the values of a graph through which gradients pass. */

import type { Node, ValueType } from '../../graph/types.ts';
import { eachOperand, isRef } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { cutsGradient, vjpOf } from '../../ops/vjp/table.ts';
import { hasGradient } from './wanted.ts';

/** Which values depend on what is differentiated, through real numbers all the way. */
export class Activity {
  private readonly active: Set<string>;
  /** Results of calls with several that count as constants. */
  private readonly constants = new Map<string, readonly number[]>();

  constructor(
    private readonly table: OperatorTable,
    wanted: ReadonlySet<string>,
  ) {
    this.active = new Set(wanted);
  }

  has(name: string): boolean {
    return this.active.has(name);
  }

  /** Judges a call, its operands being judged. */
  visit(node: Node): boolean {
    if (node.kind !== 'call' || !hasReals(node.type) || this.cuts(node)) return false;
    let depends = false;
    eachOperand(node, (name) => (depends ||= this.active.has(name)));
    if (depends) this.active.add(node.name);
    return depends;
  }

  /**
   * Operators and results that pass no gradient, and bodies that the program runs without
   * gradients.
   */
  private cuts(node: Node): boolean {
    if (node.target === 'operator.getitem') {
      const [source, index] = node.args;
      return isRef(source) && (this.constants.get(source.name)?.includes(Number(index)) ?? false);
    }
    const constant = vjpOf(this.table.get(node.target)?.name ?? '')?.constant;
    if (constant !== undefined) this.constants.set(node.name, constant);
    if (node.target === 'wrap_with_set_grad_enabled') return node.args[0] === false;
    return cutsGradient(this.table.get(node.target)?.name ?? node.target);
  }
}

function hasReals(type: ValueType): boolean {
  return type.kind === 'tuple' ? type.items.some(hasReals) : hasGradient(type);
}

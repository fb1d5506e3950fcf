/**
 * Takes `with_effects` apart, which keeps operators with side effects in their order
 * (`torch/_higher_order_ops/effects.py`): `with_effects(token, op, *args)` returns the next token
 * and the results of `op`. The order of a graph is that of its lines, so the operator becomes a
 * call of its own, and each next token is the token.
 */

import type { Arg } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { DraftRef, FxClass, FxNode, FxReturn } from './record.ts';
import { targetName } from './text/target.ts';

/** The class with each `with_effects` as a call of its operator, bodies included. */
export function withoutEffects(source: FxClass): FxClass {
  const classes = source.classes.map(withoutEffects);
  if (!source.nodes.some(isEffectCall)) return { ...source, classes };
  return { ...source, ...new Untangling(source).run(), classes };
}

function isEffectCall({ target, args }: FxNode): boolean {
  return target === 'with_effects' && typeof args[1] === 'string';
}

class Untangling {
  private readonly nodes: FxNode[] = [];
  /** Tokens that calls are given, by the call. */
  private readonly tokens = new Map<string, Arg>();
  /** Calls whose operator has several results. */
  private readonly several = new Set<string>();
  /** Values that lines only read again: a token, or the one result of an operator. */
  private readonly same = new Map<string, string>();

  constructor(private readonly source: FxClass) {}

  run(): { nodes: readonly FxNode[]; returns: readonly FxReturn[] } {
    for (const node of this.source.nodes) {
      if (isEffectCall(node)) this.call(node);
      else if (!this.read(node)) this.nodes.push(node);
    }
    const returns = this.source.returns.map((entry) =>
      entry.value === null ? entry : { ...entry, value: this.same.get(entry.value) ?? entry.value },
    );
    return { nodes: this.nodes, returns };
  }

  private call(node: FxNode): void {
    const [token, operator, ...args] = node.args;
    if (token !== undefined) this.tokens.set(node.name, token);
    const readers = this.source.nodes.filter((reader) => (readIndex(reader, node.name) ?? 0) > 0);
    // An operator with one result gives no tuple: what reads result 1 is the result.
    const only = readers.every((reader) => readIndex(reader, node.name) === 1);
    if (only) for (const reader of readers) this.alias(reader.ref, node.ref);
    else this.several.add(node.name);
    const type = only ? readers[0]?.type : undefined;
    this.nodes.push({ ...node, target: targetName(operator as string), args, type });
  }

  /** Tells whether a line reads the token or a result, and is dropped or rewritten. */
  private read(node: FxNode): boolean {
    const [tuple] = node.args;
    if (tuple === undefined || tuple === null || !isRef(tuple)) return false;
    const token = this.tokens.get(tuple.name);
    const index = token === undefined ? undefined : readIndex(node, tuple.name);
    if (token === undefined || index === undefined) return false;
    if (index === 0) this.alias(node.ref, token);
    else if (this.several.has(tuple.name)) this.nodes.push({ ...node, args: [tuple, index - 1] });
    return true;
  }

  private alias(ref: DraftRef, value: Arg): void {
    if (value === null || !isRef(value)) return;
    const meant = this.same.get(value.name) ?? value.name;
    this.same.set(ref.name, meant);
    ref.name = meant;
  }
}

/** The index of the result that a line reads of a call; undefined where it reads none. */
function readIndex({ target, args }: FxNode, call: string): number | undefined {
  const [tuple, index] = args;
  const isRead = target === 'operator.getitem' && tuple !== undefined && isRef(tuple);
  return isRead && tuple.name === call && typeof index === 'number' ? index : undefined;
}

/** Expands calls over lists of tensors (`_foreach_add.List`) into one call for each element. */

import { ShardwrightError } from '../../../errors.ts';
import { NameSet } from '../../../graph/names.ts';
import type { Arg } from '../../../graph/types.ts';
import { eachOperand, isRef, NO_KWARGS } from '../../../graph/value.ts';
import { itemAt } from '../../../item-at.ts';
import type { ElementCall } from '../../../ops/list-operators.ts';
import type { Infer } from '../../complete/infer.ts';
import type { DraftRef, FxClass, FxNode } from '../record.ts';

/**
 * Calls over lists of tensors (`_foreach_add.List`, `_fused_adamw_`) become a call for each
 * element, so that each element has a placement of its own. Elements that are read take the name of
 * the line that reads them; results that are written in place become `copy_` calls, which are made
 * functional like all others.
 */
export function withoutLists(source: FxClass, infer: Infer | undefined): FxClass {
  const elements = infer?.elements;
  if (elements === undefined) return source;
  const classes = source.classes.map((nested) => withoutLists(nested, infer));
  const calls = new Map<string, readonly ElementCall[]>();
  for (const node of source.nodes) {
    const own = node.kind === 'call' ? known(elements, node) : undefined;
    if (own !== undefined) calls.set(node.name, own);
  }
  return calls.size === 0
    ? { ...source, classes }
    : { ...new Unbundling(source, calls).run(), classes };
}

/**
 * Undefined for a call that is none over lists, and for one without an element operator: that is
 * told like any unknown one.
 */
function known(
  elements: NonNullable<Infer['elements']>,
  node: FxNode,
): readonly ElementCall[] | undefined {
  try {
    return elements(node);
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_UNKNOWN_OP') return undefined;
    throw error;
  }
}

class Unbundling {
  private readonly names: NameSet;
  private readonly nodes: FxNode[] = [];
  /** Names that mean others: a second line that reads the same element. */
  private readonly same = new Map<string, string>();
  /** Lines that read one of the lists of a call with several: the call, and which list. */
  private readonly lists = new Map<string, { readonly call: string; readonly list: number }>();
  /** References of the element calls by the list call. */
  private readonly made = new Map<string, readonly DraftRef[]>();

  constructor(
    private readonly source: FxClass,
    private readonly calls: ReadonlyMap<string, readonly ElementCall[]>,
  ) {
    this.names = new NameSet([...source.inputs, ...source.nodes].map((node) => node.name));
  }

  run(): FxClass {
    for (const node of this.source.nodes) {
      const elements = this.calls.get(node.name);
      if (elements !== undefined) this.expand(node, elements);
      else if (!this.read(node)) this.nodes.push(node);
    }
    this.refuseWhole();
    const returns = this.source.returns.map((entry) =>
      entry.value === null ? entry : { ...entry, value: this.same.get(entry.value) ?? entry.value },
    );
    return { ...this.source, nodes: this.nodes, returns };
  }

  private expand(node: FxNode, elements: readonly ElementCall[]): void {
    const refs = elements.map((element, i): DraftRef => {
      const reader = isTuple(element) ? undefined : this.readers(node.name, i)[0];
      const draft = this.call(
        node,
        element.target,
        element.args,
        element.kwargs,
        reader?.name ?? `${node.name}_${i}`,
        reader,
      );
      for (const write of element.writes ?? []) {
        const value = isTuple(element)
          ? this.call(node, 'operator.getitem', [draft.ref, write.result]).ref
          : draft.ref;
        this.call(node, 'aten.copy_.default', [write.to, value]);
      }
      return draft.ref;
    });
    this.made.set(node.name, refs);
  }

  /** Adds a call; `reader` is the line whose name and type it takes. */
  private call(
    node: FxNode,
    target: string,
    args: readonly Arg[],
    kwargs: FxNode['kwargs'] = NO_KWARGS,
    wanted = node.name,
    reader?: FxNode,
  ): FxNode {
    const name = reader === undefined ? this.names.take(wanted) : wanted;
    this.names.add(name);
    const ref: DraftRef = reader?.ref ?? { kind: 'value', name };
    const draft: FxNode = { ...node, name, target, args, kwargs, type: reader?.type, ref };
    this.nodes.push(draft);
    return draft;
  }

  private readers(call: string, index: number): FxNode[] {
    return this.source.nodes.filter((n) => {
      const [tuple, at] = n.args;
      return n.target === 'operator.getitem' && isRef(tuple) && tuple.name === call && at === index;
    });
  }

  /**
   * Tells whether the line reads an element (or a list of elements) of a call that was taken apart:
   * then it is dropped or rewritten.
   */
  private read(node: FxNode): boolean {
    const [tuple, index] = node.args;
    if (node.target !== 'operator.getitem' || !isRef(tuple) || typeof index !== 'number')
      return false;
    const list = this.lists.get(tuple.name);
    if (list !== undefined) {
      const ref = this.made.get(list.call)?.[index];
      if (ref === undefined) return false;
      this.nodes.push({ ...node, args: [ref, list.list] });
      return true;
    }
    const elements = this.calls.get(tuple.name);
    if (elements === undefined || elements.length === 0) return false;
    if (isTuple(itemAt(elements, 0))) {
      this.lists.set(node.name, { call: tuple.name, list: index });
      return true;
    }
    const ref = this.made.get(tuple.name)?.[index];
    if (ref === undefined) return false;
    if (ref.name !== node.name) {
      this.same.set(node.name, ref.name);
      node.ref.name = ref.name;
    }
    return true;
  }

  /** A list may only be read element by element. */
  private refuseWhole(): void {
    const gone = (name: string): boolean => this.calls.has(name) || this.lists.has(name);
    const refuse = (name: string, user: string): never => {
      throw new ShardwrightError('E_UNSUPPORTED', `${user} reads the list '${name}' as a whole`, {
        node: user,
        hint: 'read its elements: getitem(list, 0) and so on',
      });
    };
    for (const node of this.nodes)
      eachOperand(node, (name) => gone(name) && !this.made.has(name) && refuse(name, node.name));
    for (const { value } of this.source.returns)
      if (value !== null && gone(value)) refuse(value, 'the graph');
  }
}

const isTuple = ({ record }: ElementCall): boolean => record.results === 'tuple';

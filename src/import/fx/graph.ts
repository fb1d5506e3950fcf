/** Builds a graph from parsed FX records and the meaning of its inputs and outputs. */

import { defined, nonEmpty } from '../../defined.ts';
import { messageOf, ShardwrightError } from '../../errors.ts';
import { CONTROL_TARGETS, controlCall } from '../../graph/control.ts';
import { mismatchHint } from '../../graph/lint.ts';
import type { Graph, Node, NodeMeta, Output, ValueType } from '../../graph/types.ts';
import {
  eachOperand,
  isRef,
  NO_KWARGS,
  NONE_TYPE,
  sameType,
  setOwn,
  tensorType,
  typeText,
} from '../../graph/value.ts';
import { withStrides } from '../../ops/strides.ts';
import { isEffect } from '../../passes/plannable/checks.ts';
import type { Infer } from '../complete/infer.ts';
import { inferSymbolic } from '../complete/symbolic.ts';
import { bodyInputs } from './bodies.ts';
import { collectiveType } from './collectives.ts';
import { withDefaultDtype } from './default-dtype.ts';
import { withoutEffects } from './effects.ts';
import { withFlexAttention } from './flex-attention.ts';
import { withGroupedProducts } from './grouped-products.ts';
import { withOwnBodies } from './own-bodies.ts';
import type { FxClass, FxInput, FxNode, Places } from './record.ts';
import { withoutLists } from './text/lists.ts';

export type { CallToInfer, Infer } from '../complete/infer.ts';
export type { Places } from './record.ts';

/** Meaning of inputs and outputs of the top-level graph, worked out by `roles.ts`. */
export interface Signature {
  /** One per input, in order. */
  readonly inputs: readonly NodeMeta[];
  /** One per returned entry, in order. */
  readonly outputs: readonly Omit<Output, 'value'>[];
  readonly notes: readonly string[];
  /** Names of one parameter, where the source says so. */
  readonly ties?: Graph['ties'];
}

interface UnknownCall {
  count: number;
  readonly offset: number;
}

/**
 * Turns parsed text into typed graphs, bodies first. Types come from the annotations, from `infer`,
 * from the bodies of control-flow calls, or from the typed getitem lines that read a tuple.
 */
export class GraphMaker {
  private readonly unknown = new Map<string, UnknownCall>();
  /** Values that have no type because of an unknown operator. */
  private readonly untyped = new Set<string>();
  private unread = 0;
  private unchecked = 0;

  constructor(
    private readonly places: Places,
    private readonly infer: Infer | undefined,
  ) {}

  /**
   * @throws E_TYPE where an annotation differs from the operator's rule, E_UNKNOWN_OP for all calls
   *   without type and rule
   */
  make(root: FxClass, name: string, signature: Signature): Graph {
    const { source, operators } = withOwnBodies(
      withFlexAttention(
        withGroupedProducts(withoutEffects(withoutLists(root, this.infer))),
        this.places,
      ),
      this.places,
    );
    const graph = this.graph(
      source,
      name,
      signature,
      root.inputs.map((input) => input.type),
    );
    this.refuseUnknown();
    const notes = [...signature.notes];
    if (operators.length > 0)
      notes.push(
        `Operators that have the rules of their bodies in the text: ${operators.join(', ')}.`,
      );
    if (this.unread > 0)
      notes.push(
        `Results of calls that are never read and have no type in the text: ${this.unread}; ` +
          'they count as absent.',
      );
    if (this.unchecked > 0)
      notes.push(
        'Calls with symbolic sizes, whose stated types were taken without a check: ' +
          `${this.unchecked}.`,
      );
    const { ties } = signature;
    return {
      ...graph,
      ...nonEmpty({ notes }),
      ...defined({ ties }),
    };
  }

  private graph(
    source: FxClass,
    name: string,
    signature: Signature | undefined,
    inputTypes: readonly (ValueType | undefined)[],
  ): Graph {
    const subgraphs: Record<string, Graph> = {};
    const waiting = this.typedBodies(source, subgraphs);
    const types = new Map<string, ValueType>();
    const typeOf = (value: string): ValueType => types.get(value) ?? NONE_TYPE;
    const nodes = source.inputs.map((input, i) => {
      const node = this.placeholder(input, inputTypes[i], signature?.inputs[i] ?? argMeta(i));
      types.set(input.name, node.type);
      return node;
    });
    const tuples = tupleReads(source.nodes);
    for (const written of source.nodes) {
      const draft = withDefaultDtype(written, this.infer);
      if (waiting.size > 0)
        bodyInputs(draft, typeOf).forEach((given, bodyName) => {
          const nested = waiting.get(bodyName);
          if (nested === undefined) return;
          waiting.delete(bodyName);
          if (this.readsUntyped(draft)) return;
          const inner = nested.inputs.map((input, i) => input.type ?? given[i]);
          setOwn(subgraphs, bodyName, this.graph(nested, bodyName, undefined, inner));
        });
      const type = this.typeOfNode(draft, subgraphs, typeOf, tuples);
      types.set(draft.name, type);
      const { name: own, kind, target, args, kwargs } = draft;
      nodes.push({ name: own, kind, target, args, kwargs, type, meta: metaOf(draft) });
    }
    for (const [bodyName, nested] of waiting)
      throw this.places.error(
        'E_TYPE',
        `no call runs graph '${bodyName}', whose inputs have no types`,
        nested.offset,
      );
    const outputs = source.returns.map((entry, i): Output => {
      const part = signature?.outputs[i] ?? { role: 'output', index: i };
      return { value: entry.value, ...part };
    });
    return { name, nodes, outputs, subgraphs };
  }

  /**
   * Makes the bodies whose inputs have types in the text; returns the others, which wait for the
   * call that runs them. Attribute reads that name a body become uses of it.
   */
  private typedBodies(source: FxClass, subgraphs: Record<string, Graph>): Map<string, FxClass> {
    const waiting = new Map<string, FxClass>();
    for (const nested of source.classes) {
      if (nested.inputs.every((input) => input.type !== undefined))
        setOwn(
          subgraphs,
          nested.name,
          this.graph(nested, nested.name, undefined, typesOf(nested.inputs)),
        );
      else waiting.set(nested.name, nested);
    }
    for (const node of source.nodes) {
      if (
        node.kind !== 'get_attr' ||
        !(Object.hasOwn(subgraphs, node.target) || waiting.has(node.target))
      )
        continue;
      node.ref.kind = 'graph';
      node.ref.name = node.target;
    }
    return waiting;
  }

  private placeholder(input: FxInput, type: ValueType | undefined, meta: NodeMeta): Node {
    if (type === undefined)
      throw this.places.error(
        'E_TYPE',
        `input '${input.name}' has no type`,
        input.offset,
        `write ${input.name}: "f32[...]", or give its type in the option inputs`,
        input.name,
      );
    return {
      name: input.name,
      kind: 'placeholder',
      target: input.name,
      args: [],
      kwargs: NO_KWARGS,
      type,
      meta: input.line === undefined ? meta : { ...meta, line: input.line },
    };
  }

  private typeOfNode(
    draft: FxNode,
    subgraphs: Readonly<Record<string, Graph>>,
    typeOf: (name: string) => ValueType,
    tuples: ReadonlyMap<string, ValueType[]>,
  ): ValueType {
    const { places } = this;
    if (draft.kind === 'get_attr') {
      if (draft.ref.kind === 'graph') return NONE_TYPE;
      if (draft.type === undefined)
        throw places.error(
          'E_REF',
          `'self.${draft.target}' is neither a nested class nor typed`,
          draft.offset,
          `add the class ${draft.target}, or a type: ${draft.name}: "f32[...]" = ` +
            `self.${draft.target}`,
          draft.name,
        );
      return draft.type;
    }
    if (this.readsUntyped(draft)) {
      if (draft.type !== undefined) return draft.type;
      this.untyped.add(draft.name);
      if (this.isUnknown(draft, typeOf)) this.countUnknown(draft);
      return NONE_TYPE;
    }
    const read = tuples.get(draft.name);
    const stated = draft.type ?? (read === undefined ? undefined : tupleOf(read));
    const ours = this.rule(draft, subgraphs, typeOf, stated);
    if (draft.type !== undefined) {
      if (ours !== undefined && !sameType(draft.type, ours))
        throw this.mismatch(draft, draft.type, ours);
      return draft.type;
    }
    if (ours !== undefined) return withStrides(draft, asRead(ours, read), typeOf);
    if (read !== undefined) {
      const items = Array.from(read, (item: ValueType | undefined) => {
        if (item === undefined) this.unread++;
        return item ?? NONE_TYPE;
      });
      return { kind: 'tuple', items };
    }
    if (isEffect(draft.target)) return NONE_TYPE;
    this.untyped.add(draft.name);
    this.countUnknown(draft);
    return NONE_TYPE;
  }

  private countUnknown({ target, offset }: FxNode): void {
    const known = this.unknown.get(target);
    if (known === undefined) this.unknown.set(target, { count: 1, offset });
    else known.count++;
  }

  /**
   * Tells whether the operator itself is unknown; one that is known may well refuse an operand
   * without a type.
   */
  private isUnknown(draft: FxNode, typeOf: (name: string) => ValueType): boolean {
    if (
      this.infer === undefined ||
      draft.target === 'operator.getitem' ||
      CONTROL_TARGETS.includes(draft.target)
    )
      return false;
    try {
      return this.infer(draft, typeOf) === undefined;
    } catch (error) {
      if (error instanceof ShardwrightError) return false;
      throw error;
    }
  }

  /**
   * Tells whether an operand has no type because an operator before it is unknown, which will be
   * told at the end.
   */
  private readsUntyped(draft: FxNode): boolean {
    if (this.untyped.size === 0) return false;
    let found = false;
    eachOperand(draft, (name) => {
      found ||= this.untyped.has(name);
    });
    return found;
  }

  /** Type by rule: reads of a tuple, control flow by its bodies, everything else by `infer`. */
  private rule(
    draft: FxNode,
    subgraphs: Readonly<Record<string, Graph>>,
    typeOf: (name: string) => ValueType,
    stated: ValueType | undefined,
  ): ValueType | undefined {
    const item = this.tupleItem(draft, typeOf);
    if (item !== undefined) return item;
    try {
      const control = controlCall(draft, subgraphs, typeOf);
      if (control !== undefined) return control.result;
      // Indexing of a tensor, as Dynamo prints it, has no rule: its stated type is kept.
      if (
        this.infer === undefined ||
        (draft.target === 'operator.getitem' && draft.type !== undefined)
      )
        return undefined;
      // Rules compute with numbers: a stated type in symbols is kept as it is.
      if (readsSymbols(draft, typeOf) || (draft.type !== undefined && isSymbolic(draft.type))) {
        if (draft.type === undefined) return inferSymbolic(this.infer, draft, typeOf);
        this.unchecked++;
        return undefined;
      }
      return this.infer({ ...draft, type: stated }, typeOf) ?? collectiveType(draft, typeOf);
    } catch (error) {
      throw this.placed(draft, error);
    }
  }

  /** The type of the result that a call reads of a tuple; undefined for any other call. */
  private tupleItem(draft: FxNode, typeOf: (name: string) => ValueType): ValueType | undefined {
    if (draft.target !== 'operator.getitem') return undefined;
    const [tuple, index] = draft.args;
    if (!isRef(tuple) || typeof index !== 'number') return undefined;
    const type = typeOf(tuple.name);
    if (type.kind !== 'tuple') return undefined;
    const item = type.items[index < 0 ? type.items.length + index : index];
    if (item === undefined)
      throw this.places.error(
        'E_TYPE',
        `${draft.name} reads result ${index} of ${tuple.name}, which has ${type.items.length}`,
        draft.offset,
        'use an index below the number of results',
        draft.name,
      );
    // A result that nothing types is what the reading line says.
    return item?.kind === 'none' && draft.type !== undefined ? draft.type : item;
  }

  /** An error of a rule at the place of its call. */
  private placed(draft: FxNode, error: unknown): unknown {
    if (
      error instanceof ShardwrightError &&
      (error.details.position ?? error.details.path) !== undefined
    )
      return error;
    const code = error instanceof ShardwrightError ? error.code : 'E_TYPE';
    const message = messageOf(error);
    const hint = error instanceof ShardwrightError ? error.details.hint : undefined;
    return this.places.error(
      code,
      `${draft.name}: ${message}`,
      draft.offset,
      hint ?? 'correct the arguments of the call',
      draft.name,
    );
  }

  private mismatch(draft: FxNode, stated: ValueType, ours: ValueType): ShardwrightError {
    return this.places.error(
      'E_TYPE',
      `${draft.name}: the file says ${typeText(stated)}, but ${draft.target} gives ` +
        `${typeText(ours)}`,
      draft.offset,
      mismatchHint(draft, stated, ours),
      draft.name,
    );
  }

  /** All unknown calls in one error, so that one run shows what is missing. */
  private refuseUnknown(): void {
    if (this.unknown.size === 0) return;
    const first = [...this.unknown.values()].reduce((a, b) => (b.offset < a.offset ? b : a));
    const { places } = this;
    const list = [...this.unknown].map(([target, { count, offset }]) => {
      const { line } = places.error('', '', offset).details.position ?? { line: 0 };
      return `${target} (${count} ${count === 1 ? 'call' : 'calls'}, first in line ${line})`;
    });
    throw places.error(
      'E_UNKNOWN_OP',
      `${list.length} unknown ${list.length === 1 ? 'operator' : 'operators'} whose results ` +
        `have no type: ${list.slice(0, 50).join(', ')}`,
      first.offset,
      'print the graph with types (print_readable does), or add the operator',
    );
  }
}

/** A tuple as the lines that read it say; what nothing reads is open. */
function tupleOf(read: readonly (ValueType | undefined)[]): ValueType {
  return { kind: 'tuple', items: Array.from(read, (item) => item ?? NONE_TYPE) };
}

function typesOf(inputs: readonly FxInput[]): (ValueType | undefined)[] {
  return inputs.map((input) => input.type);
}

function argMeta(roleIndex: number): NodeMeta {
  return { role: 'arg', roleIndex };
}

function metaOf({ source, line, path, save }: FxNode): NodeMeta {
  return {
    ...defined({ source, save, line, path }),
  };
}

/** Results that getitem lines type, by producer; holes where nothing reads a result. */
function tupleReads(nodes: readonly FxNode[]): Map<string, ValueType[]> {
  const reads = new Map<string, ValueType[]>();
  for (const node of nodes) {
    if (node.target !== 'operator.getitem' || node.type === undefined || node.args.length !== 2)
      continue;
    const [tuple, index] = node.args;
    if (!isRef(tuple) || typeof index !== 'number' || index < 0 || index > 65_535) continue;
    let items = reads.get(tuple.name);
    if (items === undefined) reads.set(tuple.name, (items = []));
    items[index] ??= node.type;
  }
  return reads;
}

/** The type of a call by rule, whose results lie as the lines that read them state. */
function asRead(type: ValueType, read: readonly (ValueType | undefined)[] = []): ValueType {
  if (type.kind !== 'tuple') return type;
  const items = type.items.map((item, i) => {
    const stated = read[i];
    return item.kind === 'tensor' && stated?.kind === 'tensor' && stated.stride !== undefined
      ? tensorType(item.dtype, item.shape, stated.stride, item.given)
      : item;
  });
  return { kind: 'tuple', items };
}

function isSymbolic(type: ValueType): boolean {
  if (type.kind === 'tensor') return type.shape.some((size) => typeof size !== 'number');
  return type.kind === 'sym' || (type.kind === 'tuple' && type.items.some(isSymbolic));
}

function readsSymbols(draft: FxNode, typeOf: (name: string) => ValueType): boolean {
  let found = false;
  eachOperand(draft, (name) => {
    found ||= isSymbolic(typeOf(name));
  });
  return found;
}

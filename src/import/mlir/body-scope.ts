/**
 * Names and values of one region or function while it is built: the meaning of ids, and the nodes
 * so far.
 */

import { type ShardwrightError, suggestion } from '../../errors.ts';
import { NameSet } from '../../graph/names.ts';
import type {
  GivenSharding,
  Graph,
  Node,
  NodeMeta,
  TensorType,
  ValueRef,
  ValueType,
} from '../../graph/types.ts';
import { NO_KWARGS, ref } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { Infer } from '../fx/graph.ts';
import type { StatedShardings } from './sharding/given.ts';
import type { MlirReader } from './syntax/reader.ts';
import type { MlirModule, MlirTensor, MlirType, Use } from './syntax/syntax.ts';
import type { AttributeValues } from './values.ts';

export interface Lowered {
  readonly graph: Graph;
  /** Nodes with all bodies, one for each use. */
  readonly size: number;
}

/** State that all bodies of a module share. */
export interface LoweringContext {
  readonly values: AttributeValues;
  readonly shardings: StatedShardings | undefined;
  readonly module: MlirModule;
  readonly reader: MlirReader;
  readonly options: { readonly infer?: Infer };
  /** A function's graph; made once, shared by its calls. */
  function(name: string, at: number): Lowered;
  line(at: number): number;
  /** Tensors of a type, tuples flattened. */
  tensors(type: MlirType, at: number): MlirTensor[];
  /** The type of a tensor; equal types are the same object. */
  typeOf(type: MlirTensor): TensorType;
}

/** A value in scope: its tensors (several for a tuple), by result. */
export interface Entry {
  readonly types: readonly MlirType[];
  /** Node that makes the results; a tuple node is read through getitem. */
  readonly node: string;
  readonly tuple: boolean;
  /** For each result the position of its first tensor among the node's results. */
  readonly offsets: readonly number[];
  /** Names of tensors that are known already. */
  readonly names: (string | undefined)[];
}
export class BodyScope {
  protected readonly inputs: Node[] = [];
  protected readonly nodes: Node[] = [];
  protected readonly scope = new Map<string, Entry>();
  private readonly names = new NameSet();
  /** The value that each conversion converts. */
  protected readonly converted = new Map<string, ValueRef>();
  protected readonly nodeTypes = new Map<string, ValueType>();
  protected readonly subgraphs: Record<string, Graph> = {};
  protected readonly given: GivenSharding[] = [];
  protected size = 0;

  constructor(
    readonly context: LoweringContext,
    protected readonly name: string,
    /** Captured values, which become inputs behind the arguments. */
    readonly outer: BodyScope | undefined,
  ) {}

  protected error(code: string, message: string, at: number, hint?: string): ShardwrightError {
    return this.context.reader.error(code, message, at, hint);
  }

  protected input(name: string, type: MlirTensor, at: number): string {
    const unique = this.unique(name);
    const typed = this.context.typeOf(type);
    const meta: NodeMeta = {
      role: 'arg',
      roleIndex: this.inputs.length,
      line: this.context.line(at),
    };
    this.inputs.push({
      name: unique,
      kind: 'placeholder',
      target: unique,
      args: [],
      kwargs: NO_KWARGS,
      type: typed,
      meta,
    });
    this.nodeTypes.set(unique, typed);
    return unique;
  }

  protected unique(base: string): string {
    return this.names.take(base);
  }

  protected define(id: string, entry: Entry, at: number): void {
    if (this.scope.has(id))
      throw this.error('E_DUP', `'%${id}' is defined twice`, at, 'rename one of them');
    this.scope.set(id, entry);
  }

  /** The definition of a use. @throws E_REF where it is not in scope */
  entry(use: Use): Entry {
    const found = this.scope.get(use.id);
    if (found === undefined)
      throw this.error(
        'E_REF',
        `'%${use.id}' is not defined`,
        use.at,
        suggestion(use.id, [...this.scope.keys()].slice(0, 2000), 'values'),
      );
    if (use.result >= found.types.length)
      throw this.error(
        'E_REF',
        `'%${use.id}' has ${found.types.length} results, not one with number ${use.result}`,
        use.at,
      );
    return found;
  }

  /** Names of the tensors of a use; reads of tuple nodes are added where they are first needed. */
  protected tensorsOf(use: Use): string[] {
    const entry = this.entry(use);
    const from = itemAt(entry.offsets, use.result);
    const type = itemAt(entry.types, use.result);
    if (type.kind === 'tensor') return [this.tensorAt(entry, from, use.at)];
    const count = this.context.tensors(type, use.at).length;
    return Array.from({ length: count }, (_, i) => this.tensorAt(entry, from + i, use.at));
  }

  protected tensorAt(entry: Entry, position: number, at: number): string {
    const known = entry.names[position];
    if (known !== undefined) return known;
    const tuple = this.nodeTypes.get(entry.node);
    const type = tuple?.kind === 'tuple' ? tuple.items[position] : undefined;
    if (type === undefined)
      throw this.error('E_REF', `a result that ${entry.node} does not have`, at);
    const name = this.unique(`${entry.node}_${position}`);
    this.add({
      name,
      kind: 'call',
      target: 'operator.getitem',
      args: [ref(entry.node), position],
      kwargs: NO_KWARGS,
      type,
      meta: { line: this.context.line(at) },
    });
    entry.names[position] = name;
    return name;
  }

  protected add(node: Node): void {
    this.nodes.push(node);
    this.nodeTypes.set(node.name, node.type);
    if (node.target === 'stablehlo.convert')
      this.converted.set(node.name, node.args[0] as ValueRef);
  }
}

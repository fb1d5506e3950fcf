/**
 * Writes the nodes of per-device programs from calls with local arguments, each typed on every
 * rank.
 */
import { internalError } from '../../errors.ts';
import { FreeNames, NameSet } from '../../graph/names.ts';
import type { Arg, DType, Node, NodeMeta, TensorType, ValueType } from '../../graph/types.ts';
import { eachOperand, NO_KWARGS, ref, tensorType } from '../../graph/value.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { TensorMeta } from '../../ops/record/call.ts';
import { bind } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { collectiveTarget, groupText } from './collectives.ts';
import { argAtRank, atRank, type RankInt, rankInt, type RankSymbols } from './rank-int.ts';

/** Type of a local tensor: its shape may differ from rank to rank. */
export interface LocalType {
  readonly dtype: DType;
  readonly shape: readonly RankInt[];
}

/** The nodes of the program or of one of its bodies. */
export interface Section {
  readonly nodes: Node[];
  /** Calls that are written once in it, by key. */
  readonly shared: Map<string, string>;
}

export function emptySection(): Section {
  return { nodes: [], shared: new Map() };
}

interface EmitOptions {
  readonly kwargs?: Readonly<Record<string, Arg>>;
  /** Wanted name; made unique. */
  readonly name?: string;
  /** Form of the results, where kernels differ in it: see `formOf`. */
  readonly form?: number;
}

/**
 * Writes the nodes of a per-device program. Every call is typed on every rank by the operator's own
 * inference, so that a size which does not fit on some rank is found when the program is made.
 */
export class Emitter {
  /** The section that receives nodes from here on. */
  section: Section = emptySection();
  /** Meta data of the nodes that are written from here on. */
  meta: NodeMeta = {};
  private readonly types = new Map<string, readonly (LocalType | null)[]>();
  private readonly taken = new Set<string>();
  private readonly ownNames = new FreeNames(this.taken);
  private readonly otherNames = new FreeNames({
    has: (name) => this.taken.has(name) || this.reserved.has(name),
  });
  private readonly backward = new Set<string>();
  private readonly bodies = new NameSet();

  /** @param reserved names that only `name: ` of the same text may take */
  constructor(
    readonly table: OperatorTable,
    readonly mesh: DeviceMesh,
    readonly symbols: RankSymbols,
    private readonly reserved: ReadonlySet<string>,
  ) {}

  placeholder(node: Node, type: LocalType | null): string {
    this.taken.add(node.name);
    this.types.set(node.name, [type]);
    this.section.nodes.push({ ...node, type: type === null ? node.type : this.typeOf(type) });
    return node.name;
  }

  /** An input of a body; it belongs to no section yet. */
  bodyInput(base: string, type: LocalType): Node {
    const name = this.unique(base);
    this.types.set(name, [type]);
    return {
      name,
      kind: 'placeholder',
      target: name,
      args: [],
      kwargs: NO_KWARGS,
      type: this.typeOf(type),
      meta: { role: 'arg' },
    };
  }

  /** A name for a body that no other body of the program has, at whatever depth. */
  bodyName(base: string): string {
    return this.bodies.take(base);
  }

  /** A control-flow call: its own name, and the names of its members. */
  control(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    base: string,
    types: readonly LocalType[],
  ): { readonly name: string; readonly members: readonly string[] } {
    const name = this.unique(base);
    this.push(name, target, args, kwargs, types, {
      kind: 'tuple',
      items: types.map((type) => this.typeOf(type)),
    });
    const members = types.map((type, k) => {
      const member = this.unique(`${name}_${k}`);
      this.push(member, 'operator.getitem', [ref(name), k], NO_KWARGS, [type], this.typeOf(type));
      return member;
    });
    return { name, members };
  }

  /** Tells whether a value was written as one of the backward phase. */
  isBackward(name: string): boolean {
    return this.backward.has(name);
  }

  /** Type of a value with one result. */
  type(name: string): LocalType {
    const types = this.types.get(name);
    const [type] = types ?? [];
    if (types === undefined || types.length !== 1 || type === undefined || type === null)
      throw internalError(`local value ${name} has no single type`);
    return type;
  }

  /** A call with one result. */
  call(target: string, args: readonly Arg[], options: EmitOptions = {}): string {
    const { name, types } = this.emit(target, args, options);
    if (types.length !== 1) throw internalError(`${target} has ${types.length} results`);
    return name;
  }

  /** A call with several results: names of the members that exist. */
  callTuple(
    target: string,
    args: readonly Arg[],
    options: EmitOptions & { readonly members?: (k: number) => string | undefined } = {},
  ): (string | null)[] {
    const { name, types } = this.emit(target, args, options);
    return this.members(name, types, options.members ?? (() => undefined));
  }

  /** Reads the results of a call with several, each under the name wanted for it. */
  private members(
    name: string,
    types: readonly (LocalType | null)[],
    wanted: (k: number) => string | undefined,
  ): (string | null)[] {
    return types.map((type, k) => {
      if (type === null) return null;
      const member = this.unique(wanted(k) ?? `${name}_${k}`, wanted(k) !== undefined);
      this.push(member, 'operator.getitem', [ref(name), k], NO_KWARGS, [type], this.typeOf(type));
      return member;
    });
  }

  /**
   * A call of an operator that nobody knows, on whole operands: its results have the types that the
   * source states.
   */
  stated(
    node: Node,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    types: readonly (LocalType | null)[],
    memberName: (k: number) => string | undefined,
  ): (string | null)[] {
    const name = this.unique(node.name, true);
    this.push(name, node.target, args, kwargs, types, node.type);
    return node.type.kind === 'tuple' ? this.members(name, types, memberName) : [name];
  }

  /**
   * A call without operands that is the same anywhere in a section, written once; it belongs to no
   * phase.
   */
  once(key: string, target: string, args: readonly Arg[], options: EmitOptions = {}): string {
    const { shared } = this.section;
    let name = shared.get(key);
    if (name === undefined) {
      const { meta } = this;
      this.meta = {};
      shared.set(key, (name = this.call(target, args, options)));
      this.meta = meta;
    }
    return name;
  }

  /**
   * A collective over the flattened group of some mesh dims; of shapes it wants what PyTorch's
   * wants.
   *
   * @param extra arguments between the tensor and the group
   */
  collective(
    kind: CollectiveKind,
    input: string,
    meshDims: readonly number[],
    extra: readonly Arg[],
  ): string {
    const { dtype, shape } = this.type(input);
    const n = this.mesh.sizeOf(meshDims);
    const [rows, ...rest] = shape;
    const scaled = (f: (rows: number) => number): RankInt =>
      rankInt(
        this.mesh.devices.map((_, rank) => f(atRank(rows, rank))),
        'rows of a collective',
      );
    let out = shape;
    if (kind === 'all_gather') out = [scaled((r) => r * n), ...rest];
    if (kind === 'reduce_scatter') out = [scaled((r) => r / n), ...rest];
    const name = this.unique(`${input}_${kind}`);
    const type: LocalType = { dtype, shape: out };
    const args = [ref(input), ...extra, groupText(this.mesh, meshDims)];
    this.push(name, collectiveTarget(kind), args, NO_KWARGS, [type], this.typeOf(type));
    return name;
  }

  /** A size or position as an argument. */
  int(value: RankInt): Arg {
    return this.symbols.arg(value);
  }

  ints(values: readonly RankInt[]): Arg {
    return values.map((v) => this.symbols.arg(v));
  }

  typeOf({ dtype, shape }: LocalType): TensorType {
    return tensorType(
      dtype,
      shape.map((size) => this.symbols.dim(size)),
    );
  }

  /** `base`, or `base_1`, `base_2` where taken. */
  private unique(base: string, own = false): string {
    const name = own ? this.ownNames.near(base) : this.otherNames.near(base);
    this.taken.add(name);
    return name;
  }

  private emit(
    target: string,
    args: readonly Arg[],
    { kwargs = NO_KWARGS, name, form = 0 }: EmitOptions,
  ): { name: string; types: readonly (LocalType | null)[] } {
    const types = this.infer(target, args, kwargs, form);
    const tuple = this.table.get(target)?.results === 'tuple';
    const unique = name !== undefined ? this.unique(name, true) : this.unique(shortName(target));
    const items = types.map((type): ValueType =>
      type === null ? { kind: 'none' } : this.typeOf(type),
    );
    this.push(unique, target, args, kwargs, types, tuple ? { kind: 'tuple', items } : items[0]);
    return { name: unique, types };
  }

  private push(
    name: string,
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    types: readonly (LocalType | null)[],
    type: ValueType,
  ): void {
    this.types.set(name, types);
    if (this.meta.phase === 'backward') this.backward.add(name);
    this.section.nodes.push({ name, kind: 'call', target, args, kwargs, type, meta: this.meta });
  }

  /** Result types on every rank; once where nothing in the call differs between ranks. */
  private infer(
    target: string,
    args: readonly Arg[],
    kwargs: Readonly<Record<string, Arg>>,
    form: number,
  ): readonly (LocalType | null)[] {
    let varies = args.some((arg) => this.symbols.varies(arg));
    varies ||= Object.values(kwargs).some((arg) => this.symbols.varies(arg));
    eachOperand({ args, kwargs }, (name) => {
      varies ||= this.type(name).shape.some((size) => typeof size !== 'number');
    });
    const ranks = varies ? this.mesh.size : 1;
    const { values } = this.symbols;
    const byRank: (readonly (TensorMeta | null)[])[] = [];
    for (let rank = 0; rank < ranks; rank++) {
      const call = {
        name: target,
        target,
        form,
        args: args.map((arg) => argAtRank(arg, values, rank)),
        kwargs: Object.fromEntries(
          Object.entries(kwargs).map(([key, arg]) => [key, argAtRank(arg, values, rank)]),
        ),
      };
      const ctx = bind(this.table, call, (name) => {
        const { dtype, shape } = this.type(name);
        return { kind: 'tensor', dtype, shape: shape.map((size) => atRank(size, rank)) };
      });
      if (ctx === undefined)
        throw internalError(`${target} has no record to type a local call with`);
      byRank.push(ctx.outputs);
    }
    return byRank[0].map((meta, k): LocalType | null => {
      if (meta === null) return null;
      const shape = meta.shape.map((_, d) =>
        rankInt(
          byRank.map((outputs) => outputs[k]?.shape[d] ?? -1),
          `size of ${shortName(target)}`,
        ),
      );
      return { dtype: meta.dtype, shape };
    });
  }
}

/** `mm` of `aten.mm.default`. */
function shortName(target: string): string {
  const parts = target.split('.');
  return parts.length >= 3 ? parts[parts.length - 2] : parts[parts.length - 1];
}

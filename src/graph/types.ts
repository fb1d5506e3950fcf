/**
 * The graph record: straight-line, typed, plain data. Nodes are in execution order; control flow is
 * a call whose bodies are `subgraphs`. Nothing here is mutated after building: a pass makes a new
 * graph. This folder knows no operators.
 */

export const DTYPES = [
  'f64',
  'f32',
  'bf16',
  'f16',
  'f8e4m3fn',
  'f8e5m2',
  'f8e8m0fnu',
  'i64',
  'i32',
  'i16',
  'i8',
  'u64',
  'u32',
  'u16',
  'u8',
  'b8',
  'c64',
  'c128',
] as const;
/** An element type, by its short name: `bf16`, `f32`, `i64`. */
export type DType = (typeof DTYPES)[number];

/** Bytes of one element. */
export const DTYPE_BYTES: Readonly<Record<DType, number>> = {
  f64: 8,
  f32: 4,
  bf16: 2,
  f16: 2,
  f8e4m3fn: 1,
  f8e5m2: 1,
  f8e8m0fnu: 1,
  i64: 8,
  i32: 4,
  i16: 2,
  i8: 1,
  u64: 8,
  u32: 4,
  u16: 2,
  u8: 1,
  b8: 1,
  c64: 8,
  c128: 16,
};

/**
 * A symbolic size: the expression as the source wrote it, and the size that the example inputs had
 * (if known).
 */
export interface Sym {
  readonly sym: string;
  readonly example?: number;
}
export type Dim = number | Sym;

/**
 * The type of a tensor: element type, shape in elements, outermost dim first, and stride where it
 * is known.
 */
export interface TensorType {
  readonly kind: 'tensor';
  readonly dtype: DType;
  readonly shape: readonly Dim[];
  /** Elements per step of each dim. Absent means contiguous or not known to the source. */
  readonly stride?: readonly Dim[];
  /**
   * A sharding that the source text states for this value, such as `S(0)R` of a DTensor annotation.
   */
  readonly given?: string;
}
interface TupleType {
  readonly kind: 'tuple';
  /** `none` marks an absent result (a masked-off gradient). */
  readonly items: readonly ValueType[];
}
/** A symbolic scalar; `expr` is its size expression where the source states one (`s77`). */
interface SymType {
  readonly kind: 'sym';
  readonly expr?: string;
}
interface NoneType {
  readonly kind: 'none';
}
/** The type of any value of a graph. */
export type ValueType = TensorType | TupleType | SymType | NoneType;

/** Use of a node's value by name. */
export interface ValueRef {
  readonly kind: 'value';
  readonly name: string;
}
/** Use of a subgraph by name. */
export interface GraphRef {
  readonly kind: 'graph';
  readonly name: string;
}
/**
 * A floating-point literal. Integers are plain numbers (or bigint beyond 2^53), so that `1` and
 * `1.0` stay apart.
 */
export interface FloatLiteral {
  readonly kind: 'float';
  readonly value: number;
}
interface DTypeLiteral {
  readonly kind: 'dtype';
  readonly dtype: DType;
}
/** A word without meaning for planning: a device, a layout or a memory format. */
interface WordLiteral {
  readonly kind: 'device' | 'layout';
  readonly word: string;
}
/** A symbolic size expression used as an argument. */
interface SizeLiteral {
  readonly kind: 'size';
  readonly size: Sym;
}
export type Literal =
  | FloatLiteral
  | DTypeLiteral
  | WordLiteral
  | SizeLiteral
  | number
  | bigint
  | string
  | boolean
  | null;
/** A Python slice inside an index (`x[1:, ::2]`); null where the source has none. */
interface SliceArg {
  readonly kind: 'slice';
  readonly start: Arg;
  readonly stop: Arg;
  readonly step: Arg;
}
/** An argument of a call: a value, a graph, a literal, a slice, or a list of those. */
export type Arg = ValueRef | GraphRef | Literal | SliceArg | readonly Arg[];

export type Role =
  'parameter' | 'buffer' | 'constant' | 'input' | 'tangent' | 'state' | 'key' | 'arg';
export type Phase = 'forward' | 'backward' | 'optimizer';

/** The fate of a forward value: it is kept for the backward pass or computed there again. */
export type Retention = 'save' | 'recompute';

export interface NodeMeta {
  /** Placeholders only: what the value is to the program. */
  readonly role?: Role;
  /**
   * Name behind the role: fully qualified name of a parameter or buffer, name of an input, fqn of a
   * state.
   */
  readonly roleName?: string;
  /** `state` only: which state (`exp_avg`). */
  readonly stateName?: string;
  /** `tangent`: index of the output it belongs to; `arg`: position. */
  readonly roleIndex?: number;
  /** True where the role was worked out by us and not stated by the source. */
  readonly inferred?: boolean;
  readonly phase?: Phase;
  /** A forward value that only the backward pass needs. */
  readonly savedOnly?: boolean;
  /** The user's wish for a forward value: saved for the backward pass, or recomputed there. */
  readonly save?: Retention;
  /** Module path, `layers.0.mlp`. */
  readonly path?: string;
  /** `file:line` or `file:line:column` of the user's program. */
  readonly source?: string;
  /** Backward calls: the forward node whose derivative this is part of. */
  readonly of?: string;
  /** Recomputed calls: the forward call that this computes again. */
  readonly repeats?: string;
  /** Target as the file wrote it, where it differs from `target`. */
  readonly original?: string;
  /**
   * 1-based line of the imported text that defined the node; for messages only, never printed in
   * graph text.
   */
  readonly line?: number;
}

/** One node of a graph: an input, an attribute or a call. */
export interface Node {
  readonly name: string;
  readonly kind: 'placeholder' | 'get_attr' | 'call';
  /**
   * Operator of a call (`aten.mm.default`, `operator.getitem`, `cond`), attribute of a get_attr,
   * own name of a placeholder.
   */
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  readonly type: ValueType;
  readonly meta: NodeMeta;
}

/** One value that a graph returns, with its role. */
export interface Output {
  /**
   * Name of the returned value; null where the program returns none (a gradient that is not
   * wanted).
   */
  readonly value: string | null;
  readonly role: 'output' | 'grad' | 'mutation' | 'newstate';
  /** `output`: position among the user outputs. */
  readonly index?: number;
  /** `grad`, `mutation`, `newstate`: role name of the placeholder it belongs to. */
  readonly of?: string;
  readonly stateName?: string;
}

/**
 * A sharding that the source states for a value or an output. `pin`: the value has exactly this
 * sharding. `hint`: the source leaves some of it open (open dims, a priority), so a plan may
 * differ.
 */
export interface GivenSharding {
  /** Name of the value; absent for an output. */
  readonly value?: string;
  /** Position in `Graph.outputs`; absent for a value. */
  readonly output?: number;
  /** One placement per dim of `Graph.mesh`, `S(0)R`. */
  readonly sharding: string;
  readonly strength: 'pin' | 'hint';
  /** Shardy priority, 0 first; hints only. */
  readonly priority?: number;
}

/**
 * A tensor program: nodes in execution order, with types, roles and bodies of control flow. Plain,
 * frozen data.
 */
export interface Graph {
  readonly name: string;
  /**
   * Placeholders first, then calls in execution order. The return statement is `outputs`, not a
   * node.
   */
  readonly nodes: readonly Node[];
  readonly outputs: readonly Output[];
  readonly subgraphs: Readonly<Record<string, Graph>>;
  /** Remarks of the front end: what was inferred, dropped or assumed. One sentence each. */
  readonly notes?: readonly string[];
  /**
   * Groups of parameters (by role name) that are one tensor under several names. The first name of
   * a group owns the storage: it is counted once, and all members must be placed the same way.
   */
  readonly ties?: readonly (readonly string[])[];
  /**
   * The mesh that the shardings of the source name, `p=2,q=4`; bodies have that of the graph around
   * them.
   */
  readonly mesh?: string;
  /** Shardings that the source states, values before outputs. */
  readonly given?: readonly GivenSharding[];
  /** Ranges of symbolic sizes. */
  readonly dims?: Readonly<
    Record<string, { readonly min: number; readonly max: number; readonly multiple?: number }>
  >;
}

/** Number of nodes as FX counts them: placeholders, get_attrs, calls and the one output node. */
export function countNodes(graph: Graph): number {
  return graph.nodes.length + 1;
}

/**
 * MLIR text as plain records: what the parser hands on. Pretty and generic forms give the same
 * records, under the names and attributes of the generic form.
 */

import type { DType } from '../../../graph/types.ts';

export interface MlirTensor {
  readonly kind: 'tensor';
  readonly dtype: DType;
  readonly shape: readonly number[];
}
interface MlirTuple {
  readonly kind: 'tuple';
  readonly items: readonly MlirType[];
}
interface MlirFunction {
  readonly kind: 'function';
  readonly inputs: readonly MlirType[];
  readonly results: readonly MlirType[];
}
/** A type without meaning for a plan (tokens, quantised types); refused where a value has it. */
interface MlirOther {
  readonly kind: 'other';
  readonly text: string;
  /** A plain element type (`f32`, `i64`) is written as an attribute or in `array<..>`. */
  readonly dtype?: DType;
}
export type MlirType = MlirTensor | MlirTuple | MlirFunction | MlirOther;

/** A range of the text. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export type MlirAttribute =
  | { readonly kind: 'int'; readonly value: number | bigint }
  /** `bits`: written as a hexadecimal bit pattern. */
  | { readonly kind: 'float'; readonly value: number; readonly bits?: string }
  | { readonly kind: 'bool'; readonly value: boolean }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'symbol'; readonly name: string }
  | { readonly kind: 'list'; readonly items: readonly MlirAttribute[] }
  | { readonly kind: 'dict'; readonly entries: ReadonlyMap<string, MlirAttribute> }
  | { readonly kind: 'dense'; readonly payload: Span; readonly type: MlirTensor }
  /** Elements that the text leaves out (`dense_resource<__elided__>`). */
  | { readonly kind: 'resource'; readonly name: string; readonly type: MlirTensor }
  /** `#dialect.name<body>` and `#dialect<name body>`; the body is read by those who know it. */
  | { readonly kind: 'dialect'; readonly name: string; readonly body: Span | undefined }
  | { readonly kind: 'alias'; readonly name: string; readonly at: number }
  | { readonly kind: 'type'; readonly type: MlirType }
  | { readonly kind: 'unit' };

export type Attributes = ReadonlyMap<string, MlirAttribute>;
export const NO_ATTRIBUTES: Attributes = new Map();

/** The origin that a location states; `name` of a named location, `place` of a file location. */
export interface MlirLocation {
  readonly name?: string;
  readonly place?: string;
  /** The location is, or continues as, this alias. */
  readonly alias?: string;
}

/** `%id` or `%id#result`. */
export interface Use {
  readonly id: string;
  readonly result: number;
  readonly at: number;
}

export interface BlockArgument {
  readonly id: string;
  readonly type: MlirType;
  readonly at: number;
  readonly attributes: Attributes;
  readonly location?: MlirLocation;
}

export interface Region {
  readonly args: readonly BlockArgument[];
  readonly operations: readonly Operation[];
  readonly at: number;
}

export interface Operation {
  /** With dialect, `stablehlo.add`. */
  readonly name: string;
  readonly at: number;
  /** `%id:count` groups left of the `=`; a plain `%id` has count 1. */
  readonly results: readonly { readonly id: string; readonly count: number; readonly at: number }[];
  readonly operands: readonly Use[];
  readonly attributes: Attributes;
  readonly regions: readonly Region[];
  readonly operandTypes: readonly MlirType[];
  readonly resultTypes: readonly MlirType[];
  readonly location?: MlirLocation;
}

export interface MlirFunc {
  readonly name: string;
  readonly at: number;
  readonly visibility: string;
  readonly args: readonly BlockArgument[];
  readonly results: readonly { readonly type: MlirType; readonly attributes: Attributes }[];
  /** Absent for a declaration. */
  readonly body: Region | undefined;
}

/**
 * `sdy.mesh`: axes, outermost first, and the device of every place where the ids do not count up.
 */
export interface MlirMesh {
  readonly axes: readonly { readonly name: string; readonly size: number }[];
  readonly devices?: readonly number[];
}

export interface MlirModule {
  readonly name: string | undefined;
  readonly attributes: Attributes;
  readonly meshes: ReadonlyMap<string, MlirMesh>;
  readonly functions: ReadonlyMap<string, MlirFunc>;
  readonly attributeAliases: ReadonlyMap<string, MlirAttribute>;
  readonly locationAliases: ReadonlyMap<string, MlirLocation>;
}

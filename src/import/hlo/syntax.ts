/** HLO text as plain records: the program of one device, as XLA compiled it. */

interface HloTensor {
  readonly kind: 'tensor';
  /** HLO's own name: `f32`, `s64`, `pred`. */
  readonly element: string;
  readonly shape: readonly number[];
}
interface HloTuple {
  readonly kind: 'tuple';
  readonly items: readonly HloType[];
}
export type HloType = HloTensor | HloTuple;

/** A range of the text. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface HloInstruction {
  readonly name: string;
  readonly at: number;
  readonly isRoot: boolean;
  readonly type: HloType;
  /** `all-reduce`, `fusion`. */
  readonly opcode: string;
  /** Names of instructions of the same computation; empty for constants and parameters. */
  readonly operands: readonly string[];
  /** Values as they are in the text, by key. */
  readonly attributes: ReadonlyMap<string, Span>;
}

export interface HloComputation {
  readonly name: string;
  readonly isEntry: boolean;
  readonly instructions: readonly HloInstruction[];
}

export interface HloModule {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, Span>;
  readonly computations: readonly HloComputation[];
}

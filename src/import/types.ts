/**
 * Defines the interface of all importers: options, the imported graph with its counts, and the
 * reader of a format.
 */

import type { Graph } from '../graph/types.ts';
import type { Infer } from './complete/infer.ts';
import type { RoleCorrections } from './complete/roles.ts';
import type { UnpackLimits } from './file/unpack.ts';
import type { Format } from './formats.ts';

export interface ImportOptions extends RoleCorrections, UnpackLimits {
  /** Format, where content detection is not wanted. */
  readonly format?: Format;
  /** Name of the graph; the name of its class by default. */
  readonly name?: string;
  /** File name for messages. */
  readonly file?: string;
  /** Operator rules: types of calls without annotation, and the check of all others. */
  readonly infer?: Infer;
  /**
   * Types of inputs that the text does not state (`str(graph)`), as annotations: `{ x: 'f32[8, 16]'
   * }`.
   */
  readonly inputs?: Readonly<Record<string, string>>;
  /**
   * Which graph of a log that holds several: its title, `Joint graph 0`, or `0/1 Joint graph 1`.
   */
  readonly select?: string;
  /**
   * The leading outputs replace the leading inputs: new parameters and states of a functional train
   * step.
   */
  readonly trainStep?: boolean;
  /** Drop the shardings that the text states (StableHLO, jaxpr). */
  readonly ignoreShardings?: boolean;
}

/**
 * Counts of a format whose programs have functions: every operation once, by its name in the file.
 */
export interface ProgramCounts {
  readonly nodes: number;
  readonly ops: Readonly<Record<string, number>>;
  /** ONNX: all initializers, those of shapes and scalars included. */
  readonly parameters?: {
    readonly count: number;
    readonly elements: number;
    readonly bytes: number;
  };
}

export interface Imported {
  readonly graph: Graph;
  readonly format: Format;
  /** StableHLO, jaxpr and ONNX only. */
  readonly counts?: ProgramCounts;
}

/** A reader of a format with a folder of its own, which reads bytes or text. */
export type ForeignReader =
  | {
      readonly kind: 'binary';
      readonly read: (bytes: Uint8Array, options: ImportOptions) => Omit<Imported, 'format'>;
    }
  | {
      readonly kind: 'text';
      readonly read: (text: string, options: ImportOptions) => Omit<Imported, 'format'>;
    };

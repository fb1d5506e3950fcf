/**
 * The records of the parser: the text with its names resolved, before types and roles are known.
 */

import type { ShardwrightError } from '../../errors.ts';
import type { Arg, Retention, ValueType } from '../../graph/types.ts';

/** Use of a value; becomes a use of a subgraph when its attribute turns out to be one. */
export interface DraftRef {
  kind: 'value' | 'graph';
  name: string;
}

export interface FxInput {
  readonly name: string;
  readonly type: ValueType | undefined;
  /** Place for errors: an offset in the text, or the number of a place. */
  readonly offset: number;
  /** Absent for formats without lines. */
  readonly line?: number;
  /** AOT descriptor of the comment behind it, `ParamAOTInput(target='fc1.weight')`. */
  readonly descriptor?: string;
}

export interface FxNode {
  readonly name: string;
  readonly kind: 'get_attr' | 'call';
  readonly target: string;
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;
  /** The type that the text states. */
  readonly type: ValueType | undefined;
  readonly offset: number;
  readonly line?: number;
  /** `file:line` of the user's program. */
  readonly source: string | undefined;
  /** Stated in the comment before it: `# recompute: MUST_SAVE`. */
  readonly save?: Retention | undefined;
  /** Module path, where the format states it. */
  readonly path?: string | undefined;
  /** The reference object that all uses of the node share. */
  readonly ref: DraftRef;
}

export interface FxReturn {
  readonly value: string | null;
  readonly offset: number;
  readonly descriptor?: string;
}

export interface FxClass {
  readonly name: string;
  readonly offset: number;
  readonly inputs: readonly FxInput[];
  readonly nodes: readonly FxNode[];
  readonly returns: readonly FxReturn[];
  readonly classes: readonly FxClass[];
  /** `forward(self, primals, tangents)`: AOTAutograd's joint graph. */
  readonly joint: boolean;
}

/**
 * Makes errors at the places that parsed records carry; a text's places does, and so do formats
 * without lines.
 */
export interface Places {
  error(code: string, message: string, at: number, hint?: string, node?: string): ShardwrightError;
}

/** Tells what a placement of a value cuts: the batch or the sequence of the inputs, or features. */

import { REPLICATE_CODE, shardDimOfCode } from '../../mesh/sharding/space.ts';
import { Indices, RuleLists } from './indices.ts';
import type { Program } from './program.ts';
import { inputRoles } from './roles.ts';
import { walk } from './sequence.ts';

/** The part of a value that a mesh dim cuts, for values that depend on the inputs. */
export const DATA_CUTS = ['batch', 'sequence', 'features', 'pending', 'whole'] as const;
export type DataCut = (typeof DATA_CUTS)[number];

/** The meaning of the dims of values: the batch or the sequence of an input, or features. */
export class DimMeanings {
  private readonly indices: Indices;
  private readonly batch = new Set<number>();
  /** By value its dims that are the sequence, or have it inside where views have merged it. */
  private readonly sequence = new Map<number, Set<number>>();

  constructor(private readonly model: Program) {
    const rules = new RuleLists(model);
    this.indices = new Indices(model, rules);
    for (const [node, { batch, sequence }] of inputRoles(model)) {
      const [value] = model.flow.results[node];
      if (batch !== undefined) this.batch.add(this.indices.of(value, batch));
      if (sequence === undefined) continue;
      for (const [reached, dims] of walk(model, rules, node, sequence).reached)
        for (const dim of dims.keys()) {
          const known = this.sequence.get(reached) ?? new Set<number>();
          this.sequence.set(reached, known.add(dim));
        }
    }
  }

  /**
   * The part of a value that a placement cuts. A merged dim is the batch if its outer rows are cut.
   */
  cutOf(value: number, code: number): DataCut {
    const dim = this.model.space.dimOfCode(code);
    if (dim < 0) return code === REPLICATE_CODE ? 'whole' : 'pending';
    const isPlain = shardDimOfCode(code) >= 0;
    if (isPlain && this.batch.has(this.indices.of(value, dim))) return 'batch';
    return this.sequence.get(value)?.has(dim) === true ? 'sequence' : 'features';
  }
}

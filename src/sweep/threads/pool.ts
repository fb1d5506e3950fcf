/** The jobs of a sweep and their answers, as messages that threads can exchange. */

import type { RoutedCosts } from '../../step/read/moe.ts';
import type { SweepQuestion } from '../model/question.ts';
import type { LayerKinds } from '../model/representative-layers.ts';
import type { CoreRequest, CoreResult } from '../model/types.ts';

/** The job of a thread: a program of a data rank, or the routed blocks of its tokens. */
export type SweepJob =
  | { readonly kind: 'core'; readonly request: CoreRequest }
  | {
      readonly kind: 'routed';
      readonly microbatch: number;
      readonly ways: number;
      readonly groups: readonly number[];
      /** Devices over which each expert is cut; absent: none. */
      readonly tensor?: readonly number[];
    };

export type SweepAnswer =
  | { readonly kind: 'core'; readonly result: CoreResult }
  | { readonly kind: 'routed'; readonly costs: RoutedCosts | null };

/** The data that a thread is started with. */
export interface SweepThread {
  readonly question: SweepQuestion;
  readonly kinds: LayerKinds;
}

/**
 * Does jobs, several at once where it has threads; answers come in the order of the jobs, undefined
 * for those that the deadline left out.
 */
export interface SweepPool {
  run(jobs: readonly SweepJob[]): Promise<(SweepAnswer | undefined)[]>;
  close(): Promise<void>;
}

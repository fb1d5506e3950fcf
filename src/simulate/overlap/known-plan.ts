/**
 * The plan to take of those that are known. In: the plan of least seconds one after another, and recipes. Out: of both the
 * one with the shortest simulated step.
 */

import { StreamCosts } from '../../plan/overlap/stream-costs.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { planOfChoice, type PlannedResult } from '../../plan/search/result.ts';
import { percentText, secondsText } from '../../units.ts';
import { LAUNCH_SECONDS } from '../timeline/from-plan.ts';
import { DEFAULT_BUCKET_BYTES } from '../timeline/simulate.ts';
import { CandidatePool } from './candidates.ts';
import { LeastSeconds } from './least-seconds.ts';

/** A choice that is known, by its name. */
interface KnownChoice {
  readonly name: string;
  readonly choice: Int32Array;
}

/** A known plan whose step is shorter than that of the plan of summed costs. */
export interface KnownPlan {
  readonly result: PlannedResult;
  readonly name: string;
  /** Step time when it is simulated, and of the plan of least seconds one after another. */
  readonly simulatedSeconds: number;
  readonly baseSimulatedSeconds: number;
  /** Every cost one after another: of this plan, and of the other. */
  readonly serialSeconds: number;
  readonly baseSerialSeconds: number;
}

/** What is proven least one after another is kept where another plan's step is shorter by no more. */
const WORTH = 0.005;
/** Rules of the simulation, and how many bins of kernels its bound tells apart. */
const SIMULATED = { launchSeconds: LAUNCH_SECONDS, bucketBytes: DEFAULT_BUCKET_BYTES, bins: 16 };

/**
 * Simulates every known choice that the request admits, whose peak fits and that may be faster by enough: what its step takes at
 * least (`LeastSeconds`) says so before.
 * The proof stays that of costs one after another, and its gap says what the plan gives away there.
 *
 * @param result the plan of least seconds one after another
 * @returns undefined where no known plan is faster by more than half a percent
 */
export function fasterKnownPlan(result: PlannedResult, known: readonly KnownChoice[], deadline: Deadline): KnownPlan | undefined {
  const { prepared, plan, choice, certificate } = result;
  if (known.length === 0) return undefined;
  const pool = new CandidatePool(prepared, {}, choice);
  const [base] = pool.candidates;
  const enoughSeconds = base.simulatedSeconds * (1 - WORTH);
  const least = new LeastSeconds(new StreamCosts(prepared.model, SIMULATED));
  for (const other of known) {
    if (deadline.isOver) break;
    if (!pool.admits(other.choice)) continue;
    const atLeastSeconds = least.of(other.choice);
    if (atLeastSeconds < enoughSeconds) pool.add(other.choice, atLeastSeconds);
  }
  const { best } = pool;
  if (best.simulatedSeconds >= enoughSeconds) return undefined;
  const name = known.find((other) => other.choice === best.choice)?.name ?? '';
  const word = `${name}: chosen for its simulated step of ${secondsText(best.simulatedSeconds)}, ${percentText(1 - best.simulatedSeconds / base.simulatedSeconds)} less than that of the plan of least seconds one after another`;
  return {
    result: planOfChoice(prepared, best.choice, plan, certificate, [...plan.proof.evidence, word]),
    name,
    simulatedSeconds: best.simulatedSeconds,
    baseSimulatedSeconds: base.simulatedSeconds,
    serialSeconds: best.serialSeconds,
    baseSerialSeconds: base.serialSeconds,
  };
} // prettier-ignore

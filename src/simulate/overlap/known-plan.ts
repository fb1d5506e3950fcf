/**
 * Finds the plan with the shortest overlapped step among a plan of least summed costs and the
 * recipes, and a lower bound on the simulated step of every plan.
 */

import { type PlannedResult, planOfChoice } from '../../plan/choice/result.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { NoChoiceInTime } from '../../solver/solve.ts';
import { percentText, secondsText } from '../../units.ts';
import { longestPath, stepWorkFor } from '../work/longest-path.ts';
import { DEFAULT_BUCKET_BYTES, LAUNCH_SECONDS } from '../work/rules.ts';
import { boundOverlap } from './bound.ts';
import { CandidatePool, type OverlapCandidate } from './candidates.ts';

/** A choice that is known, by its name. */
interface KnownChoice {
  readonly name: string;
  readonly choice: Int32Array;
}

/** The simulated step of a known plan. */
export interface KnownStep {
  readonly name: string;
  readonly stepSeconds: number;
  /** True if it takes no less; the fastest known plan is simulated, slower ones need not be. */
  readonly isAtLeast: boolean;
  /** False where a pin of the request forbids it. */
  readonly isAdmitted: boolean;
}

/** The overlapped step of a plan. */
export interface OverlappedStep {
  /** The plan to take. */
  readonly result: PlannedResult;
  /** The name of the recipe, where the plan is another than the one given. */
  readonly name?: string;
  /** Step time when it is simulated, and of the plan of least seconds one after another. */
  readonly simulatedSeconds: number;
  readonly baseSimulatedSeconds: number;
  /** Every cost one after another: of this plan, and of the other. */
  readonly serialSeconds: number;
  readonly baseSerialSeconds: number;
  /**
   * No plan has a shorter simulated step, and 1 - bound / simulated step; null where no bound was
   * looked for, or none in time.
   */
  readonly boundSeconds: number | null;
  readonly gap: number | null;
  /** The steps of all known plans that fit. */
  readonly known: readonly KnownStep[];
}

/**
 * A plan that is proven least by summed costs is kept where another plan's step is shorter by no
 * more than this.
 */
const WORTH = 0.005;
/**
 * Most mesh dims (of more than one device) for which the bound is looked for. The placements of
 * three dims are so many that the prices by stream take longer to make than the plan.
 */
const BOUND_DIMS = 2;

/**
 * Simulates the plan, and every known choice that the request admits, whose peak fits and that may
 * be faster by enough: what its step takes at least (`longestPath`) says so before. One problem
 * then bounds the step of every plan (`boundOverlap`). The proof stays that of costs one after
 * another: its gap says what the plan gives away there.
 *
 * @param result the plan of least seconds one after another
 */
export async function overlappedStep(
  result: PlannedResult,
  known: readonly KnownChoice[],
  deadline: Deadline,
): Promise<OverlappedStep> {
  const { prepared, plan, choice, certificate } = result;
  const stopped = (): boolean => deadline.isOver;
  const pool = new CandidatePool(prepared, { stopped }, choice, { ...plan, ...plan.objective });
  const [base] = pool.candidates;
  const { accumulate: passes = 1 } = prepared.question.request;
  if (stopped()) return { result, known: [], ...stepOf(base, base, 0, passes) };
  const enoughSeconds = base.simulatedSeconds * (1 - WORTH);
  const { work, path } = stepWorkFor(
    prepared.model,
    { launchSeconds: LAUNCH_SECONDS, bucketBytes: DEFAULT_BUCKET_BYTES },
    choice,
  );
  const paths = [{ choice, path }];
  const bounded: BoundedChoice[] = [];
  for (const other of known) {
    if (stopped()) break;
    if (other.choice.length !== choice.length) continue;
    const its = longestPath(work, other.choice);
    const isAdmitted = pool.admits(other.choice);
    bounded.push({ ...other, atLeastSeconds: its.seconds, isAdmitted });
    if (!isAdmitted) continue;
    paths.push({ choice: other.choice, path: its });
    if (its.seconds < enoughSeconds) pool.add(other.choice, its.seconds);
  }
  const { best } = pool;
  const steps = knownSteps(pool, bounded, stopped).map((known) => ({
    ...known,
    stepSeconds: passes * known.stepSeconds,
  }));
  const { sizes } = prepared.model.space.mesh;
  const isBounded = sizes.filter((n) => n > 1).length <= BOUND_DIMS && !deadline.isOver;
  const boundSeconds = isBounded
    ? await inTime(() => boundOverlap(prepared, work, paths, deadline))
    : 0;
  const taken = best.simulatedSeconds < enoughSeconds ? best : base;
  const step = { ...stepOf(taken, base, boundSeconds, passes), known: steps };
  if (taken === base) return { result, ...step };
  const name = known.find((other) => other.choice === taken.choice)?.name ?? '';
  const word =
    `${name}: chosen for its simulated step of ${secondsText(step.simulatedSeconds)}, ` +
    `${percentText(1 - taken.simulatedSeconds / base.simulatedSeconds)} less than that of the ` +
    'plan of least seconds one after another';
  return {
    result: planOfChoice(prepared, taken.choice, plan, certificate, [...plan.proof.evidence, word]),
    name,
    ...step,
  };
}

interface BoundedChoice extends KnownChoice {
  /** Lower bound on its step. */
  readonly atLeastSeconds: number;
  readonly isAdmitted: boolean;
}

/**
 * The steps of the known plans that fit, in their order. Simulated are as many as it takes for the
 * fastest of them to be known; the others have their lower bounds.
 */
function knownSteps(
  pool: CandidatePool,
  known: readonly BoundedChoice[],
  stopped: () => boolean,
): KnownStep[] {
  const simulated = new Map<string, number | undefined>();
  const least = [Infinity, Infinity];
  for (const { name, choice, atLeastSeconds, isAdmitted } of [...known].sort(
    (a, b) => a.atLeastSeconds - b.atLeastSeconds,
  )) {
    if (stopped()) break;
    // The fastest of those that are admitted and of those that are not.
    const fastest = least[Number(isAdmitted)];
    if (atLeastSeconds >= fastest) continue;
    const seconds = pool.look(choice)?.simulatedSeconds;
    simulated.set(name, seconds);
    least[Number(isAdmitted)] = Math.min(fastest, seconds ?? Infinity);
  }
  return known.flatMap(({ name, atLeastSeconds, isAdmitted }): KnownStep[] => {
    if (!simulated.has(name))
      return [{ name, stepSeconds: atLeastSeconds, isAtLeast: true, isAdmitted }];
    const seconds = simulated.get(name);
    return seconds === undefined
      ? []
      : [{ name, stepSeconds: seconds, isAtLeast: false, isAdmitted }];
  });
}

/** Relative; what rounding leaves is none. */
function gapOf(boundSeconds: number, seconds: number): number {
  const gap = 1 - boundSeconds / seconds;
  return gap < 1e-12 ? 0 : gap;
}

/**
 * The step of so many passes.
 *
 * @param boundSeconds of a pass, as the candidates' seconds are; 0 where there is none
 */
function stepOf(
  taken: OverlapCandidate,
  base: OverlapCandidate,
  boundSeconds: number,
  passes: number,
): Omit<OverlappedStep, 'result' | 'name' | 'known'> {
  return {
    simulatedSeconds: passes * taken.simulatedSeconds,
    baseSimulatedSeconds: passes * base.simulatedSeconds,
    serialSeconds: passes * taken.serialSeconds,
    baseSerialSeconds: passes * base.serialSeconds,
    boundSeconds: boundSeconds > 0 ? passes * boundSeconds : null,
    gap: boundSeconds > 0 ? gapOf(boundSeconds, taken.simulatedSeconds) : null,
  };
}

/** 0 where the time is over before there is a choice. */
async function inTime(bound: () => Promise<number>): Promise<number> {
  try {
    return await bound();
  } catch (error) {
    if (error instanceof NoChoiceInTime) return 0;
    throw error;
  }
}

/**
 * Tries plans for the overlapped step: of several choices of one problem it simulates each whose
 * peak fits once, and keeps the best.
 */

import { decode, type Decoded, stateMemory } from '../../plan/choice/decode.ts';
import { choicePeakBytes } from '../../plan/choice/timeline.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import { holdsPeak } from '../../plan/request/request.ts';
import { evaluate } from '../../solver/check/verify.ts';
import type { SimulatedPlan } from '../timeline/from-plan.ts';
import { type SimulateOptions, simulateSeconds } from '../timeline/simulate.ts';

/** One plan with its seconds one after another and its simulated seconds. */
export interface OverlapCandidate {
  readonly choice: Int32Array;
  readonly plan: SimulatedPlan;
  /** Every cost once, without overlap: the objective. */
  readonly serialSeconds: number;
  readonly simulatedSeconds: number;
}

/** The prepared request that candidates are choices of. */
export type Candidates = Pick<Prepared, 'question' | 'model' | 'left'>;

type DecodedPlan = Pick<Decoded, 'nodes' | 'outputs' | 'computeSeconds' | 'communicationSeconds'>;

/** The plans seen, the first of them that of summed costs. */
export class CandidatePool {
  readonly candidates: OverlapCandidate[];
  /** By choice what was simulated; undefined for what did not fit or could not be the fastest. */
  private readonly seen = new Map<string, OverlapCandidate | undefined>();

  constructor(
    private readonly prepared: Candidates,
    private readonly options: SimulateOptions,
    choice: Int32Array,
    /** The decoded choice, where it is known. */
    decoded?: DecodedPlan,
  ) {
    const first = this.simulated(choice, decoded);
    this.seen.set(choice.join(), first);
    this.candidates = [first];
  }

  /** The candidate of the shortest simulated step; of equal ones, the first. */
  get best(): OverlapCandidate {
    return this.candidates.reduce((a, b) => (b.simulatedSeconds < a.simulatedSeconds ? b : a));
  }

  /** The fastest so many, the best first. */
  fastest(count: number): readonly OverlapCandidate[] {
    return [...this.candidates]
      .sort((a, b) => a.simulatedSeconds - b.simulatedSeconds)
      .slice(0, count);
  }

  /**
   * Simulates a choice that is new, fits and may be the fastest.
   *
   * @param atLeastSeconds what its step takes at least
   */
  add(choice: Int32Array, atLeastSeconds = 0): void {
    const key = choice.join();
    if (this.seen.has(key)) return;
    this.seen.set(key, undefined);
    if (atLeastSeconds < this.best.simulatedSeconds) this.look(choice);
  }

  /** Simulates a choice whether or not it may be the fastest; undefined where it does not fit. */
  look(choice: Int32Array): OverlapCandidate | undefined {
    const key = choice.join();
    const known = this.seen.get(key);
    if (known !== undefined || !this.fits(choice)) return known;
    const candidate = this.simulated(choice);
    this.seen.set(key, candidate);
    this.candidates.push(candidate);
    return candidate;
  }

  /**
   * Tells whether a choice from elsewhere is one of this problem: a recipe knows nothing of pins.
   */
  admits(choice: Int32Array): boolean {
    const {
      left: { problem },
    } = this.prepared;
    if (choice.length !== problem.domains.length) return false;
    const { cost, violations } = evaluate(problem, choice);
    return violations.length === 0 && Number.isFinite(Number(cost));
  }

  /**
   * Tells whether the peak is within the budget, where the request asks for that: the rows of the
   * problem know states only.
   */
  private fits(choice: Int32Array): boolean {
    const { model, question } = this.prepared;
    const { request, budgetBytes } = question;
    if (!holdsPeak(request)) return true;
    return choicePeakBytes(model, choice) <= budgetBytes;
  }

  private simulated(choice: Int32Array, decoded?: DecodedPlan): OverlapCandidate {
    const { model, question } = this.prepared;
    const { program, operators, request, budgetBytes } = question;
    const { nodes, outputs, computeSeconds, communicationSeconds } =
      decoded ?? decode(model, choice);
    const plan: SimulatedPlan = {
      request,
      nodes,
      outputs,
      memory: { ...stateMemory(model, choice), budgetBytes },
    };
    const serialSeconds = computeSeconds + communicationSeconds;
    return {
      choice,
      plan,
      serialSeconds,
      simulatedSeconds: simulateSeconds(program, plan, operators, {
        known: model,
        ...this.options,
      }),
    };
  }
}

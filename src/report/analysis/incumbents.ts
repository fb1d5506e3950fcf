/**
 * Solves the request of a plan again and gives the best plan and the lower bound after each step of
 * the solver.
 */

import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { leastCostPlanOf } from '../../plan/least-cost-plan.ts';
import { prepare } from '../../plan/prepare/prepare.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Plan } from '../../plan/record/types.ts';
import { peakBinds } from '../../plan/request/request.ts';
import type { Progress } from '../../solver/types.ts';

/** The best plan and the bound as they were while the problem was solved. */
export interface Incumbents {
  /** In seconds of the step; null before there is a plan or a bound. */
  readonly steps: readonly {
    readonly phase: string;
    readonly seconds: number | null;
    readonly bound: number | null;
  }[];
  /** Clock time of each step, seconds. */
  readonly seconds: readonly number[];
}

/** The steps in the folder of a plan. */
export interface WrittenProgress extends Incumbents {
  /** False for a file that lay there before another plan was made. */
  readonly isOfPlan: boolean;
}

/**
 * Solves the request of a plan again, without starting points, and listens. The steps are the same
 * in every run as long as no time limit ends the search; only their clock times differ.
 *
 * @returns undefined where several problems are solved for one plan, see `SolverLog.incumbents`
 */
export async function incumbentsOf(
  { request }: Plan,
  program: Graph,
  operators: OperatorTable,
): Promise<Incumbents | undefined> {
  const prepared = prepare(program, request, operators);
  const log = new SolverLog(prepared);
  const result = await leastCostPlanOf(prepared, { onProgress: log.listen });
  return result.status === 'infeasible' ? undefined : log.incumbents(result.plan);
}

/** Listens to the solver of a plan, on one clock for all of its phases. */
export class SolverLog {
  private readonly events: SolverEvent[] = [];
  private readonly started = performance.now();

  constructor(private readonly prepared: Pick<Prepared, 'model' | 'question'>) {}

  /** For `onProgress`. */
  readonly listen = ({ phase, objective, bound }: Progress): void => {
    const { unitsPerSecond } = this.prepared.model;
    const inSeconds = (units: number): number | null =>
      Number.isFinite(units) ? units / unitsPerSecond : null;
    this.events.push({
      phase,
      seconds: inSeconds(objective),
      bound: inSeconds(bound),
      at: this.elapsed(),
    });
  };

  /**
   * The steps up to the plan that came of them; undefined where the limit on peak memory binds:
   * that plan comes of many problems, some about bytes, whose steps are not its own.
   */
  incumbents({ objective, proof, request }: Plan): Incumbents | undefined {
    if (peakBinds(request) || peakBinds(this.prepared.question.request)) return undefined;
    const last = {
      phase: proof.solver,
      seconds: objective.seconds,
      bound: proof.bound,
      at: this.elapsed(),
    };
    return thinned(ofOneProblem([...this.events, last]));
  }

  private elapsed(): number {
    return (performance.now() - this.started) / 1000;
  }
}

/** Steps that are kept. */
const MOST_STEPS = 400;

/**
 * Long logs without some of the steps in which only the bound rose: plans, and the last step, stay.
 */
export function thinned({ steps, seconds }: Incumbents): Incumbents {
  if (steps.length <= MOST_STEPS) return { steps, seconds };
  const better = steps.map(
    (s, k) => k === steps.length - 1 || s.seconds !== (steps[k - 1] ?? { seconds: null }).seconds,
  );
  const every = Math.ceil(steps.length / Math.max(1, MOST_STEPS - better.filter(Boolean).length));
  const isKept = (_: unknown, k: number): boolean => better[k] === true || k % every === 0;
  return { steps: steps.filter(isKept), seconds: seconds.filter(isKept) };
}

/** One event of the solver; `at` is its clock time. */
interface SolverEvent {
  readonly phase: string;
  readonly seconds: number | null;
  readonly bound: number | null;
  readonly at: number;
}

/**
 * Events as steps of the problem that was asked. For a bound the solver may first take the memory
 * limit away: where its plans become more expensive again, those before were of that easier
 * problem. They are not plans of this one, while their bounds hold here, too.
 */
export function ofOneProblem(events: readonly SolverEvent[]): Incumbents {
  let easier = 0;
  let before = Infinity;
  events.forEach(({ seconds }, k) => {
    if (seconds === null) return;
    if (seconds > before) easier = k;
    before = seconds;
  });
  const steps: Incumbents['steps'][number][] = [];
  const clock: number[] = [];
  let bound: number | null = null;
  events.forEach((event, k) => {
    if (event.bound !== null) bound = Math.max(bound ?? -Infinity, event.bound);
    const seconds = k < easier ? null : event.seconds;
    const last = steps.at(-1) ?? { seconds: null, bound: null };
    if (last.seconds === seconds && last.bound === bound && k < events.length - 1) return;
    steps.push({ phase: event.phase, seconds, bound });
    clock.push(event.at);
  });
  return { steps, seconds: clock };
}

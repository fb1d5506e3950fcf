import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/table.ts';
import { prepare } from '../../plan/prepare.ts';
import { shardPrepared } from '../../plan/shard.ts';
import type { Plan } from '../../plan/types.ts';

/** The best plan and the bound as they were while the problem was solved. */
export interface Incumbents {
  /** In seconds of the step; null before there is a plan or a bound. */
  readonly steps: readonly { readonly phase: string; readonly seconds: number | null; readonly bound: number | null }[];
  /** Clock time of each step, seconds. */
  readonly seconds: readonly number[];
}

/**
 * Solves the request of a plan again, without starting points, and listens. The steps are the same in every run as long as no time
 * limit ends the search; only their clock times differ.
 */
export async function incumbentsOf({ request }: Plan, program: Graph, operators: OperatorTable): Promise<Incumbents> {
  const prepared = prepare(program, request, operators);
  const { unitsPerSecond } = prepared.model;
  const inSeconds = (units: number): number | null => (Number.isFinite(units) ? units / unitsPerSecond : null);
  const events: SolverEvent[] = [];
  const result = await shardPrepared(prepared, {
    onProgress: ({ phase, objective, bound, seconds: at }) =>
      void events.push({ phase, seconds: inSeconds(objective), bound: inSeconds(bound), at }),
  });
  if (result.status !== 'infeasible') {
    const { objective, proof } = result.plan;
    const at = proof.solveSeconds ?? events.at(-1)?.at ?? 0;
    events.push({ phase: proof.solver, seconds: objective.seconds, bound: proof.bound, at });
  }
  return ofOneProblem(events);
}

/** One event of the solver; `at` is its clock time. */
export interface SolverEvent {
  readonly phase: string;
  readonly seconds: number | null;
  readonly bound: number | null;
  readonly at: number;
}

/**
 * Events as steps of the problem that was asked. For a bound the solver may first take the memory limit away: where its plans become
 * dearer again, those before were of that easier problem. They are no plans of this one, while their bounds hold here, too.
 */
export function ofOneProblem(events: readonly SolverEvent[]): Incumbents {
  let easier = 0;
  events.forEach(({ seconds }, k) => {
    const before = events.slice(easier, k).findLast((e) => e.seconds !== null)?.seconds ?? Infinity;
    if (seconds !== null && seconds > before) easier = k;
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

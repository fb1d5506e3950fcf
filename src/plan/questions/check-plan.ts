/**
 * Checks that a written plan is consistent: it compares every field with the value that follows
 * from the graph and the request, computes the cost of the placements again, and replays the
 * certificate. It solves nothing. Only the hash of the plan protects the fields that nobody can
 * derive: the name of the solver and the messages of other engines.
 */
import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { evaluate } from '../../solver/check/verify.ts';
import { isLeast, openGap } from '../../solver/problem/cost.ts';
import type { Solution } from '../../solver/types.ts';
import { KEPT_AS_MADE, RECOMPUTED_LIKE_FIRST } from '../budget/answer.ts';
import { planMemoryTimeline } from '../choice/timeline.ts';
import { choiceOfPlan } from '../choice/transfer.ts';
import { PRODUCER, writePlan } from '../choice/write.ts';
import { prepare } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { PlanFolder } from '../record/folder.ts';
import { problemsRecord } from '../record/problems.ts';
import type { Plan } from '../record/types.ts';
import { hasTimeline, type PlanRequest } from '../request/request.ts';
import { leastMemoryBound, memoryOf } from '../solve/least-memory.ts';
import { TIE_BREAK, TIES_LEFT } from '../solve/ties.ts';
import {
  Comparison,
  differenceText,
  isAbove,
  type PlanDifference,
  ROUNDING,
} from './differences.ts';
import { inUnits, type Proven, provenBound } from './replays.ts';

/**
 * The stages that follow from a plan, given what its folder says of them; it throws where they
 * cannot be cut so.
 */
export type StagesAgain = (prepared: Prepared, choice: Int32Array, said: unknown) => unknown;

/** Makes the parts of a plan folder again that are not made from placements and prices alone. */
export interface MadeAgain {
  readonly stages?: StagesAgain;
  /** The step that follows from a plan, under the trainer that it names. */
  readonly step?: (prepared: Prepared, choice: Int32Array, plan: Plan) => unknown;
}

/** The findings of `checkPlan`. */
export interface PlanCheck {
  /** Empty where the plan is what it says. */
  readonly differences: readonly PlanDifference[];
  /** Numbers and texts that were compared. */
  readonly fields: number;
  /** Whose prices the plan has, null where it does not say; and whose it was compared with. */
  readonly producer: string | null;
  readonly checkedBy: string;
  /** Seconds of the plan, re-costed from its placements. */
  readonly recheckedSeconds: number;
  /** The bound that the certificate proves: no plan of the request takes less. */
  readonly boundSeconds: number;
  /**
   * Numbers of the certificates that were replayed; 0 where only the sum of all least prices is a
   * bound.
   */
  readonly certificateNumbers: number;
  /** The text of `problems.json.gz`: the problems behind the plan, for a second checker. */
  readonly problems: () => string;
  /** The plan made ready for questions, as `reopen` makes it. */
  readonly prepared: Prepared;
  readonly choice: Int32Array;
}

type CheckedFolder = Pick<PlanFolder, 'plan' | 'certificate' | 'pipeline' | 'isAsWritten'> & {
  readonly program: Graph;
  readonly request: PlanRequest;
  /** Texts of `problems.json.gz`, of which one must be right. */
  readonly problems?: readonly string[];
};

/**
 * Checks a plan against its graph, its request and its certificate.
 *
 * @param again makes again what other functions made; without one its part is held to its hash
 * @throws E_PLAN, with the JSON path, for a plan that does not hang together; what `prepare` throws
 *   for a request
 */
export function checkPlan(
  folder: CheckedFolder,
  table: OperatorTable,
  again: MadeAgain = {},
): PlanCheck {
  checkKinds('checkPlan', {
    folder: [folder, ['plan', 'program', 'request']],
    table: [table, 'operators'],
    again: [again, 'record', 'undefined'],
  });
  const { plan, program, request, certificate } = folder;
  const prepared = prepare(program, request, table);
  const choice = choiceOfPlan(plan, prepared.model);
  const proven = provenBound(prepared, certificate, table);
  const compared = new Comparison();
  const follows = followingPlan(prepared, choice, {
    solver: plan.proof.solver,
    objective: compareChoice(compared, plan, { prepared, choice, proven }),
    provenBound: proven.bound,
    mayBeOptimal: reachesLeastBytes(prepared, choice, proven),
  });
  compareFields(compared, plan, follows);
  const problems = (): string => problemsText(prepared, choice, proven);
  if (folder.problems?.includes(problems()) === false)
    compared.differs(
      'problems.json.gz',
      'the problems of another plan',
      'the problems of its graph and request',
    );
  const { stages, step } = again;
  comparePipeline(compared, folder, stages && ((said) => stages(prepared, choice, said)));
  if (plan.step !== undefined && step !== undefined)
    compared.value('$.step', plan.step, step(prepared, choice, plan));
  if (folder.isAsWritten === false && compared.differences.length === 0)
    compared.differs(
      '$.hashes.plan',
      plan.hashes?.plan,
      'the SHA-256 of another content: the plan was changed after it was written',
    );
  return {
    differences: compared.differences,
    fields: compared.fields,
    producer: plan.producer ?? null,
    checkedBy: follows.producer ?? PRODUCER,
    recheckedSeconds: follows.proof.recheckedSeconds,
    boundSeconds: follows.proof.bound,
    certificateNumbers: proven.numbers,
    problems,
    prepared,
    choice,
  };
}

/** The problem and the proof that follow from a plan folder's files, with the plan's choice. */
interface Followed {
  readonly prepared: Prepared;
  readonly choice: Int32Array;
  readonly proven: Proven;
}

/** Holds the placements to the request and to what is proven; returns their cost. */
function compareChoice(
  compared: Comparison,
  { proof }: Plan,
  { prepared, choice, proven }: Followed,
): number {
  const { problem } = prepared.left;
  const { cost, violations } = evaluate(problem, choice);
  const [broken] = violations;
  if (broken !== undefined)
    compared.differs(
      '$.nodes',
      `a plan that breaks ${broken.code === 'row' ? broken.row : 'a restriction of its request'}`,
      'a plan of its request',
    );
  const used = memoryOf(problem, choice);
  if (used > proven.leastBytes) compared.differs('$.memory.peakBytes', used, proven.leastBytes);
  for (const fault of proven.faults) compared.differs('$.proof', proof.status, fault);
  const objective = Number(cost);
  // A proof that there is no plan, beside one, is not a proof.
  if (broken === undefined && isAbove(proven.bound, objective + (problem.tolerance ?? 0)))
    compared.differs(
      '$.proof.bound',
      proof.bound,
      'a bound that the plan itself is not below: the certificate proves too much',
    );
  return objective;
}

/**
 * Tells whether no plan needs fewer bytes, where those come first: as the certificate proves, or
 * as the least bytes of each tensor say. Without either the fastest plan of all is not the optimum.
 */
function reachesLeastBytes(
  { left: { problem }, question: { request } }: Prepared,
  choice: Int32Array,
  { leastBytes }: Proven,
): boolean {
  if (request.objective !== 'parameter-memory') return true;
  const least = Number.isFinite(leastBytes) ? leastBytes : leastMemoryBound(problem);
  return memoryOf(problem, choice) <= least;
}

/** The plan as it is written for these placements. */
function followingPlan(
  prepared: Prepared,
  choice: Int32Array,
  {
    solver,
    objective,
    provenBound,
    mayBeOptimal,
  }: {
    readonly solver: string;
    readonly objective: number;
    readonly provenBound: number;
    readonly mayBeOptimal: boolean;
  },
): Plan {
  const {
    model,
    left: { problem },
    question: { request },
  } = prepared;
  const bound = Math.min(objective, provenBound);
  const solution: Solution = {
    status: mayBeOptimal && isLeast(problem, objective, bound) ? 'optimal' : 'feasible',
    choice,
    objective,
    bound,
    gap: openGap(problem, objective, bound),
    solver,
    seconds: 0,
    statistics: {},
    ties: 'engine',
  };
  const memory = hasTimeline(request) ? planMemoryTimeline(model, choice) : undefined;
  return writePlan(prepared, solution, memory);
}

/** Compares the fields of the plan, those that a search may say otherwise apart. */
function compareFields(compared: Comparison, plan: Plan, follows: Plan): void {
  compared.value('$', withoutCompared(plan), withoutCompared(follows));
  compareProof(compared, plan, follows.proof);
  // The search may add notes on its answer to those that follow from the request alone.
  const extra = new Set([KEPT_AS_MADE, RECOMPUTED_LIKE_FIRST, TIE_BREAK, TIES_LEFT]);
  compared.value(
    '$.assumptions',
    plan.assumptions.filter((a) => !extra.has(a)),
    follows.assumptions,
  );
}

/** Fields of a plan that are compared in other ways, or that nothing makes again. */
const COMPARED_APART: ReadonlySet<string> = new Set<keyof Plan>([
  'proof',
  'step',
  'assumptions',
  'hashes',
  'producer',
]);

function withoutCompared(plan: Plan): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(plan).filter(([key]) => !COMPARED_APART.has(key)));
}

/** The text of `problems.json.gz`. */
function problemsText(prepared: Prepared, choice: Int32Array, proven: Proven): string {
  const own = { about: 'plan', ...inUnits(prepared.model, prepared.left.problem) };
  return `${JSON.stringify(problemsRecord([own, ...proven.problems], choice))}\n`;
}

/** Compares the stages with those that follow, and the file with its hash. */
function comparePipeline(
  compared: Comparison,
  { plan, pipeline }: CheckedFolder,
  follows: ((said: unknown) => unknown) | undefined,
): void {
  if (pipeline === undefined) return;
  const { said, isAsWritten } = pipeline;
  const before = compared.differences.length;
  if (follows !== undefined) compareStages(compared, said, () => follows(said));
  if (!isAsWritten && compared.differences.length === before)
    compared.differs(
      '$.hashes.pipeline',
      plan.hashes?.pipeline,
      'the SHA-256 of another content: pipeline.json was changed after it was written',
    );
}

function compareStages(compared: Comparison, said: unknown, follows: () => unknown): void {
  try {
    compared.value('pipeline.json $', said, follows());
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
    compared.differs('pipeline.json $', said, error.message);
  }
}

/** A plan may claim less than is proven, never more. */
function compareProof(
  compared: Comparison,
  { proof, objective }: Plan,
  derived: Plan['proof'],
): void {
  const { bound, status, gap, recheckedSeconds, roundingSeconds } = proof;
  compared.value('$.proof.recheckedSeconds', recheckedSeconds, derived.recheckedSeconds);
  compared.value('$.proof.roundingSeconds', roundingSeconds, derived.roundingSeconds);
  compared.claim('$.proof.bound', bound, derived.bound, bound > derived.bound * (1 + ROUNDING));
  const isUnlike = status !== 'feasible' && status !== derived.status;
  compared.claim('$.proof.status', status, derived.status, isUnlike);
  const open = (objective.seconds - bound) / objective.seconds;
  const isTooSmall = objective.seconds > 0 && gap < open - ROUNDING;
  compared.claim('$.proof.gap', gap, Math.max(0, open), isTooSmall);
}

/**
 * Lets a plan pass that is what it says.
 *
 * @throws E_DIFFERS, with the JSON path of the first field that is not what follows from graph and
 *   request
 */
export function refuseDifferences(
  { differences, producer, checkedBy }: PlanCheck,
  file: string,
): void {
  const [first, ...more] = differences;
  if (first === undefined) return;
  const rest = more.length === 0 ? '' : `, and ${more.length} more`;
  throw new ShardwrightError('E_DIFFERS', `${differenceText(first)}${rest}`, {
    file,
    path: first.path,
    hint:
      producer === checkedBy
        ? 'shardwright check-plan lists every difference; make the plan again, or restore the file.'
        : `the plan has the prices of ${producer ?? 'an earlier version'}, this is ` +
          `${checkedBy}: make the plan again.`,
  });
}

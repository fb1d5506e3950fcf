/**
 * Checks that a written plan is consistent: it compares every field with the value that follows
 * from the graph and the request, computes the cost of the placements again, and replays the
 * certificate. It solves nothing. Only the hash of the plan protects the fields that nobody can
 * derive: the name of the solver and the messages of other engines.
 */
import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { parseGraph } from '../../graph/text/parse.ts';
import { printGraph } from '../../graph/text/write.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { recomputeInBackward } from '../../passes/checkpoint/recompute.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import { evaluate, hashProblem, NO_CHOICE, verifyCertificate } from '../../solver/check/verify.ts';
import { isLeast, openGap } from '../../solver/problem/cost.ts';
import { rowAsCost } from '../../solver/problem/recost.ts';
import type { Certificate, Problem, Solution } from '../../solver/types.ts';
import { KEPT_AS_MADE, RECOMPUTED_LIKE_FIRST } from '../budget/answer.ts';
import { PeakProblems } from '../budget/rows/peak-problems.ts';
import { planMemoryTimeline } from '../choice/timeline.ts';
import { choiceOfPlan } from '../choice/transfer.ts';
import { PRODUCER, writePlan } from '../choice/write.ts';
import { prepare } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { type PlanCertificate, withMemoryBound } from '../record/certificate.ts';
import type { PlanFolder } from '../record/folder.ts';
import { type NamedProblem, problemsRecord } from '../record/problems.ts';
import type { Plan } from '../record/types.ts';
import { activationsOf, coversRecomputation, type PlanRequest } from '../request/request.ts';
import { leastMemoryBound, memoryOf } from '../solve/least-memory.ts';
import { TIE_BREAK, TIES_LEFT } from '../solve/ties.ts';

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

/** A field that is not what follows. */
export interface PlanDifference {
  /** JSON path in `plan.json`, or behind `pipeline.json ` in that file. */
  readonly path: string;
  readonly stated: unknown;
  readonly follows: unknown;
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

/**
 * Relative difference of two numbers that are called equal: libraries of other machines round
 * otherwise.
 */
const ROUNDING = 1e-9;

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
  const memory = activationsOf(request) === 'off' ? undefined : planMemoryTimeline(model, choice);
  return writePlan(prepared, solution, memory);
}

/** Compares the fields of the plan, those that a search may say otherwise apart. */
function compareFields(compared: Comparison, plan: Plan, follows: Plan): void {
  const { proof: _proof, step: _step, assumptions, hashes: _hashes, ...rest } = plan;
  const { producer: _producer, ...fields } = rest;
  const { proof: derived, assumptions: notes, producer: _here, ...others } = follows;
  compared.value('$', fields, others);
  compareProof(compared, plan, derived);
  // The search may add notes on its answer to those that follow from the request alone.
  const extra = new Set([KEPT_AS_MADE, RECOMPUTED_LIKE_FIRST, TIE_BREAK, TIES_LEFT]);
  compared.value(
    '$.assumptions',
    assumptions.filter((a) => !extra.has(a)),
    notes,
  );
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
  compared.fields += 3;
  if (bound > derived.bound * (1 + ROUNDING))
    compared.differs('$.proof.bound', bound, derived.bound);
  if (status !== 'feasible' && status !== derived.status)
    compared.differs('$.proof.status', status, derived.status);
  const open = (objective.seconds - bound) / objective.seconds;
  if (objective.seconds > 0 && gap < open - ROUNDING)
    compared.differs('$.proof.gap', gap, Math.max(0, open));
}

interface Proven {
  /** In the units of the problem. */
  readonly bound: number;
  readonly numbers: number;
  readonly faults: readonly string[];
  /** Bytes that no plan of the request is below, where those come first; else Infinity. */
  readonly leastBytes: number;
  /** The problems that the certificates are about. */
  readonly problems: readonly NamedProblem[];
}

function inUnits(
  { unitsPerSecond }: Prepared['model'],
  problem: Problem,
): Omit<NamedProblem, 'about'> {
  return { problem, unitsPerSecond };
}

/**
 * The bound that the certificates prove, each replayed on its own problem, which is built again.
 */
function provenBound(
  prepared: Prepared,
  certificate: PlanCertificate | undefined,
  table: OperatorTable,
): Proven {
  const first = firstRuns(prepared, certificate?.program, table);
  if (first === undefined)
    return {
      bound: -Infinity,
      numbers: 0,
      leastBytes: Infinity,
      problems: [],
      faults: ['the program is not that of the certificate with recomputed nodes'],
    };
  const replays = new Replays(first);
  const leastBytes =
    prepared.question.request.objective === 'parameter-memory'
      ? replays.leastBytes(certificate?.leastBytes)
      : Infinity;
  const { problem } = first.left.compact;
  const bound = Math.max(
    replays.freeBound(
      Number.isFinite(leastBytes) ? withMemoryBound(problem, leastBytes) : problem,
      certificate?.free,
    ),
    replays.boundWithin(certificate?.within),
  );
  // Both models have their own unit.
  const scale = prepared.model.unitsPerSecond / first.model.unitsPerSecond;
  const { numbers, faults, problems } = replays;
  return { bound: bound * scale, numbers, faults, leastBytes, problems };
}

/** Replays certificates, and keeps their problems and the faults that it finds. */
class Replays {
  numbers = 0;
  readonly faults: string[] = [];
  readonly problems: NamedProblem[] = [];

  constructor(private readonly first: Prepared) {}

  /** Bytes that no plan is below; Infinity where nothing says so. */
  leastBytes(certificate: Certificate | undefined): number {
    if (certificate === undefined) return Infinity;
    const { problem } = this.first.left.compact;
    const [row] = problem.rows ?? [];
    const least =
      row === undefined
        ? 0
        : this.replay(
            this.named('leastBytes', rowAsCost(problem, row)),
            certificate,
            'the least memory',
          );
    if (least === Infinity)
      this.faults.push('the certificate of the least memory proves that no plan is left');
    return Number.isFinite(least) ? least : Infinity;
  }

  /** The bound of a problem without a budget: no less than the sum of its least prices. */
  freeBound(problem: Problem, certificate: Certificate | undefined): number {
    this.named('free', problem);
    const bound =
      certificate === undefined ? -Infinity : this.replay(problem, certificate, 'the bound');
    const none: Certificate = {
      version: 2,
      problem: hashProblem(problem),
      rows: [],
      steps: [],
      lists: [],
    };
    return Math.max(bound, this.replay(problem, none, 'the sum of all least prices'));
  }

  /** The bound within the budget; -Infinity without a certificate of one. */
  boundWithin(within: PlanCertificate['within']): number {
    if (within === undefined) return -Infinity;
    const { model, question } = this.first;
    const nodesOf = (names: readonly string[]): number[] =>
      names.map((name) => model.flow.byName.get(name) ?? -1);
    const [points, storages] = [nodesOf(within.moments), nodesOf(within.storages ?? [])];
    if ([...points, ...storages].includes(-1)) {
      this.faults.push('the certificate names a node that the program does not have');
      return -Infinity;
    }
    const covers = coversRecomputation(question.request) && model.opened === undefined;
    const peaks = new PeakProblems(this.first, covers);
    for (const point of storages) peaks.countStorages(point);
    const bounded = this.named('within', peaks.ofBound(points));
    return this.replay(bounded, within.certificate, 'the bound within the budget');
  }

  private named(about: string, problem: Problem): Problem {
    this.problems.push({ about, ...inUnits(this.first.model, problem) });
    return problem;
  }

  private replay(problem: Problem, certificate: Certificate, what: string): number {
    const verdict = verifyCertificate(problem, { choice: [], objective: Infinity, certificate });
    if (!verdict.accepted) {
      this.faults.push(`the certificate of ${what} is refused: ${verdict.reason ?? ''}`);
      return -Infinity;
    }
    const { steps, lists } = certificate;
    this.numbers += lists.reduce((sum, list) => sum + list.length, steps.length);
    return verdict.bound === NO_CHOICE ? Infinity : Number(verdict.bound);
  }
}

/** The request on the program without recomputed nodes; undefined where that is another program. */
function firstRuns(
  prepared: Prepared,
  text: string | undefined,
  table: OperatorTable,
): Prepared | undefined {
  if (text === undefined) return prepared;
  // A bound on plans that recompute nothing says nothing about one that does.
  if (!coversRecomputation(prepared.question.request)) return undefined;
  const first = prepare(parseGraph(text, 'certificate.json.gz'), prepared.question.request, table);
  const [before, after] = [first, prepared].map((each) => each.question.program.nodes);
  const [known, left] = [before, after].map((nodes) => new Set(nodes.map(({ name }) => name)));
  // A first run that nothing reads is left out, and what repeats it no longer says so.
  const recomputed = [
    ...after.flatMap(({ name, meta }) => (known.has(name) ? [] : [meta.repeats ?? []].flat())),
    ...before.flatMap(({ name }) => (left.has(name) ? [] : [name])),
  ];
  const { graph } = recomputeInBackward(first.model.graph, new Set(recomputed));
  return printGraph(plannable(graph, table)) === printGraph(prepared.question.program)
    ? first
    : undefined;
}

/** Walks two JSON values and notes where they differ. */
class Comparison {
  readonly differences: PlanDifference[] = [];
  fields = 0;

  differs(path: string, stated: unknown, follows: unknown): void {
    this.differences.push({ path, stated: stated ?? null, follows: follows ?? null });
  }

  value(path: string, stated: unknown, follows: unknown): void {
    if (Array.isArray(stated) && Array.isArray(follows)) {
      if (stated.length !== follows.length)
        this.differs(path, `${stated.length} entries`, `${follows.length} entries`);
      else stated.forEach((item, k) => this.value(`${path}[${k}]`, item, follows[k]));
    } else if (isRecord(stated) && isRecord(follows)) {
      for (const key of new Set([...Object.keys(follows), ...Object.keys(stated)]))
        this.value(`${path}.${key}`, stated[key], follows[key]);
    } else {
      this.fields++;
      if (!same(stated, follows)) this.differs(path, stated, follows);
    }
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Tells whether a number is above another, whatever rounding says. */
function isAbove(a: number, b: number): boolean {
  return a > b + ROUNDING * Math.max(Math.abs(a), Math.abs(b));
}

function same(a: unknown, b: unknown): boolean {
  if (typeof a === 'number' && typeof b === 'number')
    return a === b || Math.abs(a - b) <= ROUNDING * Math.max(Math.abs(a), Math.abs(b));
  return a === b;
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

/** `$.objective.seconds: the plan says 1e-12, 0.00115 follows`. */
export function differenceText({ path, stated, follows }: PlanDifference): string {
  const text = (value: unknown): string => {
    const json = JSON.stringify(value);
    return json.length > 120 ? `${json.slice(0, 117)}...` : json;
  };
  return (
    `${path}: the plan says ${text(stated)}, from its graph, request and certificate follows ` +
    `${text(follows)}`
  );
}

/**
 * Replays the certificates of a plan folder, each on its own problem, which is built again from the
 * graph and the request.
 */
import { parseGraph } from '../../graph/text/parse.ts';
import { printGraph } from '../../graph/text/write.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { recomputeInBackward } from '../../passes/checkpoint/recompute.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import { hashProblem, NO_CHOICE, verifyCertificate } from '../../solver/check/verify.ts';
import { rowAsCost } from '../../solver/problem/recost.ts';
import type { Certificate, Problem } from '../../solver/types.ts';
import { PeakProblems } from '../budget/rows/peak-problems.ts';
import { prepare } from '../prepare/prepare.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { type PlanCertificate, withMemoryBound } from '../record/certificate.ts';
import type { NamedProblem } from '../record/problems.ts';
import { coversRecomputation } from '../request/request.ts';

/** Facts that the certificates of a plan prove. */
export interface Proven {
  /** In the units of the problem. */
  readonly bound: number;
  readonly numbers: number;
  readonly faults: readonly string[];
  /** Bytes that no plan of the request is below, where those come first; else Infinity. */
  readonly leastBytes: number;
  /** The problems that the certificates are about. */
  readonly problems: readonly NamedProblem[];
}

/** A problem with the size of its units. */
export function inUnits(
  { unitsPerSecond }: Prepared['model'],
  problem: Problem,
): Omit<NamedProblem, 'about'> {
  return { problem, unitsPerSecond };
}

/**
 * The bound that the certificates prove, each replayed on its own problem, which is built again.
 */
export function provenBound(
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

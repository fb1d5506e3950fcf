/** `solve`: takes a choice problem (google/iopddl JSON) and prints the best choice found. */

import { gunzipSync } from 'node:zlib';

import { IopddlError, readIopddl } from '../../../contest/iopddl.ts';
import { defined } from '../../../defined.ts';
import { messageOf, ShardwrightError } from '../../../errors.ts';
import { asCertificate } from '../../../plan/record/certificate.ts';
import { fileText, readFileBytes, shownPath } from '../../../platform/read-file.ts';
import {
  type RecordedStep,
  SolverSteps,
  solverStepsText,
} from '../../../report/text/solver-steps.ts';
import { NO_CHOICE, verifyCertificate } from '../../../solver/check/verify.ts';
import type { Problem, Progress, Solution } from '../../../solver/types.ts';
import { parseAnyDepth } from '../../../text/json.ts';
import { percentText, secondsText } from '../../../units.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { tryFile, writeText } from '../../output/write-file.ts';
import type { RunControl } from '../../thread/run-control.ts';
import type { SolveOptions } from './flags.ts';

/** Largest text that is read, unpacked; Node holds no longer string. */
const MOST_BYTES = 2 ** 29 - 64;

export async function solveCommand(
  path: string,
  options: SolveOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const { gap, seed, timeLimit, rounds, lanes } = options;
  const began = performance.now();
  // The time limit includes the time to read the problem.
  const deadline = control.deadline(timeLimit);
  if (options.check !== undefined)
    return checkCommand(readProblem(path), options.check, options.json === true, io);
  if (options.certificate !== undefined) tryFile(options.certificate, 'certificate');
  const problem = readProblem(path);
  const { solveAnytime } = await import('../../../contest/anytime.ts');
  control.answers();
  const steps = options.explainSolver === true ? new SolverSteps() : undefined;
  const solution = await solveAnytime(problem, {
    gap,
    seed,
    threads: Math.max(1, options.threads),
    onProgress: progressPrinter(io, options.quiet === true),
    ...deadline.solveOptions,
    ...defined({ onStep: steps?.listen }),
    // Even a limit that reading took whole leaves a first choice some time.
    ...(timeLimit === undefined ? {} : { timeLimitSeconds: Math.max(0.05, deadline.leftSeconds) }),
    ...defined({ rounds }),
    ...(lanes === undefined ? {} : { members: Math.max(1, lanes) }),
  });
  if (deadline.isInterrupted && solution.status === 'feasible')
    io.stderr(
      `interrupted: the best choice so far costs ${exact(solution.objective)}, none costs ` +
        `less than ${exact(solution.bound)}, gap ${percentText(solution.gap)}\n`,
    );
  const seconds = (performance.now() - began) / 1000;
  report(solution, seconds, options.json === true, io, steps?.steps);
  if (options.certificate !== undefined && solution.certificate !== undefined)
    writeText(options.certificate, `${JSON.stringify(solution.certificate)}\n`, 'certificate');
  if (solution.status === 'infeasible') return EXIT.infeasible;
  return solution.gap <= gap || solution.status === 'optimal' ? EXIT.ok : EXIT.gap;
}

/** Replays a certificate against the problem; nothing is solved. Exit 5 where it proves nothing. */
function checkCommand(problem: Problem, path: string, json: boolean, io: CliIo): number {
  const certificate = asCertificate(
    parsedJson(readBytes(path, 'a certificate, as `--certificate` writes it.'), path),
    path,
  );
  const verdict = verifyCertificate(problem, { choice: [], objective: Infinity, certificate });
  const { accepted, reason, bound } = verdict;
  const infeasible = accepted && bound === NO_CHOICE;
  if (json) {
    const said = accepted && !infeasible ? `${bound}` : null;
    io.stdout(
      `${JSON.stringify({ accepted, bound: said, infeasible, ...(accepted ? {} : { reason }) })}\n`,
    );
  } else if (!accepted) io.stdout(`refused: ${reason ?? ''}\n`);
  else
    io.stdout(
      `accepted: ${infeasible ? 'there is no choice' : `no choice costs less than ${bound}`}\n`,
    );
  return accepted ? EXIT.ok : EXIT.findings;
}

/** Reads an IOPDDL file, plain or gzipped (told by its first bytes). */
function readProblem(path: string): Problem {
  const parsed = parsedJson(
    readBytes(
      path,
      'an IOPDDL problem, as JSON or gzipped JSON of at most 512 MiB, or - for stdin.',
    ),
    path,
  );
  try {
    return readIopddl(parsed);
  } catch (error) {
    if (error instanceof IopddlError)
      throw new ShardwrightError(error.code, error.message, {
        file: shownPath(path),
        path: error.path,
        hint:
          error.code === 'E_LIMIT'
            ? 'divide all costs, or all usages and the limit, by a common factor.'
            : 'the format is that of google/iopddl: problem.nodes, problem.edges and ' +
              'problem.usage_limit; costs are integers below 2^53, or 10^18 and more for what is ' +
              'forbidden.',
      });
    throw error;
  }
}

function readBytes(path: string, what: string): Buffer {
  const hint = `give the path of ${what}`;
  const bytes = readFileBytes(path, {
    what: 'problem',
    code: 'E_FILE',
    hint,
    maxBytes: MOST_BYTES,
  });
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  try {
    return gunzipSync(bytes, { maxOutputLength: MOST_BYTES });
  } catch (error) {
    throw new ShardwrightError('E_FILE', `cannot unpack ${shownPath(path)}: ${message(error)}`, {
      hint,
    });
  }
}

function parsedJson(bytes: Buffer, path: string): unknown {
  return parseAnyDepth(fileText(bytes, path), { file: shownPath(path) });
}

function message(error: unknown): string {
  return messageOf(error);
}

function report(
  solution: Solution,
  seconds: number,
  json: boolean,
  io: CliIo,
  solverSteps: readonly RecordedStep[] | undefined,
): void {
  const { status, objective, bound, gap, choice } = solution;
  if (json) {
    const body = {
      status,
      objective: Number.isFinite(objective) ? exact(objective) : null,
      bound: Number.isFinite(bound) ? exact(bound) : null,
      gap: Number.isFinite(gap) ? gap : null,
      seconds,
      choice: Array.from(choice),
      ...defined({ evidence: solution.evidence, conflict: solution.conflict }),
      ...(solution.smallestBudget === undefined
        ? {}
        : { smallestBudget: `${solution.smallestBudget}` }),
      ...defined({ solverSteps }),
    };
    io.stdout(`${JSON.stringify(body)}\n`);
    return;
  }
  const explain = (): void => {
    if (solverSteps !== undefined) io.stdout(`\n${solverStepsText(solverSteps)}\n`);
  };
  if (status === 'infeasible') {
    const budget = solution.smallestBudget;
    io.stdout(`infeasible: ${(solution.conflict ?? []).join(' contradicts ')}\n`);
    if (budget !== undefined) io.stdout(`smallest usage limit that admits a choice: ${budget}\n`);
    explain();
    return;
  }
  io.stdout(
    `${status}  cost ${exact(objective)}  bound ${exact(bound)}  gap ${percentText(gap)}  ` +
      `${secondsText(seconds)}\n`,
  );
  for (const word of solution.evidence ?? []) io.stdout(`${word}\n`);
  explain();
}

/** All digits of a whole number; `-` where there is none. */
function exact(value: number): string {
  return Number.isFinite(value) ? BigInt(value).toString() : '-';
}

/**
 * Incumbent, bound, gap and seconds: one rewritten line on a terminal, a line per change otherwise.
 */
function progressPrinter(io: CliIo, quiet: boolean): (event: Progress) => void {
  let last = '';
  return ({ phase, seconds, objective, bound, gap }) => {
    if (quiet) return;
    const state =
      `${phase}  best ${Math.round(objective)}  bound ` +
      `${Number.isFinite(bound) ? Math.floor(bound) : '-'}  gap ` +
      `${Number.isFinite(gap) ? percentText(gap) : '-'}`;
    if (state === last && !io.isTerminal) return;
    last = state;
    io.progress(`${state}  ${secondsText(seconds)}`);
  };
}

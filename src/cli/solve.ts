import { writeFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { ShardwrightError } from '../errors.ts';
import type { ChoiceProgress, ChoiceSolution } from '../solver/anytime/solve-choice.ts';
import { IopddlError, readIopddl } from '../solver/iopddl.ts';
import type { Problem } from '../solver/types.ts';
import { readFileBytes, shownPath } from '../read-file.ts';
import { percentText, secondsText } from '../units.ts';
import { EXIT, type CliIo } from './io.ts';
import { parseCount, parseFraction, parsePositive } from './options.ts';

export interface SolveCommandOptions {
  readonly timeLimit?: string;
  readonly gap: string;
  readonly seed: string;
  readonly threads: string;
  readonly lanes?: string;
  readonly rounds?: string;
  readonly certificate?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** Largest text that is read, unpacked; Node holds no longer string. */
const MOST_BYTES = 2 ** 29 - 64;

export async function solveCommand(path: string, options: SolveCommandOptions, io: CliIo): Promise<number> {
  const gap = parseFraction(options.gap, '--gap');
  const seed = parseCount(options.seed, '--seed');
  const threads = Math.max(1, parseCount(options.threads, '--threads'));
  const lanes = options.lanes === undefined ? undefined : Math.max(1, parseCount(options.lanes, '--lanes'));
  const timeLimit = options.timeLimit === undefined ? undefined : parsePositive(options.timeLimit, '--time-limit');
  const rounds = options.rounds === undefined ? undefined : parseCount(options.rounds, '--rounds');
  const began = performance.now();
  const problem = readProblem(path);
  const reading = (performance.now() - began) / 1000;
  const { solveChoice } = await import('../solver/anytime/solve-choice.ts');
  const stop = new AbortController();
  const onSignal = (): void => stop.abort();
  process.once('SIGINT', onSignal);
  let solution: ChoiceSolution;
  try {
    solution = await solveChoice(problem, {
      gap,
      seed,
      threads,
      signal: stop.signal,
      onProgress: progressPrinter(io, options.quiet === true),
      // The limit is that of the whole command.
      ...(timeLimit === undefined ? {} : { timeLimitSeconds: Math.max(0.05, timeLimit - reading) }),
      ...(rounds === undefined ? {} : { rounds }),
      ...(lanes === undefined ? {} : { lanes }),
    });
  } finally {
    process.off('SIGINT', onSignal);
  }
  const seconds = (performance.now() - began) / 1000;
  if (options.certificate !== undefined && solution.certificate !== undefined)
    writeFileSync(options.certificate, `${JSON.stringify(solution.certificate)}\n`);
  report(solution, seconds, options.json === true, io);
  if (solution.status === 'infeasible') return EXIT.infeasible;
  return solution.gap <= gap || solution.status === 'optimal' ? EXIT.ok : EXIT.gap;
}

/** Reads an IOPDDL file, plain or gzipped (told by its first bytes). */
function readProblem(path: string): Problem {
  const hint = 'give the path of an IOPDDL problem, as JSON or gzipped JSON of at most 512 MiB, or - for stdin.';
  let bytes = readFileBytes(path, { what: 'problem', code: 'E_FILE', hint, maxBytes: MOST_BYTES });
  if (bytes[0] === 0x1f && bytes[1] === 0x8b)
    try {
      bytes = gunzipSync(bytes, { maxOutputLength: MOST_BYTES });
    } catch (error) {
      throw new ShardwrightError('E_FILE', `cannot unpack ${shownPath(path)}: ${message(error)}`, { hint });
    }
  let parsed: unknown;
  try {
    parsed = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new ShardwrightError('E_SYNTAX', `not JSON: ${message(error)}`, { file: shownPath(path) });
  }
  try {
    return readIopddl(parsed);
  } catch (error) {
    if (error instanceof IopddlError)
      throw new ShardwrightError('E_FORMAT', error.message, {
        file: shownPath(path),
        path: error.path,
        hint: 'the format is that of google/iopddl: problem.nodes, problem.edges and problem.usage_limit.',
      });
    throw error;
  }
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function report(solution: ChoiceSolution, seconds: number, json: boolean, io: CliIo): void {
  const { status, objective, bound, gap, choice } = solution;
  if (json) {
    const body = {
      status,
      objective: objective?.toString() ?? null,
      bound: bound?.toString() ?? null,
      gap: Number.isFinite(gap) ? gap : null,
      seconds,
      choice: Array.from(choice),
      ...(solution.conflict === undefined ? {} : { conflict: solution.conflict }),
      ...(solution.smallestBudget === undefined ? {} : { smallestBudget: `${solution.smallestBudget}` }),
    };
    io.stdout(`${JSON.stringify(body)}\n`);
    return;
  }
  if (status === 'infeasible') {
    const budget = solution.smallestBudget;
    io.stdout(`infeasible: ${(solution.conflict ?? []).join(' contradicts ')}\n`);
    if (budget !== undefined) io.stdout(`smallest usage limit that admits a choice: ${budget}\n`);
    return;
  }
  io.stdout(
    `${status}  cost ${objective ?? ''}  bound ${bound ?? ''}  gap ${percentText(gap)}  ${secondsText(seconds)}\n`,
  );
}

/** Incumbent, bound, gap and seconds: one rewritten line on a terminal, a line per change otherwise. */
function progressPrinter(io: CliIo, quiet: boolean): (event: ChoiceProgress) => void {
  let last = '';
  return ({ phase, seconds, objective, bound, gap }) => {
    if (quiet) return;
    const state = `${phase}  best ${Math.round(objective)}  bound ${Number.isFinite(bound) ? Math.floor(bound) : '-'}  gap ${Number.isFinite(gap) ? percentText(gap) : '-'}`;
    if (state === last && !io.isTerminal) return;
    last = state;
    io.progress(`${state}  ${secondsText(seconds)}`);
  };
}

/**
 * Checkpointing per module (PyTorch's `torch.distributed._tools.sac_ilp`): which modules of a tree
 * are checkpointed, and what share of its activations each discards, so that memory in the backward
 * pass stays within a budget at the least recompute time. A module inside a checkpointed one is not
 * checkpointed itself, and leaves never are.
 *
 *   minimise sum t_k seconds of recomputation y_k in {0, 1}, r_k <= y_k module k is checkpointed,
 *   share r_k of its bytes discarded y_k + y_l <= 1 l inside k d_k = all_k r_k - (all_k - saved_k)
 *   y_k >= 0 bytes freed: a checkpoint holds all its results that it does not
 *                                                             discard, also those that nobody would
 *                                                             have saved
 *   t_k >= seconds_k (slope r_k + intercept y_k) every piece of the recompute curve alive_i +
 *   gradients of activations_i - sum d_k (k before i) + states_i <= budget at every module i
 *
 * The pieces are scaled by y instead of switched by a large constant: the same integer points, and
 * a far better relaxation.
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { askLibrary } from '../../solver/milp/library.ts';
import type { LinearProgram } from '../../solver/milp/linear-program.ts';
import type { CurveLine } from './recompute-curve.ts';

/**
 * One module of a tree; modules inside it are those whose names continue its own after a dot. Bytes
 * are of one device.
 */
export interface ModuleStatistics {
  readonly name: string;
  /** Parameters of the module and of all inside it, before sharding. */
  readonly parameterBytes: number;
  /** Gradients of parameters that exist when its backward pass begins, before sharding. */
  readonly gradientTotalBytes: number;
  /** Bytes that its forward pass leaves for the backward pass, without inputs and outputs. */
  readonly savedBytes: number;
  /** Activations of the whole program that are alive when its forward pass is over. */
  readonly aliveBytes: number;
  /** Gradients of activations at the peak of its backward pass. */
  readonly activationGradientBytes: number;
  /**
   * All results that it makes, the time of making them, and what discarding a share of them costs;
   * absent on leaves.
   */
  readonly recompute?: {
    readonly bytes: number;
    readonly seconds: number;
    readonly lines: readonly CurveLine[];
  };
}

/** The budget in bytes per device, and how the model is sharded. */
export interface PerModuleOptions {
  readonly budgetBytes: number;
  /** Devices that parameters and gradients are sharded over. Default 1. */
  readonly devices?: number;
  /**
   * Modules whose parameters are gathered as one: none of those around them is checkpointed, and
   * three times the largest of them counts at every program point (the one in use, the one on its
   * way, and its gradient).
   */
  readonly units?: readonly string[];
  /** The only modules that may be checkpointed. Default: all but leaves. */
  readonly only?: readonly string[];
  /** Default 180. */
  readonly timeLimitSeconds?: number;
  readonly signal?: AbortSignal;
}

/** A checkpointed module. */
export interface ModuleDiscard {
  readonly name: string;
  /** Share of `recompute.bytes` that is recomputed, in (0, 1]. */
  readonly ratio: number;
  /** Bytes that are freed against no checkpointing. */
  readonly freedBytes: number;
  readonly seconds: number;
}

/** Which operators every module recomputes, and what the step costs; or why nothing fits. */
export type PerModuleResult =
  | {
      /** `feasible`: the time limit came before the proof. */
      readonly status: 'optimal' | 'feasible';
      /** In the order of the modules given. */
      readonly modules: readonly ModuleDiscard[];
      readonly recomputeSeconds: number;
      readonly peakBytes: number;
    }
  /** No choice keeps the budget; none needs less than this. */
  | { readonly status: 'infeasible'; readonly leastPeakBytes: number };

const TIME_LIMIT_SECONDS = 180;
/** Copies of the largest unit that are alive at a time. */
const UNITS_ALIVE = 3;
/** Peaks are followed in doubles; the solver keeps rows to 1e-6 of a thousandth of the budget. */
const SLACK_BYTES = 1;
const ROW_SCALE = 1e3;

/**
 * The modules to checkpoint.
 *
 * @param modules in the order in which their forward passes end: the whole model is the last
 * @throws E_USAGE for a tree without root, unknown names, or curves without pieces
 * @throws E_TIME_LIMIT when the limit comes before any answer
 */
export async function checkpointModules(
  modules: readonly ModuleStatistics[],
  options: PerModuleOptions,
): Promise<PerModuleResult> {
  checkKinds('checkpointModules', {
    modules: [modules, 'list'],
    options: [options, ['budgetBytes']],
  });
  const frame = frameOf(modules, options);
  const run = {
    timeLimitSeconds: options.timeLimitSeconds ?? TIME_LIMIT_SECONDS,
    ...defined({ signal: options.signal }),
  };
  const { budgetBytes } = options;
  const answer = await askLibrary('highs', programOf(frame, budgetBytes), run);
  if (answer.word === 'Infeasible' || answer.word.startsWith('infeasible before')) {
    const least = await askLibrary('highs', programOf(frame, undefined), run);
    if (least.word !== 'Optimal' || least.values === undefined) throw refusal(least.word);
    return {
      status: 'infeasible',
      leastPeakBytes: (least.values[least.values.length - 1] / ROW_SCALE) * frame.unitBytes,
    };
  }
  if (answer.values === undefined) throw refusal(answer.word);
  const { ratios, peak } = withinBudget(frame, answer.values, budgetBytes);
  const chosen = frame.candidates.flatMap((c): ModuleDiscard[] => {
    const ratio = ratios[c.module];
    if (ratio === 0) return [];
    return [
      {
        name: modules[c.module].name,
        ratio,
        freedBytes: freed(c, ratio),
        seconds: secondsOf(c, ratio),
      },
    ];
  });
  return {
    status: answer.word === 'Optimal' ? 'optimal' : 'feasible',
    modules: chosen,
    recomputeSeconds: chosen.reduce((sum, m) => sum + m.seconds, 0),
    peakBytes: peak,
  };
}

function refusal(word: string): ShardwrightError {
  if (word.startsWith('Time limit') || word.startsWith('terminated') || word.startsWith('stopped'))
    return new ShardwrightError(
      'E_TIME_LIMIT',
      `no choice of modules before the time limit (${word})`,
    );
  return internalError(`HiGHS says '${word}' of a checkpointing program`);
}

/** A module that may be checkpointed. */
interface Candidate {
  readonly module: number;
  readonly allBytes: number;
  readonly savedBytes: number;
  readonly seconds: number;
  readonly lines: readonly CurveLine[];
  /** Least ratio that frees anything. */
  readonly leastRatio: number;
}

interface Frame {
  readonly modules: readonly ModuleStatistics[];
  readonly candidates: readonly Candidate[];
  /** Pairs of candidates, the second inside the first. */
  readonly nested: readonly (readonly [number, number])[];
  /** Bytes at each module that no choice changes. */
  readonly fixedBytes: Float64Array;
  /** The unit in which the rows are counted. */
  readonly unitBytes: number;
}

function isInside(name: string, around: string): boolean {
  return name.startsWith(`${around}.`);
}

function frameOf(
  modules: readonly ModuleStatistics[],
  options: Omit<PerModuleOptions, 'budgetBytes'>,
): Frame {
  const root = modules.at(-1);
  const stray = modules.find((m) => m !== root && !isInside(m.name, root?.name ?? ''));
  if (root === undefined || stray !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `module '${stray?.name ?? ''}' is not inside '${root?.name ?? ''}', the last one`,
      {
        hint: 'give modules in the order in which their forward passes end, the whole model last.',
      },
    );
  const byName = new Map(modules.map((m) => [m.name, m]));
  for (const name of [...(options.units ?? []), ...(options.only ?? [])])
    if (!byName.has(name)) throw new ShardwrightError('E_USAGE', `there is no module '${name}'`);
  const devices = options.devices ?? 1;
  const largest = (options.units ?? []).reduce(
    (most, u) => Math.max(most, byName.get(u)?.parameterBytes ?? 0),
    0,
  );
  const candidates = modules.flatMap((m, module): Candidate[] => {
    const { recompute } = m;
    const mayBe =
      (options.only === undefined || options.only.includes(m.name)) &&
      !(options.units ?? []).some((unit) => isInside(unit, m.name));
    if (recompute === undefined || !mayBe) return [];
    if (recompute.lines.length === 0)
      throw new ShardwrightError('E_USAGE', `the recompute curve of '${m.name}' has no pieces`);
    // Two estimators may disagree by rounding; what is saved is made.
    const allBytes = Math.max(recompute.bytes, m.savedBytes);
    const leastRatio = allBytes === 0 ? 0 : (allBytes - m.savedBytes) / allBytes;
    const { seconds, lines } = recompute;
    return [{ module, allBytes, savedBytes: m.savedBytes, seconds, lines, leastRatio }];
  });
  const nested = candidates.flatMap((outer, a) =>
    candidates.flatMap((inner, b) =>
      isInside(modules[inner.module].name, modules[outer.module].name) ? [[a, b] as const] : [],
    ),
  );
  const fixedBytes = Float64Array.from(
    modules,
    (m) =>
      m.aliveBytes +
      m.activationGradientBytes +
      (root.parameterBytes + m.gradientTotalBytes) / devices +
      UNITS_ALIVE * largest,
  );
  return { modules, candidates, nested, fixedBytes, unitBytes: Math.max(1, ...fixedBytes) };
}

/** The columns of every candidate, then the peak. */
class Columns {
  readonly peak: number;

  constructor(private readonly candidates: number) {
    this.peak = 3 * candidates;
  }

  get count(): number {
    return this.peak + 1;
  }

  /** 1 where the candidate discards something. */
  y(k: number): number {
    return k;
  }

  /** The share that it discards. */
  r(k: number): number {
    return this.candidates + k;
  }

  /** The seconds that it runs again. */
  t(k: number): number {
    return 2 * this.candidates + k;
  }
}

/** The rows of a linear program: terms that are at most a bound. */
class Rows {
  readonly starts = [0];
  readonly indices: number[] = [];
  readonly values: number[] = [];
  readonly upper: number[] = [];
  readonly names: string[] = [];

  add(name: string, terms: readonly Term[], upper: number): void {
    for (const [column, value] of terms) {
      if (value === 0) continue;
      this.indices.push(column);
      this.values.push(value);
    }
    this.starts.push(this.indices.length);
    this.upper.push(upper);
    this.names.push(name);
  }
}

const inRows = ({ unitBytes }: Frame, bytes: number): number => (bytes / unitBytes) * ROW_SCALE;

/**
 * Columns y, r, t of every candidate, then the peak. Without a budget the peak is what is
 * minimised.
 */
function programOf(frame: Frame, budgetBytes: number | undefined): LinearProgram {
  const { candidates, modules } = frame;
  const count = candidates.length;
  const columns = new Columns(count);
  const rows = rowsOf(frame, columns);
  const cost = new Float64Array(columns.count);
  if (budgetBytes === undefined) cost[columns.peak] = 1;
  else for (let k = 0; k < count; k++) cost[columns.t(k)] = 1;
  const upper = new Float64Array(columns.count).fill(Infinity);
  upper.fill(1, 0, 2 * count);
  if (budgetBytes !== undefined) upper[columns.peak] = inRows(frame, budgetBytes);
  return {
    name: 'checkpoint-per-module',
    constant: 0,
    columns: columns.count,
    rows: rows.upper.length,
    cost,
    lower: new Float64Array(columns.count),
    upper,
    integer: Uint8Array.from({ length: columns.count }, (_, j) => (j < count ? 1 : 0)),
    starts: Int32Array.from(rows.starts),
    indices: Int32Array.from(rows.indices),
    values: Float64Array.from(rows.values),
    rowLower: new Float64Array(rows.upper.length).fill(-Infinity),
    rowUpper: Float64Array.from(rows.upper),
    columnName: (j) =>
      j === columns.peak
        ? 'peak'
        : `${['y', 'r', 't'][Math.floor(j / count)]}_${modules[candidates[j % count].module].name}`,
    rowName: (i) => rows.names[i],
  };
}

/** The rows of the problem: discards of each candidate and their price, exclusions, and memory. */
function rowsOf(frame: Frame, columns: Columns): Rows {
  const { candidates, nested, fixedBytes, modules } = frame;
  const rows = new Rows();
  const longest = Math.max(...candidates.map((c) => c.seconds), Number.MIN_VALUE);
  candidates.forEach((c, k) => {
    const { name } = modules[c.module];
    const [y, r, t] = [columns.y(k), columns.r(k), columns.t(k)];
    const share = c.seconds / longest;
    rows.add(`${name} discards`, terms([r, 1], [y, -1]), 0);
    rows.add(`${name} frees`, terms([r, -1], [y, c.leastRatio]), 0);
    for (const { slope, intercept } of c.lines)
      rows.add(`${name} again`, terms([r, share * slope], [y, share * intercept], [t, -1]), 0);
  });
  for (const [a, b] of nested) {
    const { name } = modules[candidates[b].module];
    rows.add(`${name} inside`, terms([columns.y(a), 1], [columns.y(b), 1]), 1);
  }
  fixedBytes.forEach((bytes, i) => {
    const before = candidates.flatMap((c, k) =>
      c.module < i
        ? terms(
            [columns.r(k), -inRows(frame, c.allBytes)],
            [columns.y(k), inRows(frame, c.allBytes - c.savedBytes)],
          )
        : [],
    );
    const memory = [...before, ...terms([columns.peak, -1])];
    rows.add(`memory at ${modules[i].name}`, memory, -inRows(frame, bytes));
  });
  return rows;
}

type Term = readonly [column: number, value: number];

function terms(...list: readonly Term[]): readonly Term[] {
  return list;
}

function freed(c: Candidate, ratio: number): number {
  return ratio === 0 ? 0 : c.allBytes * ratio - (c.allBytes - c.savedBytes);
}

function secondsOf(c: Candidate, ratio: number): number {
  if (ratio === 0) return 0;
  return (
    c.seconds *
    c.lines.reduce((most, { slope, intercept }) => Math.max(most, slope * ratio + intercept), 0)
  );
}

/** Peak of a choice: `freedBytes` by module. */
function peakBytes({ fixedBytes }: Pick<Frame, 'fixedBytes'>, freedBytes: Float64Array): number {
  let before = 0;
  return fixedBytes.reduce((most, bytes, i) => {
    const here = bytes - before;
    before += freedBytes[i];
    return Math.max(most, here);
  }, 0);
}

/**
 * Makes the answer in the solver's columns exact: ratios by module, checked against nesting and
 * budget by the formulas above.
 */
function withinBudget(
  frame: Frame,
  values: Float64Array,
  budgetBytes: number,
): { readonly ratios: Float64Array; readonly peak: number } {
  const { candidates, modules, nested } = frame;
  const ratios = new Float64Array(modules.length);
  candidates.forEach((c, k) => {
    const chosen = Math.round(values[k]) === 1;
    if (chosen)
      ratios[c.module] = Math.min(1, Math.max(c.leastRatio, values[candidates.length + k]));
  });
  const peakWith = (): number => {
    const bytes = new Float64Array(modules.length);
    for (const c of candidates) bytes[c.module] = freed(c, ratios[c.module]);
    return peakBytes(frame, bytes);
  };
  // A module that the budget does not need is only in the list because it costs nothing.
  for (const c of candidates) {
    const ratio = ratios[c.module];
    if (ratio === 0) continue;
    ratios[c.module] = 0;
    if (peakWith() > budgetBytes) ratios[c.module] = ratio;
  }
  // The solver keeps rows up to its tolerance: the rest is discarded too.
  const excess = peakWith() - budgetBytes;
  if (excess > 0)
    for (const c of candidates)
      if (ratios[c.module] > 0)
        ratios[c.module] = Math.min(1, ratios[c.module] + excess / c.allBytes);
  const peak = peakWith();
  const clash = nested.find(
    ([a, b]) => ratios[candidates[a].module] > 0 && ratios[candidates[b].module] > 0,
  );
  if (clash !== undefined || peak > budgetBytes + SLACK_BYTES)
    throw internalError(
      `HiGHS calls a choice of modules feasible that is not (peak ${peak}, budget ${budgetBytes})`,
    );
  return { ratios, peak };
}

/**
 * Optimal rematerialisation of a whole graph: the integer program of Checkmate (Jain et al.,
 * arXiv:1910.02653, section 4). Stage t computes node t for the first time, and any earlier nodes
 * once more; the solver chooses the values in memory between two stages. Columns grow with the
 * square of the nodes: a block of a model, not a model.
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError } from '../../errors.ts';
import { askLibrary } from '../../solver/milp/library.ts';
import type { LinearProgram } from '../../solver/milp/linear-program.ts';

/** Nodes in topological order; the last one is the goal. */
export interface RematGraph {
  readonly nodes: readonly {
    readonly bytes: number;
    readonly seconds: number;
    readonly needs: readonly number[];
  }[];
}

/** The work of one stage; positions of nodes, ascending. */
export interface RematStage {
  /** Results that stay in memory from the stage before. */
  readonly kept: readonly number[];
  /**
   * Results that are computed, in this order. Each stays in memory until its last use in the
   * stage, or longer where the next stage keeps it.
   */
  readonly computed: readonly number[];
}

/** A rematerialization schedule and its cost; or why there is none. */
export type RematResult =
  | {
      /** `feasible`: the time limit came before the proof. */
      readonly status: 'optimal' | 'feasible';
      /** Seconds of all evaluations. */
      readonly seconds: number;
      readonly peakBytes: number;
      readonly stages: readonly RematStage[];
    }
  | { readonly status: 'infeasible' };

/** How long the schedule is searched for, in seconds. */
export interface RematOptions {
  /** Default 180. */
  readonly timeLimitSeconds?: number;
  readonly signal?: AbortSignal;
}

const TIME_LIMIT_SECONDS = 180;
/** Most nodes: beyond, the program has more than 20,000 columns. */
const MOST_NODES = 100;
/** Rows of memory are brought to this size: solvers keep rows to an absolute tolerance. */
const ROW_SCALE = 1e3;
/** The share by which a followed schedule may exceed the limit, for the solver's tolerance. */
const SLACK = 1e-6;

/**
 * The schedule of least seconds that computes every node with what it needs in memory and never
 * holds more than the limit.
 *
 * @throws E_USAGE for needs that are not before their node, negative figures or no node; E_LIMIT
 *   above 100 nodes
 * @throws E_TIME_LIMIT when the limit comes before any answer
 */
export async function checkmate(
  graph: RematGraph,
  limitBytes: number,
  options: RematOptions = {},
): Promise<RematResult> {
  checkKinds('checkmate', {
    graph: [graph, 'remat'],
    limitBytes: [limitBytes, 'number'],
    options: [options, 'record', 'undefined'],
  });
  check(graph, limitBytes);
  const program = new Program(graph, limitBytes);
  const { word, values } = await askLibrary('highs', program.linear(), {
    timeLimitSeconds: options.timeLimitSeconds ?? TIME_LIMIT_SECONDS,
    ...defined({ signal: options.signal }),
  });
  if (word === 'Infeasible' || word.startsWith('infeasible before'))
    return { status: 'infeasible' };
  if (values === undefined) {
    if (/^(Time limit|terminated|stopped)/.test(word))
      throw new ShardwrightError('E_TIME_LIMIT', `no schedule before the time limit (${word})`);
    throw internalError(`HiGHS says '${word}' of a rematerialisation program`);
  }
  const stages = program.stages(values);
  const { seconds, peakBytes } = followed(graph, stages);
  if (peakBytes > limitBytes * (1 + SLACK))
    throw internalError(
      `HiGHS calls a schedule feasible that holds ${peakBytes} of ${limitBytes} bytes`,
    );
  return { status: word === 'Optimal' ? 'optimal' : 'feasible', seconds, peakBytes, stages };
}

/**
 * The integer program of `checkmate`, for any solver; `lpText` writes it. @throws E_USAGE, E_LIMIT
 * as `checkmate`
 */
export function checkmateProgram(graph: RematGraph, limitBytes: number): LinearProgram {
  checkKinds('checkmateProgram', {
    graph: [graph, 'remat'],
    limitBytes: [limitBytes, 'number'],
  });
  check(graph, limitBytes);
  return new Program(graph, limitBytes).linear();
}

function check({ nodes }: RematGraph, limitBytes: number): void {
  const bad = (message: string): ShardwrightError => new ShardwrightError('E_USAGE', message);
  if (nodes.length === 0) throw bad('a graph without nodes has no goal');
  if (nodes.length > MOST_NODES)
    throw new ShardwrightError(
      'E_LIMIT',
      `the program takes ${MOST_NODES} nodes at most, not ${nodes.length}`,
    );
  if (!(limitBytes > 0 && limitBytes < Infinity)) throw bad(`${limitBytes} bytes are not a limit`);
  nodes.forEach(({ bytes, seconds, needs }, k) => {
    if (!(bytes >= 0 && seconds >= 0 && bytes + seconds < Infinity))
      throw bad(`node ${k} has ${bytes} bytes and ${seconds} seconds`);
    const later = needs.find((i) => !Number.isInteger(i) || i < 0 || i >= k);
    if (later !== undefined) throw bad(`node ${k} needs ${later}, which is not before it`);
  });
}

/**
 * Seconds and peak of a schedule by its meaning alone. @throws E_INTERNAL where a node runs without
 * what it needs
 */
function followed(
  { nodes }: RematGraph,
  stages: readonly RematStage[],
): { readonly seconds: number; readonly peakBytes: number } {
  let [seconds, peakBytes] = [0, 0];
  let before: ReadonlySet<number> = new Set();
  stages.forEach(({ kept, computed }, t) => {
    const missing = kept.find((i) => !before.has(i));
    if (missing !== undefined)
      throw internalError(`stage ${t} keeps node ${missing}, which is not there`);
    const next = new Set(stages[t + 1]?.kept ?? []);
    const here = new Set(kept);
    const all = new Set(kept);
    computed.forEach((k, at) => {
      const { needs, seconds: time } = nodes[k];
      const absent = needs.find((i) => !here.has(i));
      if (absent !== undefined)
        throw internalError(`stage ${t} runs node ${k} without node ${absent}`);
      here.add(k);
      all.add(k);
      seconds += time;
      peakBytes = Math.max(
        peakBytes,
        [...here].reduce((sum, i) => sum + nodes[i].bytes, 0),
      );
      const later = computed.slice(at + 1);
      for (const i of [...needs, k])
        if (!next.has(i) && !later.some((q) => nodes[q].needs.includes(i))) here.delete(i);
    });
    if (!all.has(t)) throw internalError(`stage ${t} does not compute its node`);
    before = new Set([...all].filter((i) => here.has(i)));
  });
  return { seconds, peakBytes };
}

type Term = readonly [column: number, value: number];

/**
 * Columns: R[t, i] computes node i in stage t, S[t, i] keeps it into stage t, U[t, k] is memory
 * after node k of stage t, FREE[t, i, k] frees node i after node k.
 */
class Program {
  private readonly names: string[] = [];
  private readonly cost: number[] = [];
  private readonly lower: number[] = [];
  private readonly upper: number[] = [];
  private readonly integer: number[] = [];
  private readonly starts = [0];
  private readonly indices: number[] = [];
  private readonly values: number[] = [];
  private readonly rowLower: number[] = [];
  private readonly rowUpper: number[] = [];
  private readonly r: number[][] = [];
  private readonly s: number[][] = [];

  constructor(
    private readonly graph: RematGraph,
    limitBytes: number,
  ) {
    const { nodes } = graph;
    const n = nodes.length;
    const bytes = nodes.map((v) => (v.bytes / limitBytes) * ROW_SCALE);
    const longest = Math.max(...nodes.map((v) => v.seconds), Number.MIN_VALUE);
    const users = nodes.map((_, i) => nodes.flatMap((v, k) => (v.needs.includes(i) ? [k] : [])));
    const { r, s } = this;
    for (let t = 0; t < n; t++) {
      r.push(
        nodes
          .slice(0, t + 1)
          .map((v, i) => this.column(`r_${t}_${i}`, v.seconds / longest, i === t ? 1 : 0, 1)),
      );
      s.push(nodes.slice(0, t).map((_, i) => this.column(`s_${t}_${i}`, 0, 0, 1)));
    }
    for (let t = 0; t < n; t++) {
      for (let i = 0; i < t; i++)
        this.row(
          [[s[t][i], 1], [r[t - 1][i], -1], ...(i < t - 1 ? [[s[t - 1][i], -1] as const] : [])],
          -Infinity,
          0,
        );
      for (let i = 0; i <= t; i++)
        for (const j of nodes[i].needs)
          this.row(
            [[r[t][i], 1], [r[t][j], -1], ...(j < t ? [[s[t][j], -1] as const] : [])],
            -Infinity,
            0,
          );
      const u = Array.from({ length: t + 1 }, (_, k) =>
        this.column(`u_${t}_${k}`, 0, 0, ROW_SCALE, false),
      );
      this.row(
        [[u[0], 1], [r[t][0], -bytes[0]], ...s[t].map((c, i): Term => [c, -bytes[i]])],
        0,
        0,
      );
      for (let k = 0; k < t; k++) {
        const freed = [...nodes[k].needs, k].map((i): Term => {
          const f = this.column(`f_${t}_${i}_${k}`, 0, 0, 1);
          // Free exactly when k is computed, nobody later in the stage needs i, and the next stage
          // does not keep i.
          const later = users[i].filter((q) => q > k && q <= t).map((q): Term => [r[t][q], 1]);
          const hazards: Term[] = t + 1 < n ? [...later, [s[t + 1][i], 1]] : later;
          const most = hazards.length + 1;
          this.row([[f, 1], [r[t][k], -1], ...hazards], 0, Infinity);
          this.row([[f, most], [r[t][k], -1], ...hazards], -Infinity, most - 1);
          return [f, bytes[i]];
        });
        this.row([[u[k + 1], 1], [u[k], -1], [r[t][k + 1], -bytes[k + 1]], ...freed], 0, 0);
      }
    }
  }

  linear(): LinearProgram {
    return {
      name: 'checkmate',
      constant: 0,
      columns: this.names.length,
      rows: this.rowLower.length,
      cost: Float64Array.from(this.cost),
      lower: Float64Array.from(this.lower),
      upper: Float64Array.from(this.upper),
      integer: Uint8Array.from(this.integer),
      starts: Int32Array.from(this.starts),
      indices: Int32Array.from(this.indices),
      values: Float64Array.from(this.values),
      rowLower: Float64Array.from(this.rowLower),
      rowUpper: Float64Array.from(this.rowUpper),
      columnName: (j) => this.names[j],
      rowName: (i) => `c${i}`,
    };
  }

  /** Reads the stages from the columns of an answer. */
  stages(values: Float64Array): RematStage[] {
    const on = (columns: readonly number[]): number[] =>
      columns.flatMap((column, i) => (Math.round(values[column]) === 1 ? [i] : []));
    return this.graph.nodes.map((_, t) => ({ kept: on(this.s[t]), computed: on(this.r[t]) }));
  }

  private column(name: string, cost: number, lower: number, upper: number, integer = true): number {
    this.cost.push(cost);
    this.lower.push(lower);
    this.upper.push(upper);
    this.integer.push(integer ? 1 : 0);
    return this.names.push(name) - 1;
  }

  private row(terms: readonly Term[], lower: number, upper: number): void {
    for (const [column, value] of terms) {
      if (value === 0) continue;
      this.indices.push(column);
      this.values.push(value);
    }
    this.starts.push(this.indices.length);
    this.rowLower.push(lower);
    this.rowUpper.push(upper);
  }
}

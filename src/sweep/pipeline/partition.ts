/**
 * Cuts a list of layers into pipeline stages: consecutive runs with the least `sum of stages + (m -
 * 1) * longest stage + messages over the cuts`, each within a device's memory. Exact, by dynamic
 * programming over (stage, first layer) that keeps every pair of (sum, longest) that no other pair
 * dominates. Ties go to the earliest cuts.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { keptMicrobatches } from '../../simulate/pipeline/closed-forms.ts';
import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import { bytesText } from '../../units.ts';

/** One layer, or whatever is never cut: the embedding with its first layer, a tied pair. */
export interface PipelineUnit {
  readonly name: string;
  /** Forward and backward of one microbatch. */
  readonly seconds: number;
  /** Parameters, gradients and optimizer states on a device. */
  readonly stateBytes: number;
  /** Bytes that one microbatch keeps from forward to backward. */
  readonly activationBytes: number;
  /** Message to the unit after it and its gradient back, seconds both ways together. */
  readonly hopSeconds: number;
}

interface PartitionRequest {
  readonly stages: number;
  readonly microbatches: number;
  /** Decides how many microbatches a stage keeps. Default 1f1b. */
  readonly schedule?: Exclude<PipelineSchedule, 'interleaved'>;
  /** Bytes of a device; default no limit. */
  readonly limitBytes?: number;
}

interface PipelineStage {
  /** Units from `first` up to and without `end`. */
  readonly first: number;
  readonly end: number;
  readonly seconds: number;
  /** States, and activations of the microbatches that the schedule keeps. */
  readonly peakBytes: number;
  /** Microbatches kept. */
  readonly inFlight: number;
}

/** Stages of a pipeline with their seconds and bytes; or what does not fit. */
export type Partition =
  | {
      readonly status: 'found';
      /**
       * Seconds of a step by the formula above; `playPipeline` gives those of the schedule itself.
       */
      readonly seconds: number;
      /** First unit of every stage but the first. */
      readonly cuts: readonly number[];
      readonly stages: readonly PipelineStage[];
      /** The longest stage. */
      readonly critical: number;
      /**
       * The changes due to the memory limit, one sentence each; empty when the fastest cuts fit.
       */
      readonly moved: readonly string[];
    }
  | {
      readonly status: 'infeasible';
      /** The smallest limit that admits a partition into as many stages. */
      readonly smallestLimitBytes: number;
      readonly reason: string;
    };

const MAX_UNITS = 4096;

/**
 * Cuts a chain of units into pipeline stages of least step seconds within a limit of bytes.
 *
 * @throws E_USAGE for fewer units than stages, and for stages or microbatches below 1
 */
export function partitionStages(
  units: readonly PipelineUnit[],
  request: PartitionRequest,
): Partition {
  checkKinds('partitionStages', {
    units: [units, 'records'],
    request: [request, ['stages', 'microbatches']],
  });
  const { stages: p, microbatches: m, limitBytes = Infinity } = request;
  if (!Number.isSafeInteger(p) || p < 1 || !Number.isSafeInteger(m) || m < 1)
    throw new ShardwrightError('E_USAGE', `a pipeline of ${p} stages and ${m} microbatches`);
  if (units.length < p)
    throw new ShardwrightError(
      'E_USAGE',
      `${units.length} layers cannot fill ${p} pipeline stages`,
      {
        hint: `use at most ${units.length} stages`,
      },
    );
  if (units.length > MAX_UNITS)
    throw new ShardwrightError(
      'E_LIMIT',
      `${units.length} layers, at most ${MAX_UNITS} are cut into stages`,
    );
  const search = new Search(units, request);
  const cuts = search.best(limitBytes);
  if (cuts === undefined) {
    const smallestLimitBytes = search.smallestLimit();
    return {
      status: 'infeasible',
      smallestLimitBytes,
      reason:
        `no ${p} stages fit ${bytesText(limitBytes)} per device; the smallest limit that works ` +
        `is ${bytesText(smallestLimitBytes)}`,
    };
  }
  const free = limitBytes === Infinity ? cuts : (search.best(Infinity) ?? cuts);
  const stages = search.stagesOf(cuts);
  const longest = stages.reduce((k, s, i) => (s.seconds > stages[k].seconds ? i : k), 0);
  return {
    status: 'found',
    seconds: search.secondsOf(cuts),
    cuts,
    stages,
    critical: longest,
    moved: movedBy(search, free, cuts, limitBytes),
  };
}

/** Why the fastest cuts are not the chosen ones. */
function movedBy(
  search: Search,
  free: readonly number[],
  cuts: readonly number[],
  limit: number,
): string[] {
  if (free.join() === cuts.join()) return [];
  const out = search
    .stagesOf(free)
    .flatMap((stage, s) =>
      stage.peakBytes > limit
        ? [
            `stage ${s} with ${stage.end - stage.first} units (${search.range(stage)}) would ` +
              `need ${bytesText(stage.peakBytes)} of ${bytesText(limit)}, ` +
              `${bytesText(stage.peakBytes - limit)} too much`,
          ]
        : [],
    );
  const changed = cuts.flatMap((cut, k) =>
    cut === free[k] ? [] : [`the cut before stage ${k + 1} from ${free[k]} to ${cut}`],
  );
  const more = search.secondsOf(cuts) - search.secondsOf(free);
  return [
    ...out,
    `this moves ${changed.join(' and ')}, which costs ${(more * 1e3).toPrecision(3)} ms a step`,
  ];
}

/**
 * A tail of stages that no other dominates: sum of seconds with messages, and its longest stage.
 */
interface Tail {
  readonly sum: number;
  readonly longest: number;
}

class Search {
  private readonly p: number;
  private readonly m: number;
  private readonly seconds: Float64Array;
  private readonly states: Float64Array;
  private readonly activations: Float64Array;
  private readonly kept: readonly number[];

  constructor(
    private readonly units: readonly PipelineUnit[],
    { stages, microbatches, schedule = '1f1b' }: PartitionRequest,
  ) {
    this.p = stages;
    this.m = microbatches;
    const prefix = (of: (unit: PipelineUnit) => number): Float64Array => {
      const sums = new Float64Array(units.length + 1);
      units.forEach((unit, l) => (sums[l + 1] = sums[l] + of(unit)));
      return sums;
    };
    this.seconds = prefix((u) => u.seconds);
    this.states = prefix((u) => u.stateBytes);
    this.activations = prefix((u) => u.activationBytes);
    const shape = { devices: stages, microbatches };
    this.kept = Array.from({ length: stages }, (_, s) => keptMicrobatches(schedule, shape, s));
  }

  /**
   * Cuts of least seconds under a limit, the earliest among equals; undefined where no cuts fit.
   */
  best(limit: number): number[] | undefined {
    const { p, units } = this;
    const tails = this.tails(limit);
    let least = Infinity;
    for (const tail of tails[0][0]) least = Math.min(least, this.total(tail));
    if (least === Infinity) return undefined;
    const close = least + 1e-12 * Math.abs(least);
    // Stage by stage the earliest end from which the least total can still be had.
    const cuts: number[] = [];
    let done: Tail = { sum: 0, longest: 0 };
    let first = 0;
    for (let s = 0; s + 1 < p; s++) {
      for (let end = first + 1; end <= units.length - (p - 1 - s); end++) {
        if (this.bytes(s, first, end) > limit) continue;
        const head = join(this.stage(first, end), done);
        if (!tails[s + 1][end].some((tail) => this.total(join(head, tail)) <= close)) continue;
        cuts.push(end);
        [done, first] = [head, end];
        break;
      }
    }
    return cuts;
  }

  /** By stage and first unit: what the stages from there to the last can take. */
  private tails(limit: number): Tail[][][] {
    const { p, units } = this;
    const n = units.length;
    const tails = Array.from({ length: p }, () => Array.from({ length: n + 1 }, (): Tail[] => []));
    for (let l = p - 1; l < n; l++)
      if (this.bytes(p - 1, l, n) <= limit) tails[p - 1][l] = [this.stage(l, n)];
    for (let s = p - 2; s >= 0; s--)
      for (let l = s; l < n - (p - 1 - s); l++) {
        const found: Tail[] = [];
        for (let end = l + 1; end <= n - (p - 1 - s); end++) {
          if (this.bytes(s, l, end) > limit) break;
          const own = this.stage(l, end);
          for (const tail of tails[s + 1][end]) found.push(join(own, tail));
        }
        tails[s][l] = undominated(found);
      }
    return tails;
  }

  /** The smallest of all stages' largest bytes. */
  smallestLimit(): number {
    const { p, units } = this;
    const n = units.length;
    let row = Array.from({ length: n + 1 }, (_, l) => (l < n ? this.bytes(p - 1, l, n) : Infinity));
    for (let s = p - 2; s >= 0; s--) {
      const after = row;
      row = after.map((_, l) => {
        let least = Infinity;
        for (let end = l + 1; end <= n; end++)
          least = Math.min(least, Math.max(this.bytes(s, l, end), after[end]));
        return least;
      });
    }
    return row[0];
  }

  stagesOf(cuts: readonly number[]): PipelineStage[] {
    const bounds = [0, ...cuts, this.units.length];
    return Array.from({ length: this.p }, (_, s) => {
      const [first, end] = [bounds[s], bounds[s + 1]];
      return {
        first,
        end,
        seconds: this.seconds[end] - this.seconds[first],
        peakBytes: this.bytes(s, first, end),
        inFlight: this.kept[s],
      };
    });
  }

  secondsOf(cuts: readonly number[]): number {
    const bounds = [0, ...cuts, this.units.length];
    let all: Tail = { sum: 0, longest: 0 };
    for (let s = 0; s < this.p; s++) all = join(all, this.stage(bounds[s], bounds[s + 1]));
    return this.total(all);
  }

  range({ first, end }: PipelineStage): string {
    return end - first === 1
      ? this.units[first].name
      : `${this.units[first].name} to ${this.units[end - 1].name}`;
  }

  private total({ sum, longest }: Tail): number {
    return sum + (this.m - 1) * longest;
  }

  private stage(first: number, end: number): Tail {
    const seconds = this.seconds[end] - this.seconds[first];
    return {
      sum: seconds + (end < this.units.length ? this.units[end - 1].hopSeconds : 0),
      longest: seconds,
    };
  }

  private bytes(s: number, first: number, end: number): number {
    return (
      this.states[end] -
      this.states[first] +
      this.kept[s] * (this.activations[end] - this.activations[first])
    );
  }
}

function join(a: Tail, b: Tail): Tail {
  return { sum: a.sum + b.sum, longest: Math.max(a.longest, b.longest) };
}

function undominated(tails: Tail[]): Tail[] {
  tails.sort((a, b) => a.sum - b.sum || a.longest - b.longest);
  const kept: Tail[] = [];
  for (const tail of tails)
    if (kept.length === 0 || tail.longest < kept[kept.length - 1].longest) kept.push(tail);
  return kept;
}

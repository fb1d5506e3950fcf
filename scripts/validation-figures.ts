/**
 * Writes data/validation.json: how far the model that decides is off on the public runs
 * (test/fixtures/runs), as reports, plans and comparisons quote it. The predictions are those of
 * bench/predictions.csv, which bench/held-out.ts makes. Run: npx tsx scripts/validation-figures.ts
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { format } from 'prettier';

import {
  engineOf,
  type ErrorFigures,
  type ErrorPool,
  type Fidelity,
  kindOf,
  type MeasuredErrors,
  type Quantiles,
} from '../src/cost/error-bands.ts';
import { parseCsv } from '../src/fidelity/csv.ts';
import { FAMILY_NAMES, familyOf } from '../src/fidelity/families.ts';
import {
  mean,
  median,
  regret,
  SMALLEST_GROUP,
  spearman,
  weightedQuantile,
} from '../src/fidelity/metrics.ts';
import { type MeasuredRun, parseRuns } from '../src/fidelity/runs.ts';
import { trainerOfProfile } from '../src/trainers/trainers.ts';

const FILE = fileURLToPath(new URL('../data/validation.json', import.meta.url));
/** Runs that a pool has at least: its outer tenths are then a run each. */
const LEAST_RUNS = 10;
/** Readings with which a family counts by itself: a reading is not to count as much as forty. */
const FEWEST_READINGS = 5;
/** Quantiles of memory errors that are kept. */
const MEMORY_QUANTILES = 40;

/** The public runs of both fixtures as one table. */
export function publicRuns(): string {
  const [first, second] = ['measured', 'others'].map((name) =>
    gunzipSync(
      readFileSync(new URL(`../test/fixtures/runs/${name}.csv.gz`, import.meta.url)),
    ).toString(),
  );
  return first + second.slice(second.indexOf('\n') + 1);
}

/** A run and what was predicted of it. */
export interface Prediction {
  readonly run: MeasuredRun;
  readonly family: string;
  readonly experts: boolean;
  readonly hosts: 'one' | 'several';
  readonly measured: number | undefined;
  /** As shipped. */
  readonly seconds: number;
  /**
   * By constants that were fitted without the family; absent where the constants were not fitted
   * without the family yet.
   */
  readonly heldOut?: number;
  /** By the software of the default trainer, as for those who name none; absent: not asked so. */
  readonly assumed?: number;
  /** Call by call, one after another, as a plan is priced. */
  readonly calls: number;
  readonly peakBytes: number;
}

/** The predictions of bench/predictions.csv with their runs. */
export function publicPredictions(): Prediction[] {
  const { runs } = parseRuns(publicRuns());
  const byId = new Map(runs.map((run) => [run.id, run]));
  const table = readFileSync(new URL('../bench/predictions.csv', import.meta.url), 'utf8');
  return parseCsv(table, [
    'id',
    'seconds',
    'held_out_seconds',
    'assumed_seconds',
    'call_seconds',
    'peak_bytes',
  ]).rows.map(({ cells, line }) => {
    const run = byId.get(cells.get('id') ?? '');
    if (run === undefined)
      throw new Error(`bench/predictions.csv:${line}: no such run; npx tsx bench/held-out.ts`);
    const number = (name: string): number => Number(cells.get(name));
    return {
      run,
      family: familyOf(run.source),
      experts: (run.shape.experts?.count ?? 1) > 1,
      hosts: run.devices > run.system.cluster.devicesPerHost ? 'several' : 'one',
      measured: run.outOfMemory ? undefined : run.stepSeconds,
      seconds: number('seconds'),
      ...(cells.get('held_out_seconds') === '' ? {} : { heldOut: number('held_out_seconds') }),
      ...(cells.get('assumed_seconds') === '' ? {} : { assumed: number('assumed_seconds') }),
      calls: number('call_seconds'),
      peakBytes: number('peak_bytes'),
    };
  });
}

type Timed = Prediction & { readonly measured: number };

/** Each family counts the same in a pool, whatever its rows. */
function weighted<T extends Prediction>(
  rows: readonly T[],
  value: (row: T) => number,
): { readonly value: number; readonly weight: number }[] {
  const count = new Map<string, number>();
  for (const { family } of rows) count.set(family, (count.get(family) ?? 0) + 1);
  return rows.map((row) => ({ value: value(row), weight: 1 / (count.get(row.family) ?? 1) }));
}

/** Readings of families that have few of them as those of one family. */
function fewAsOne(readings: readonly Prediction[]): Prediction[] {
  const count = (family: string): number => readings.filter((r) => r.family === family).length;
  return readings.map((r) => (count(r.family) < FEWEST_READINGS ? { ...r, family: '' } : r));
}

function quantilesOf(rows: readonly Timed[], said: (row: Timed) => number): Quantiles {
  const list = weighted(rows, (row) => row.measured / said(row));
  const count = effectiveCount(list);
  // Below the k-th of n runs lies k / (n + 1) of the runs to come (Wilks, 1941), not k / n.
  const at = (share: number): number =>
    rounded(weightedQuantile(list, share + (share - 0.5) / count));
  return { p10: at(0.1), p50: at(0.5), p90: at(0.9) };
}

/** Runs of equal weight that tell as much (Kish, 1965): a family of many runs counts as one of few. */
function effectiveCount(list: readonly { readonly weight: number }[]): number {
  const sum = (of: (weight: number) => number): number =>
    list.reduce((total, { weight }) => total + of(weight), 0);
  return sum((w) => w) ** 2 / sum((w) => w ** 2);
}

const NAMED = [
  ['accelerator', 'experts', 'trainer', 'hosts'],
  ['accelerator', 'experts', 'trainer'],
  ['accelerator', 'experts', 'hosts'],
  ['accelerator', 'experts'],
] as const;
/** A question without a trainer may be about any. */
const ASSUMED = NAMED.filter((level) => !level.some((part) => part === 'trainer'));

/** Every pool with enough runs, the narrowest first; that of all runs comes last. */
function allPools(rows: readonly Timed[]): ErrorPool[] {
  const asked = rows.filter((r) => r.assumed !== undefined);
  return [
    ...poolsOf(rows, NAMED, without).map((pool) => ({ ...pool, assumed: false })),
    ...poolsOf(asked, ASSUMED, (r) => r.assumed ?? NaN).map((pool) => ({ ...pool, assumed: true })),
    ...poolsOf(rows, [[]], without).map((pool) => ({ ...pool, assumed: false })),
  ];
}

function poolsOf(
  rows: readonly Timed[],
  levels: readonly (readonly ('accelerator' | 'experts' | 'trainer' | 'hosts')[])[],
  said: (row: Timed) => number,
): Omit<ErrorPool, 'assumed'>[] {
  const keys = rows.map((r) => ({
    accelerator: kindOf(r.run.system.cluster.accelerator),
    experts: r.experts,
    trainer: engineOf(trainerOfProfile(r.run.framework)),
    hosts: r.hosts,
  }));
  return levels.flatMap((level) => {
    const masked = keys.map((k) => ({
      accelerator: null,
      experts: null,
      trainer: null,
      hosts: null,
      ...Object.fromEntries(level.map((part) => [part, k[part]])),
    }));
    return [...new Set(masked.map((m) => JSON.stringify(m)))]
      .sort()
      .flatMap((key): Omit<ErrorPool, 'assumed'>[] => {
        const own = rows.filter((_, i) => JSON.stringify(masked[i]) === key);
        const families = FAMILY_NAMES.filter((name) => own.some((r) => r.family === name));
        if (own.length < LEAST_RUNS) return [];
        return [
          {
            ...(JSON.parse(key) as Pick<
              ErrorPool,
              'accelerator' | 'experts' | 'trainer' | 'hosts'
            >),
            runs: own.length,
            families,
            step: quantilesOf(own, said),
            calls: quantilesOf(own, (r) => r.calls),
          },
        ];
      });
  });
}

function groupsOf(rows: readonly Timed[], least: number): Timed[][] {
  const groups = new Map<string, Timed[]>();
  for (const row of rows) {
    const key = `${row.run.source}\n${row.run.group}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups.values()].filter((g) => g.length >= least);
}

function errorFigures(rows: readonly Timed[], said: (row: Timed) => number): ErrorFigures {
  const errors = rows.map((r) => said(r) / r.measured - 1);
  const ranked = groupsOf(rows, SMALLEST_GROUP).map(
    (g) => [g.map(said), g.map((r) => r.measured)] as const,
  );
  return {
    bias: rounded(median(errors) ?? 0),
    mape: rounded(mean(errors.map(Math.abs)) ?? 0),
    median: rounded(median(errors.map(Math.abs)) ?? 0),
    rank: maybe(mean(ranked.map(([p, m]) => spearman(p, m) ?? 0))),
    regret: maybe(mean(ranked.map(([p, m]) => regret(p, m)))),
  };
}

/**
 * Nine of ten pairs of comparable runs that are predicted to differ by more than this do so in that
 * order.
 */
function pairShare(groups: readonly (readonly Timed[])[], said: (row: Timed) => number): number {
  const list = groups.flatMap((group) => {
    const logs = group.map((r) => Math.log(r.measured / said(r)));
    const pairs = logs.flatMap((a, i) => logs.slice(i + 1).map((b) => Math.abs(a - b)));
    // A family and a group count the same whatever their size.
    const own = groups.filter((g) => g[0].family === group[0].family).length;
    return pairs.map((value) => ({ value, weight: 1 / (own * pairs.length) }));
  });
  // Differences are as likely in one direction as in the other: one of ten beyond it is two of ten
  // of their sizes.
  return rounded(Math.exp(weightedQuantile(list, 0.8)) - 1);
}

/** The figures that are bundled, with three digits. */
export function validationFigures(predictions: readonly Prediction[]): Fidelity {
  const timed = predictions.filter((p): p is Timed => p.measured !== undefined);
  const groups = groupsOf(timed, 2).filter(
    (g) => new Set(g.map((r) => r.run.comparable)).size === 1,
  );
  const heldOut = timed.filter((r) => r.heldOut !== undefined).length;
  const memory = predictions.filter(({ run }) => !run.outOfMemory && run.memoryBytes !== undefined);
  const ratios = weighted(
    fewAsOne(memory),
    ({ run, peakBytes }) => (run.memoryBytes ?? 0) / peakBytes,
  );
  return {
    about:
      'Errors of the model that decides: the layouts of measured runs are priced as compare ' +
      'and plan price their own candidates. The structure of the model was written with all ' +
      'runs in view, and ' +
      `${heldOut === timed.length ? 'its constants were fitted without the family of each run' : `so were its constants for ${timed.length - heldOut} of ${timed.length} runs; errors with constants fitted without the family: bench/compare.md`}.`,
    source:
      `${timed.length} published training runs; method, sources and each family: ` +
      'docs/fidelity.md',
    pools: allPools(timed),
    families: FAMILY_NAMES.flatMap((family) => {
      const own = timed.filter((r) => r.family === family);
      if (own.length === 0) return [];
      return [
        {
          family,
          runs: own.length,
          shipped: errorFigures(own, (r) => r.seconds),
          ...(own.every((r) => r.heldOut !== undefined)
            ? { heldOut: errorFigures(own, without) }
            : {}),
          calls: errorFigures(own, (r) => r.calls),
        },
      ];
    }),
    pairs: {
      groups: groups.length,
      step: pairShare(groups, without),
      calls: pairShare(groups, (r) => r.calls),
    },
    memory: {
      readings: memory.length,
      families: FAMILY_NAMES.filter((name) => memory.some((r) => r.family === name)),
      ratios: Array.from({ length: MEMORY_QUANTILES }, (_, k) =>
        rounded(weightedQuantile(ratios, (k + 0.5) / MEMORY_QUANTILES)),
      ),
    },
    rows: deviceRows(predictions),
  };
}

function deviceRows(predictions: readonly Prediction[]): MeasuredErrors[] {
  const groups = new Map<string, Prediction[]>();
  for (const p of predictions) {
    const key = `${p.run.system.cluster.accelerator} ${p.experts ? 'experts' : 'dense'}`;
    groups.set(key, [...(groups.get(key) ?? []), p]);
  }
  const rows = [...groups.values()].map((list): MeasuredErrors => {
    const seconds = list.flatMap(({ measured, seconds: said }) =>
      measured === undefined ? [] : [Math.abs(said / measured - 1)],
    );
    const bytes = list.flatMap(({ run, peakBytes }) =>
      run.outOfMemory || run.memoryBytes === undefined
        ? []
        : [Math.abs(peakBytes / run.memoryBytes - 1)],
    );
    return {
      accelerator: list[0].run.system.cluster.accelerator,
      experts: list[0].experts,
      runs: seconds.length,
      sources: [...new Set(list.map((p) => p.run.source))].sort(),
      mape: maybe(mean(seconds)),
      medianApe: maybe(median(seconds)),
      memoryRuns: bytes.length,
      memoryMedianApe: maybe(median(bytes)),
    };
  });
  return rows.sort((a, b) => b.runs - a.runs || (a.accelerator < b.accelerator ? -1 : 1));
}

/** Without the family where that was fitted, else as shipped. */
function without({ heldOut, seconds }: Prediction): number {
  return heldOut ?? seconds;
}

function rounded(value: number): number {
  return Number(value.toPrecision(3));
}

function maybe(value: number | undefined): number | null {
  return value === undefined ? null : rounded(value);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = JSON.stringify(validationFigures(publicPredictions()));
  writeFileSync(FILE, await format(text, { filepath: FILE, parser: 'json', printWidth: 120 }));
}

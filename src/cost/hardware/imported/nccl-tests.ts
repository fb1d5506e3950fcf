/**
 * Reads what nccl-tests print (`all_reduce_perf` and its siblings, also rccl-tests): the ranks with
 * their hosts, then a table of sizes and times. Columns are found by the header, since they differ
 * between versions (with and without `root`, `Group`). Times are those out of place. nccl-tests
 * give the bytes of the whole of an all_gather and a reduce_scatter.
 * Source: `src/common.cu` and `doc/PERFORMANCE.md` of NVIDIA/nccl-tests 2.0 to 2.17.
 */

import { ShardwrightError } from '../../../errors.ts';
import type { CollectiveKind } from '../../../mesh/collective-kinds.ts';
import type { CollectiveRow } from '../collective-table.ts';

const KINDS: Readonly<Record<string, CollectiveKind>> = {
  all_reduce: 'all_reduce',
  all_gather: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  alltoall: 'all_to_all',
  sendrecv: 'collective_permute',
};
const NAME = /\b(\w+)_perf(?:_mpi)?\b/g;
const RANK =
  /^\W*Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[\S*\]\s*(.*)$/;
const HEADER = /^\W*size\s+count\s+type\b.*\btime\b/;
const MICRO = 1e-6;
/** Rows of one file that are read at most. */
const MOST_ROWS = 10_000;

/** The figures in an output file of nccl-tests. */
interface NcclTests {
  readonly rows: readonly CollectiveRow[];
  /** Device as the tests print it, where they do. */
  readonly device: string | undefined;
  readonly told: readonly string[];
}

/** Tells whether a text has a table of nccl-tests. */
export function isNcclTests(text: string): boolean {
  return text.split('\n').some((line) => HEADER.test(line));
}

/** One run of one test. */
interface Run {
  kind: string | undefined;
  readonly ranks: Set<number>;
  readonly hosts: Set<string>;
  device: string | undefined;
  readonly times: Map<number, number>;
  wrong: number;
  /** The last row's bandwidth of the bus over that of the algorithm, and what it reduces by. */
  factor: number;
  reduction: string;
}

/**
 * The rows of all runs in a file.
 *
 * @throws E_COLLECTIVES with line and column for a row that does not fit its header, and for a file
 *   whose test is not named
 */
export function readNcclTests(text: string, file: string): NcclTests {
  const runs = runsOf(text.split(/\r?\n/), file);
  const rows: CollectiveRow[] = [];
  const told: string[] = [];
  for (const run of runs) {
    const row = rowOf(run, file, told);
    if (row !== undefined) rows.push(row);
  }
  return { rows, device: runs.find(({ device }) => device !== undefined)?.device, told };
}

function rowOf(run: Run, file: string, told: string[]): CollectiveRow | undefined {
  const name = run.kind ?? nameIn(file) ?? nameByFactor(run);
  if (run.kind === undefined && nameIn(file) === undefined && name !== undefined)
    told.push(`${file}: its test is not named; its bandwidths are those of ${name}.`);
  if (name === undefined)
    throw new ShardwrightError('E_COLLECTIVES', 'the file does not name its test', {
      file,
      hint: 'keep the command line in it, or name it after the test: all_reduce_perf.txt.',
    });
  const collective = Object.hasOwn(KINDS, name) ? KINDS[name] : undefined;
  if (collective === undefined) {
    told.push(`${file}: plans have no ${name}; its times are left out.`);
    return undefined;
  }
  const devices = run.ranks.size;
  if (devices < 2) {
    told.push(
      `${file}: ${name} of ${devices} ${devices === 1 ? 'rank' : 'ranks'} is left out; ` +
        'tests of several processes are built with MPI=1, and list their ranks.',
    );
    return undefined;
  }
  if (run.wrong > 0)
    told.push(`${file}: ${run.wrong} sizes of ${name} had wrong values, left out.`);
  const sizes = [...run.times].sort(([a], [b]) => a - b);
  if (sizes.length === 0) return undefined;
  const level = run.hosts.size > 1 ? 'inter' : 'intra';
  const part = collective === 'all_gather' ? devices : 1;
  return {
    ...{ group: level, devices, collective },
    bytes: sizes.map(([bytes]) => bytes / part),
    seconds: sizes.map(([, seconds]) => seconds),
    source: `${name}_perf of nccl-tests, ${file}`.slice(0, 200),
  };
}

/**
 * The test that reduces on no root and whose bandwidths are this far apart: 2 (n - 1) / n for an
 * all_reduce, (n - 1) / n for a reduce_scatter. Tests that only move data share their factors.
 */
function nameByFactor({ ranks, factor, reduction }: Run): string | undefined {
  const n = ranks.size;
  if (n < 2 || !reduction.endsWith(' -1') || reduction.startsWith('none')) return undefined;
  const isNear = (wanted: number): boolean => Math.abs(factor / wanted - 1) < 0.02;
  if (isNear((2 * (n - 1)) / n)) return 'all_reduce';
  return isNear((n - 1) / n) ? 'reduce_scatter' : undefined;
}

/** The name of the last test that a text names. */
function nameIn(text: string): string | undefined {
  return [...text.matchAll(NAME)].at(-1)?.[1];
}

function runsOf(lines: readonly string[], file: string): Run[] {
  const runs: Run[] = [];
  let named: string | undefined;
  let columns: readonly string[] | undefined;
  let count = 0;
  const begin = (): Run => {
    const run: Run = {
      ...{ kind: named, ranks: new Set<number>(), hosts: new Set<string>() },
      ...{ device: undefined, times: new Map<number, number>(), wrong: 0 },
      ...{ factor: 0, reduction: 'none' },
    };
    runs.push(run);
    columns = undefined;
    return run;
  };
  lines.forEach((line, at) => {
    const name = nameIn(line);
    const current = runs.at(-1);
    if (name !== undefined) {
      named = name;
      // The last line of a test names it, too.
      if (current !== undefined && /concluded|starting/.test(line)) current.kind ??= name;
    }
    const rank = RANK.exec(line);
    if (rank !== null) {
      const run = current === undefined || current.times.size > 0 ? begin() : current;
      run.ranks.add(Number(rank[1]));
      run.hosts.add(rank[2]);
      run.device ??= rank[3].trim() || undefined;
    } else if (HEADER.test(line)) columns = line.replace(/^\W+/, '').trim().split(/\s+/);
    else if (columns !== undefined && /^\s*\d/.test(line)) {
      if (++count > MOST_ROWS)
        throw new ShardwrightError('E_COLLECTIVES', `more than ${MOST_ROWS} rows of times`, {
          file,
          position: { line: at + 1, column: 1 },
        });
      readRow(current ?? begin(), columns, line, { file, line: at + 1 });
    }
  });
  return runs.filter(({ times, wrong }) => times.size > 0 || wrong > 0);
}

function readRow(
  run: Run,
  columns: readonly string[],
  line: string,
  place: { file: string; line: number },
): void {
  const words = line.trim().split(/\s+/);
  const at = columns.indexOf('time');
  const bytes = Number(words[0]);
  const micros = Number(words[at]);
  // Sizes that do not divide over the ranks are run as none.
  if (bytes === 0) return;
  if (!Number.isSafeInteger(bytes) || !(micros > 0 && micros < 1e11))
    throw new ShardwrightError(
      'E_COLLECTIVES',
      `no time of a size in '${line.trim().slice(0, 60)}'`,
      {
        file: place.file,
        position: { line: place.line, column: line.search(/\S/) + 1 },
        hint: 'keep the rows as the test prints them, under their header.',
      },
    );
  const wrong = Number(words[columns.findIndex((word) => word === '#wrong' || word === 'error')]);
  // `#wrong` counts values; the `error` of older versions is the largest difference.
  if (columns.includes('#wrong') && wrong > 0) run.wrong++;
  else run.times.set(bytes, micros * MICRO);
  const word = (name: string): string | undefined => words[columns.indexOf(name)];
  const [bus, algorithm] = [Number(word('busbw')), Number(word('algbw'))];
  if (algorithm > 0.5) run.factor = bus / algorithm;
  run.reduction = `${word('redop') ?? 'none'} ${word('root') ?? '-1'}`;
}

/**
 * `doctor` compares profiler traces of a real run with the prices of its plan, and prints where the
 * run loses time, with tables, or JSON.
 */
import { exportSource } from '../../../backend/target.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { ShardwrightError } from '../../../errors.ts';
import { compareRun, type RunReport } from '../../../export/torch/run/doctor.ts';
import { type LostTime, lostTime, type TracedRank } from '../../../export/torch/run/lost-time.ts';
import { runCalibration } from '../../../export/torch/run/measured.ts';
import {
  readTrace,
  tracedDevice,
  tracedRank,
  type TraceSpan,
} from '../../../export/torch/run/trace.ts';
import { itemAt } from '../../../item-at.ts';
import type { DeviceMesh } from '../../../mesh/devices/mesh.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { planSchedule } from '../../../simulate/timeline/from-plan.ts';
import { countedText, percentText, secondsText, tableText } from '../../../units.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { checked, wholePlan } from '../../input/plan-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { tryFile, writeText } from '../../output/write-file.ts';
import type { DoctorOptions } from './flags.ts';
import { orderOf } from './order.ts';

/** Rows of the table of operators. */
const SHOWN = 12;

/** The answer of `--json`: the match of the first trace, and what all of them say of lost time. */
interface DoctorAnswer extends RunReport {
  /** The ranks whose traces were read, in the order of `--run`. */
  readonly ranks: readonly number[];
  readonly lost: readonly LostTime[];
}

export async function doctorCommand(
  path: string,
  options: DoctorOptions,
  io: CliIo,
): Promise<number> {
  const [first] = options.run;
  if (first === undefined)
    throw new ShardwrightError(
      'E_USAGE',
      'doctor compares a plan with a run, and --run is missing',
      {
        hint: 'give --run trace.json, as torch.profiler writes it with export_chrome_trace.',
      },
    );
  const table = await operatorsWith(options.ops);
  const folder = wholePlan(path);
  checked(folder, path, table, io);
  const { collectives } = planSchedule(folder.program, folder.plan, table);
  if (options.calibration !== undefined) tryFile(options.calibration, 'calibration');
  const source = exportSource(folder, table);
  const { mesh } = source.lowered();
  const ranks = tracedRanks(options.run, mesh, (spans) =>
    compareRun(source, folder.plan, collectives, spans, orderOf(options)),
  );
  const { report } = itemAt(ranks, 0);
  const lost = lostTime(folder.plan, mesh, ranks);
  const found: DoctorAnswer = { ...report, ranks: ranks.map(({ rank }) => rank), lost };
  answer(io, options, found, textOf);
  if (options.calibration !== undefined) {
    const cluster = loadCluster(folder.plan.request.cluster);
    const device = tracedDevice(readFileText(first));
    const measured = runCalibration(report, source.lowered().graph, cluster, device);
    writeText(options.calibration, `${JSON.stringify(measured, null, 1)}\n`, 'calibration');
    const products = Object.values(measured.matmul).reduce((n, points) => n + points.length, 0);
    io.stderr(
      `wrote ${options.calibration} (${products} products, ${measured.memory.length} ` +
        'copies): plan --calibration reads it\n',
    );
  }
  return EXIT.ok;
}

/**
 * Reads and matches the trace of each rank.
 *
 * @throws E_TRACE for two traces of one rank, and for a rank that the mesh does not have
 */
function tracedRanks(
  files: readonly string[],
  mesh: DeviceMesh,
  match: (spans: readonly TraceSpan[]) => RunReport,
): TracedRank[] {
  const fileOf = new Map<number, string>();
  return files.map((file, i) => {
    const text = readFileText(file);
    const rank = tracedRank(text) ?? i;
    const other = fileOf.get(rank);
    if (other !== undefined)
      throw new ShardwrightError('E_TRACE', `${other} and this trace are both of rank ${rank}`, {
        file,
        hint: 'give one trace of each rank; --run is repeatable.',
      });
    if (rank >= mesh.size)
      throw new ShardwrightError(
        'E_TRACE',
        `the trace is of rank ${rank}, and the plan's mesh ${mesh.text} has ${mesh.size} ranks`,
        { file, hint: 'give the plan that was run.' },
      );
    fileOf.set(rank, file);
    const spans = readTrace(text, file);
    return { rank, spans, report: match(spans) };
  });
}

function textOf(report: DoctorAnswer): string {
  const ratio = (measured: number, predicted: number): string =>
    predicted > 0 ? `${(measured / predicted).toFixed(2)} x` : '-';
  const row = (name: string, measured: number, predicted: number): [string, ...string[]] => [
    name,
    secondsText(measured),
    secondsText(predicted),
    ratio(measured, predicted),
  ];
  const { computeSeconds: compute, collectiveSeconds: moved } = report;
  const totals = tableText([
    ['', 'measured', 'predicted', 'ratio'],
    row('step', report.measuredSeconds, report.predictedSeconds),
    row('calls', compute.measured, compute.predicted),
    row('collectives', moved.measured, moved.predicted),
    ['waiting', secondsText(report.waitedSeconds), '', ''],
  ]);
  const ops = tableText([
    ['operator', 'calls', 'measured', 'predicted', 'ratio'],
    ...report.byOp.slice(0, SHOWN).map(({ op, calls, measuredSeconds, predictedSeconds }) => {
      const [name, ...rest] = row(op, measuredSeconds, predictedSeconds);
      return [name, String(calls), ...rest];
    }),
  ]);
  const misses = tableText([
    ['farthest from its price', 'operator', 'measured', 'predicted', 'ratio'],
    ...report.misses.map(({ node, op, measuredSeconds, predictedSeconds }) => {
      const [name, ...rest] = row(node, measuredSeconds, predictedSeconds ?? 0);
      return [name, op, ...rest];
    }),
  ]);
  const kernels = report.timed === 'kernels' ? '; times are those of kernels on the device' : '';
  const matched =
    `${report.calls.length} calls and collectives matched by name and order, in the last of ` +
    `${countedText(report.steps, 'step')}${kernels}`;
  return [totals, lostText(report), ops, misses, matched].join('\n\n');
}

/** The time that the step loses, each cause with its share of the step and what would change it. */
function lostText({ lost, ranks, measuredSeconds }: DoctorAnswer): string {
  const lines = lost.flatMap(({ seconds, what, change }) => [
    `${secondsText(seconds)} (${percentText(seconds / measuredSeconds)}): ${what}`,
    `  ${change}`,
  ]);
  const head =
    lost.length === 0
      ? 'lost time: nothing takes 1 % of the step more than planned'
      : 'lost time, the largest first, and what would change it';
  const more =
    ranks.length > 1 ? [] : ['traces of more ranks (--run is repeatable) say who waits for whom'];
  return [head, ...lines, ...more].join('\n');
}

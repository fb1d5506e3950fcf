/**
 * `doctor` compares a profiler trace of a real run with the prices of its plan, and prints a table
 * or JSON.
 */
import { exportSource } from '../../../backend/target.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { ShardwrightError } from '../../../errors.ts';
import { compareRun, type RunReport } from '../../../export/torch/run/doctor.ts';
import { runCalibration } from '../../../export/torch/run/measured.ts';
import { readTrace, tracedDevice } from '../../../export/torch/run/trace.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { planSchedule } from '../../../simulate/timeline/from-plan.ts';
import { secondsText, tableText } from '../../../units.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { checked, wholePlan } from '../../input/plan-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { tryFile, writeText } from '../../output/write-file.ts';
import type { DoctorOptions } from './flags.ts';
import { orderOf } from './order.ts';

/** Rows of the table of operators. */
const SHOWN = 12;

export async function doctorCommand(
  path: string,
  options: DoctorOptions,
  io: CliIo,
): Promise<number> {
  if (options.run === undefined)
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
  const trace = readFileText(options.run);
  const source = exportSource(folder, table);
  const spans = readTrace(trace, options.run);
  const report = compareRun(source, folder.plan, collectives, spans, orderOf(options));
  answer(io, options, report, textOf);
  if (options.calibration !== undefined) {
    const cluster = loadCluster(folder.plan.request.cluster);
    const measured = runCalibration(report, source.lowered().graph, cluster, tracedDevice(trace));
    writeText(options.calibration, `${JSON.stringify(measured, null, 1)}\n`, 'calibration');
    const products = Object.values(measured.matmul).reduce((n, points) => n + points.length, 0);
    io.stderr(
      `wrote ${options.calibration} (${products} products, ${measured.memory.length} ` +
        'copies): plan --calibration reads it\n',
    );
  }
  return EXIT.ok;
}

function textOf(report: RunReport): string {
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
    `${report.steps} steps${kernels}`;
  return [totals, ops, misses, matched].join('\n\n');
}

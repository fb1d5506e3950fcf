import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { matrixPeak } from '../../src/cost/compute.ts';
import { calibratedClusterText } from '../../src/cost/hardware/calibrated-text.ts';
import { parseCalibration } from '../../src/cost/hardware/calibration.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { matrixSeconds } from '../../src/cost/kernels/matmul.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { compareRun } from '../../src/export/torch/run/doctor.ts';
import { runCalibration } from '../../src/export/torch/run/measured.ts';
import { readTrace } from '../../src/export/torch/run/trace.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { PAPER, type RunningPlan, runningPlans } from './running-plans.ts';

/** A traced step of four gloo processes (`test/engines/running/trace.py`), beside its plan. */
const trace = readTrace(
  gunzipSync(
    readFileSync(new URL('../fixtures/running/llama-sdpa.trace.json.gz', import.meta.url)),
  ).toString(),
  'trace.json',
);
const recipe = 'FSDP (dp) + Megatron (tp)';
let plans: Promise<RunningPlan[]> | undefined;
const planned = (): Promise<RunningPlan[]> =>
  (plans ??= runningPlans('llama-sdpa', 'dp=2,tp=2', [recipe]));

function compare({ plan, source }: RunningPlan, spans = trace): ReturnType<typeof compareRun> {
  const { collectives } = planSchedule(source.program, plan, builtinOperators());
  return compareRun(source, plan, collectives, spans);
}

test('every call and collective of the program stands in the trace, by name and order', async () => {
  const [, ran] = await planned();
  expect(ran.name).toContain(recipe);
  const report = compare(ran);
  const { collectives } = JSON.parse(
    ran.files.find(({ name }) => name === 'collectives.json')?.text ?? '',
  ) as { collectives: { node: string; bytes: number }[] };
  expect(report.calls.filter(({ kind }) => kind === 'collective').map(({ node }) => node)).toEqual(
    collectives.map(({ node }) => node),
  );
  expect(report.steps).toBe(2);
  // The trace says how long the products of the last step took; read here without the report.
  const last = trace.filter(({ name }) => name === 'Step').at(-1);
  const products = trace.filter(
    ({ name, ts }) => name === 'aten::mm' && last !== undefined && ts >= last.ts,
  );
  const mm = report.byOp.find(({ op }) => op === 'aten::mm');
  expect(mm?.calls).toBe(products.length);
  expect(mm?.measuredSeconds).toBeCloseTo(products.reduce((sum, { dur }) => sum + dur, 0) / 1e6, 9);
  const ranges = trace.filter(
    ({ name, ts }) => name.startsWith('gloo:') && last !== undefined && ts >= last.ts,
  );
  expect(report.collectiveSeconds.measured).toBeCloseTo(
    ranges.reduce((sum, { dur }) => sum + dur, 0) / 1e6,
    9,
  );
  expect(report.computeSeconds.measured).toBeLessThan(report.measuredSeconds);
  expect(report.misses.length).toBe(5);
  const miss = report.misses.map(({ measuredSeconds, predictedSeconds }) =>
    Math.abs(measuredSeconds - (predictedSeconds ?? 0)),
  );
  expect(miss).toEqual([...miss].sort((a, b) => b - a));
});

test('a run as a calibration: its products and copies, each shape with its median, priced again as they were measured', async () => {
  const [, ran] = await planned();
  const report = compare(ran);
  // The paper cluster is far slower than a processor.
  const processor = JSON.stringify({
    ...(JSON.parse(PAPER) as object),
    peakFlopsPerSecond: { fp64: 1e11, fp32: 2e11 },
    memoryBytesPerSecond: 2e10,
  });
  const cluster = loadCluster(processor);
  const program = ran.source.lowered().graph;
  const text = JSON.stringify(runCalibration(report, program, cluster, 'a processor'));
  const measured = parseCalibration(text);
  const products = new Map<string, number[]>();
  for (const { node, measuredSeconds } of report.calls) {
    const call = program.nodes.find(({ name }) => name === node);
    if (call?.target !== 'aten.mm.default') continue;
    const shapes = call.args.map(
      (arg) =>
        program.nodes.find(
          ({ name }) =>
            typeof arg === 'object' && arg !== null && 'name' in arg && arg.name === name,
        )?.type,
    );
    const [a, b] = shapes.map((type) => (type?.kind === 'tensor' ? type.shape.map(Number) : []));
    const key = [a[0], a[1], b[1]].join();
    products.set(
      key,
      [...(products.get(key) ?? []), measuredSeconds].sort((x, y) => x - y),
    );
  }
  const points = Object.values(measured.matmul).flat();
  expect(points.length).toBe(products.size);
  for (const { m, k, n, seconds } of points) {
    const own = products.get([m, k, n].join()) ?? [];
    expect(seconds).toBe(own[own.length >> 1]);
  }
  const [before, after] = [cluster, loadCluster(calibratedClusterText(processor, measured))];
  expect(after.launchSeconds).toBe(measured.launchSeconds);
  const error = (one: typeof before): number => {
    const misses = points.map(({ m, k, n, itemBytes, seconds }) => {
      const flops = 2 * m * k * n;
      const { flopsPerSecond, unit } = matrixPeak(one, 'f64');
      const priced = Math.max(
        matrixSeconds(flops, itemBytes * (m * k + k * n + m * n), flopsPerSecond, one, unit),
        one.matmulLaunchSeconds,
      );
      return Math.abs(Math.log(priced / seconds));
    });
    return misses.sort((x, y) => x - y)[misses.length >> 1];
  };
  expect(error(after)).toBeLessThan(error(before));
  expect(error(after)).toBeLessThan(Math.log(2));
});

test('a trace of another plan is refused with the first call that differs', async () => {
  const [optimum] = await planned();
  expect(() => compare(optimum)).toThrow(/the trace has \S+ where the program calls \S+/);
});

test('a trace without a step, and text that is none', async () => {
  const [, ran] = await planned();
  expect(() =>
    compare(
      ran,
      trace.filter(({ name }) => name !== 'Step'),
    ),
  ).toThrow(/no whole step/);
  expect(() => readTrace('{}', 'x.json')).toThrow(/there is no list traceEvents/);
  expect(() => readTrace('[', 'x.json')).toThrow(/it is not JSON/);
});

test('in a trace of a GPU a call takes what the kernels took that it launched, and a stand-in for a collective is one', async () => {
  const [, ran] = await planned();
  const plain = compare(ran);
  const ranges = trace.filter(({ name }) => name === 'Step' || name === 'StepBackward');
  const [forward, backward] = [
    ranges.filter(({ name }) => name === 'Step').at(-1),
    ranges.filter(({ name }) => name === 'StepBackward').at(-1),
  ];
  const inside = ({ ts }: { ts: number }): boolean =>
    [forward, backward].some(
      (range) => range !== undefined && ts >= range.ts && ts < range.ts + range.dur,
    );
  // Each product launches two kernels of 3 and 4 µs, one behind the other on the device, which
  // starts late.
  const products = trace.filter((span) => span.name === 'aten::mm' && inside(span));
  let at = products[0].ts + 1e6;
  const device = products.flatMap((span, k) => {
    const pair = [3, 4].map((dur, j) => {
      const correlation = 1e6 + 2 * k + j;
      const launch = {
        name: 'cudaLaunchKernel',
        cat: 'cuda_runtime',
        tid: span.tid,
        ts: span.ts + 0.01 * (j + 1),
        dur: 0.001,
        correlation,
      };
      const kernel = { name: 'sgemm', cat: 'kernel', tid: 7, ts: at, dur, correlation };
      at += dur;
      return [launch, kernel];
    });
    at += 1;
    return pair.flat();
  });
  const renamed = trace.map((span) =>
    span.name.startsWith('_c10d_functional::all_')
      ? { ...span, name: span.name.replace('_c10d_functional', 'bench') }
      : span,
  );
  const spans = [...renamed, ...device].sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  const report = compare(ran, spans);
  expect(report.timed).toBe('kernels');
  expect(plain.timed).toBe('processor');
  const mm = report.byOp.find(({ op }) => op === 'aten::mm');
  expect(mm?.measuredSeconds).toBeCloseTo(products.length * 7e-6, 12);
  expect(report.computeSeconds.measured).toBeCloseTo(products.length * 7e-6, 12);
  expect(report.measuredSeconds).toBeCloseTo((products.length * 8 - 1) * 1e-6, 9);
  expect(report.waitedSeconds).toBeCloseTo((products.length - 1) * 1e-6, 9);
  expect(report.calls.map(({ node }) => node)).toEqual(plain.calls.map(({ node }) => node));
});

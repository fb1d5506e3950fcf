import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { computeCost } from '../../../src/cost/compute.ts';
import { calibratedClusterText } from '../../../src/cost/hardware/calibrated-text.ts';
import { parseCalibration } from '../../../src/cost/hardware/calibration.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { sizeCurve, workLine } from '../../../src/cost/kernels/measured-calls.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { bindCall, withOutputs } from '../../../src/ops/record/context.ts';
import type { TensorMeta } from '../../../src/ops/record/record.ts';
import { play } from '../../../src/simulate/timeline/play.ts';
import type { Schedule, Task } from '../../../src/simulate/timeline/schedule.ts';
import { cli } from '../../cli/support.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const KIB = 1024;
/** A processor of 10 GFLOP/s and 1 GB/s whose calls start in 3 µs, by products of many shapes. */
const product = (flops: number, bytes: number): number => 3e-6 + flops / 10e9 + bytes / 1e9;
const matmul = [16, 128, 1024].flatMap((m) =>
  [64, 256, 1024].map((k) => {
    const n = 256;
    const seconds = product(2 * m * k * n, 4 * (m * k + k * n + m * n));
    return { m, k, n, itemBytes: 4, seconds, spread: 0.02 };
  }),
);
const calibration = {
  version: 1,
  device: 'a processor',
  software: 'torch 2.13',
  date: '2026-11-29T12:00:00Z',
  processes: 4,
  mesh: 'dp=2,tp=2',
  backend: 'gloo',
  threads: 1,
  synchronous: true,
  launchSeconds: 3e-6,
  matmulLaunchSeconds: 3e-6,
  matmul: { fp32: matmul },
  memory: [4, 64, 1024].map((k) => ({ bytes: k * KIB, seconds: 3e-6 + (k * KIB) / 1e9 })),
  calls: [64, 1024].map((k) => ({
    op: 'aten.gelu.default',
    bytes: 2 * k * KIB,
    seconds: 20e-6 * k,
  })),
  notes: ['the machine is busy: 36 %', 'a product was not measured'],
};
const row = (group: string, devices: number, more: object = {}): object => ({
  group,
  devices,
  collective: 'all_reduce',
  bytes: [KIB, 1024 * KIB],
  seconds: [1e-4, 1e-3],
  spread: [0.1, 0.1],
  ...more,
});
const file = {
  id: 'own',
  accelerator: 'processor',
  peakFlopsPerSecond: { fp32: 10e9 },
  matmulCap: 1,
  memoryBytes: 4e9,
  memoryBytesPerSecond: 1e9,
  devicesPerHost: 4,
  intra: { bytesPerSecond: 1e9, latencySeconds: 1e-4, efficiency: 1 },
  inter: { bytesPerSecond: 1e9, latencySeconds: 1e-4, efficiency: 1 },
  calibration,
  collectiveTable: [
    row('dp', 2, { level: 'intra', besideSeconds: [2e-4, 3e-3] }),
    row('dp,tp', 4, { level: 'intra', source: 'all_reduce_perf of ours.txt' }),
  ],
};
const own = (change: object = {}): ReturnType<typeof loadCluster> =>
  loadCluster(JSON.stringify({ ...file, ...change }));

const table = builtinOperators();
/** Price of a call of float32 tensors. */
function priced(cluster: ReturnType<typeof loadCluster>, op: string, ...shapes: number[][]) {
  const record = table.get(op);
  if (record === undefined) throw new Error(`no operator ${op}`);
  const metas = shapes.map((shape): TensorMeta => ({ dtype: 'f32', shape }));
  const call = bindCall(
    record,
    metas.map((_, i) => ({ kind: 'value', name: String(i) })),
    {},
    (name) => metas[Number(name)],
  );
  return computeCost(record, withOutputs(call, record.infer(call)), cluster);
}

test('a line through calls that multiply is the one that made them', () => {
  const line = workLine(
    matmul.map(({ m, k, n, seconds }) => ({
      flops: 2 * m * k * n,
      bytes: 4 * (m * k + k * n + m * n),
      seconds,
    })),
  );
  expect(line(2e6, 1e5) / product(2e6, 1e5)).toBeCloseTo(1, 6);
  expect(line(0, 0)).toBeCloseTo(3e-6, 9);
});

test('no share of a line is below zero, whatever the noise of its points', () => {
  // Times that fall as bytes grow: the bytes then cost nothing.
  const line = workLine(
    [1, 2, 3, 4, 5].map((k) => ({ flops: 1e6, bytes: k * 1e6, seconds: 1e-3 / k })),
  );
  for (const bytes of [0, 1e6, 1e7, 1e9]) expect(line(1e6, bytes)).toBeGreaterThan(0);
  expect(line(1e6, 1e9)).toBeGreaterThanOrEqual(line(1e6, 1e6));
});

test('calls between two sizes are linear, below the first as the first, above at the last rate; times that fall are raised', () => {
  const curve = sizeCurve([
    { flops: 0, bytes: 100, seconds: 2 },
    { flops: 0, bytes: 300, seconds: 4 },
    { flops: 0, bytes: 400, seconds: 3 },
  ]);
  expect([10, 100, 200, 350, 400, 800].map((bytes) => curve(0, bytes))).toEqual([2, 2, 3, 4, 4, 8]);
});

test('a call that was timed has its time; one that was not, that of a copy or a product', () => {
  const cluster = own();
  const gelu = priced(cluster, 'aten.gelu.default', [64, 256]);
  expect(gelu.seconds).toBeCloseTo(20e-6 * 64, 12);
  expect(gelu.source).toBe('aten.gelu.default measured on a processor');
  const tanh = priced(cluster, 'aten.tanh.default', [64, 256]);
  expect(tanh.seconds).toBeCloseTo(3e-6 + (128 * KIB) / 1e9, 9);
  expect(tanh.source).toBe('copies measured on a processor');
  const bytes = 4 * (100 * 200 + 200 * 300 + 100 * 300);
  const mm = priced(cluster, 'aten.mm.default', [100, 200], [200, 300]);
  expect(mm.seconds / product(2 * 100 * 200 * 300, bytes)).toBeCloseTo(1, 5);
  expect(priced(cluster, 'aten.bmm.default', [2, 50, 200], [2, 200, 300]).source).toBe(
    'products measured on a processor',
  );
});

test('a device that works on its own keeps its roofline for calls that were not timed', () => {
  const cluster = own({ calibration: { ...calibration, synchronous: false } });
  expect(priced(cluster, 'aten.tanh.default', [64, 256]).source).toBe('roofline on own');
  expect(priced(cluster, 'aten.gelu.default', [64, 256]).source).toMatch(/measured/);
});

test('collectives cost what they add to compute where nothing overlaps, and groups of other meshes take rows of their level', () => {
  const seconds = (cluster: ReturnType<typeof own>, mesh: string, dims: number[]): number =>
    collectiveModel('alpha-beta', cluster, parseMesh(mesh)).seconds('all_reduce', 1024 * KIB, dims);
  expect(seconds(own(), 'dp=2,tp=2', [0])).toBe(3e-3);
  expect(seconds(own(), 'dp=2,tp=2', [1])).toBe(3e-3);
  expect(seconds(own(), 'x=4', [0])).toBe(1e-3);
  const alone = own({ calibration: { ...calibration, synchronous: false } });
  expect(seconds(alone, 'dp=2,tp=2', [0])).toBe(1e-3);
  const model = collectiveModel('alpha-beta', own(), parseMesh('dp=2,tp=2'));
  expect(model.record('all_reduce', KIB, [0, 1]).source).toBe('all_reduce_perf of ours.txt');
  expect(model.copySeconds(64 * KIB)).toBeCloseTo(3e-6 + (64 * KIB) / 1e9, 9);
});

test('where a device waits for each call no two tasks run at once', () => {
  const task = (id: number, stream: number, seconds: number): Task => ({
    ...{ id, stream, seconds, name: String(id), kind: stream === 0 ? 'compute' : 'collective' },
    ...{ kernels: 0, reads: [], writes: [], phase: 'forward' },
  });
  const schedule: Schedule = {
    tasks: [task(0, 0, 2), task(1, 1, 3), task(2, 0, 4)],
    buffers: [],
    streams: ['compute', 'inside a host'],
    launchSeconds: 0,
  };
  expect(play(schedule).seconds).toBe(6);
  expect(play({ ...schedule, oneAtATime: true }).seconds).toBe(9);
});

test('a plan says what was measured where, whether the machine was busy, and what it is on', async () => {
  const path = join(temporaryFolder(), 'own.json');
  writeFileSync(path, JSON.stringify(file));
  const { code, out } = await cli('hardware', 'show', path);
  expect(code).toBe(0);
  expect(out.replace(/\s+/g, ' ')).toContain(
    'note kernels were measured on a processor, 4 processes, dp=2,tp=2, gloo, torch 2.13, ' +
      '2026-11-29T12:00:00Z: another machine has other times; the machine is busy: 36 %; ' +
      'the file has 1 more note on what was measured',
  );
  expect(out).toMatch(/start of a kernel +3 +µs +\[\d\]/);
  const again = await cli('hardware', 'show', path, '--json');
  expect(loadCluster(again.out)).toEqual(loadCluster(JSON.stringify(file)));
});

test('a calibration in a cluster file and one beside it are the same', () => {
  const { calibration: _, ...bare } = file;
  const beside = loadCluster(
    calibratedClusterText(JSON.stringify(bare), parseCalibration(JSON.stringify(calibration))),
  );
  expect(beside).toEqual(own({ calibration: { ...calibration, kernels: [] } }));
});

test.each([
  [{ calibration: { ...calibration, speed: 1 } }, /calibration.*speed|speed.*calibration/s],
  [{ calibration: { ...calibration, device: 'two\nlines' } }, /calibration\.device/],
  [{ calibration: { ...calibration, calls: [{ op: 'x', bytes: 0, seconds: 1 }] } }, /calls\[0\]/],
  [{ collectiveTable: [row('dp', 2, { besideSeconds: [1] })] }, /besideSeconds as bytes/],
  [{ collectiveTable: [row('dp', 2, { level: 'rack' })] }, /collectiveTable\[0\]\.level/],
])('a file that does not fit is refused with its place', (change, message) => {
  expect(() => own(change)).toThrow(message);
});

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { importHardware } from '../../../src/cost/hardware/imported/import-measured.ts';
import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../../src/cost/presets/presets.ts';
import type { ShardwrightError } from '../../../src/errors.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { cli } from '../../cli/support.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const HEADER = `#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
`;
const ranks = (n: number, hosts = 1, device = 'NVIDIA H100 80GB HBM3'): string =>
  Array.from(
    { length: n },
    (_, k) =>
      `#  Rank ${k} Group  0 Pid   ${1887 + k} on worker-${Math.floor((k * hosts) / n)} device  ${k} [0x8d] ${device}\n`,
  ).join('');
/** Rows of NVIDIA/nccl#1435: two devices of one host. */
const GATHER = `$ ./build/all_gather_perf -b 16M -e 1024M -i 16777216 -g 2 -d bfloat16
# Using devices
${ranks(2)}${HEADER}    16777216       4194304  bfloat16    none      -1    108.8  154.20   77.10      0    98.19  170.86   85.43      0
    33554432       8388608  bfloat16    none      -1    183.0  183.33   91.66      0    156.1  214.95  107.48      0
# Out of bounds values : 0 OK
`;
/** Rows of kvcache-ai/Mooncake#3484. */
const REDUCE = `# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)
# Collective test starting: all_reduce_perf
# Using devices
${ranks(8)}${HEADER}           0             0     float     sum      -1     5.70    0.00    0.00      0     5.54    0.00    0.00      0
     1048576        262144     float     sum      -1    27.76   37.78   66.11       0    27.49   38.15   66.76       0
     4194304       1048576     float     sum      -1    53.24   78.78  137.87       0    52.85   79.36  138.88       0
# Collective test concluded: all_reduce_perf
`;
/** The matrix of a DGX A100 (NVIDIA/nccl#1505), its first two devices and cards. */
const MATRIX = `\u001b[4m        GPU0    GPU1    NIC0    NIC1    NIC2    CPU Affinity    NUMA Affinity   GPU NUMA ID\u001b[0m
GPU0     X      NV12    PXB     PXB     SYS     48-63,176-191   3               N/A
GPU1    NV12     X      SYS     SYS     PXB     16-31,144-159   1               N/A
NIC0    PXB     SYS      X      PIX     SYS
NIC1    PXB     SYS     PIX      X      SYS
NIC2    SYS     PXB     SYS     SYS      X

Legend:
  X    = Self
`;
/** The average of linux-rdma/perftest#225, on a card of 100 Gb/s. */
const RATE = `                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          5000             7.24               7.10   		   3.721
 65536      5000             11730.11           11728.47		   0.187
`;
const file = (name: string, text: string): { name: string; text: string } => ({ name, text });
const seconds = (json: object, mesh: string, kind: 'all_gather' | 'all_reduce', bytes: number) =>
  collectiveModel('alpha-beta', loadCluster(JSON.stringify(json)), parseMesh(mesh)).record(
    kind,
    bytes,
    [0],
  );

test('times of nccl-tests are the prices of groups of as many devices, with the file as their source', () => {
  const { file: made, told } = importHardware([
    file('gather.txt', GATHER),
    file('reduce.txt', REDUCE),
  ]);
  // 16 MiB is the whole of the all_gather.
  const gather = seconds(made, 'x=2', 'all_gather', 16_777_216);
  expect(gather.seconds).toBeCloseTo(108.8e-6, 12);
  expect(gather.source).toBe('all_gather_perf of nccl-tests, gather.txt');
  expect(16_777_216 / gather.seconds / 1e9).toBeCloseTo(154.2, 1);
  expect(seconds(made, 'x=8', 'all_reduce', 4_194_304).seconds).toBeCloseTo(53.24e-6, 12);
  expect(seconds(made, 'x=4', 'all_reduce', 4_194_304).source).toMatch(/^alpha-beta/);
  expect(told).toEqual([
    'gather.txt: 2 times of all_gather (intra, 2).',
    'reduce.txt: 2 times of all_reduce (intra, 8).',
    "All other figures are those of dgx-h100, by the device 'NVIDIA H100 80GB HBM3'.",
  ]);
});

test('older versions without root and group are read, and the file may name the test', () => {
  const old = `# Using devices
#   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   2066 on ip-172-31-22-230 device  0 [0x00] Tesla V100-SXM2-16GB
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
    1048576        262144     float     sum    100.5   10.43   10.43  2e-07    99.1   10.58   10.58  2e-07
`;
  const { file: made } = importHardware([file('all_reduce_perf.log', old)], 'dgx-v100');
  expect(made.collectiveTable).toMatchObject([
    { group: 'inter', devices: 2, collective: 'all_reduce', bytes: [1_048_576] },
  ]);
  expect((made.collectiveTable as { seconds: number[] }[])[0].seconds[0]).toBeCloseTo(100.5e-6, 12);
});

test('a test that nothing names is known by its bandwidths where they are those of one test alone', () => {
  const unnamed = (text: string): string => text.replace(/^.*_perf.*\n/gm, '');
  const { file: made, told } = importHardware([file('log.txt', unnamed(REDUCE))]);
  expect(made.collectiveTable).toMatchObject([{ collective: 'all_reduce', devices: 8 }]);
  expect(told[0]).toBe('log.txt: its test is not named; its bandwidths are those of all_reduce.');
  // An all_gather and an alltoall have the same.
  expect(() => importHardware([file('log.txt', unnamed(GATHER))])).toThrow(
    /does not name its test/,
  );
});

/** Lines as a host of NVIDIA/nccl-tests#256 and one of NVIDIA/nccl#1357 print them. */
const TREE = (host: string): string =>
  `
[1,0]<stdout>:${host}:4254:4327 [5] NCCL INFO NCCL version 2.21.5+cuda12.4
${host}:4254:4327 [5] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB ibp25s0:10.20.0.120<0>
${host}:4254:4327 [5] NCCL INFO Using network IBext
${host}:4254:4327 [5] NCCL INFO === System : maxBw 48.0 totalBw 370.8 ===
${host}:4254:4327 [5] NCCL INFO CPU/0-0 (1/2/-1)
${host}:4254:4327 [5] NCCL INFO + PCI[0.2] - PCI/0-65000 (104c823200000000)
${host}:4254:4327 [5] NCCL INFO              + PCI[48.0] - NIC/0-67000
${host}:4254:4327 [5] NCCL INFO                            + NET[50.0] - NET/0-c (0/d4f9fc0003ae6d94/1/50.000000)
${host}:4254:4327 [5] NCCL INFO              + PCI[48.0] - GPU/0-68000 (8)
${host}:4254:4327 [5] NCCL INFO                            + NVL[370.8] - NVS/0-0
${host}:4254:4327 [5] NCCL INFO              + PCI[48.0] - GPU/0-6b000 (9)
${host}:4254:4327 [5] NCCL INFO                            + NET[50.0] - NET/0-d (0/d2cb190003c288a0/1/50.000000)
`;

test('a log of NCCL gives devices and cards of a host, and the rate of their ports', () => {
  const { file: made, told } = importHardware(
    [file('nccl.log', TREE('a') + TREE('b'))],
    'dgx-h200',
  );
  const cluster = loadCluster(JSON.stringify(made));
  expect(cluster.devicesPerHost).toBe(2);
  expect(cluster.inter.bytesPerSecond).toBe(50e9);
  // Ports promise a rate: the share of it that a collective gets is the design's.
  expect(cluster.inter.efficiency).toBe(loadCluster('dgx-h200').inter.efficiency);
  expect(cluster.sources).toMatchObject({
    devicesPerHost: 'log of NCCL, nccl.log',
    inter: 'ports of the network cards, log of NCCL, nccl.log',
  });
  expect(told).toEqual([
    'nccl.log: 2 devices in a host, 2 network cards, network IBext, NCCL 2.21.5+cuda12.4.',
    'A device has 50.00 GB/s between hosts, by the ports of 1 network card; ib_write_bw measures what they give.',
  ]);
  // What a card was measured to give wins.
  const both = importHardware([file('ib.txt', RATE), file('nccl.log', TREE('a'))], 'dgx-h200');
  expect(loadCluster(JSON.stringify(both.file)).sources.inter).toBe(
    'bandwidth of a network card, ib.txt',
  );
});

test('a log without a topology counts the devices that ranks state, and says that sockets are slow', () => {
  const rank = (k: number): string =>
    `qh100-gpu${k >> 1}:4936${k}:49416 [${k & 1}] NCCL INFO ncclCommInitRank comm 0x55d9 rank ${k} nranks 4 cudaDev ${k & 1} - Init START\n` +
    `qh100-gpu${k >> 1}:4936${k}:49416 [${k & 1}] NCCL INFO Using network Socket\n`;
  const { file: made, told } = importHardware(
    [file('log.txt', [0, 1, 2, 3].map(rank).join(''))],
    'dgx-h100',
  );
  expect(made.devicesPerHost).toBe(2);
  expect(made.inter).toBeUndefined();
  expect(told[0]).toBe(
    'log.txt: 2 devices in a host, network Socket. Sockets are slower than the network cards of a base design: give its times, too.',
  );
  const first =
    'h1:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0\n';
  expect(importHardware([file('one.txt', first)], 'dgx-a100-80gb').file.devicesPerHost).toBe(8);
  // Lines of NCCL between those of a test are read with it.
  const mixed = importHardware([file('all.txt', first + REDUCE)]);
  expect(mixed.file).toMatchObject({ devicesPerHost: 8, collectiveTable: [{ devices: 8 }] });
  const nothing = 'h1:1:2 [0] NCCL INFO cudaDriverVersion 12040\n';
  expect(() => importHardware([file('x.txt', nothing)], 'dgx-h100')).toThrow(/neither devices/);
});

test('several tests in one file are several rows; what plans lack and wrong values are left out and said', () => {
  const more = `# broadcast_perf\n${ranks(4)}${HEADER}  1024  256  float  none  0  9.9  0.1  0.1  0  9.8  0.1  0.1  0\n`;
  const wrong = `# alltoall_perf\n${ranks(4)}${HEADER}  1024  256  float  none  -1  9.9  0.1  0.1  3  9.8  0.1  0.1  N/A\n  2048  512  float  none  -1  19.9  0.1  0.1  0  9.8  0.1  0.1  N/A\n`;
  const one = `# sendrecv_perf\n${ranks(1)}${HEADER}  1024  256  float  sum  -1  9.9  0.1  0.1  0  9.8  0.1  0.1  0\n`;
  const { file: made, told } = importHardware([file('all.txt', REDUCE + more + wrong + one)]);
  expect(made.collectiveTable).toMatchObject([
    { collective: 'all_reduce', devices: 8 },
    { collective: 'all_to_all', devices: 4, bytes: [2048] },
  ]);
  expect(told.slice(0, 3)).toEqual([
    'all.txt: plans have no broadcast; its times are left out.',
    'all.txt: 1 sizes of alltoall had wrong values, left out.',
    'all.txt: sendrecv of 1 rank is left out; tests of several processes are built with MPI=1, and list their ranks.',
  ]);
});

test('a matrix gives devices and nearest cards, a bandwidth test the rate of one card', () => {
  const { file: made, told } = importHardware(
    [file('topo.txt', MATRIX), file('ib.txt', RATE)],
    'dgx-a100-80gb',
  );
  const cluster = loadCluster(JSON.stringify(made));
  expect(cluster.devicesPerHost).toBe(2);
  // The second device has one card: the devices have one each.
  expect(cluster.inter.bytesPerSecond).toBeCloseTo(11728.47 * 2 ** 20, 0);
  expect(cluster.inter.bytesPerSecond * 8).toBeLessThan(100e9);
  expect(cluster.intra).toEqual(loadCluster('dgx-a100-80gb').intra);
  expect(cluster.sources.inter).toBe('bandwidth of a network card, ib.txt');
  expect(told.join(' ')).toContain(
    'topo.txt: 2 devices in a host, each pair by 12 NVLinks, 3 network cards, 1 of them nearest',
  );
});

test('files are put on a measured cluster, and what they have replaces its rows', () => {
  const first = importHardware([file('gather.txt', GATHER), file('reduce.txt', REDUCE)]);
  const faster = REDUCE.replace('53.24', '50.00');
  const { file: made, told } = importHardware([
    file('cluster.json', JSON.stringify(first.file)),
    file('again.txt', faster),
  ]);
  expect(seconds(made, 'x=8', 'all_reduce', 4_194_304).seconds).toBeCloseTo(50e-6, 12);
  expect(seconds(made, 'x=2', 'all_gather', 16_777_216).seconds).toBeCloseTo(108.8e-6, 12);
  expect(told).toContain('again.txt: intra 8 all_reduce replaces that of an earlier file.');
});

test.each([
  ['hello', /of no form that is read/],
  ['{"oops', /not JSON/],
  [
    `# all_reduce_perf\n${ranks(2)}${HEADER}  1024  256  float  sum  -1  fast\n`,
    /no time of a size/,
  ],
  [MATRIX.replace('NV12     X ', 'NV12'), /GPU1 has no X in its own column/],
  [MATRIX.replace(/\nGPU1.*/, ''), /1 rows of GPUs and 2 columns/],
  [RATE.replace('11728.47', 'nan'), /no average rate/],
])('what cannot be read is refused with file and line', (text, message) => {
  const read = (): unknown => importHardware([file('x.txt', text)], 'dgx-h100');
  expect(read).toThrow(message);
  let fault: unknown;
  try {
    read();
  } catch (error) {
    fault = error;
  }
  expect((fault as ShardwrightError).details.file).toBe('x.txt');
});

test('without a base the device must be a known one', () => {
  const unknown = REDUCE.replaceAll('NVIDIA H100 80GB HBM3', 'NVIDIA GeForce RTX 4090');
  expect(() => importHardware([file('x.txt', unknown)])).toThrow(/GeForce RTX 4090/);
  expect(() => importHardware([file('x.txt', MATRIX)])).toThrow(/do not say which devices/);
});

test('hardware import writes a cluster file that the other commands take', async () => {
  const folder = temporaryFolder();
  const path = (name: string, text?: string): string => {
    const where = join(folder, name);
    if (text !== undefined) writeFileSync(where, text);
    return where;
  };
  const made = path('cluster.json');
  const given = [path('reduce.txt', REDUCE), path('topo.txt', MATRIX)];
  const { code, out } = await cli('hardware', 'import', ...given, '-o', made);
  expect(code).toBe(0);
  expect(out).toContain(`wrote ${made}; --cluster takes it`);
  expect(loadCluster(readFileSync(made, 'utf8')).devicesPerHost).toBe(2);
  const shown = await cli('hardware', 'show', made);
  expect(shown.out).toContain('nvidia-smi topo -m, topo.txt');
  const refused = await cli('hardware', 'import', path('x.txt', 'hello'));
  expect(refused.code).toBe(2);
  expect(refused.err).toContain('x.txt');
});

import { expect, test } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { lower } from '../../src/lower/lower.ts';
import { collectiveKind, readCollective } from '../../src/lower/program/collectives.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { collectivesOf } from '../../src/report/model/sums.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { runDevices } from '../../src/simulate/ranks/devices.ts';
import { layOut } from '../../src/simulate/ranks/laid-out.ts';
import { load, solveFor, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

interface Sum {
  count: number;
  bytes: number;
}

const SLOW: [string, string, Partial<PlanRequest>][] = [
  ['torch/mlp-loss/joint.expanded', 'dp=2,tp=2', { memoryBytes: 36_000_000 }],
  ['torch/llama-tiny/joint.expanded', 'dp=2,tp=2', { memoryBytes: 700_000 }],
];

/**
 * The collectives that a plan's report counts are those of the lowered program, and those that the
 * virtual devices ran.
 */
test.each<[string, string, Partial<PlanRequest>]>([
  ...(FULL ? SLOW : []),
  ['torch/mlp/joint.expanded', 'd=4', { memoryBytes: 300_000 }],
  ['torch/mlp/joint.expanded', 'dp=2,tp=2', { memoryBytes: 300_000 }],
  ['torch/mlp/joint.expanded', 'a=2,b=2,c=2', { memoryBytes: 150_000 }],
  // A log-softmax over a sharded vocabulary has collectives inside it.
  [
    'torch/convnet/joint.expanded',
    'dp=2,tp=2',
    { pins: [{ node: '_log_softmax', spec: 'RS(1)' }] },
  ],
])(
  'collectives of %s on %s, asked for %j: reported, lowered and run are the same',
  async (name, mesh, asked) => {
    const result = await solveFor(load(name), mesh, { ...asked, gap: 0.2, activations: 'report' });
    if (result.status !== 'planned') throw new Error(result.conflict.join());
    const { graph, plan } = result;
    const program = lower(graph, plan, { table: TABLE });
    const add = (sums: Map<string, Sum>, kind: string, axes: string, bytes: number): void => {
      const key = `${kind} over ${axes.split(',').sort().join()}`;
      const sum = sums.get(key) ?? { count: 0, bytes: 0 };
      sums.set(key, { count: sum.count + 1, bytes: sum.bytes + bytes });
    };
    const sorted = (sums: Map<string, Sum>): [string, Sum][] =>
      [...sums].sort(([a], [b]) => (a < b ? -1 : 1));
    const axesOf = (dims: readonly number[]): string =>
      dims.map((m) => program.mesh.dims[m].name).join();

    const reported = new Map<string, Sum>();
    for (const { kind, axes, count, bytes } of collectivesOf(plan, loadCluster('dgx-h100'), null)) {
      const key = `${kind} over ${axes.split(',').sort().join()}`;
      const sum = reported.get(key) ?? { count: 0, bytes: 0 };
      reported.set(key, { count: sum.count + count, bytes: sum.bytes + bytes });
    }
    expect(reported.size).toBeGreaterThan(0);

    const inputs = drawInputs(TABLE, graph, 0);
    const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
    const laid = placeholders.map((node, i) =>
      layOut(
        program.space,
        program.values.find((v) => v.name === node.name)?.sharding ?? program.space.replicated,
        inputs[i],
      ),
    );
    const ran = new Map<string, Sum>();
    for (const c of runDevices(TABLE, program, laid, { seed: 0 }).collectives)
      add(ran, c.kind, axesOf(c.meshDims), c.bytes);
    expect(sorted(ran)).toEqual(sorted(reported));

    const lowered = new Map<string, number>();
    for (const node of program.graph.nodes) {
      if (collectiveKind(node.target) === undefined) continue;
      const { kind, meshDims } = readCollective(program.mesh, node.target, node.args);
      const key = `${kind} over ${axesOf(meshDims).split(',').sort().join()}`;
      lowered.set(key, (lowered.get(key) ?? 0) + 1);
    }
    expect(lowered).toEqual(new Map([...reported].map(([key, { count }]) => [key, count])));
  },
);

/**
 * `redistribute`: takes two shardings of a tensor and prints the collectives between them with
 * their prices.
 */

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { collectiveModel, defaultCostPreset } from '../../../cost/presets/presets.ts';
import { RedistributionCharges } from '../../../cost/redistribution/charges.ts';
import { GreedyPlanner } from '../../../cost/redistribution/greedy.ts';
import type { RedistributionPlan } from '../../../cost/redistribution/plan.ts';
import { Redistributor } from '../../../cost/redistribution/redistribute.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { DTYPE_BYTES } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import { type DeviceMesh, parseMesh } from '../../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../../mesh/sharding/space.ts';
import { parseShardingFor } from '../../../notations/einshard/on-mesh.ts';
import { bytesText, tableText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { RedistributeOptions } from './flags.ts';

/** The record that `redistribute` prints; its keys are a contract. */
export interface Redistribution {
  readonly plan: string;
  readonly steps: readonly {
    readonly kind: string;
    readonly meshDims: readonly string[];
    readonly groupSize: number;
    readonly bytes: number;
    readonly seconds: number;
    /** For a permutation, the source and target rank of every message. */
    readonly pairs?: readonly (readonly [number, number])[];
  }[];
  readonly seconds: number;
  /**
   * Only where the preset charges redistributions by a formula: what a plan's objective counts;
   * null where it refuses.
   */
  readonly chargedSeconds?: number | null;
  readonly collectives: number;
  /** Largest local tensor on the way. */
  readonly peakBytes: number;
  /** PyTorch's default plan under the same preset; null where it has none. */
  readonly greedy: {
    readonly plan: string;
    readonly seconds: number;
    readonly collectives: number;
  } | null;
}

export function redistributeCommand(
  from: string,
  to: string,
  options: RedistributeOptions,
  io: CliIo,
): number {
  const mesh = parseMesh(options.mesh);
  const { shape } = options;
  const type = { shape, itemBytes: DTYPE_BYTES[options.dtype] };
  const cluster = loadCluster(clusterText(options.cluster, options));
  const model = collectiveModel(options.cost ?? defaultCostPreset(cluster), cluster, mesh);
  const space = new ShardingSpace(mesh);
  const source = space.intern(parseShardingFor(from, mesh, shape));
  const target = space.intern(parseShardingFor(to, mesh, shape));
  const planner = new Redistributor(space, model, { merge: options.merge });
  const plan = planner.plan(type, source, target);
  if (plan === undefined) {
    const refusal = planner.refusal(source, target) ?? `${from} -> ${to} is refused`;
    const [reason = refusal, route] = refusal.split('; ');
    throw new ShardwrightError('E_PLACEMENT', reason, defined({ hint: route }));
  }
  const greedy = greedyPlan(new GreedyPlanner(space, model), type, plan);
  const charges = new RedistributionCharges(planner);
  const charged = charges.byFormula ? charges.seconds(type, source, target) : undefined;
  answer(io, options, record(plan, greedy, mesh, charged), () =>
    planText(plan, greedy, mesh, `${model.preset} on ${cluster.id}`, charged),
  );
  return EXIT.ok;
}

function record(
  plan: RedistributionPlan,
  greedy: RedistributionPlan | undefined,
  mesh: DeviceMesh,
  charged: number | undefined,
): Redistribution {
  return {
    plan: plan.text,
    steps: plan.steps.map((step) => ({
      kind: step.kind,
      meshDims: step.meshDims.map((m) => itemAt(mesh.names, m)),
      groupSize: step.groupSize,
      bytes: step.bytes,
      seconds: step.seconds,
      ...(step.pairs !== undefined && { pairs: step.pairs }),
    })),
    seconds: plan.seconds,
    ...(charged !== undefined && { chargedSeconds: charged === Infinity ? null : charged }),
    collectives: plan.collectives,
    peakBytes: plan.peakBytes,
    greedy:
      greedy === undefined
        ? null
        : { plan: greedy.text, seconds: greedy.seconds, collectives: greedy.collectives },
  };
}

function planText(
  plan: RedistributionPlan,
  greedy: RedistributionPlan | undefined,
  mesh: DeviceMesh,
  prices: string,
  charged: number | undefined,
): string {
  const lines = [
    plan.text,
    `${timeText(plan.seconds)} (${prices}), ${countOf(plan.collectives, 'collective')}, at ` +
      `most ${bytesText(plan.peakBytes)} of it on a device`,
  ];
  if (charged !== undefined)
    lines.push(
      charged === Infinity
        ? "refused by the preset's formula"
        : `${timeText(charged)} charged in a plan, by the preset's formula for a contiguous tensor`,
    );
  if (plan.steps.length > 0) {
    const rows = plan.steps.map((step) => [
      step.kind,
      step.meshDims.map((m) => itemAt(mesh.names, m)).join(','),
      String(step.groupSize),
      bytesText(step.bytes),
      timeText(step.seconds),
      (step.pairs ?? []).map(([a, b]) => `${a}->${b}`).join(' '),
    ]);
    lines.push(
      '',
      tableText([['step', 'mesh dims', 'devices', 'bytes', 'time', ''], ...rows], [2, 3, 4]),
    );
  }
  if (greedy !== undefined && greedy.text !== plan.text)
    lines.push(
      '',
      `PyTorch by default: ${timeText(greedy.seconds)}, ` +
        `${countOf(greedy.collectives, 'collective')}`,
      `  ${greedy.text}`,
    );
  return lines.map((line) => line.trimEnd()).join('\n');
}

/** PyTorch's default plan, where both ends are in its reach. */
function greedyPlan(
  planner: GreedyPlanner,
  type: { shape: readonly number[]; itemBytes: number },
  { from, to }: RedistributionPlan,
): RedistributionPlan | undefined {
  try {
    return planner.plan(type, from, to);
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_PLACEMENT') return undefined;
    throw error;
  }
}

/** Five significant digits: the figures of presets are compared to that many. */
function timeText(seconds: number): string {
  if (seconds === 0) return '0 s';
  const [unit, name] = seconds < 1e-3 ? [1e-6, 'µs'] : seconds < 1 ? [1e-3, 'ms'] : [1, 's'];
  return `${Number((seconds / unit).toPrecision(5))} ${name}`;
}

function countOf(n: number, what: string): string {
  return n === 1 ? `1 ${what}` : `${n === 0 ? 'no' : n} ${what}s`;
}

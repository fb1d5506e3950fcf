/**
 * Prices a part of a program that has a plan, with the messages to the parts around it, and plays
 * the schedule of a pipeline whose stages are such parts. A check plays written plans again by it.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../cost/presets/presets.ts';
import { itemAt } from '../../item-at.ts';
import { DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { StagedGraph } from '../../passes/stages/split.ts';
import type { Message } from '../../passes/stages/write-stage.ts';
import type { PlannedResult } from '../../plan/choice/result.ts';
import { choicePeakBytes } from '../../plan/choice/timeline.ts';
import type { StageSeconds } from '../../simulate/pipeline/play.ts';
import { simulatePasses } from '../../simulate/timeline/simulate.ts';
import { PlanReader } from '../../step/read/plan-reader.ts';
import { endsSumSeconds } from '../rank/tied-embedding.ts';
import { messageBytes } from './boundaries.ts';
import { type PlayedDevice, playStages, type PricedUnits, total } from './plan.ts';
import type { PlanPipelineRequest } from './request.ts';

/** The figures of a part under its plan. */
export interface PartPrices {
  readonly unit: PricedUnits['units'][number];
  /** Bytes that it sends back to the part in front. */
  readonly sendBackBytes: number;
  readonly seconds: PricedUnits['seconds'][number];
  /** Once a step, after the last microbatch. */
  readonly stepSeconds: number;
  readonly stateBytes: number;
}

/** The stage that a part is, or may become part of. */
interface PartOf {
  /** Its number. */
  readonly s: number;
  readonly sends: readonly Pick<Message, 'output'>[];
  readonly sendsBack: readonly Pick<Message, 'output'>[];
  /** Parameters that several stages hold. */
  readonly shared: StagedGraph['shared'];
  /** The name that the plan has for a parameter. */
  readonly nameOf: (parameter: string) => string | undefined;
  /** Devices in a row. */
  readonly devices: number;
}

/**
 * Prices a part under its plan: seconds are those of the step as the simulator plays it, with
 * communication overlapped, and bytes are those of the plan for each microbatch that is kept.
 */
export function partPrices(
  { prepared, choice, plan }: Pick<PlannedResult, 'prepared' | 'choice' | 'plan'>,
  part: PartOf,
  table: OperatorTable,
): PartPrices {
  const { model } = prepared;
  const reader = new PlanReader(model, choice, 0, table);
  const units = reader.units();
  const sum = (of: (unit: (typeof units)[number]) => number): number =>
    units.reduce((all, unit) => all + of(unit), 0);
  const bytes = new Map(
    reader.parameters().map((one) => [one.name, one.localElements * one.itemBytes] as const),
  );
  const bytesOf = (parameter: string): number => bytes.get(part.nameOf(parameter) ?? '') ?? 0;
  const keptBytes = sum((unit) => unit.keptBytes.none);
  const stateBytes = reader
    .parameters()
    .reduce(
      (all, { localElements: n, state }) =>
        all + n * (state.parameter + state.gradient + state.optimizer),
      0,
    );
  const { seconds, stepSeconds } = playedSeconds(
    {
      forward: sum(({ forward: f }) => f.compute + f.communication),
      backwardInput: sum(({ backwardInput: b }) => b.compute + b.communication),
      backwardWeight: sum(({ backwardWeight: w }) => w.compute + w.communication),
    },
    reader.stepSeconds.reduce((all, one) => all + one, 0),
    { prepared, plan },
    table,
  );
  return {
    unit: {
      name: `part ${part.s}`,
      keptBytes,
      // With one microbatch the device has the peak of the plan.
      temporaryBytes: Math.max(0, choicePeakBytes(model, choice) - stateBytes - keptBytes),
      boundaryBytes: messageBytes(part.sends, plan, model.graph, model.space),
    },
    sendBackBytes: messageBytes(part.sendsBack, plan, model.graph, model.space),
    seconds,
    stepSeconds:
      stepSeconds +
      sumSeconds(part, bytesOf, model.cluster, {
        cost: plan.request.cost,
        size: model.space.mesh.size,
      }),
    stateBytes,
  };
}

/**
 * The seconds of the passes of a microbatch, and what the reduction of gradients adds to the last
 * of them. The simulator plays forward and backward as one; each has its share of the costs.
 */
function playedSeconds(
  costs: StageSeconds,
  reductionSeconds: number,
  { prepared, plan }: Pick<PlannedResult, 'prepared' | 'plan'>,
  table: OperatorTable,
): Pick<PartPrices, 'seconds' | 'stepSeconds'> {
  const { last, other } = simulatePasses(prepared.question.program, plan, table);
  const scaled = (share: number): StageSeconds => ({
    forward: share * costs.forward,
    backwardInput: share * costs.backwardInput,
    backwardWeight: share * costs.backwardWeight,
  });
  const each = total(costs);
  if (plan.request.accumulate !== undefined)
    return {
      seconds: scaled(each === 0 ? 1 : other / each),
      stepSeconds: Math.max(0, last - other),
    };
  // One pass does both.
  const all = each + reductionSeconds;
  const share = all === 0 ? 1 : last / all;
  return { seconds: scaled(share), stepSeconds: share * reductionSeconds };
}

/** Seconds in which stages add up the gradients of what they share, once a step. */
function sumSeconds(
  { s, shared, devices }: PartOf,
  bytesOf: (parameter: string) => number,
  cluster: Cluster,
  { cost, size }: { readonly cost: string; readonly size: number },
): number {
  let seconds = 0;
  for (const { names, stages } of shared) {
    const holders = new Set(stages.map((stage) => stage % devices)).size;
    if (holders < 2 || !stages.includes(s)) continue;
    const bytes = Math.max(0, ...names.map(bytesOf));
    seconds += endsSumSeconds(bytes, devices * size, cost, cluster, holders);
  }
  return seconds;
}

/** The mesh of a stage, the cluster, and the prices of its messages. */
interface StageSetting {
  readonly mesh: string;
  readonly cluster: string;
  readonly cost: string;
}

/** Parts in a row with what a message between them takes. */
export function unitsOfParts(
  parts: readonly PartPrices[],
  { mesh, cluster, cost }: StageSetting,
  devices: number,
): PricedUnits {
  const whole = new DeviceMesh([{ name: 'pp', size: devices }, ...parseMesh(mesh).dims]);
  const collectives = collectiveModel(cost, loadCluster(cluster), whole);
  return {
    units: parts.map(({ unit }, i) => ({
      ...unit,
      boundaryBackBytes: parts[i + 1]?.sendBackBytes ?? 0,
    })),
    seconds: parts.map(({ seconds }) => seconds),
    stepSeconds: Float64Array.from(parts, ({ stepSeconds }) => stepSeconds),
    stateBytes: Float64Array.from(parts, ({ stateBytes }) => stateBytes),
    hop: (bytes) => (devices === 1 ? 0 : collectives.seconds('collective_permute', bytes, [0])),
  };
}

/** A pipeline that was played. */
interface PlayedStages {
  readonly stages: readonly {
    readonly peakBytes: number;
    readonly inFlight: number;
    readonly idleShare: number;
  }[];
  readonly bubbleSeconds: number;
  readonly seconds: number;
  readonly fits: boolean;
}

/** Plays the schedule on stages, each of which is one unit. */
export function playedStages(units: PricedUnits, request: PlanPipelineRequest): PlayedStages {
  const bounds = Array.from({ length: units.units.length + 1 }, (_, k) => k);
  const devices: readonly PlayedDevice[] = playStages(units, bounds, request).devices;
  const end = Math.max(...devices.map((d) => d.end));
  return {
    stages: units.units.map((_, k) => {
      const { peakBytes, inFlight, busy } = itemAt(devices, k % request.devices);
      return { peakBytes, inFlight, idleShare: Math.max(0, 1 - busy / end) };
    }),
    bubbleSeconds: Math.max(0, end - Math.max(...devices.map((d) => d.busy))),
    seconds: end,
    fits: devices.every((d) => d.peakBytes <= request.budgetBytes),
  };
}

/**
 * Takes a solved plan of one microbatch and a number of stages and gives the pipeline: stages,
 * their seconds and bytes, the schedule.
 */

import { collectiveModel } from '../../cost/presets/presets.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { runsBodies } from '../../graph/control.ts';
import type { Graph } from '../../graph/types.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { StepFigures } from '../../plan/record/types.ts';
import { keptMicrobatches } from '../../simulate/pipeline/closed-forms.ts';
import { playPipeline, type StageSeconds } from '../../simulate/pipeline/play.ts';
import { passOrder, type PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import { stackLayers } from '../../step/layers.ts';
import { PlanReader } from '../../step/read/plan-reader.ts';
import { endsSumSeconds } from '../rank/tied-embedding.ts';
import { partitionStages, type PipelineUnit } from './partition.ts';
import type { PlanPipelineRequest } from './request.ts';
import { stagedStep } from './staged-plan.ts';

/**
 * A plan's program, which is that of one microbatch, cut into stages: the keys are those of `plan
 * --pp --json`.
 */
export interface PlanPipeline {
  readonly schedule: PipelineSchedule;
  readonly microbatches: number;
  /** Chunks of layers on each device. */
  readonly virtual: number;
  /** By chunk * devices + device: chunk k * P + i lies on device i. */
  readonly stages: readonly {
    /** Layers from the first to the last, `[3, 7]`; null for a stage without layers. */
    readonly layers: readonly [first: number, last: number] | null;
    readonly embedding: boolean;
    readonly head: boolean;
    /** Seconds of one microbatch, forward and backward. */
    readonly seconds: number;
    /**
     * The peak of the device: states, activations of the microbatches that it keeps, and the most
     * that else is alive.
     */
    readonly peakBytes: number;
    /** Microbatches (of a chunk) that the device keeps. */
    readonly inFlight: number;
    /** Share of the step that the device waits, 0..1. */
    readonly idleShare: number;
  }[];
  /** The bubble of the device that works longest. */
  readonly bubbleSeconds: number;
  /** One step call by call: all microbatches, and the sums of gradients after them. */
  readonly seconds: number;
  readonly budgetBytes: number;
  /** True if the fullest device is within the budget, by the step if there is one. */
  readonly fits: boolean;
  /** The changes of the cuts due to the memory limit, one sentence each. */
  readonly moved: readonly string[];
  /**
   * The step as a trainer runs it, on stages that are cut as it cuts them. Absent: there are the
   * sums of calls above alone, those of the exported program.
   */
  readonly step?: StepFigures;
}

/**
 * Tells whether a program can be cut so, before it is planned.
 *
 * @returns its layers
 * @throws as `pipelineOfPlan`
 */
export function checkPipeline(
  graph: Graph,
  request: Omit<PlanPipelineRequest, 'budgetBytes' | 'facts'>,
): number {
  const { devices, schedule, microbatches, virtual } = request;
  if (runsBodies(graph))
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      'a program with bodies is not cut into pipeline stages',
    );
  const layers = stackLayers(graph);
  if (layers + 2 < devices * virtual)
    throw new ShardwrightError(
      'E_USAGE',
      `embedding, ${layers} layers and head cannot fill ${devices * virtual} pipeline stages`,
      {
        hint: `use at most ${layers + 2} stages, chunks counted.`,
      },
    );
  passOrder(schedule, { devices, microbatches, ...(virtual > 1 ? { chunks: virtual } : {}) });
  return layers;
}

/**
 * Stages of a plan on the mesh of one stage, with `pp` outside of it: units are priced as the plan
 * places them, cut so that the longest stage is short and fits, and the schedule is played.
 * Gradients are summed once, after a device's last microbatch.
 *
 * @throws E_USAGE for fewer layers than stages and what the schedule does not admit, E_UNSUPPORTED
 *   for layers that are not one stack
 */
export function pipelineOfPlan(
  prepared: Pick<Prepared, 'model' | 'question'>,
  choice: Int32Array,
  request: PlanPipelineRequest,
  table: OperatorTable,
): PlanPipeline {
  const { devices: p, schedule, microbatches, virtual, budgetBytes } = request;
  const layers = checkPipeline(prepared.model.graph, request);
  const reader = new PlanReader(prepared.model, choice, layers, table);
  const priced = pricedUnits(prepared, reader, p);
  const { facts } = request;
  const trained = facts === undefined ? undefined : stagedStep(prepared, choice, request, facts);
  const { bounds, moved } =
    trained === undefined ? cutUnits(priced, request) : { bounds: trained.bounds, moved: [] };
  const { stages, devices } = playStages(priced, bounds, request);
  const end = Math.max(...devices.map((d) => d.end));
  return {
    schedule,
    microbatches,
    virtual,
    stages: stages.map((s, k) => {
      const { peakBytes, inFlight, busy } = devices[k % p];
      const first = Math.max(0, bounds[k] - 1);
      const last = Math.min(layers, bounds[k + 1] - 1) - 1;
      return {
        layers: last < first ? null : [first, last],
        embedding: k === 0,
        head: k === p * virtual - 1,
        seconds: total(s),
        peakBytes,
        inFlight,
        idleShare: Math.max(0, 1 - busy / end),
      };
    }),
    bubbleSeconds: Math.max(0, end - Math.max(...devices.map((d) => d.busy))),
    seconds: end,
    budgetBytes,
    fits:
      trained === undefined
        ? devices.every((d) => d.peakBytes <= budgetBytes)
        : trained.step.peakBytes <= budgetBytes,
    moved,
    ...defined({ step: trained?.step }),
  };
}

/** The parts of a program between which it may be cut, with their prices on stages of their own. */
export interface PricedUnits {
  readonly units: readonly {
    readonly name: string;
    /** Bytes that one microbatch keeps from forward to backward. */
    readonly keptBytes: number;
    /** The most bytes alive besides states and what is kept. */
    readonly temporaryBytes: number;
    /** Bytes of what the next unit reads. */
    readonly boundaryBytes: number;
    /** Bytes of the gradients that come back from it; absent: as many. */
    readonly boundaryBackBytes?: number;
  }[];
  /** The figures of one microbatch. */
  readonly seconds: readonly StageSeconds[];
  /** Once a step, after the last microbatch. */
  readonly stepSeconds: Float64Array;
  readonly stateBytes: Float64Array;
  /** Seconds of a message to the next stage. */
  readonly hop: (bytes: number) => number;
}

function pricedUnits(
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  reader: PlanReader,
  devices: number,
): PricedUnits {
  const units = reader.units();
  const stateBytes = new Float64Array(units.length);
  const stepSeconds = Float64Array.from(reader.stepSeconds);
  const inner = model.space.mesh;
  for (const { unit, alsoUnit, localElements, itemBytes, trained, state } of reader.parameters()) {
    const bytes = localElements * (state.parameter + state.gradient + state.optimizer);
    stateBytes[unit] += bytes;
    if (alsoUnit === undefined || devices === 1) continue;
    stateBytes[alsoUnit] += bytes;
    const sum = trained
      ? endsSumSeconds(localElements * itemBytes, devices * inner.size, request.cost, model.cluster)
      : 0;
    stepSeconds[unit] += sum;
    stepSeconds[alsoUnit] += sum;
  }
  const mesh = new DeviceMesh([{ name: 'pp', size: devices }, ...inner.dims]);
  const collectives = collectiveModel(request.cost, model.cluster, mesh);
  return {
    units: units.map(({ keptBytes, temporaryBytes, boundaryBytes }, i) => ({
      name: i === 0 ? 'embedding' : i === units.length - 1 ? 'head' : `layer ${i - 1}`,
      keptBytes: keptBytes.none,
      temporaryBytes,
      boundaryBytes,
    })),
    stateBytes,
    stepSeconds,
    seconds: units.map(({ forward, backwardInput, backwardWeight }): StageSeconds => ({
      forward: forward.compute + forward.communication,
      backwardInput: backwardInput.compute + backwardInput.communication,
      backwardWeight: backwardWeight.compute + backwardWeight.communication,
    })),
    hop: (bytes) => (devices === 1 ? 0 : collectives.seconds('collective_permute', bytes, [0])),
  };
}

/**
 * The cuts within the budget; without that limit where there are none.
 *
 * @throws E_USAGE where there are no cuts at all
 */
export function cutUnits(
  { units, seconds, stateBytes, hop }: PricedUnits,
  { devices, schedule, microbatches, virtual, budgetBytes }: PlanPipelineRequest,
): { readonly bounds: readonly number[]; readonly moved: readonly string[] } {
  const named = units.map((u, i): PipelineUnit => ({
    name: u.name,
    seconds: total(seconds[i]),
    stateBytes: stateBytes[i],
    activationBytes: u.keptBytes,
    hopSeconds: hop(u.boundaryBytes) + hop(u.boundaryBackBytes ?? u.boundaryBytes),
  }));
  const cutting = {
    stages: devices * virtual,
    microbatches,
    schedule: schedule === 'interleaved' ? '1f1b' : schedule,
  } as const;
  const temporary = Math.max(...units.map((u) => u.temporaryBytes));
  // Chunks share a device: their limit is looked at when they lie on it.
  const limited =
    virtual > 1 ? cutting : { ...cutting, limitBytes: Math.max(0, budgetBytes - temporary) };
  const fitting = partitionStages(named, limited);
  const found = fitting.status === 'found' ? fitting : partitionStages(named, cutting);
  if (found.status === 'infeasible') throw new ShardwrightError('E_USAGE', found.reason);
  return { bounds: [0, ...found.cuts, units.length], moved: found.moved };
}

/** One device of the pipeline that was played. */
export interface PlayedDevice {
  readonly busy: number;
  readonly end: number;
  readonly inFlight: number;
  readonly peakBytes: number;
}

/** Plays the schedule on stages between these bounds. */
export function playStages(
  { units, seconds, stepSeconds, stateBytes, hop }: PricedUnits,
  bounds: readonly number[],
  { devices: p, schedule, microbatches, virtual }: PlanPipelineRequest,
): { readonly stages: readonly StageSeconds[]; readonly devices: readonly PlayedDevice[] } {
  const range = (k: number): number[] =>
    Array.from({ length: bounds[k + 1] - bounds[k] }, (_, i) => bounds[k] + i);
  const stages = Array.from({ length: p * virtual }, (_, k): StageSeconds => {
    const add = (of: (s: StageSeconds) => number): number =>
      range(k).reduce((sum, u) => sum + of(seconds[u]), 0);
    return {
      forward: add((s) => s.forward),
      backwardInput: add((s) => s.backwardInput),
      backwardWeight: add((s) => s.backwardWeight),
    };
  });
  const ends = bounds.slice(1, -1).map((end) => units[end - 1]);
  const hopSeconds = ends.map((unit) => hop(unit.boundaryBytes));
  const hopBackSeconds = ends.map((unit) => hop(unit.boundaryBackBytes ?? unit.boundaryBytes));
  const shape = { devices: p, microbatches, ...(virtual > 1 ? { chunks: virtual } : {}) };
  const run = playPipeline(schedule, shape, { stages, hopSeconds, hopBackSeconds });
  const devices = run.devices.map(({ spans, busySeconds }, i): PlayedDevice => {
    const chunks = Array.from({ length: virtual }, (_, c) => range(c * p + i));
    const own = chunks.flat();
    const kept = chunks.map((list) => list.reduce((sum, u) => sum + units[u].keptBytes, 0));
    const inFlight = keptMicrobatches(schedule, { ...shape, chunks: virtual }, i);
    const step = own.reduce((sum, u) => sum + stepSeconds[u], 0);
    return {
      busy: busySeconds + step,
      end: (spans.at(-1)?.end ?? 0) + step,
      inFlight,
      // Chunks of one device are equal; the fullest represents all that are kept.
      peakBytes: Math.ceil(
        own.reduce((sum, u) => sum + stateBytes[u], 0) +
          inFlight * Math.max(...kept) +
          Math.max(...own.map((u) => units[u].temporaryBytes)),
      ),
    };
  });
  return { stages, devices };
}

/** Seconds of all passes of one microbatch. */
export const total = (s: StageSeconds): number => s.forward + s.backwardInput + s.backwardWeight;

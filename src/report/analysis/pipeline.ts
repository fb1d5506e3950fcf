/**
 * Reads the pipeline stages of a plan folder, cuts them again from the plan, and gives their
 * seconds, bytes and messages.
 */

import { clusterTopology } from '../../cost/hardware/topology.ts';
import { collectiveModel } from '../../cost/presets/presets.ts';
import { ShardwrightError } from '../../errors.ts';
import { trainerFacts } from '../../fidelity/trainer-step.ts';
import { itemAt } from '../../item-at.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Reopened } from '../../plan/questions/explain.ts';
import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import { under } from '../../step/costs/unit-costs.ts';
import { PlanReader } from '../../step/read/plan-reader.ts';
import type { CoreUnit } from '../../step/units.ts';
import { checkPipeline, pipelineOfPlan, type PlanPipeline } from '../../sweep/pipeline/plan.ts';

/** Seconds and bytes of one stage, of one microbatch where not said otherwise. */
export interface ReportStage {
  /** Layers from the first to the last; null for a stage without layers. */
  readonly layers: readonly [first: number, last: number] | null;
  readonly embedding: boolean;
  readonly head: boolean;
  /** The device, or group of them, that holds it. */
  readonly device: number;
  readonly seconds: number;
  readonly forwardSeconds: number;
  readonly backwardInputSeconds: number;
  readonly backwardWeightSeconds: number;
  /** The peak of the device: the sum of the three that follow. */
  readonly peakBytes: number;
  /** Parameters, gradients and optimizer state of all stages of the device. */
  readonly stateBytes: number;
  /** Activations of the microbatches that the device keeps. */
  readonly activationBytes: number;
  readonly temporaryBytes: number;
  readonly inFlight: number;
  readonly idleShare: number;
}

/**
 * The message between two stages that follow one another: activations one way, their gradients the
 * other.
 */
interface ReportBoundary {
  readonly from: number;
  readonly to: number;
  /** Bytes that each device sends, for one microbatch and direction. */
  readonly bytes: number;
  readonly seconds: number;
  /** Bytes of a whole step, both directions. */
  readonly stepBytes: number;
}

/** The stages of a plan, with what is needed to play the schedule again. */
export interface Pipeline extends Omit<PlanPipeline, 'stages' | 'schedule'> {
  readonly schedule: PipelineSchedule;
  /** Devices, or groups of them, in a row. */
  readonly devices: number;
  /** Hosts that the devices of one row touch. */
  readonly hosts: number;
  readonly stages: readonly ReportStage[];
  readonly boundaries: readonly ReportBoundary[];
  /** By device: sums of gradients after its last microbatch. */
  readonly afterSeconds: readonly number[];
}

/**
 * The stages of a plan folder, cut again from the plan itself.
 *
 * @param said what `pipeline.json` says
 * @throws E_PLAN where the plan does not give what the file says, so that the file is another
 *   plan's
 */
export function pipelineAgain(
  { prepared, choice }: Reopened,
  said: PlanPipeline,
  table: OperatorTable,
): Pipeline {
  const { schedule, microbatches, virtual, budgetBytes, step } = said;
  const devices = said.stages.length / virtual;
  const {
    model,
    question: { request },
  } = prepared;
  const asked = { devices, schedule, microbatches, virtual, budgetBytes };
  const layers = checkPipeline(model.graph, asked);
  const facts = step === undefined ? undefined : trainerFacts({ ...request, ...step });
  const cut = pipelineOfPlan(prepared, choice, { ...asked, facts }, table);
  if (!isSame(cut, said) || request.memoryBytes !== budgetBytes * devices)
    throw new ShardwrightError('E_PLAN', 'pipeline.json is not that of the plan next to it', {
      hint: 'make the plan again with --pp, or remove pipeline.json.',
    });
  const units = new PlanReader(prepared.model, choice, layers, table).units();
  const mesh = new DeviceMesh([{ name: 'pp', size: devices }, ...model.space.mesh.dims]);
  const collectives = collectiveModel(request.cost, model.cluster, mesh);
  const own = said.stages.map((stage) => unitsOf(stage, layers).map((u) => itemAt(units, u)));
  const stages = said.stages.map((stage, k): ReportStage => {
    const device = k % devices;
    const chunks = own.filter((_, other) => other % devices === device);
    const kept = chunks.map((list) =>
      list.reduce((total, unit) => total + under(unit.keptBytes, 'none'), 0),
    );
    const activationBytes = stage.inFlight * Math.max(...kept);
    const temporaryBytes = Math.max(...chunks.flat().map((unit) => unit.temporaryBytes));
    return {
      ...stage,
      device,
      forwardSeconds: secondsOf(itemAt(own, k), 'forward'),
      backwardInputSeconds: secondsOf(itemAt(own, k), 'backwardInput'),
      backwardWeightSeconds: secondsOf(itemAt(own, k), 'backwardWeight'),
      stateBytes: Math.floor(stage.peakBytes - activationBytes - temporaryBytes),
      activationBytes,
      temporaryBytes,
    };
  });
  const boundaries = stages.slice(1).map((_, k): ReportBoundary => {
    const bytes = itemAt(own, k).at(-1)?.boundaryBytes ?? 0;
    const seconds = devices === 1 ? 0 : collectives.seconds('collective_permute', bytes, [0]);
    return { from: k, to: k + 1, bytes, seconds, stepBytes: 2 * microbatches * bytes };
  });
  const afterSeconds = Array.from({ length: devices }, (_, device) =>
    secondsAfter(
      stages.filter((s) => s.device === device),
      said,
    ),
  );
  const { hosts } = clusterTopology(model.cluster, mesh, [0]);
  return { ...said, devices, hosts, stages, boundaries, afterSeconds };
}

/** Seconds of a pass through units, one after another. */
function secondsOf(
  list: readonly CoreUnit[],
  part: 'forward' | 'backwardInput' | 'backwardWeight',
): number {
  return list.reduce((total, unit) => total + unit[part].compute + unit[part].communication, 0);
}

/** Work of a device beyond its passes, which comes after them. */
function secondsAfter(
  stages: readonly ReportStage[],
  { microbatches, seconds }: PlanPipeline,
): number {
  const passes = microbatches * stages.reduce((total, s) => total + s.seconds, 0);
  const after = (1 - itemAt(stages, 0).idleShare) * seconds - passes;
  return after > 1e-9 * seconds ? after : 0;
}

/** Units of the program by number: the embedding, the layers, the head. */
function unitsOf(
  { layers, embedding, head }: PlanPipeline['stages'][number],
  count: number,
): number[] {
  const inner =
    layers === null
      ? []
      : Array.from({ length: layers[1] - layers[0] + 1 }, (_, i) => layers[0] + i + 1);
  return [...(embedding ? [0] : []), ...inner, ...(head ? [count + 1] : [])];
}

/** `embedding, layers 0-3`. */
export function stageText({
  layers,
  embedding,
  head,
}: Pick<ReportStage, 'layers' | 'embedding' | 'head'>): string {
  const parts = [
    ...(embedding ? ['embedding'] : []),
    ...(layers === null
      ? []
      : [layers[0] === layers[1] ? `layer ${layers[0]}` : `layers ${layers[0]}-${layers[1]}`]),
    ...(head ? ['head'] : []),
  ];
  return parts.join(', ');
}

/** Tells whether two values of JSON are the same, whatever the order of their keys. */
function isSame(a: unknown, b: unknown): boolean {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null)
    return Object.is(a, b);
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [new Map(Object.entries(a)), new Map(Object.entries(b))];
  return (
    left.size === right.size &&
    [...left].every(([key, value]) => right.has(key) && isSame(value, right.get(key)))
  );
}

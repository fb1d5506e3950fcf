/**
 * Takes the result of a sweep and gives a comparison: names, the Pareto front, the reason why each
 * plan is not the best, the next best.
 */

import { matrixPeak } from '../cost/compute.ts';
import { clusterTopology, type Hosts, tornWarning } from '../cost/hardware/topology.ts';
import { narrowText } from '../cost/kernels/fp8-recipes.ts';
import { programUtilization } from '../cost/training/mfu.ts';
import { defined, nonEmpty } from '../defined.ts';
import { DeviceMesh } from '../mesh/devices/mesh.ts';
import { bestOf, safestOf } from '../recipes/compare/best-plan.ts';
import type {
  ComparedPlan,
  Comparison,
  RiskierPlan,
  WhatIf,
} from '../recipes/compare/comparison.ts';
import { dominators, paretoFront, type ParetoPoint } from '../recipes/compare/pareto.ts';
import { isPolicy, modulesOf } from '../step/checkpoints.ts';
import { allocationOfLayout, type LayoutSizes } from '../step/layout.ts';
import type { SweepQuestion } from './model/question.ts';
import { layoutText } from './model/stated-layout.ts';
import { coreOf, type NamedRow, Reasons } from './reasons.ts';
import type { CutsLeftOut } from './step/expert-cuts.ts';
import type { PricedRow } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';

/** The answers to other questions and other risks that were asked in addition. */
interface Answers {
  readonly whatIf: readonly WhatIf[];
  readonly riskier?: RiskierPlan | undefined;
}

/**
 * A sweep as a comparison: names, the front, why every other plan is not the best, the next best.
 */
export function sweepComparison(
  question: SweepQuestion,
  result: SweepResult,
  { whatIf, riskier }: Answers,
): Comparison {
  const { priced, budgetBytes, safeBytes } = result;
  const { cluster } = result.composer;
  const named = nameRows(priced);
  const points = named.map(({ name, row }): ParetoPoint => ({
    name,
    seconds: row.figures.seconds,
    peakBytes: row.figures.peakBytes,
    fits: row.figures.peakBytes <= budgetBytes,
  }));
  const first = bestOf(points, safeBytes);
  const best = first === undefined ? undefined : named[0];
  const dominatorOf = dominators(points);
  const reasons = new Reasons(result, best, question.risk);
  const plans = named.map(({ name, row }): ComparedPlan => {
    const dominated = dominatorOf({ name, ...row.figures });
    return reasons.of(comparedPlan(question, result, { name, row }, dominated), row, dominated);
  });
  const front = paretoFront(points);
  return {
    devices: question.devices,
    cluster: cluster.id,
    budgetBytes,
    ...(question.risk === undefined ? {} : { risk: question.risk, safeBytes }),
    plans,
    refused: result.refused,
    findings: priced.flatMap(({ row }) =>
      row.findings.map((f) => ({ ...f, plan: row.name, mesh: row.mesh })),
    ),
    meshes: meshesOf(result),
    best: best?.name ?? null,
    ...safestOf(points, best),
    ...defined({ riskier }),
    ...(best === undefined ? {} : heldBy(best.row.row.sizes, cluster)),
    pareto: front,
    question: comparedQuestion(question, result),
    notes: notesOf(result),
    ...frontierOf(front, points),
    nextBest: nextBest(named, best),
    whatIf,
    ...(priced.length === 0
      ? {}
      : { smallestBudgetBytes: Math.min(...priced.map((p) => p.figures.peakBytes)) }),
  };
}

/** The question as a comparison keeps it. */
function comparedQuestion(
  question: SweepQuestion,
  result: SweepResult,
): NonNullable<Comparison['question']> {
  const { kinds } = result;
  return {
    model: question.model,
    sequence: question.sequence,
    globalBatch: question.globalBatch,
    cost: question.cost,
    layers: kinds.layers,
    pricedLayers: kinds.shallow,
    layerKinds: kinds.kinds,
    mfuConvention: utilization(question, result, 1).convention,
    ...defined({
      trainer: question.trainer,
      trainerAssumed: question.trainerAssumed,
      adapters: kinds.adapters,
    }),
  };
}

/** The share of the devices' peak that a step of so many seconds reaches. */
function utilization(
  question: SweepQuestion,
  { composer, dtype, kinds }: SweepResult,
  seconds: number,
): ReturnType<typeof programUtilization> {
  const flops = question.globalBatch * kinds.sequenceFlops;
  const peak = matrixPeak(composer.cluster, dtype).flopsPerSecond;
  const passes = kinds.adapters === undefined ? 3 : 2;
  return programUtilization(flops, passes, seconds, question.devices, peak);
}

/** @param dominated the plan that is better in all, where there is one */
function comparedPlan(
  question: SweepQuestion,
  result: SweepResult,
  { name, row }: NamedRow,
  dominated: string | undefined,
): ComparedPlan {
  const { figures } = row;
  const { kind } = row.row;
  const over = figures.peakBytes - result.budgetBytes;
  return {
    name,
    plan: row.row.name,
    origin: kind.free === true ? 'ilp' : 'zoo',
    mesh: row.row.mesh,
    seconds: figures.seconds,
    communicationSeconds: figures.communicationSeconds,
    peakBytes: figures.peakBytes,
    fits: over <= 0,
    ...(over > 0 ? { overBytes: over } : {}),
    choice: kind.mode !== 'zero1' && kind.mode !== 'zero2',
    ...(over > 0 || dominated === undefined ? {} : { dominatedBy: dominated }),
    layout: comparedLayout(question, result, row),
  };
}

/** The layout of a row; its stages are made when they are asked for. */
function comparedLayout(
  question: SweepQuestion,
  result: SweepResult,
  row: PricedRow,
): NonNullable<ComparedPlan['layout']> {
  const { figures, tuning } = row;
  const { sizes } = row.row;
  const core = coreOf(result, row);
  return {
    computeSeconds: figures.computeSeconds,
    exposedCommunicationSeconds: figures.communicationSeconds,
    bubbleSeconds: figures.bubbleSeconds,
    mfu: utilization(question, result, figures.seconds).mfu,
    tokensPerSecond: (question.globalBatch * question.sequence) / figures.seconds,
    memory: figures.memory,
    sizes: result.routed.size === 0 ? sizes : { ...sizes, etp: sizes.etp ?? 1 },
    ...(tuning.asStated === true
      ? { stated: layoutText({ sizes, kind: row.row.kind, tuning }) }
      : {}),
    microbatch: tuning.microbatch,
    microbatches: figures.microbatches,
    schedule: tuning.schedule,
    chunks: tuning.chunks,
    checkpoint: tuning.checkpoint,
    ...(isPolicy(tuning.checkpoint) ? {} : { recomputes: modulesOf(tuning.checkpoint) }),
    ...(tuning.checkpoint === 'none' ? {} : { unitsAgain: figures.unitsAgain }),
    ...(tuning.once ? { gathersOnce: true } : {}),
    ...(tuning.paired === true ? { pairsMicrobatches: true } : {}),
    get stages() {
      return figures.composed.stages;
    },
    get boundaries() {
      return figures.composed.boundaries;
    },
    get pointToPointBytes() {
      const bytes = figures.composed.boundaries.reduce((sum, b) => sum + b.bytes, 0);
      return 2 * figures.microbatches * bytes;
    },
    pricedLayers: result.kinds.shallow,
    ...(core?.proof === undefined ? {} : { shallowProof: core.proof }),
    ...(row.like === undefined ? {} : { placements: `${row.like.name} on ${row.like.mesh}` }),
  };
}

/** All meshes, and what became of each. */
function meshesOf({ meshes, composer }: SweepResult): Comparison['meshes'] {
  return meshes.map((m) => ({
    mesh: m.mesh,
    hosts: hostsOf(m.sizes, composer.cluster),
    status: m.status,
    ...defined({ boundSeconds: m.boundSeconds, code: m.code, reason: m.reason }),
  }));
}

/** The plans of the front, and what each step to fewer bytes costs. */
function frontierOf(
  front: readonly string[],
  points: readonly ParetoPoint[],
): Required<Pick<Comparison, 'frontier' | 'priceOfMemory'>> {
  const frontier = front.flatMap((name) => {
    const p = points.find((q) => q.name === name);
    return p === undefined ? [] : [{ name, peakBytes: p.peakBytes, seconds: p.seconds, gap: null }];
  });
  return {
    frontier,
    priceOfMemory: frontier.slice(1).map((to, i) => ({
      fromBytes: frontier[i].peakBytes,
      toBytes: to.peakBytes,
      deltaSeconds: to.seconds - frontier[i].seconds,
    })),
  };
}

/** Hosts that a layout holds, with a warning where its tp crosses them while devices stay idle. */
function heldBy(sizes: LayoutSizes, cluster: Hosts): Pick<Comparison, 'held' | 'warnings'> {
  const held = allocationOfLayout(cluster, sizes);
  const hosts = Math.ceil(sizes.tp / held.usedPerHost);
  const warnings = tornWarning({ name: 'tp', size: sizes.tp, hosts }, held);
  return { held, ...nonEmpty({ warnings }) };
}

/** Hosts that a group of each dim touches, for the dims that the mesh's text has. */
function hostsOf(sizes: readonly number[], cluster: Hosts): number[] {
  const shown = sizes.filter((n) => n > 1);
  const mesh = new DeviceMesh(
    (shown.length === 0 ? [1] : shown).map((size, d) => ({ name: `d${d}`, size })),
  );
  return mesh.sizes.map((_, d) => clusterTopology(cluster, mesh, [d]).hosts);
}

/** The best mesh of a plan has the plain name, the others their sizes behind it. */
function nameRows(rows: readonly PricedRow[]): NamedRow[] {
  const seen = new Set<string>();
  return rows.map((row) => {
    const name = seen.has(row.row.name) ? `${row.row.name} [${row.row.mesh}]` : row.row.name;
    seen.add(row.row.name);
    return { name, row };
  });
}

/**
 * The nearest plan, the nearest on another mesh, the nearest that treats states or tensors
 * otherwise.
 */
function nextBest(
  named: readonly NamedRow[],
  best: NamedRow | undefined,
): NonNullable<Comparison['nextBest']> {
  if (best === undefined) return [];
  const others = named.filter(
    ({ row }) => row.fits && row !== best.row && row.row !== best.row.like,
  );
  const { row } = best.row;
  const kinds: readonly (readonly [string, (n: NamedRow) => boolean])[] = [
    ['any other plan', () => true],
    ['another mesh', (n) => n.row.row.mesh !== row.mesh],
    ['another plan', (n) => n.row.row.name !== row.name],
    ['without a pipeline', (n) => n.row.row.sizes.pp === 1 && row.sizes.pp > 1],
    ['without tensor parallelism', (n) => n.row.row.sizes.tp === 1 && row.sizes.tp > 1],
    ['other state sharding', (n) => n.row.row.kind.mode !== row.kind.mode],
  ];
  return kinds.flatMap(([kind, accepts]) => {
    const found = others.find(accepts);
    if (found === undefined) return [];
    const deltaSeconds = found.row.figures.seconds - best.row.figures.seconds;
    return [{ kind, name: found.name, mesh: found.row.row.mesh, deltaSeconds }];
  });
}

/** A note on the plans whose experts are cut. */
function cutsNote({ worse, beaten }: CutsLeftOut, priced: SweepResult['priced']): string {
  const count = priced.filter(
    ({ row }) => row.kind.free !== true && (row.sizes.etp ?? 1) > 1,
  ).length;
  return (
    `Experts cut over tensor ranks (etp, every divisor of tp): ${count} plans priced. ${worse} ` +
    'were left out because wider expert groups with less cut experts are no slower and no ' +
    `larger in any part. ${beaten} were left out because their lower bounds are above priced ` +
    'plans (--plans etp prices all).'
  );
}

/**
 * A note on the dtype that gradients are kept and summed in, where that is not the dtype of their
 * parameters.
 */
function gradientNote({ state, system }: SweepResult['composer']): string[] {
  if (state?.gradient === undefined) return [];
  const summed =
    system === undefined
      ? ''
      : `, and summed over data ranks in ${system.software.gradientBytes * 8} bits`;
  return [
    `Gradients are kept in ${state.gradient * 8} bits${summed} (--gradients, or what ` +
      '--for does).',
  ];
}

function notesOf({
  kinds,
  cores,
  beaten,
  routed,
  priced,
  cutsLeftOut,
  composer,
}: SweepResult): string[] {
  const counted =
    composer.system === undefined
      ? 'The optimizer update is not counted.'
      : 'Launches of the host, clocks under load and the optimizer update are counted.';
  return [
    `Priced from ${kinds.shallow} of ${kinds.layers} layers (${kinds.kinds} ` +
      `${kinds.kinds === 1 ? 'kind' : 'kinds'}): equal layers cost the same.`,
    `Programs of one data rank: ${cores.size} placed and priced, ${beaten} left out because ` +
      'their lower bound is above the best plan.',
    ...(composer.overlaps
      ? [
          'Gathers of parameters and sums of gradients overlap with up to 80 % of the ' +
            'compute; a quarter of the hidden time stays as slowdown. The same holds for a ' +
            'ring of keys and values under attention. All other collectives are exposed (for ' +
            `exchanges with experts see below). ${counted}`,
        ]
      : [`Compute and communication run one after another, without overlap. ${counted}`]),
    'Memory: states, activations of the microbatches that the schedule keeps, and the ' +
      'largest temporary memory of one layer.',
    ...gradientNote(composer),
    ...[narrowText(composer.system?.software)].flatMap((text) =>
      text === undefined ? [] : [text],
    ),
    'Results are recomputed only where a plan would not fit otherwise, and only in as many ' +
      'layers of each stage as needed: of modules (norms, activation functions, feed-forward ' +
      'layers, experts and others) those that save most for a second, or all but products and ' +
      'attention (selective), or whole layers (full).',
    'Microbatches have 1, 2 or 4 sequences, and 1 where the sequence is sharded. Schedules ' +
      'are 1F1B, ZB-H1 and interleaving by 2, 4 or 8 chunks, or by up to 12 that divide the ' +
      'layers evenly. Plans far from the best get 1F1B only.',
    'A plan named optimum has the cheapest placements of the priced layers on the model ' +
      'dims. Their proof counts gathers of parameters and sums of gradients over data ranks; ' +
      'it leaves out stages, memory and overlap inside a layer. Where a recipe on the same ' +
      'mesh with the same state sharding is cheaper in all, the plan takes its placements and ' +
      'says so.',
    ...(routed.size === 0
      ? []
      : [
          'Experts: routing is balanced. Each rank sorts its own tokens and exchanges them ' +
            'over ep, which spans data and model ranks. A forward pass can overlap with the ' +
            'backward pass of another microbatch with interleaved stages or none, without full ' +
            'checkpointing, and with one layer more kept. Then the exchanges of one hide ' +
            'behind the compute of the other.',
        ]),
    ...(cutsLeftOut === undefined ? [] : [cutsNote(cutsLeftOut, priced)]),
  ];
}

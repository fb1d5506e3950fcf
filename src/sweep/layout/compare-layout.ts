/**
 * Compares a stated layout with the best step of a comparison: the layout's figures, its distance
 * from the best, and the changes of one setting that make it faster.
 */

import { fitProbability } from '../../cost/error-bands.ts';
import { hostLinkBytesPerSecond } from '../../cost/hardware/host-link.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { narrowText } from '../../cost/kernels/fp8-recipes.ts';
import { FP8_RECIPES } from '../../cost/kernels/software.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { type ModelConfig, parseModelConfig } from '../../models/families.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { memoryBounds } from '../../recipes/compare/best-plan.ts';
import type { AskedLayout, Certainty } from '../../recipes/compare/comparison.ts';
import { UNCUT_STREAM } from '../../recipes/expert-mesh.ts';
import type { Checkpoint } from '../../step/checkpoints.ts';
import { meshText, planName } from '../../step/layout.ts';
import { notRun, type TrainerRuns } from '../../trainers/runs.ts';
import {
  softwareInFp4,
  softwareInFp8,
  softwareWithGradients,
  softwareWithStates,
  type SweepQuestion,
} from '../model/question.ts';
import type { StatedLayout } from '../model/stated-layout.ts';
import { checkRuns, trainerLimits } from '../model/trainer-limits.ts';
import { type AskedRun, runOfLayout } from '../planning/run-question.ts';
import { layoutFindings } from '../step/layouts.ts';
import { TriedCheckpoints } from '../step/tried-checkpoints.ts';
import { LayoutPricer } from './price-layout.ts';

/** Changes that are listed. */
const MOST_EDITS = 3;

/** A layout as it was asked about, and the comparison that it is set against. */
interface LayoutToCompare {
  readonly text: string;
  readonly layout: StatedLayout;
  /** The step of the best plan that fits; absent if none does. */
  readonly bestSeconds?: number | undefined;
  /** The run whose cost is asked for. */
  readonly run?: AskedRun | undefined;
  /** The file that states the layout. */
  readonly from?: AskedLayout['from'];
  readonly certainty?: Certainty | undefined;
}

/**
 * Prices a layout and its neighbours of one setting as `compare` prices its candidates.
 *
 * @throws E_USAGE with the linter's finding where the sizes do not divide; E_UNSUPPORTED where the
 *   layout cannot be priced
 */
export async function compareLayout(
  question: SweepQuestion,
  { text, layout, bestSeconds, run, from, certainty }: LayoutToCompare,
  table: OperatorTable,
): Promise<AskedLayout> {
  const pricer = new LayoutPricer(table);
  const own = questionOf(question, layout);
  const { seconds, peakBytes, computeSeconds, communicationSeconds, bubbleSeconds, microbatches } =
    await pricer.price(own, layout);
  const cluster = loadCluster(question.cluster);
  const { budgetBytes, safeBytes } = memoryBounds(cluster, question);
  const fits = (bytes: number): number =>
    fitProbability(bytes, question.memoryBytes ?? cluster.memoryBytes);
  const edits: AskedLayout['edits'][number][] = [];
  const limits = trainerLimits(question);
  const { cores, routed } = await pricer.parts(own, layout);
  const tried = new TriedCheckpoints(pricer.kinds(own), limits).of(cores[0], routed, layout.sizes);
  const { routed: experts } = parseModelConfig(question.config).architecture;
  for (const { change, edited } of neighbours(layout, tried, experts !== undefined)) {
    if (limits !== undefined && notRun(limits, edited) !== undefined) continue;
    const figures = await pricer.price(own, edited).catch((error: unknown) => {
      if (error instanceof ShardwrightError && error.code === 'E_UNSUPPORTED') return undefined;
      throw error;
    });
    if (figures === undefined || figures.peakBytes > safeBytes || figures.seconds >= seconds)
      continue;
    const { peakBytes } = figures;
    edits.push({ change, seconds: figures.seconds, peakBytes, fitProbability: fits(peakBytes) });
  }
  edits.sort((a, b) => a.seconds - b.seconds);
  const stepBand =
    certainty === undefined ? null : ([seconds * certainty.p10, seconds * certainty.p90] as const);
  const assumes = layout.dtype === undefined ? undefined : narrowText(own.software);
  return {
    text,
    ...defined({ assumes, from }),
    name: planName(layout.sizes, layout.kind),
    mesh: meshText(layout.sizes, layout.kind),
    seconds,
    tokensPerSecond: (question.globalBatch * question.sequence) / seconds,
    peakBytes,
    fits: peakBytes <= budgetBytes,
    fitProbability: fits(peakBytes),
    ...(stepBand === null ? {} : { secondsBand: stepBand }),
    stepSeconds: seconds,
    stepBand,
    trainer: question.trainer ?? 'shardwright',
    computeSeconds,
    communicationSeconds,
    bubbleSeconds,
    microbatches,
    ...(run === undefined
      ? {}
      : { run: runOfLayout(question, layout.sizes, { stepSeconds: seconds, stepBand }, run) }),
    ...(bestSeconds === undefined ? {} : { overBest: seconds / bestSeconds - 1 }),
    edits: edits.slice(0, MOST_EDITS),
  };
}

/**
 * The question with what the layout says of its dtype, its gradients and its states.
 *
 * @throws E_USAGE where that has no price
 */
export function questionOf(
  asked: SweepQuestion,
  { dtype, gradients, states }: StatedLayout,
): SweepQuestion {
  const stated = gradients === undefined ? ['states', states] : ['gradients', gradients];
  if (stated[1] !== undefined && asked.cost !== 'nccl')
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: ${stated.join('=')} under --cost ${asked.cost}`,
      { hint: 'they have a price under --cost nccl.' },
    );
  const summed =
    gradients === undefined
      ? asked
      : { ...asked, software: softwareWithGradients(asked.software, gradients) };
  const question =
    states === undefined
      ? summed
      : { ...summed, software: softwareWithStates(summed.software, states) };
  if (dtype === undefined) return question;
  if (dtype === 'fp4')
    return { ...question, software: softwareInFp4(question, '--layout: dtype=fp4') };
  if (!dtype.startsWith('fp8'))
    return { ...question, dtype: dtype as Exclude<typeof dtype, `fp8${string}`> };
  const recipe = FP8_RECIPES.find((name) => dtype === `fp8:${name}`);
  return { ...question, software: softwareInFp8(question, recipe, `--layout: dtype=${dtype}`) };
}

/**
 * @param runs what the form of the file can state, where it is one
 * @throws E_USAGE where the linter stops the layout, and where the trainer does not run it
 */
export function checkLayout(
  question: SweepQuestion,
  { sizes, kind, tuning }: StatedLayout,
  runs?: TrainerRuns,
): void {
  checkRuns(question, { sizes, kind, tuning }, '--layout', runs);
  checkOffload(question, tuning);
  const ranks = sizes.dp_replicate * sizes.dp_shard;
  const each = ranks * tuning.microbatch;
  const { globalBatch } = question;
  if (globalBatch % each !== 0) {
    const below = Math.floor(globalBatch / each) * each;
    const nearest = [below, below + each].filter((n) => n > 0).join(' or ');
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: the global batch of ${globalBatch} does not divide over ${ranks} data ranks ` +
        `with mbs=${tuning.microbatch}`,
      { hint: `change --global-batch, dp or mbs: a batch of ${nearest} would fit.` },
    );
  }
  const config = parseModelConfig(question.config);
  const findings = layoutFindings(config, question, loadCluster(question.cluster), {
    sizes,
    kind,
  });
  const stop = findings.find((f) => f.severity === 'error');
  if (stop !== undefined)
    throw new ShardwrightError('E_USAGE', `--layout: ${stop.code} ${stop.message}`, {
      ...(stop.nearest.length > 0 ? { hint: `nearest that fit: ${stop.nearest.join(', ')}.` } : {}),
    });
  checkExperts(question, config, { sizes, kind });
  checkStages(question, config, { sizes, tuning });
}

/** @throws E_USAGE where what waits on the host has no price */
function checkOffload(
  { cost, cluster: design }: SweepQuestion,
  { offload }: StatedLayout['tuning'],
): void {
  if (offload !== true) return;
  const cluster = loadCluster(design);
  if (cost !== 'nccl' || hostLinkBytesPerSecond(cluster) === undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: offload=1 on ${cluster.id} under --cost ${cost}`,
      {
        hint:
          'it has a price under --cost nccl, on accelerators whose link to the host is known ' +
          '(shardwright hardware show).',
      },
    );
}

/** @throws E_USAGE where the layout and the routed experts of the model do not fit */
function checkExperts(
  question: SweepQuestion,
  { architecture: { routed } }: ModelConfig,
  { sizes, kind }: Pick<StatedLayout, 'sizes' | 'kind'>,
): void {
  const { ep, etp = 1 } = sizes;
  if (routed === undefined && ep * etp > 1)
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: ep=${ep}, etp=${etp}, and ${question.model} has no routed experts`,
      {
        hint: 'leave ep and etp out.',
      },
    );
  if (routed !== undefined && sizes.tp > 1 && !kind.sequenceParallel)
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: sp=0 with tp=${sizes.tp}, and ${question.model} has routed experts`,
      {
        hint: `${UNCUT_STREAM}: write sp=1.`,
      },
    );
}

/** @throws E_USAGE where the layers of the model do not make the stages of the layout */
function checkStages(
  question: SweepQuestion,
  { architecture: { shape } }: ModelConfig,
  { sizes, tuning }: Pick<StatedLayout, 'sizes' | 'tuning'>,
): void {
  const parts = sizes.pp * tuning.chunks;
  const stated = tuning.stageLayers?.reduce((sum, n) => sum + n, 0);
  if (stated !== undefined && stated !== shape.layers)
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: stages have ${stated} layers, and ${question.model} has ${shape.layers}`,
      {
        hint: 'embedding and head are not layers: they are with the first and the last part.',
      },
    );
  // Embedding and head take the places of two layers where all parts are then equal.
  if (stated === undefined && parts > shape.layers && parts !== shape.layers + 2)
    throw new ShardwrightError(
      'E_USAGE',
      `--layout: ${shape.layers} layers do not make pp x vp = ${parts} parts`,
      {
        hint:
          `at most ${shape.layers} parts have a layer each; embedding and head besides ` +
          `make ${shape.layers + 2}.`,
      },
    );
}

/** The layout with one setting changed: no change moves a device to another group. */
function neighbours(
  layout: StatedLayout,
  tried: readonly Checkpoint[],
  hasExperts: boolean,
): { readonly change: string; readonly edited: StatedLayout }[] {
  const { kind, tuning, sizes } = layout;
  const out: { change: string; edited: StatedLayout }[] = [];
  const tune = (change: string, more: Partial<StatedLayout['tuning']>): void =>
    void out.push({ change, edited: { ...layout, tuning: { ...tuning, ...more } } });
  for (const checkpoint of tried)
    if (checkpoint !== tuning.checkpoint) tune(`recompute=${checkpoint}`, { checkpoint });
  for (const microbatch of [tuning.microbatch / 2, tuning.microbatch * 2])
    if (Number.isInteger(microbatch)) tune(`mbs=${microbatch}`, { microbatch });
  if (sizes.pp > 1)
    for (const chunks of [1, 2, 4, 8])
      if (chunks !== tuning.chunks && tuning.stageLayers === undefined)
        tune(`vp=${chunks}`, { chunks, schedule: chunks > 1 ? 'interleaved' : '1f1b' });
  const modes = ['dp', 'zero1', 'zero2', 'fsdp'] as const;
  if (sizes.dp_replicate === 1 && sizes.dp_shard * sizes.cp > 1)
    modes.forEach((mode, stage) => {
      if (mode !== kind.mode)
        out.push({ change: `zero=${stage}`, edited: { ...layout, kind: { ...kind, mode } } });
    });
  if (sizes.tp > 1 && !hasExperts) {
    const sequenceParallel = !kind.sequenceParallel;
    out.push({
      change: `sp=${Number(sequenceParallel)}`,
      edited: { ...layout, kind: { ...kind, sequenceParallel } },
    });
  }
  return out;
}

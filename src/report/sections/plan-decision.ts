/**
 * Makes the first screen of the report of one plan, for whoever decides: what to run, its step, the
 * time, money and energy of a run, its risk, what to type next, and the question as it was asked.
 */

import { fitProbability } from '../../cost/error-bands.ts';
import { allocationOf, innerProducts, usedPerHost } from '../../cost/hardware/topology.ts';
import { type Band, type RunCost, runCost } from '../../cost/training/run-cost.ts';
import { defined } from '../../defined.ts';
import { EXPORTED, planBand, planFits, planPeakBytes } from '../../plan/record/answer.ts';
import { product } from '../../product.ts';
import { TRAINERS } from '../../trainers/trainers.ts';
import {
  bytesText,
  countedText,
  countText,
  differenceText,
  excessOver,
  lineText,
  secondsText,
} from '../../units.ts';
import { WHAT_TO_DO } from '../model/answer.ts';
import type { Report } from '../model/data.ts';
import { trainerText } from '../model/trainer-text.ts';
import { withRange } from '../text/run-cost.ts';
import {
  askedRow,
  type DecisionRow,
  doubtRow,
  memoryText,
  type ReportOrigin,
  row,
  RUN_TOKENS,
  runTexts,
} from './decision-rows.ts';

/** Where a plan lies, where nobody says. */
const FOLDER = 'plan';

/** A plan as it runs: all stages of it, and all passes over microbatches. */
interface PlanRun {
  readonly trainer: string;
  readonly stepSeconds: number;
  /** Eight of ten measured steps; null where none resemble it. */
  readonly band: Band | null;
  readonly devices: number;
  readonly peakBytes: number;
  readonly budgetBytes: number;
  readonly fits: number | null;
  /** Tokens of a step; null where the program does not tell. */
  readonly tokens: number | null;
  /** Absent where the tokens of a step are not known. */
  readonly run?: RunCost;
}

/** The step of a plan, and the run of so many tokens. */
export function planRun(report: Report, { run: asked }: ReportOrigin = {}): PlanRun {
  const { plan, pipeline, cluster } = report;
  const sizes = [...(pipeline === null ? [] : [pipeline.devices]), ...plan.mesh.map((d) => d.size)];
  const devices = product(sizes);
  const step = stepOf(report);
  const passes = pipeline?.microbatches ?? plan.request.accumulate ?? 1;
  const tokens = report.tokens === null ? null : report.tokens * passes;
  const known = { ...step, devices, tokens };
  if (tokens === null) return known;
  const { price, carbon } = asked ?? {};
  const run = runCost({
    devices,
    stepSeconds: step.stepSeconds,
    stepBand: step.band,
    tokensPerStep: tokens,
    tokens: asked?.tokens ?? RUN_TOKENS,
    allocation: allocationOf(cluster, devices, usedPerHost(cluster, innerProducts(sizes))),
    operation: {
      ...cluster.operation,
      ...defined({ pricePerDeviceHour: price, gramsCarbonPerKilowattHour: carbon }),
    },
  });
  return { ...known, run };
}

type Step = Omit<PlanRun, 'devices' | 'tokens' | 'run'>;

function stepOf({ plan, pipeline, cluster }: Report): Step {
  if (pipeline === null)
    return {
      trainer: plan.step?.trainer ?? EXPORTED,
      stepSeconds: plan.step?.stepSeconds ?? plan.objective.seconds,
      band: planBand(plan) ?? null,
      peakBytes: planPeakBytes(plan) ?? plan.memory.peakBytes,
      budgetBytes: plan.memory.budgetBytes,
      fits: planFits(plan) ?? null,
    };
  const { step, stages, devices, hosts, budgetBytes } = pipeline;
  const peakBytes = step?.peakBytes ?? Math.max(...stages.map((stage) => stage.peakBytes));
  const mesh = [{ name: 'pp', size: devices, hosts }, ...plan.mesh];
  return {
    trainer: step?.trainer ?? EXPORTED,
    stepSeconds: step?.stepSeconds ?? pipeline.seconds,
    band: step === undefined ? null : (planBand({ ...plan, mesh, step }) ?? null),
    peakBytes,
    budgetBytes,
    fits: fitProbability(peakBytes, cluster.memoryBytes),
  };
}

/** The decision of the report of one plan. */
export function planDecision(report: Report, origin: ReportOrigin = {}): DecisionRow[] {
  const { plan, isChecked, placementWords } = report;
  const found = planRun(report, origin);
  const { trainer, fits, peakBytes, budgetBytes } = found;
  const folder = origin.folder ?? FOLDER;
  return [
    ...row('Decision', [
      `Run it on ${meshText(report)}${byText(trainer)}`,
      ...(placementWords ?? []),
    ]),
    ...(isChecked
      ? []
      : row('Check', ['nothing held this plan to its program: its figures are claims'], 'bad')),
    ...(peakBytes > budgetBytes
      ? row('Risk', [`it takes more than the ${bytesText(budgetBytes)} of a device`], 'bad')
      : doubtRow(fits, plan.request.risk)),
    ...row('Step', [stepText(found)]),
    ...row('Run', runTexts(found.run)),
    ...row('Memory', [memoryText(peakBytes, budgetBytes, fits)]),
    ...row('Instead', insteadTexts(report)),
    ...row('Next', [nextText(found, folder)]),
    ...askedRow(questionText(report, found), origin),
  ];
}

/** `pp=4,dp=8,tp=2`. */
function meshText({ plan, pipeline }: Report): string {
  const stages = pipeline === null ? [] : [`pp=${pipeline.devices}`];
  return [...stages, ...plan.mesh.map((d) => `${d.name}=${d.size}`)].join(',');
}

function byText(trainer: string): string {
  return trainer === EXPORTED
    ? ', as the exported program'
    : ` by ${trainerText(trainer).replace(/ \(.*/, '')}`;
}

function stepText({ stepSeconds, band, tokens }: PlanRun): string {
  const range = withRange(stepSeconds, band, secondsText).replace(
    /\)$/,
    ' in eight of ten measured runs)',
  );
  const unknown = band === null ? ' (no measured run is like it)' : '';
  const rate = tokens === null ? '' : `, ${countText(Math.round(tokens / stepSeconds))} tokens/s`;
  return `${range}${unknown}${rate}`;
}

/** The fastest known plan that fits, and by how much it is slower. */
function insteadTexts({ plan: { step, request }, pipeline, zoo }: Report): string[] {
  if (pipeline !== null || step === undefined || request.recipe !== undefined) return [];
  const others = (zoo ?? []).flatMap(({ name, stepSeconds, overBytes }) =>
    stepSeconds === null || overBytes !== undefined || stepSeconds <= step.stepSeconds
      ? []
      : [{ name, stepSeconds }],
  );
  const [first] = others.sort((a, b) => a.stepSeconds - b.stepSeconds);
  if (first === undefined) return [];
  const more = differenceText(excessOver(step.stepSeconds, first.stepSeconds));
  return [`${first.name} takes ${secondsText(first.stepSeconds)} (${more})`];
}

/** The commands that turn the prediction into a measurement. */
function nextText({ trainer }: PlanRun, folder: string): string {
  const own = TRAINERS.find(({ id }) => id === trainer)?.target?.name ?? 'torch';
  return (
    `shardwright export ${folder} --target ${own} -o run; run 50 steps of it under ` +
    `torch.profiler; then shardwright doctor ${folder} --run trace.json says where the step is ` +
    'slower than priced'
  );
}

function questionText(
  { model, cluster }: Report,
  { devices, tokens, budgetBytes }: PlanRun,
): string {
  const step = tokens === null ? '' : `, ${countText(tokens)} tokens a step`;
  return (
    `${lineText(model)} on ${countedText(devices, 'device')} of ${cluster.id}${step}, within ` +
    `${bytesText(budgetBytes)} a device`
  );
}

/** The answer in figures, without what the decision has said. */
export function figuresOf({ answer, placementWords }: Report): Report['answer'] {
  return placementWords === null ? answer : answer.filter(({ label }) => label !== WHAT_TO_DO);
}

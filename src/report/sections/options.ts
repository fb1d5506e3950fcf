/** Makes the table of options of a report: each with its time, money, energy and risk as ranges. */

import { fitProbability } from '../../cost/error-bands.ts';
import type { RunCost } from '../../cost/training/run-cost.ts';
import { EXPORTED } from '../../plan/record/answer.ts';
import { bestPlan, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import type { Planning, PlanningPoint } from '../../sweep/planning/planning.ts';
import { bytesText, durationText, probabilityText, secondsText } from '../../units.ts';
import { type RangeBar, rangeFigure } from '../figures/ranges.ts';
import type { Block, Column, Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import {
  amountText,
  energyText,
  moneyRangeText,
  tokensText,
  wallText,
  withRange,
} from '../text/run-cost.ts';
import { recommendedPoint, whereText } from './decision.ts';
import type { ReportOrigin } from './decision-rows.ts';
import { planRun } from './plan-decision.ts';

/** One option: what is run, and what it takes. */
interface Option {
  readonly name: string;
  readonly plan: string;
  readonly stepSeconds: number;
  readonly stepBand: readonly [number, number] | null;
  /** Null where only what the trainer keeps would say it, and it was not asked. */
  readonly peakBytes: number | null;
  readonly fits: number | null;
  readonly run: RunCost | undefined;
  readonly isRecommended: boolean;
}

/** The options of a comparison: the best, what is as good and simpler, the next, the leanest. */
export function comparedOptions(c: Comparison): Section[] {
  const best = bestPlan(c);
  if (best === undefined) return [];
  const found = new Map<ComparedPlan, string>([[best, 'The best']]);
  const put = (name: string, p: ComparedPlan | undefined): void => {
    if (p !== undefined && !found.has(p)) found.set(p, name);
  };
  const fitting = c.plans.filter((p) => p.fits);
  put(
    'As good, simpler',
    c.plans.find((p) => p.name === c.certainty?.simplest),
  );
  put(
    'The next kind',
    fitting.find((p) => p.plan !== best.plan),
  );
  put(
    'Another mesh',
    fitting.find((p) => p.mesh !== best.mesh && !found.has(p)),
  );
  const front = fitting.filter((p) => c.pareto.includes(p.name));
  put('Least memory', front.sort((a, b) => a.peakBytes - b.peakBytes)[0]);
  const options = [...found].map(([p, name]): Option => ({
    name,
    plan: `${p.plan} on ${p.mesh}`,
    stepSeconds: stepTime(p),
    stepBand: p.stepBand ?? null,
    peakBytes: p.peakBytes,
    fits: p.fitProbability ?? null,
    run: c.run === undefined ? undefined : scaledRun(c.run, stepTime(p) / stepTime(best)),
    isRecommended: p === best,
  }));
  const { layout } = c;
  if (layout !== undefined)
    options.push({
      name: layout.from?.file ?? 'Yours',
      plan: `${layout.name} on ${layout.mesh}`,
      stepSeconds: layout.stepSeconds ?? layout.seconds,
      stepBand: layout.stepBand ?? null,
      peakBytes: layout.peakBytes,
      fits: layout.fitProbability ?? null,
      run: layout.run,
      isRecommended: false,
    });
  return [optionSection(options)];
}

/**
 * A run whose steps take so many times as long: failures and checkpoints come by the hour, so that
 * time, money and energy grow with the step, and goodput stays.
 */
function scaledRun(run: RunCost, factor: number): RunCost {
  const times = (band: readonly [number, number]): readonly [number, number] => [
    band[0] * factor,
    band[1] * factor,
  ];
  const { price, priceBand, wallSecondsBand: band, energyMegawattHours: energy } = run;
  const { carbonTonnes: carbon } = run;
  return {
    ...run,
    wallSeconds: run.wallSeconds * factor,
    deviceHours: run.deviceHours * factor,
    ...(band === undefined || band === null ? {} : { wallSecondsBand: times(band) }),
    ...(price === undefined ? {} : { price: { ...price, amount: price.amount * factor } }),
    ...(priceBand === undefined || priceBand === null ? {} : { priceBand: times(priceBand) }),
    ...(energy === undefined ? {} : { energyMegawattHours: energy * factor }),
    ...(carbon === undefined ? {} : { carbonTonnes: carbon * factor }),
  };
}

/** The questions side by side, the recommended one first. */
export function planningOptions(planning: Planning): Section[] {
  const { points } = planning;
  const chosen = recommendedPoint(planning);
  if (chosen === undefined) return [];
  const ordered = [chosen, ...points.filter((p) => p !== chosen)];
  const options = ordered.flatMap((p: PlanningPoint): Option[] =>
    p.best === null
      ? []
      : [
          {
            name: whereText(p),
            plan: `${p.best.plan} on ${p.best.mesh}`,
            stepSeconds: stepTime(p.best),
            stepBand: p.best.stepBand ?? null,
            peakBytes: p.best.peakBytes,
            fits: p.best.fitProbability ?? null,
            run: p.run,
            isRecommended: p === chosen,
          },
        ],
  );
  return [optionSection(options)];
}

/** Known plans beside a plan, the fastest first. */
const KNOWN = 4;

/** The options of one plan: itself, and the fastest known plans on its mesh that fit. */
export function planOptions(report: Report, origin: ReportOrigin = {}): Section[] {
  const { plan, zoo, pipeline, cluster } = report;
  const { step, request } = plan;
  if (zoo === null || step === undefined || pipeline !== null) return [];
  const { run, band, peakBytes, fits } = planRun(report, origin);
  // The memory of a known plan is that of the exported program.
  const isExported = step.trainer === EXPORTED;
  const limit = request.memoryBytes ?? cluster.memoryBytes;
  const option = (name: string, stepSeconds: number, bytes: number | null): Option => {
    const factor = stepSeconds / step.stepSeconds;
    return {
      name,
      plan: plan.mesh.map((d) => `${d.name}=${d.size}`).join(','),
      stepSeconds,
      stepBand: band === null ? null : [band[0] * factor, band[1] * factor],
      peakBytes: bytes,
      fits: bytes === null ? null : fitProbability(bytes, limit),
      run: run === undefined ? undefined : scaledRun(run, factor),
      isRecommended: false,
    };
  };
  const own = { ...option('This plan', step.stepSeconds, peakBytes), fits, isRecommended: true };
  const known = zoo
    .flatMap(({ name, stepSeconds, overBytes, peakBytes: bytes }) =>
      stepSeconds === null || overBytes !== undefined || stepSeconds <= step.stepSeconds
        ? []
        : [option(name, stepSeconds, isExported ? bytes : null)],
    )
    .sort((a, b) => a.stepSeconds - b.stepSeconds);
  return known.length === 0 ? [] : [optionSection([own, ...known.slice(0, KNOWN)])];
}

function optionSection(options: readonly Option[]): Section {
  const runs = options.flatMap(({ run }) => run ?? []);
  const [run] = runs;
  const isPriced = runs.some(({ price }) => price !== undefined);
  const columns: Column[] = [
    { head: 'Option' },
    { head: 'Plan' },
    { head: 'Step' },
    ...(run === undefined ? [] : [{ head: 'Time' }]),
    ...(isPriced ? [{ head: 'Money' }] : []),
    ...(run === undefined ? [] : [{ head: 'Energy' }]),
    { head: 'Memory' },
    { head: 'Fits with' },
  ];
  const rows = options.map((o) => [
    o.name,
    o.plan,
    { text: withRange(o.stepSeconds, o.stepBand, secondsText), value: o.stepSeconds },
    ...(run === undefined ? [] : [o.run === undefined ? '–' : wallText(o.run)]),
    ...(isPriced ? [o.run === undefined ? '–' : moneyRangeText(o.run)] : []),
    ...(run === undefined ? [] : [(o.run && energyText(o.run)) ?? '–']),
    o.peakBytes === null ? '–' : bytesText(o.peakBytes),
    o.fits === null ? '–' : probabilityText(o.fits),
  ]);
  const of = run === undefined ? '' : ` of ${tokensText(run.tokens)} tokens`;
  const table: Block = {
    kind: 'table',
    caption: `What each option takes${of}; behind a figure the range of eight of ten measured runs`,
    columns,
    rows,
    isStacked: true,
  };
  return { id: 'options', title: 'Options', blocks: [table, ...figureBlocks(options)] };
}

/** Bars of money where it is known, else of days, else of the step. */
function figureBlocks(options: readonly Option[]): Block[] {
  if (options.length < 2) return [];
  const priced = options.every(({ run }) => run?.price !== undefined);
  const timed = options.every(({ run }) => run !== undefined);
  const currency = options[0]?.run?.price?.currency ?? '';
  const [what, text] = priced
    ? [`money in ${currency}`, (n: number) => amountText(n)]
    : timed
      ? ['time of the run', durationText]
      : ['step time', secondsText];
  const bars = options.map((o): RangeBar => {
    const { run } = o;
    const [value, band] = priced
      ? [run?.price?.amount ?? 0, run?.priceBand ?? null]
      : timed
        ? [run?.wallSeconds ?? 0, run?.wallSecondsBand ?? null]
        : [o.stepSeconds, o.stepBand];
    return { name: o.name, value, band, isRecommended: o.isRecommended };
  });
  return [
    {
      kind: 'figure',
      caption:
        `Each option by its ${what}: the bar is the prediction, the line the range of eight of ` +
        'measured runs out of ten. The recommended option says so.',
      svg: rangeFigure(bars, what, text),
    },
  ];
}

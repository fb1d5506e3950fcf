/** Makes the section that compares a plan with recipes and with the next best plans. */

import type { Plan } from '../../plan/record/types.ts';
import { holdsPeak } from '../../plan/request/request.ts';
import {
  bytesText,
  deltaBytesText,
  deltaSecondsText,
  percentText,
  secondsText,
  shareOf,
  slowerText,
} from '../../units.ts';
import type { NextBest } from '../analysis/alternatives/candidates.ts';
import { type ComparedRecipe, THIS_PLAN } from '../analysis/alternatives/recipes.ts';
import { paretoFigure, type PlanPoint } from '../figures/pareto.ts';
import { type Block, bytes, type Cell, seconds, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';

/** Words for the bytes of plans: the peak, or the states where the request limits those alone. */
function memoryWords({
  request,
}: Report['plan']): Record<'long' | 'short' | 'head' | 'of', string> {
  if (holdsPeak(request))
    return {
      long: 'peak memory, activations included',
      short: 'peak memory',
      head: 'Peak',
      of: 'at the peak',
    };
  return {
    long: 'the states (parameters, gradients, optimizer state)',
    short: 'states',
    head: 'States',
    of: 'of states',
  };
}

export function against(report: Report): Section {
  return {
    id: 'against',
    title: 'Against the recipes',
    sheet: true,
    blocks: [
      ...recipeTable(report),
      ...nextBest(report),
      ...priceOfMemory(report),
      ...sensitivity(report),
    ],
  };
}

function recipeTable(report: Report): Block[] {
  const { zoo, plan } = report;
  const points = pointsOf(report);
  const words = memoryWords(plan);
  const out: Block[] = [];
  if (zoo !== null && points.length > 1)
    out.push({
      kind: 'figure',
      caption:
        `Costs one after another over the memory that the budget limits, ${words.long}. Numbers: ` +
        'those of the table; the line joins the plans that no other fitting one beats in both.',
      svg: paretoFigure(points, plan.memory.budgetBytes, [
        `${words.short} per device`,
        'costs one after another',
      ]),
    });
  const numbers = new Map(points.map((p, k) => [p.name, k + 1]));
  out.push({
    kind: 'table',
    caption:
      'Plans that people write by hand, as restrictions of the same problem, and why each of ' +
      'them loses',
    columns: [
      { head: 'No.', kind: 'number' },
      { head: 'Plan', kind: 'name' },
      { head: 'Step time', kind: 'number' },
      { head: 'Slower by', kind: 'number' },
      { head: 'One after another', kind: 'number' },
      { head: words.head, kind: 'number' },
      { head: 'Standing' },
      { head: 'Why', kind: 'name' },
    ],
    rows: handWritten(report).map((row) => {
      const number = numbers.get(row.name);
      return [
        number === undefined ? '' : { text: String(number), value: number },
        row.name,
        seconds(row.stepSeconds),
        slowerCell(row, plan),
        seconds(row.seconds),
        bytes(row.peakBytes),
        row.standing,
        row.why,
      ];
    }),
  });
  return out;
}

/** By the step where the plan has one, else by all costs one after another. */
function slowerCell(
  { stepSeconds, seconds: own }: HandWritten,
  { step, objective }: Plan,
): Cell | string {
  const [value, base] =
    step === undefined ? [own, objective.seconds] : [stepSeconds, step.stepSeconds];
  return value === null ? '–' : { text: slowerText(value, base), value };
}

interface HandWritten {
  readonly name: string;
  readonly stepSeconds: number | null;
  readonly seconds: number | null;
  readonly peakBytes: number | null;
  readonly standing: string;
  readonly why: string;
}

/** The plan itself, the recipes, and greedy propagation. */
function handWritten({ zoo, plan, frontier }: Report): HandWritten[] {
  const onFront = new Set((frontier ?? []).map((p) => p.name));
  const own = {
    name: THIS_PLAN,
    stepSeconds: plan.step?.stepSeconds ?? null,
    seconds: plan.objective.seconds,
    peakBytes: plan.memory.peakBytes,
    standing: onFront.has(THIS_PLAN) ? 'on the front' : '',
    why: '',
  };
  const greedy = {
    name: 'greedy propagation',
    stepSeconds: null,
    seconds: plan.greedySeconds,
    peakBytes: null,
    standing: '',
    why: 'from the plan’s own parameters and inputs, node by node',
  };
  return [
    own,
    ...(zoo ?? []).map((r) => ({
      name: r.name,
      stepSeconds: r.stepSeconds,
      seconds: r.seconds,
      peakBytes: r.peakBytes,
      standing: standing(r, onFront),
      why: whyText(r),
    })),
    ...(plan.greedySeconds === null ? [] : [greedy]),
  ];
}

function standing(r: ComparedRecipe, onFront: ReadonlySet<string>): string {
  if (r.seconds === null) return 'refused';
  if (r.overBytes !== undefined) return `does not fit, ${bytesText(r.overBytes)} over`;
  if (onFront.has(r.name)) return 'on the front';
  return r.dominatedBy === undefined ? '' : `dominated by ${r.dominatedBy}`;
}

function whyText(r: ComparedRecipe): string {
  if (r.seconds === null) return r.reason;
  return r.losses
    .map(
      (l) =>
        `${l.term} ` +
        `${deltaSecondsText(l.seconds)}${l.bytes === null ? '' : ` (${deltaBytesText(l.bytes)})`}`,
    )
    .join(', ');
}

function pointsOf({ zoo, plan, frontier }: Report): PlanPoint[] {
  const front = new Set((frontier ?? []).map((p) => p.name));
  return [
    {
      name: THIS_PLAN,
      seconds: plan.objective.seconds,
      bytes: plan.memory.peakBytes,
      fits: true,
      chosen: true,
      front: front.has(THIS_PLAN),
    },
    ...(zoo ?? []).flatMap((r) =>
      r.seconds === null || r.peakBytes === null
        ? []
        : [
            {
              name: r.name,
              seconds: r.seconds,
              bytes: r.peakBytes,
              fits: r.overBytes === undefined,
              front: front.has(r.name),
            },
          ],
    ),
  ];
}

function nextBest({ nextBest: found, plan }: Report): Block[] {
  if (found === null || found.length === 0) return [];
  return [
    { kind: 'heading', text: 'Next best' },
    {
      kind: 'list',
      items: found.map((n) => nextText(n, plan.objective.seconds)),
    },
  ];
}

function nextText({ kind, name, spec = '', deltaSeconds }: NextBest, whole: number): string {
  const more =
    `${deltaSecondsText(deltaSeconds)} (${percentText(shareOf(Math.abs(deltaSeconds), whole))} ` +
    'of the step)';
  switch (kind) {
    case 'tie':
      return (
        `The plan is not the only one of its cost: ${name} as ${spec} costs the same, with ` +
        'everything else as it is.'
      );
    case 'one node':
      return (
        `The cheapest worse change of one drawn node with everything else as it is: ${name} as ` +
        `${spec}, ${more}.`
      );
    case 'one parameter':
      return (
        `The cheapest worse change of one parameter with everything else as it is: ${name} as ` +
        `${spec}, ${more}.`
      );
    case 'recipe':
      return `The best recipe that fits: ${name}, ${more}.`;
  }
}

function priceOfMemory({ priceOfMemory: steps, memoryBounds, plan }: Report): Block[] {
  const words = memoryWords(plan).of;
  const items = (steps ?? []).map((s) => {
    const gib = (s.fromBytes - s.toBytes) / 2 ** 30;
    return (
      `From ${bytesText(s.fromBytes)} ${words} down to ${bytesText(s.toBytes)}: at most ` +
      `${deltaSecondsText(s.deltaSeconds)}, ${secondsText(s.deltaSeconds / gib)} for each GiB ` +
      '(by the plans on the front; the best plans between them are not solved for).'
    );
  });
  if (memoryBounds !== null) {
    const { unlimited, smallestBudgetBytes } = memoryBounds;
    if (unlimited !== null)
      items.unshift(
        `Without any limit the best plan takes ${secondsText(unlimited.seconds)} ` +
          `(${slowerText(unlimited.seconds, plan.objective.seconds)}) and ` +
          `${bytesText(unlimited.peakBytes)} ${words}.`,
      );
    if (smallestBudgetBytes !== null)
      items.push(`The smallest budget of states with a plan is ${bytesText(smallestBudgetBytes)}.`);
  }
  if (items.length === 0) return [];
  return [
    { kind: 'heading', text: 'Price of memory' },
    { kind: 'list', items },
  ];
}

function sensitivity({ sensitivity: found, plan }: Report): Block[] {
  if (found === null || found.length === 0) return [];
  const solved = found.some((s) => s.bestSeconds !== null);
  const whole = plan.proof.recheckedSeconds;
  return [
    { kind: 'heading', text: 'On other links' },
    {
      kind: 'table',
      caption:
        'This plan priced again on faster and slower links, latencies as they are' +
        (solved
          ? ', and the best plan there'
          : '; the best plan there can only be faster (--what-if solves for it)'),
      columns: [
        { head: 'Change', kind: 'name' },
        { head: 'This plan', kind: 'number' },
        { head: 'Change of the step', kind: 'number' },
        ...(solved ? ([{ head: 'Best there', kind: 'number' }] as const) : []),
      ],
      rows: found.map((s) => [
        s.what,
        seconds(s.seconds),
        { text: slowerText(s.seconds, whole), value: s.deltaSeconds },
        ...(solved ? [seconds(s.bestSeconds)] : []),
      ]),
    },
  ];
}

/** Makes the sections on proof, measured errors, assumptions and reproduction of a plan. */

import { type ErrorPool, NO_RUNS, poolText } from '../../cost/error-bands.ts';
import { blurSeconds } from '../../plan/choice/write.ts';
import { percentText, secondsText } from '../../units.ts';
import type { MeasuredErrors } from '../analysis/measured.ts';
import { incumbentsFigure } from '../figures/incumbents.ts';
import { type Block, type Cell, code, count, seconds, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { ofOneMicrobatch } from './pipeline.ts';

const WHAT = [{ head: 'What' }, { head: 'Value', kind: 'name' }] as const;

export function proof(report: Report): Section {
  const { proof: p, objective } = report.plan;
  const blur = blurSeconds(report.plan);
  const rows = [
    ['Status', p.status],
    ['Step time', `${secondsText(objective.seconds)} (${objective.seconds} s)`],
    [
      report.isChecked ? 'Proven lower bound' : 'Stated lower bound',
      `${secondsText(p.bound)} (${p.bound} s)`,
    ],
    ['Gap', percentText(p.gap)],
    ['Solved by', p.solver],
    [
      'Re-costed from the plan alone',
      `${secondsText(p.recheckedSeconds)} (${p.recheckedSeconds} s)`,
    ],
    ...(blur === undefined
      ? []
      : [['Rounding, at most', blur < 1e-12 ? '0.001 ns' : secondsText(blur)]]),
    ...p.evidence.map((line) => ['Said by another engine, not checked here', line]),
  ];
  return {
    id: 'proof',
    title: 'Proof',
    blocks: [
      ...ofOneMicrobatch(report),
      {
        kind: 'table',
        caption: report.isChecked
          ? 'What is proven, and by what'
          : 'What the plan states; nothing of it was checked',
        columns: WHAT,
        rows,
      },
      ...problem(report),
      ...incumbents(report),
    ],
  };
}

function problem({ solverTrace }: Report): Block[] {
  if (solverTrace === null) return [];
  const { whole, asked } = solverTrace;
  return [
    {
      kind: 'table',
      caption: 'The problem that was solved, and what the pins of the request leave of it',
      columns: [
        { head: 'What' },
        { head: 'Whole', kind: 'number' },
        { head: 'As asked', kind: 'number' },
      ],
      rows: [
        ['Decisions (variables)', count(whole.variables), count(asked.variables)],
        ['Strategies and placements in all', count(whole.values), count(asked.values)],
        ['Most for one decision', count(whole.largestDomain), count(asked.largestDomain)],
        ['Pairs that meet (edges)', count(whole.edges), count(asked.edges)],
        ['Distinct cost tables', count(whole.tables), count(asked.tables)],
        ['Digits of the number of combinations', count(whole.digits), count(asked.digits)],
      ],
    },
  ];
}

/**
 * Names of the solver's steps in words; the last one is the engine that proved the plan, by its own
 * name.
 */
const STEPS: Readonly<Record<string, string>> = {
  incumbent: 'a better plan is found',
  bound: 'a higher bound is proven',
};

/** Steps of the solver; the drawing alone has clock times. */
function incumbents({ solverTrace, run }: Report): Block[] {
  const steps = solverTrace?.incumbents ?? null;
  if (steps === null || run.incumbentSeconds === null || steps.length === 0) return [];
  const fromPlan = solverTrace?.incumbentsFrom === 'plan';
  return [
    { kind: 'heading', text: 'Best plan and bound by clock time' },
    {
      kind: 'text',
      text:
        (fromPlan
          ? 'While this plan was made'
          : 'The problem solved again for this report, without starting points') +
        ': the best plan so far and the proven bound. A bound may come before any plan, from the ' +
        'problem without its memory limit' +
        (fromPlan ? '; the first plans may be known recipes that the solver begins with.' : '.'),
    },
    // A curve of one or two points shows nothing.
    ...(steps.length < 3
      ? []
      : [
          {
            kind: 'figure',
            caption: 'Over the clock time of the solver.',
            svg: incumbentsFigure(steps, run.incumbentSeconds),
            run: true,
          } as const,
        ]),
    {
      kind: 'table',
      caption: 'The steps in their order',
      columns: [
        { head: 'Step', kind: 'number' },
        { head: 'What', kind: 'name' },
        { head: 'Best plan', kind: 'number' },
        { head: 'Bound', kind: 'number' },
        { head: 'Gap', kind: 'number' },
      ],
      rows: steps.map((s, k) => {
        const gap =
          s.seconds === null || s.bound === null || s.bound <= 0 ? null : s.seconds / s.bound - 1;
        return [
          count(k + 1),
          STEPS[s.phase] ?? s.phase,
          seconds(s.seconds),
          seconds(s.bound),
          gap === null ? '–' : { text: percentText(gap), value: gap },
        ];
      }),
      open: 12,
    },
  ];
}

/** How far predictions go: what was measured on this hardware, else on any. */
export function trust({ trust: measured, cluster }: Report): Section {
  const { about, pool, nearest } = measured;
  return {
    id: 'trust',
    title: 'How far to trust this',
    blocks: [
      {
        kind: 'text',
        text: pool === null ? `Step time: ${NO_RUNS}.` : poolSentence(pool),
      },
      { kind: 'text', text: nearestText(nearest, cluster.accelerator) },
      { kind: 'text', soft: true, text: about },
      measuredTable(measured),
      familyTable(measured),
    ],
  };
}

function poolSentence(pool: ErrorPool): string {
  const { calls, runs, families } = pool;
  return (
    'Call by call, as this plan is priced, eight of ten measured steps lie at ' +
    `${calls.p10.toFixed(2)} to ${calls.p90.toFixed(2)} of the predicted seconds ` +
    `(${poolText(pool)}: ${count(runs).text} runs of ${families.join('; ')}).`
  );
}

function nearestText([first]: readonly MeasuredErrors[], accelerator: string): string {
  if (first === undefined)
    return `No measured run of ${accelerator} is among them; those of other hardware are below.`;
  return (
    `Nearest to this plan: ${first.experts ? 'models with experts' : 'dense models'} on ` +
    `${first.accelerator}, step times off by ` +
    `${first.medianApe === null ? 'an unknown share' : percentText(first.medianApe)} in ` +
    `the median of ${first.runs} runs` +
    (first.memoryMedianApe === null
      ? '.'
      : `, memory peaks by ${percentText(first.memoryMedianApe)} in that of ` +
        `${first.memoryRuns} readings.`)
  );
}

function share(value: number | null): Cell | string {
  return value === null ? '–' : { text: percentText(value), value };
}

function measuredTable({ source, nearest, others }: Report['trust']): Block {
  return {
    kind: 'table',
    caption: `Predicted against measured, nearest first: ${source}`,
    columns: [
      { head: 'Accelerator', kind: 'keep' },
      { head: 'Models', kind: 'keep' },
      { head: 'Runs', kind: 'number' },
      { head: 'Median error', kind: 'number' },
      { head: 'Mean error', kind: 'number' },
      { head: 'Memory readings', kind: 'number' },
      { head: 'Median error of memory', kind: 'number' },
      { head: 'Sources', kind: 'name' },
    ],
    rows: [...nearest, ...others].map((r) => [
      r.accelerator,
      r.experts ? 'with experts' : 'dense',
      count(r.runs),
      share(r.medianApe),
      share(r.mape),
      r.memoryRuns === 0 ? '–' : count(r.memoryRuns),
      share(r.memoryMedianApe),
      r.sources.length > 3
        ? `${r.sources.slice(0, 3).join(', ')} and ${r.sources.length - 3} more`
        : r.sources.join(', '),
    ]),
    open: Math.max(6, nearest.length),
  };
}

function familyTable({ families }: Report['trust']): Block {
  return {
    kind: 'table',
    caption:
      'By family of runs: the whole step as compare puts it together, without the ' +
      'family, and call by call as plans are priced',
    columns: [
      { head: 'Family', kind: 'keep' },
      { head: 'Runs', kind: 'number' },
      { head: 'Bias', kind: 'number' },
      { head: 'Mean error', kind: 'number' },
      { head: 'Without the family: bias', kind: 'number' },
      { head: 'Mean error', kind: 'number' },
      { head: 'Call by call: bias', kind: 'number' },
      { head: 'Mean error', kind: 'number' },
    ],
    rows: families.map((f) => [
      f.family,
      count(f.runs),
      share(f.shipped.bias),
      share(f.shipped.mape),
      share(f.heldOut?.bias ?? null),
      share(f.heldOut?.mape ?? null),
      share(f.calls.bias),
      share(f.calls.mape),
    ]),
    open: 12,
  };
}

export function assumptions(report: Report): Section {
  return {
    id: 'assumptions',
    title: 'Assumptions and sources',
    sheet: true,
    blocks: [
      { kind: 'list', items: report.assumptions },
      { kind: 'heading', text: 'Not in this report' },
      { kind: 'list', items: report.missing },
      {
        kind: 'table',
        caption: `Constants of ${report.cluster.name}`,
        columns: [
          { head: 'Constant', kind: 'name' },
          { head: 'Value' },
          { head: 'Unit', kind: 'keep' },
          { head: 'Source' },
        ],
        rows: report.constants.map((c) => [c.name, c.value, c.unit, c.source]),
      },
    ],
  };
}

type Fact = readonly [name: string, value: string];

export function reproduce(report: Report): Section {
  const { hashes, request } = report.plan;
  const given: readonly Fact[] =
    hashes === undefined
      ? []
      : [
          ['SHA-256 of graph.swg', hashes.graph],
          ['SHA-256 of request.json', hashes.request],
        ];
  const rows: readonly Fact[] = [
    ...given,
    ['Shardwright', report.versions.shardwright],
    ['Plan format', String(report.versions.plan)],
    ['Cost preset', request.cost],
  ];
  return {
    id: 'reproduce',
    title: 'Make it again',
    blocks: [
      { kind: 'text', text: 'In the plan folder, with the graph that was planned:' },
      { kind: 'code', text: report.command },
      ...stagesCommand(report),
      {
        kind: 'table',
        caption: 'What it rests on',
        columns: WHAT,
        rows: rows.map(([k, v]) => [k, code(v)]),
      },
    ],
  };
}

/** A graph file is not cut into stages; the model is. */
function stagesCommand({ pipeline, model }: Report): Block[] {
  if (pipeline === null) return [];
  const { devices, schedule, microbatches, virtual } = pipeline;
  const chunks = virtual > 1 ? ` --virtual ${virtual}` : '';
  return [
    {
      kind: 'text',
      text:
        'That is the plan of one microbatch. The stages are cut where the model itself ' +
        `(${model}) is planned, by name or config, with --pp ${devices} --schedule ${schedule} ` +
        `--microbatches ${microbatches}${chunks} and the --batch of a whole step.`,
    },
  ];
}

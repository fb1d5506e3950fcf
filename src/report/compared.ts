import { z } from 'zod';
import { bytes, seconds, type Block, type Cell, type Section } from './blocks.ts';
import { slowerText } from './answer.ts';
import { deltaSecondsText } from './explain.ts';
import { paretoFigure, type PlanPoint } from './figures/pareto.ts';
import { bytesText, countText, percentText, secondsText } from '../units.ts';

/** What a report reads of a comparison, as `compare --json` prints it; further keys are kept in the JSON and not read. */
export const comparisonSchema = z.looseObject({
  devices: z.int().positive(),
  cluster: z.string(),
  budgetBytes: z.number().nonnegative(),
  plans: z
    .array(
      z.looseObject({
        name: z.string(),
        plan: z.string(),
        origin: z.string(),
        mesh: z.string(),
        seconds: z.number(),
        communicationSeconds: z.number(),
        peakBytes: z.number(),
        fits: z.boolean(),
        overBytes: z.number().optional(),
        why: z.string().optional(),
        proof: z.looseObject({ status: z.string(), bound: z.number(), gap: z.number() }).optional(),
      }),
    )
    .max(100_000),
  refused: z
    .array(z.looseObject({ plan: z.string(), mesh: z.string(), code: z.string().optional(), reason: z.string() }))
    .max(100_000),
  meshes: z
    .array(
      z.looseObject({
        mesh: z.string(),
        status: z.string(),
        reason: z.string().optional(),
        boundSeconds: z.number().optional(),
      }),
    )
    .max(100_000),
  best: z.string().nullable(),
  pareto: z.array(z.string()),
  nextBest: z.array(z.looseObject({ kind: z.string(), name: z.string(), deltaSeconds: z.number() })).optional(),
  priceOfMemory: z
    .array(z.looseObject({ fromBytes: z.number(), toBytes: z.number(), deltaSeconds: z.number() }))
    .optional(),
  smallestBudgetBytes: z.number().nullable().optional(),
});

export type ReadComparison = z.infer<typeof comparisonSchema>;
type Row = ReadComparison['plans'][number];

/** A comparison as a report: the value as it was read, and what the formats print of it. */
export interface ComparisonReport {
  readonly schema: 'shardwright.report/1';
  readonly versions: { readonly shardwright: string };
  readonly answer: readonly { readonly label: string; readonly text: string }[];
  readonly comparison: ReadComparison;
  readonly run: Readonly<Record<string, never>>;
}

export function comparisonReport(comparison: ReadComparison, version: string): ComparisonReport {
  return {
    schema: 'shardwright.report/1',
    versions: { shardwright: version },
    answer: answerOf(comparison),
    comparison,
    run: {},
  };
}

/** Heading of the report. */
export function comparisonTitle({ devices, cluster }: ReadComparison): string {
  return `Plans on ${countText(devices)} devices of ${cluster}`;
}

function answerOf(c: ReadComparison): ComparisonReport['answer'] {
  const best = c.plans.find((p) => p.name === c.best);
  const fitting = c.plans.filter((p) => p.fits).length;
  const meshes = c.meshes.filter((m) => m.status === 'solved').length;
  const searched = `${countText(c.plans.length)} plans priced, ${countText(fitting)} fit; ${countText(c.meshes.length)} meshes, ${countText(meshes)} solved for their optimum; ${countText(c.refused.length)} plans refused`;
  if (best === undefined) {
    const least = c.smallestBudgetBytes;
    return [
      { label: 'Best', text: `no plan fits ${bytesText(c.budgetBytes)} per device${least === undefined || least === null ? '' : `; the smallest budget with a plan is ${bytesText(least)}`}` }, // prettier-ignore
      { label: 'Searched', text: searched },
    ];
  }
  const zoo = c.plans.filter((p) => p.origin === 'zoo' && p.fits).sort((a, b) => a.seconds - b.seconds)[0];
  const proof = best.proof;
  return [
    { label: 'Best', text: `${best.plan} on ${best.mesh}: ${secondsText(best.seconds)}, of it ${secondsText(best.communicationSeconds)} communication` }, // prettier-ignore
    { label: 'Memory', text: `${bytesText(best.peakBytes)} of ${bytesText(c.budgetBytes)} per device for states` },
    { label: 'Proof', text: proof === undefined ? 'a plan of the zoo; no optimum is faster on the meshes that were solved' : `${proof.status} on its mesh, gap ${percentText(proof.gap)}` }, // prettier-ignore
    { label: 'Against', text: zoo === undefined || zoo === best ? 'no other plan of the zoo is faster' : `the best plan of the zoo is ${zoo.name} on ${zoo.mesh}: ${secondsText(zoo.seconds)} (${slowerText(zoo.seconds, best.seconds)})` }, // prettier-ignore
    { label: 'Searched', text: searched },
  ];
}

/** Plans that are numbered in the picture. */
const NUMBERED = 24;
const OPEN = 24;

export function comparisonSections(c: ReadComparison): Section[] {
  return [plansSection(c), meshSection(c), refusedSection(c)];
}

function plansSection(c: ReadComparison): Section {
  const front = new Set(c.pareto);
  const best = c.plans.find((p) => p.name === c.best);
  // The front and the best are in the picture whatever else is.
  const chosen = [...c.plans]
    .sort((a, b) => Number(front.has(b.name)) - Number(front.has(a.name)) || c.plans.indexOf(a) - c.plans.indexOf(b))
    .slice(0, NUMBERED)
    .sort((a, b) => c.plans.indexOf(a) - c.plans.indexOf(b));
  const points = chosen.map((p): PlanPoint => ({ name: `${p.name} on ${p.mesh}`, seconds: p.seconds, bytes: p.peakBytes, fits: p.fits, chosen: p === best, front: front.has(p.name) })); // prettier-ignore
  const numbers = new Map(chosen.map((p, k) => [p, k + 1]));
  const row = (p: Row): (Cell | string)[] => {
    const number = numbers.get(p);
    return [
      number === undefined ? '' : { text: String(number), value: number },
      p.plan,
      p.mesh,
      seconds(p.seconds),
      seconds(p.communicationSeconds),
      best === undefined ? '–' : { text: slowerText(p.seconds, best.seconds), value: p.seconds },
      bytes(p.peakBytes),
      p === best ? 'best' : !p.fits ? `does not fit${p.overBytes === undefined ? '' : `, ${bytesText(p.overBytes)} over`}` : front.has(p.name) ? 'on the front' : '', // prettier-ignore
      p.why ?? '',
    ];
  };
  const blocks: Block[] = [];
  if (points.length > 0)
    blocks.push({
      kind: 'figure',
      caption:
        'Step time over the memory of parameters, gradients and optimizer state. Numbers: those of the table; the line joins the plans that no other fitting one beats in both.',
      svg: paretoFigure(points, c.budgetBytes, 'states per device'),
    });
  blocks.push({
    kind: 'table',
    caption: 'Every plan that was priced, and why it is not the best',
    columns: [
      { head: 'No.', kind: 'number' },
      { head: 'Plan', kind: 'keep' },
      { head: 'Mesh', kind: 'name' },
      { head: 'Step time', kind: 'number' },
      { head: 'Communication', kind: 'number' },
      { head: 'Slower by', kind: 'number' },
      { head: 'States', kind: 'number' },
      { head: 'Standing' },
      { head: 'Why', kind: 'name' },
    ],
    rows: c.plans.map(row),
    open: OPEN,
  });
  blocks.push(...questions(c));
  return { id: 'plans', title: 'Plans', blocks };
}

function questions(c: ReadComparison): Block[] {
  const out: Block[] = [];
  if (c.nextBest !== undefined && c.nextBest.length > 0)
    out.push(
      { kind: 'heading', text: 'Next best' },
      { kind: 'list', items: c.nextBest.map((n) => `${n.name} (${n.kind}): ${deltaSecondsText(n.deltaSeconds)}.`) },
    );
  if (c.priceOfMemory !== undefined && c.priceOfMemory.length > 0)
    out.push(
      { kind: 'heading', text: 'Price of memory' },
      {
        kind: 'table',
        caption: 'What the best plan changes by when the budget does',
        columns: [
          { head: 'From', kind: 'number' },
          { head: 'To', kind: 'number' },
          { head: 'Change of the step', kind: 'number' },
        ],
        rows: c.priceOfMemory.map((p) => [bytes(p.fromBytes), bytes(p.toBytes), { text: deltaSecondsText(p.deltaSeconds), value: p.deltaSeconds }]), // prettier-ignore
      },
    );
  return out;
}

function meshSection(c: ReadComparison): Section {
  return {
    id: 'meshes',
    title: 'Meshes',
    blocks: [
      {
        kind: 'table',
        caption: 'What became of every mesh: solved for its optimum, beaten by a bound, or refused',
        columns: [
          { head: 'Mesh', kind: 'name' },
          { head: 'Status' },
          { head: 'At least', kind: 'number' },
          { head: 'Why', kind: 'name' },
        ],
        rows: c.meshes.map((m) => [m.mesh, m.status, seconds(m.boundSeconds ?? null), m.reason ?? '']),
        open: OPEN,
      },
    ],
  };
}

function refusedSection(c: ReadComparison): Section {
  const rows = c.refused.map((r) => [r.plan, r.mesh, r.code ?? '', r.reason]);
  return {
    id: 'refused',
    title: 'Refused',
    blocks:
      rows.length === 0
        ? [{ kind: 'text', text: 'No plan was refused.' }]
        : [
            {
              kind: 'table',
              caption: 'Plans that the model, the mesh or the linter does not admit',
              columns: [{ head: 'Plan', kind: 'keep' }, { head: 'Mesh', kind: 'name' }, { head: 'Code' }, { head: 'Reason', kind: 'name' }], // prettier-ignore
              rows,
              open: OPEN,
            },
          ],
  };
}

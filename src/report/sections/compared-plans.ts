import { bytes, seconds, type Block, type Cell, type Section } from '../blocks.ts';
import { slowerText } from '../answer.ts';
import type { ReadComparison, ReadPlan } from '../comparison-schema.ts';
import { deltaSecondsText } from '../explain.ts';
import { paretoFigure, type PlanPoint } from '../figures/pareto.ts';
import { bytesText } from '../../units.ts';

/** Plans that are numbered in the picture. */
const NUMBERED = 16;
const OPEN = 24;

export function plansSection(c: ReadComparison): Section {
  const front = new Set(c.pareto);
  const memory = memoryWords(c);
  const best = c.plans.find((p) => p.name === c.best);
  const drawn = new Set<string>();
  // The front and the best are in the picture whatever else is; of plans with equal figures the first.
  const chosen = [...c.plans]
    .sort((a, b) => Number(front.has(b.name)) - Number(front.has(a.name)) || c.plans.indexOf(a) - c.plans.indexOf(b))
    .filter((p) => {
      const key = `${p.seconds} ${p.peakBytes}`;
      if (drawn.has(key) && p !== best) return false;
      drawn.add(key);
      return true;
    })
    .slice(0, NUMBERED)
    .sort((a, b) => c.plans.indexOf(a) - c.plans.indexOf(b));
  const points = chosen.map((p): PlanPoint => ({ name: `${p.name} on ${p.mesh}`, seconds: p.seconds, bytes: p.peakBytes, fits: p.fits, chosen: p === best, front: front.has(p.name) })); // prettier-ignore
  const numbers = new Map(chosen.map((p, k) => [p, k + 1]));
  const row = (p: ReadPlan): (Cell | string)[] => {
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
      caption: `Step time over ${memory.long}. Numbers: those of the table; the line joins the plans that no other fitting one beats in both.`,
      svg: paretoFigure(points, c.budgetBytes, memory.axis),
    });
  blocks.push({
    kind: 'table',
    caption: 'Every plan that was priced, and why it is not the best',
    columns: [
      { head: 'No.', kind: 'number' },
      { head: 'Plan', kind: 'keep' },
      { head: 'Mesh', kind: 'keep' },
      { head: 'Step time', kind: 'number' },
      { head: 'Communication', kind: 'number' },
      { head: 'Slower by', kind: 'number' },
      { head: memory.head, kind: 'number' },
      { head: 'Standing', kind: 'keep' },
      { head: 'Why', kind: 'name' },
    ],
    rows: c.plans.map(row),
    open: OPEN,
  });
  blocks.push(...questions(c));
  return { id: 'plans', title: 'Plans', blocks };
}

/** A model by name is priced with its activations, a graph by its states alone. */
function memoryWords({ question }: ReadComparison): {
  readonly long: string;
  readonly axis: string;
  readonly head: string;
} {
  if (question !== undefined)
    return { long: 'the memory of a device at its peak', axis: 'peak memory per device', head: 'Peak memory' };
  return { long: 'the memory of parameters, gradients and optimizer state', axis: 'states per device', head: 'States' };
}

function questions(c: ReadComparison): Block[] {
  const out: Block[] = [];
  if (c.nextBest !== undefined && c.nextBest.length > 0)
    out.push(
      { kind: 'heading', text: 'Next best' },
      {
        kind: 'table',
        caption: 'The best of the other plans, by what they do otherwise',
        columns: [
          { head: 'Other by', kind: 'name' },
          { head: 'Plan', kind: 'name' },
          { head: 'Slower by', kind: 'number' },
        ],
        rows: c.nextBest.map((n) => [
          n.kind,
          n.name,
          { text: deltaSecondsText(n.deltaSeconds), value: n.deltaSeconds },
        ]),
      },
    );
  if (c.whatIf !== undefined && c.whatIf.length > 0)
    out.push(
      { kind: 'heading', text: 'What would change the answer' },
      {
        kind: 'table',
        caption: 'The best plan where one thing is otherwise',
        columns: [
          { head: 'Change', kind: 'name' },
          { head: 'Step time', kind: 'number' },
          { head: 'Best there', kind: 'name' },
        ],
        rows: c.whatIf.map((w) => [
          w.change,
          seconds(w.seconds ?? null),
          w.best === null
            ? 'nothing fits'
            : w.same
              ? 'the same plan'
              : `${w.best}${w.mesh === undefined ? '' : ` on ${w.mesh}`}`,
        ]),
      },
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

export function meshSection(c: ReadComparison): Section {
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

export function refusedSection(c: ReadComparison): Section {
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

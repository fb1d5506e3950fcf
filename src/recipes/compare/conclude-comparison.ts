/**
 * Takes the priced plans of all meshes and gives the comparison: names, the best plan, the reason
 * why each other one is not the best.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { defined, nonEmpty } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { bytesText, excessOver, probabilityText } from '../../units.ts';
import { bestOf, byRank, type MemoryBounds, riskierOf, safestOf, stepTime } from './best-plan.ts';
import { certaintyOfWhole } from './certainty.ts';
import { mergedPadding } from './compared-padding.ts';
import type { ComparedMesh, ComparedPlan, Comparison, RefusedPlan } from './comparison.ts';
import { dominators, paretoFront } from './pareto.ts';
import { simulatedRanking } from './simulated.ts';

/** A plan before it is compared with the others. */
export type RawPlan = Omit<ComparedPlan, 'name' | 'why' | 'cause' | 'dominatedBy'>;

/** The findings on all meshes, in any order. */
export interface Found extends MemoryBounds {
  readonly raw: readonly RawPlan[];
  readonly refused: readonly RefusedPlan[];
  readonly findings: Comparison['findings'];
  readonly meshes: readonly ComparedMesh[];
  readonly risk?: number;
  readonly holds?: Comparison['holds'];
  readonly stopped?: Comparison['stopped'];
}

/** Names the plans, finds the best, and says why each other one is not. */
export function concludeComparison(devices: number, cluster: string, found: Found): Comparison {
  const { budgetBytes, safeBytes, risk } = found;
  const rank = byRank(safeBytes);
  const order = (a: RawPlan, b: RawPlan): number =>
    rank(a, b) ||
    // Equal figures: our own plan first, then the simpler one.
    Number(a.origin === 'zoo') - Number(b.origin === 'zoo') ||
    a.mesh.length - b.mesh.length ||
    (a.mesh < b.mesh ? -1 : 1);
  const seen = new Set<string>();
  const named = [...found.raw].sort(order).map((p) => {
    const name = seen.has(p.plan) ? `${p.plan} [${p.mesh}]` : p.plan;
    seen.add(p.plan);
    return { name, ...p };
  });
  const best = bestOf(named, safeBytes);
  const points = named.map((p) => ({ ...p, seconds: stepTime(p) }));
  const dominatorOf = dominators(points);
  const plans = named.map((p, i): ComparedPlan => {
    if (p === best) return p;
    if (p.overBytes !== undefined)
      return { ...p, why: `does not fit: ${bytesText(p.overBytes)} over the budget` };
    if (p.peakBytes > safeBytes) return { ...p, why: lessSurely(p, { safeBytes, risk }) };
    const more = best === undefined ? 0 : excessOver(stepTime(best), stepTime(p));
    const beater = dominatorOf(points[i]);
    const cause = best === undefined ? 'mostly compute' : slowerBy(p, best);
    const parts = [
      more === 0 ? 'equal seconds' : `${(more * 100).toPrecision(3)} % slower, ${cause}`,
    ];
    parts.push(
      beater === undefined
        ? 'no plan is better in both seconds and bytes'
        : `dominated by ${beater}`,
    );
    const dominated = beater === undefined ? {} : { dominatedBy: beater };
    return { ...p, why: parts.join('; '), ...(more === 0 ? {} : { cause }), ...dominated };
  });
  const ranking = simulatedRanking(named);
  return {
    devices,
    cluster,
    budgetBytes,
    ...(risk === undefined ? {} : { risk, safeBytes }),
    ...defined({ holds: found.holds }),
    plans,
    refused: found.refused,
    findings: found.findings,
    meshes: found.meshes,
    best: best?.name ?? null,
    ...safestOf(named, best),
    pareto: paretoFront(points),
    ...nonEmpty({ simulatedRanking: ranking }),
    ...defined({ stopped: found.stopped }),
  };
}

/** Names the kind of most of the seconds by which a plan is slower. */
function slowerBy(plan: RawPlan, best: RawPlan): string {
  const half = (stepTime(plan) - stepTime(best)) / 2;
  const waiting = (p: RawPlan): number => p.pipeline?.bubbleSeconds ?? 0;
  if (waiting(plan) - waiting(best) > half) return 'mostly waiting of stages';
  const extra = plan.communicationSeconds - best.communicationSeconds;
  return extra > half ? 'mostly communication' : 'mostly compute';
}

/** Why a plan that fits the budget is not the best: it does not fit as surely as is asked for. */
export function lessSurely(
  { peakBytes }: Pick<RawPlan, 'peakBytes'>,
  { safeBytes, risk = 0 }: { readonly safeBytes: number; readonly risk?: number | undefined },
): string {
  const over = bytesText(peakBytes - safeBytes);
  return `${over} over what fits with ${probabilityText(risk)}`;
}

/** A piece that was cut short leaves the whole open. */
function stoppedOf(pieces: readonly Comparison[]): Pick<Comparison, 'stopped'> {
  const cut = pieces.flatMap(({ stopped }) => stopped ?? []);
  if (cut.length === 0) return {};
  const notAsked = cut.flatMap((piece) => piece.notAsked);
  const bounds = cut.flatMap(({ boundSeconds }) => boundSeconds ?? []);
  // A piece that says nothing of what it did not price leaves the whole without a bound; one that
  // was done has its best.
  if (bounds.length < cut.length) return { stopped: { by: cut[0].by, notAsked } };
  const best = pieces.flatMap(
    ({ plans, best: name }) => plans.find((plan) => plan.name === name)?.seconds ?? [],
  );
  return { stopped: { by: cut[0].by, notAsked, boundSeconds: Math.min(...bounds, ...best) } };
}

/**
 * One comparison of several that were run in pieces of the same question.
 *
 * @throws E_USAGE for pieces of different questions
 */
export function mergeComparisons(pieces: readonly Comparison[]): Comparison {
  checkKinds('mergeComparisons', { pieces: [pieces, 'list'] });
  checkItems('mergeComparisons', 'pieces', pieces, ['devices', 'cluster', 'plans', 'refused']);
  const [first] = pieces;
  if (pieces.length === 0) throw new ShardwrightError('E_USAGE', 'there is nothing to merge');
  for (const piece of pieces) if (!isOfOneQuestion(first, piece)) throw ofOthers(first, piece);
  const whole = concludeComparison(first.devices, first.cluster, {
    raw: pieces.flatMap((p) =>
      p.plans.map(({ name: _, why: __, cause: ___, dominatedBy: ____, ...raw }) => raw),
    ),
    refused: pieces.flatMap((p) => p.refused),
    findings: pieces.flatMap((p) => p.findings),
    meshes: pieces.flatMap((p) => p.meshes),
    budgetBytes: Math.max(...pieces.map((p) => p.budgetBytes)),
    safeBytes: Math.max(...pieces.map((p) => p.safeBytes ?? p.budgetBytes)),
    ...defined({ holds: first.holds, risk: first.risk }),
    ...stoppedOf(pieces),
  });
  const merged = mergedPadding(pieces);
  const riskier = riskierOf(
    whole,
    pieces.flatMap((p) => p.riskier ?? []),
  );
  const sure = { ...defined({ riskier }), ...certaintyOfWhole(whole, first) };
  const padding = merged === undefined ? {} : { padding: merged };
  if (first.question === undefined)
    return {
      ...defined({ model: first.model, microbatches: first.microbatches }),
      ...whole,
      ...sure,
      ...padding,
    };
  // The changes that would change the answer were not asked of pieces; the other findings are made
  // again for the whole.
  const { question, notes = [], refit } = first;
  const frontier = whole.pareto.flatMap((name) => {
    const p = whole.plans.find((q) => q.name === name);
    return p === undefined ? [] : [{ name, peakBytes: p.peakBytes, seconds: p.seconds, gap: null }];
  });
  return {
    ...whole,
    ...sure,
    ...padding,
    ...defined({ refit }),
    question,
    notes,
    frontier,
  };
}

function isOfOneQuestion(a: Comparison, b: Comparison): boolean {
  return (
    a.devices === b.devices &&
    a.cluster === b.cluster &&
    a.model === b.model &&
    a.holds === b.holds &&
    a.microbatches === b.microbatches &&
    a.risk === b.risk &&
    a.padding?.multiple === b.padding?.multiple &&
    JSON.stringify(a.question) === JSON.stringify(b.question)
  );
}

function ofOthers(first: Comparison, other: Comparison): ShardwrightError {
  const of = ({ model = 'a model', devices, cluster, risk }: Comparison): string =>
    `${model} on ${devices} devices of ${cluster}` +
    (risk === undefined ? '' : ` with a risk of ${risk}`);
  return new ShardwrightError(
    'E_USAGE',
    `one comparison is of ${of(first)}, another of ${of(other)}`,
  );
}

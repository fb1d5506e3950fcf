/**
 * Explains the plans of a sweep: the messages that they send, and the reasons why they are not the
 * best. The explanations are made when they are asked for: a table shows a few of tens of
 * thousands, and only JSON has all.
 */

import type { ComparedPlan } from '../recipes/compare/comparison.ts';
import { lessSurely } from '../recipes/compare/conclude-comparison.ts';
import { recomputeText } from '../recipes/recompute-text.ts';
import type { Traffic } from '../step/traffic.ts';
import { bytesText, differenceText, excessOver, ROUNDING, secondsText } from '../units.ts';
import { type CoreCost, coreKey, coreRequest, routedKey } from './model/types.ts';
import type { PricedRow } from './step/row-pricer.ts';
import type { SweepResult } from './sweep.ts';

/** A plan by the name that it has in a comparison. */
export interface NamedRow {
  readonly name: string;
  readonly row: PricedRow;
}

/** Plans that are asked one by one, as for a table; whoever asks for more asks for all. */
const ASKED_ALONE = 256;

/** The collectives of plans and their reasons, on demand. */
export class Reasons {
  private readonly traffics = new Map<PricedRow, readonly Traffic[]>();

  constructor(
    private readonly result: SweepResult,
    private readonly best: NamedRow | undefined,
    private readonly risk: number | undefined,
  ) {}

  /** A plan with its collectives, and why it is not the best; of the best its collectives alone. */
  of(plan: ComparedPlan, row: PricedRow, dominated: string | undefined): ComparedPlan {
    const { best } = this;
    const traffic = { enumerable: true, get: () => this.traffic(row) };
    if (best?.row === row) return Object.defineProperties(plan, { traffic });
    let lost: Lost | undefined;
    const known = (): Lost => (lost ??= this.whyNot(row, dominated));
    const why = { enumerable: true, get: () => known().why };
    // Without a term that it loses by, none is named.
    const isEqual =
      row.fits && (best === undefined || excessOver(best.row.figures.seconds, plan.seconds) === 0);
    if (isEqual) return Object.defineProperties(plan, { traffic, why });
    return Object.defineProperties(plan, {
      traffic,
      why,
      cause: { enumerable: true, get: () => known().cause },
    });
  }

  /**
   * Collectives of one step; where many are asked for, those of one program and mesh after each
   * other, since they share the costs of their parameters.
   */
  private traffic(row: PricedRow): readonly Traffic[] {
    if (this.traffics.size >= ASKED_ALONE && !this.traffics.has(row)) this.askAll();
    let found = this.traffics.get(row);
    if (found === undefined) this.traffics.set(row, (found = trafficOf(this.result, row)));
    return found;
  }

  private askAll(): void {
    const keyed = this.result.priced.map((row) => ({ row, key: keyOf(row) }));
    keyed.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    for (const { row } of keyed)
      if (!this.traffics.has(row)) this.traffics.set(row, trafficOf(this.result, row));
  }

  /**
   * The term that costs a plan most against the best one, with the bytes where it is a collective.
   */
  private whyNot(row: PricedRow, dominated: string | undefined): Lost {
    const { best } = this;
    const overBytes = row.figures.peakBytes - this.result.budgetBytes;
    if (overBytes > 0) {
      const cause = largestClass(row);
      return { why: `does not fit: ${bytesText(overBytes)} over the budget, ${cause}`, cause };
    }
    const { safeBytes } = this.result;
    if (!row.fits) return { why: lessSurely(row.figures, { safeBytes, risk: this.risk }) };
    if (best === undefined) return { why: 'no plan fits' };
    const a = row.figures;
    const b = best.row.figures;
    const [traffic, bestTraffic] = [this.traffic(row), this.traffic(best.row)];
    const slowdown = excessOver(b.seconds, a.seconds);
    const again = recomputeOf(row);
    const terms: (readonly [text: string, seconds: number])[] = [
      [
        again === recomputeOf(best.row) ? 'compute' : `compute (${again})`,
        a.computeSeconds - b.computeSeconds,
      ],
      ['pipeline bubble', a.bubbleSeconds - b.bubbleSeconds],
      ...[...new Set([...traffic, ...bestTraffic].map((t) => `${t.kind} over ${t.axes}`))].map(
        (key) => {
          const own = traffic.find((t) => `${t.kind} over ${t.axes}` === key);
          const other = bestTraffic.find((t) => `${t.kind} over ${t.axes}` === key);
          const bytes = (own?.sentBytes ?? 0) - (other?.sentBytes ?? 0);
          return [
            bytes > 0 ? `${key}, ${bytesText(bytes)} more a device` : key,
            visible(own) - visible(other),
          ] as const;
        },
      ),
    ];
    const [text, seconds] = terms.reduce((most, t) => (t[1] > most[1] ? t : most));
    const rest =
      dominated === undefined
        ? 'no plan is better in both seconds and bytes'
        : `dominated by ${dominated}`;
    if (Math.abs(slowdown) < ROUNDING) return { why: `equal seconds; ${rest}` };
    const cause = `+${secondsText(seconds)} ${text}`;
    return { why: `${differenceText(slowdown).slice(1)} slower: ${cause}; ${rest}`, cause };
  }
}

interface Lost {
  readonly why: string;
  readonly cause?: string;
}

/** The program of a plan. */
export function coreOf(
  result: SweepResult,
  { row: own, like, tuning }: PricedRow,
): CoreCost | undefined {
  const row = like ?? own;
  return result.cores.get(coreKey(coreRequest(row.sizes, row.kind, tuning.microbatch)));
}

/** The key of plans with one program, mesh and way to keep states. */
function keyOf(priced: PricedRow): string {
  const { sizes, kind } = priced.like ?? priced.row;
  const { pp, dp_replicate, dp_shard, cp, tp } = sizes;
  return (
    `${coreKey(coreRequest(sizes, kind, priced.tuning.microbatch))} ` +
    `${[pp, dp_replicate, dp_shard, cp, tp].join()} ${kind.mode} ${priced.tuning.once}`
  );
}

function trafficOf(result: SweepResult, priced: PricedRow): readonly Traffic[] {
  const core = coreOf(result, priced);
  if (core === undefined) return [];
  const { sizes, kind } = priced.like ?? priced.row;
  const routed = result.routed.get(routedKey(core.request));
  const traffic = result.composer.traffic(
    core,
    routed,
    { sizes, kind },
    priced.tuning,
    priced.figures,
  );
  // The mesh's text has one name for data ranks where they are one dim.
  if (sizes.dp_replicate > 1 && sizes.dp_shard > 1) return traffic;
  return traffic.map((t) => ({ ...t, axes: t.axes.replace(/\bdp_(shard|replicate)\b/, 'dp') }));
}

function recomputeOf({ tuning: { checkpoint }, figures: { unitsAgain } }: PricedRow): string {
  return recomputeText({ checkpoint, unitsAgain });
}

/** Seconds of a collective that no compute hides. */
function visible(t: Traffic | undefined): number {
  return t?.exposedSeconds ?? t?.seconds ?? 0;
}

function largestClass({ figures: { memory } }: PricedRow): string {
  const [name, bytes] = Object.entries(memory).reduce((most, entry) =>
    entry[1] > most[1] ? entry : most,
  );
  return `most of it ${name.replace('Bytes', '')} memory (${bytesText(bytes)})`;
}

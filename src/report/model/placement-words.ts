/** Words how a plan lays out its data and its weights: what a person would type or tell. */

import { itemAt } from '../../item-at.ts';
import type { Model } from '../../plan/model/model.ts';
import type { Plan } from '../../plan/record/types.ts';
import { DATA_CUTS, type DataCut } from '../../recipes/inputs/dim-meanings.ts';
import { countedText } from '../../units.ts';
import {
  type DataShares,
  dataShares,
  recomputedCalls,
  type WeightPlace,
  weightPlaces,
} from '../analysis/placed.ts';

/** A plan as its choice of the planning model. */
interface ChosenPlan {
  readonly plan: Plan;
  readonly model: Model;
  readonly choice: Int32Array;
}

interface MeshDim {
  readonly name: string;
  readonly size: number;
}

/** The layout as instructions, each without its full stop: the data first, then the weights. */
export function placementWords({ plan, model, choice }: ChosenPlan): string[] {
  const { mesh } = plan;
  return [
    dataWords(mesh, dataShares({ model, choice })),
    ...weightWords(mesh, namedWeights(model, weightPlaces({ model, choice }))),
    ...recomputedWords(recomputedCalls(model)),
  ];
}

function recomputedWords(calls: number): string[] {
  return calls === 0
    ? []
    : [`compute ${countedText(calls, 'call')} of the forward pass again in the backward pass`];
}

/** Shares below it are left out of the words: norms, scalars, the ends of the program. */
const SMALL = 0.1;
/** A share that speaks for the whole. */
const MOST = 0.8;

const NOUNS: Readonly<Record<Exclude<DataCut, 'whole'>, string>> = {
  batch: 'the batch',
  sequence: 'the sequence',
  features: 'features (heads, channels)',
  pending: 'sums',
};
/** Nouns beside a share in brackets. */
const SHORT_NOUNS: Partial<typeof NOUNS> = { features: 'features' };

/** `cut the batch over dp=2,fsdp=4 and the sequence over tp=8`. */
function dataWords(mesh: readonly MeshDim[], shares: readonly DataShares[]): string {
  /** The mesh dims by the part of the data that they cut. */
  const cuts = new Map<string, { readonly over: string[]; readonly rest: string }>();
  const repeated: string[] = [];
  mesh.forEach(({ name, size }, m) => {
    if (size === 1) return;
    const over = `${name}=${size}`;
    const [part, rest = ''] = cutText(itemAt(shares, m)) ?? [];
    if (part === undefined) repeated.push(over);
    else cuts.set(part, { over: [...(cuts.get(part)?.over ?? []), over], rest });
  });
  const cut = [...cuts].map(([part, { over, rest }]) => `${part} over ${joined(over)}${rest}`);
  const clauses = [
    ...(cut.length === 0 ? [] : [`cut ${joined(cut)}`]),
    ...(repeated.length === 0 ? [] : [`repeat the data over ${joined(repeated)}`]),
  ];
  return clauses.length === 0 ? 'keep the data on one device' : clauses.join(', ');
}

/**
 * The part of the data that a mesh dim cuts, and words for the rest of it; undefined if the dim
 * repeats the data.
 */
function cutText(shares: DataShares): readonly [part: string, rest: string] | undefined {
  const [first, ...others] = DATA_CUTS.flatMap((cut) =>
    cut === 'whole' || shares[cut] < SMALL ? [] : [cut],
  ).sort((a, b) => shares[b] - shares[a]);
  if (first === undefined) return undefined;
  if (shares[first] >= MOST) return [NOUNS[first], ''];
  const parts = [first, ...others].map((cut, k) => {
    const share = `${Math.round(100 * shares[cut])} %${k === 0 ? ' of the data' : ''}`;
    return `${SHORT_NOUNS[cut] ?? NOUNS[cut]} (${share})`;
  });
  return [parts.join(' or '), shares.whole < SMALL ? '' : ' (the rest is repeated)'];
}

/** A weight with its places, by mesh dim. */
interface NamedWeight {
  readonly name: string;
  readonly rank: number;
  readonly places: readonly WeightPlace[];
}

function namedWeights(
  { graph, flow }: Model,
  places: ReadonlyMap<number, readonly WeightPlace[]>,
): NamedWeight[] {
  return [...places].map(([n, own]) => ({
    name:
      itemAt(graph.nodes, n).meta.path ??
      itemAt(graph.nodes, n).meta.roleName ??
      itemAt(graph.nodes, n).name,
    rank: itemAt(flow.values, itemAt(itemAt(flow.results, n), 0)).meta.shape.length,
    places: own,
  }));
}

/** Names in one sentence; more are counted. */
const MOST_NAMES = 6;
/** Sentences about weights; more are counted. */
const MOST_SENTENCES = 4;

/**
 * `cut q_proj and k_proj by rows over tp=8`, `keep all other weights whole`: a sentence for each
 * way in which weights lie, the most common last.
 */
function weightWords(mesh: readonly MeshDim[], weights: readonly NamedWeight[]): string[] {
  const groups = new Map<string, { readonly how: Treatment; readonly names: Set<string> }>();
  for (const weight of weights) {
    const how = treatmentOf(mesh, weight);
    const group = groups.get(how.text) ?? { how, names: new Set<string>() };
    group.names.add(pattern(weight.name));
    groups.set(how.text, group);
  }
  const sorted = [...groups.values()].sort((a, b) => a.names.size - b.names.size);
  const common = sorted.pop();
  if (common === undefined) return [];
  const short = shortNames(weights.map(({ name }) => pattern(name)));
  const shown = sorted.slice(-MOST_SENTENCES).reverse();
  const left = sorted.length - shown.length;
  const all = groups.size === 1 ? 'all weights' : 'all other weights';
  return [
    ...shown.map(({ how, names }) =>
      how.say(
        listed(
          [...names].map((name) => short.get(name) ?? name),
          'weights',
        ),
      ),
    ),
    left === 0
      ? common.how.say(all)
      : `${common.how.say('most other weights')}; and ${left} more ways of placing weights`,
  ];
}

/** How weights of one placement are kept and used. */
interface Treatment {
  /** Equal for equal treatments. */
  readonly text: string;
  readonly say: (what: string) => string;
}

function treatmentOf(mesh: readonly MeshDim[], { rank, places }: NamedWeight): Treatment {
  const cut = overDims(mesh, places, 'cut', rank);
  const gathered = overDims(mesh, places, 'gathered', rank);
  const isKept = places.every((place) => place.kind !== 'gathered' || place.kept);
  const when = isKept ? 'gathered once a step' : 'gathered for each use';
  const text = `${cut ?? ''}|${gathered ?? ''}|${when}`;
  const say = (what: string): string => {
    if (cut === undefined && gathered === undefined) return `keep ${what} whole`;
    const keep = gathered === undefined ? undefined : `keep ${what} ${gathered}, ${when}`;
    if (cut === undefined) return keep ?? '';
    return keep === undefined ? `cut ${what} ${cut}` : `${keep}, and cut ${cut}`;
  };
  return { text, say };
}

/** `by rows over dp=8 and by columns over tp=8`; undefined where no mesh dim does that. */
function overDims(
  mesh: readonly MeshDim[],
  places: readonly WeightPlace[],
  kind: 'cut' | 'gathered',
  rank: number,
): string | undefined {
  const byDim = new Map<number, string[]>();
  places.forEach((place, m) => {
    const { name, size } = itemAt(mesh, m);
    if (place.kind !== kind || size === 1) return;
    const names = byDim.get(place.dim) ?? [];
    names.push(`${name}=${size}`);
    byDim.set(place.dim, names);
  });
  if (byDim.size === 0) return undefined;
  // Parts that are gathered before they are used are parts along any dim.
  if (kind === 'gathered') return `in parts over ${joined([...byDim.values()].flat())}`;
  return joined([...byDim].map(([dim, names]) => `${sideText(dim, rank)} over ${joined(names)}`));
}

function sideText(dim: number, rank: number): string {
  if (rank === 1) return 'in parts';
  if (rank === 2) return dim === 0 ? 'by rows' : 'by columns';
  return `along dim ${dim}`;
}

/** A name with layer numbers replaced by `*`. */
function pattern(name: string): string {
  return name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
}

/** The last words of each name that tell it from the others: `q_proj` of `*.q_proj.weight`. */
function shortNames(patterns: readonly string[]): ReadonlyMap<string, string> {
  const names = [...new Set(patterns)];
  const ends = (name: string, words: number): string =>
    name
      .replace(/\.weight$/, '')
      .split('.')
      .slice(-words)
      .join('.');
  const most = Math.max(1, ...names.map((name) => name.split('.').length));
  return new Map(
    names.map((name) => {
      for (let words = 1; words < most; words++) {
        const end = ends(name, words);
        const isNumber = /^[*\d.]*$/.test(itemAt(end.split('.'), 0)) || end === 'bias';
        if (!isNumber && names.every((other) => other === name || ends(other, words) !== end))
          return [name, end];
      }
      return [name, name];
    }),
  );
}

/** `a, b and c`, or `a, b and 7 more weights`. */
function listed(names: readonly string[], what: string): string {
  if (names.length <= MOST_NAMES) return joined(names);
  const shown = names.slice(0, MOST_NAMES - 1);
  return `${shown.join(', ')} and ${names.length - shown.length} more ${what}`;
}

/** `a`, `a and b`, `a, b and c`. */
function joined(parts: readonly string[]): string {
  if (parts.length < 2) return parts.join('');
  return `${parts.slice(0, -1).join(', ')} and ${parts[parts.length - 1]}`;
}

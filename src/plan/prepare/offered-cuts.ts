/**
 * Decides the cuts and redistributions that a plan may have, beyond the user's pins: whether merged
 * dims are cut in strides, the cuts that `--cut` adds, how often placements may change along the
 * mesh dims, and the notes on them.
 */
import { ShardwrightError } from '../../errors.ts';
import type { PlacementKinds } from '../../mesh/placements/kinds.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { parsePlacement } from '../../mesh/sharding/parse.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { StridedCuts } from '../../ops/expansion/patterns.ts';
import { MOST_RUNS, runsOf } from '../../strategy/runs.ts';
import type { Model } from '../model/model.ts';
import type { PlanRequest } from '../request/request.ts';
import type { GivenPins } from '../restrict/given-pins.ts';

/**
 * Mesh dims of several devices up to which merged dims are cut in strides without being asked:
 * beyond, proofs take too long.
 */
const MOST_STRIDED_DIMS = 3;

export function usualStrides(space: ShardingSpace): StridedCuts {
  return space.mesh.activeRank <= MOST_STRIDED_DIMS ? 'rows' : 'off';
}

/** Cuts that the request adds, each on every dim that some tensor of the program has. */
export function cutsOf(
  { cuts = [] }: PlanRequest,
  rank: number,
  kinds: PlacementKinds,
): { readonly cuts?: readonly Placement[] } {
  if (cuts.length === 0) return {};
  const found = new Map<string, Placement>();
  for (const text of cuts) {
    const cut = parsePlacement(text, { kinds });
    if (cut.dim === undefined || cut instanceof Shard)
      throw new ShardwrightError('E_USAGE', `the cut '${text}' is not a cut beyond a plain shard`, {
        hint: 'write for example _S(0, 3) or Interleaved(0, [64, 16, 16])',
      });
    for (let dim = 0; dim < rank; dim++) found.set(cut.withDim(dim).text, cut.withDim(dim));
  }
  return { cuts: [...found.values()] };
}

/** Cuts of the request that no tensor is offered, and those that stay a price. */
export function cutNotes(
  { space, strategies }: Model,
  { cuts = [] }: PlanRequest,
  kinds: PlacementKinds,
): string[] {
  const asked = cuts.map((text) => parsePlacement(text, { kinds }).withDim(0));
  if (asked.length === 0) return [];
  const ids = new Set(
    strategies.nodes.flatMap((node) => (node === null ? [] : [...node.set.specs])),
  );
  const offered = new Set(
    [...ids].flatMap((id) =>
      id < 0
        ? []
        : space.get(id).placements.flatMap((p) => (p.dim === undefined ? [] : [p.withDim(0).text])),
    ),
  );
  return asked.flatMap(({ kind, text }): string[] => {
    if (!offered.has(text))
      return [
        `No tensor is offered the cut ${text} (--cut): it fits no dim in pieces of one size.`,
      ];
    if (kind === 'strided') return [];
    return [
      `The cut ${text} (--cut) is priced only: Shardwright writes no device program for it, ` +
        'so it cannot verify a plan with it.',
    ];
  });
}

/**
 * Meshes of up to three dims are planned without a limit. So is any mesh where the request itself
 * names a placement beyond the limit: what the user pins must be possible.
 */
export function limitOfRuns(
  space: ShardingSpace,
  request: PlanRequest,
  given: GivenPins,
): number | undefined {
  if (space.mesh.activeRank <= MOST_RUNS) return undefined;
  const stated = request.shardings === 'ignore' ? [] : [...given.pins, ...given.outputs];
  const named = [
    ...[...request.pins, ...stated].map(({ spec }) => spec),
    request.inputs,
    request.outputs,
  ];
  return named.some((text) => (readRuns(space, text) ?? 0) > MOST_RUNS) ? undefined : MOST_RUNS;
}

function readRuns(space: ShardingSpace, text: string): number | undefined {
  try {
    return runsOf(space, space.parse(text));
  } catch (error) {
    // Words such as `free`, and texts that the pins refuse with their own message.
    if (error instanceof ShardwrightError) return undefined;
    throw error;
  }
}

export function limitedSpace(space: ShardingSpace, mostRuns: number, sharing: boolean): string[] {
  const dims = space.mesh.activeRank;
  const list = [
    `Mesh of ${dims} dims: on every tensor and call at most ${mostRuns} stretches of ` +
      'neighbouring mesh dims are placed differently; the bound covers those plans.',
  ];
  if (sharing)
    list.push(
      'Shared copies differ from the value on one mesh dim, and both have at most ' +
        `${mostRuns - 1} such stretches; other redistributions are paid by each use.`,
    );
  return list;
}

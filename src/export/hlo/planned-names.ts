/**
 * Gives the names under which a plan lists the values of a program with control flow: those in its
 * bodies, which stand in line there, and the results of its loops and branches.
 */
import type { Arg, Graph } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { OpenedGraph } from '../../passes/plannable/opened-graph.ts';
import type { OpenedBody, Region } from '../../passes/plannable/regions.ts';

/** Names in the plan of what belongs to a call with bodies. */
export interface CallNames {
  /** By body: the names of its inputs and calls, by the names that they have in the body. */
  readonly bodies: readonly ReadonlyMap<string, string>[];
  /** By result; undefined for one that is no tensor. */
  readonly results: readonly (string | undefined)[];
}

/** By the name that the call would have in the plan. */
export function plannedNames(opened: OpenedGraph): ReadonlyMap<string, CallNames> {
  return new Map(
    opened.regions.map((region) => [
      region.prefix,
      {
        bodies: region.bodies.map((body) => bodyNames(opened, region, body)),
        results: resultsOf(region),
      },
    ]),
  );
}

/** Calls of a body; those of the bodies in it belong to other calls, which come under their own. */
function bodyNames(
  { graph, origins, regions }: OpenedGraph,
  region: Region,
  body: OpenedBody,
): ReadonlyMap<string, string> {
  const names = new Map<string, string>(inputNames(region, body.graph));
  const nested = regions.filter(
    (other) => other !== region && other.start >= body.start && other.end <= body.end,
  );
  let at = body.start;
  const take = (end: number): void => {
    for (; at < end; at++) {
      const name = graph.nodes[at].name;
      const own = origins.get(name);
      if (own !== undefined) names.set(own, name);
    }
  };
  for (const { start, end, call, prefix } of nested.toSorted((a, b) => a.start - b.start)) {
    if (start < at) continue;
    take(start);
    names.set(call.name, prefix);
    at = end;
  }
  take(body.end);
  return names;
}

/** The carries and the rows of a loop by the inputs of its body; other operands are not renamed. */
function inputNames(region: Region, { nodes }: Graph): [string, string][] {
  if (region.kind === 'branch') return [];
  const given: readonly Arg[] =
    region.kind === 'while'
      ? region.carries
      : [...region.carries, ...region.rows.map(({ row }) => row)];
  const inputs = nodes.filter(({ kind }) => kind === 'placeholder');
  return given.flatMap((value, k): [string, string][] =>
    isRef(value) && k < inputs.length ? [[inputs[k].name, value.name]] : [],
  );
}

function resultsOf(region: Region): (string | undefined)[] {
  if (region.kind === 'branch') return region.meets.map((of) => of[0]);
  const carries = region.carries.map((value) => (isRef(value) ? value.name : undefined));
  return region.kind === 'while'
    ? carries
    : [...carries, ...region.stacks.map((stack) => stack?.whole)];
}

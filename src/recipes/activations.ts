/**
 * Restricts activations to what a recipe says of the residual stream: replicated, or cut along the
 * sequence (Megatron sequence parallelism, arXiv:2205.05198).
 */

import { REPLICATE_CODE, shardCode } from '../mesh/sharding/space.ts';
import type { Model } from '../plan/model/model.ts';
import type { Restriction } from '../plan/restrict/restriction.ts';
import { routedPart } from '../step/read/routed-part.ts';
import { cutsInsideExperts, cutsStream, type Part, type Recipe } from './parts.ts';

/**
 * The residual stream over tensor dims.
 *
 * @returns why the model has no such thing
 */
export function placeActivations(
  model: Model,
  restriction: Restriction,
  recipe: Recipe,
): string | undefined {
  if (!recipe.parts.some(saysResidual)) return undefined;
  const { graph, flow, space, strategies, nodeVariable } = model;
  const residual = new Set(residualNodes(graph, flow));
  const entries = recipe.parts.some(cutsInsideExperts) ? routedEntries(model) : undefined;
  const shapes = new Set(
    [...residual].map((n) => flow.values[flow.results[n][0]].meta.shape.join()),
  );
  for (const [d, part] of recipe.parts.entries()) {
    const reason = `recipe ${recipe.name}: ${part} over ${space.mesh.names[d]}`;
    if (saysResidual(part)) {
      if (residual.size === 0 && cutsStream(part))
        return 'the model has no residual stream of [batch, sequence, hidden]';
      strategies.nodes.forEach((entry, n) => {
        if (entry === null || entry.set.inputCount === 0) return;
        const { set } = entry;
        const width = set.inputCount + set.outputCount;
        if (cutsStream(part)) {
          // Tokens are sent to experts from where they lie.
          if (!residual.has(n) && entries?.has(n) !== true) return;
          restriction.keep(
            nodeVariable[n],
            reason,
            (a) => space.kindAt(set.specs[a * width + set.inputCount], d) === shardCode(1),
          );
          return;
        }
        const streams = [...flow.inputs[n], ...flow.results[n]].map(
          (v) => v >= 0 && shapes.has(flow.values[v].meta.shape.join()),
        );
        restriction.keep(nodeVariable[n], reason, (a) =>
          streams.every((stream, t) => {
            if (!stream) return true;
            const kind = space.kindAt(set.specs[a * width + t], d);
            if (kind === shardCode(0) || kind === shardCode(1)) return false;
            return !residual.has(n) || t < set.inputCount || kind === REPLICATE_CODE;
          }),
        );
      });
    }
  }
  return undefined;
}

const saysResidual = (part: Part): boolean =>
  part === 'tensor-whole' || part === 'tensor-expert' || cutsStream(part);

/** Sums of two activations [batch, sequence, hidden] in the forward pass. */
function residualNodes(graph: Model['graph'], flow: Model['flow']): number[] {
  return graph.nodes.flatMap((node, n) => {
    if (
      node.kind !== 'call' ||
      flow.phases[n] !== 'forward' ||
      !/(^|[._])add([._]|$)/.test(node.target)
    )
      return [];
    const [result] = flow.results[n];
    const { shape, dtype } = flow.values[result].meta;
    if (
      shape.length !== 3 ||
      shape[1] === 1 ||
      shape[2] === 1 ||
      /^[iub]\d/.test(dtype) ||
      flow.inputs[n].length !== 2
    )
      return [];
    return flow.inputs[n].every((v) => flow.values[v].meta.shape.join() === shape.join())
      ? [n]
      : [];
  });
}

/** The calls whose results go into routed blocks. */
function routedEntries(model: Model): ReadonlySet<number> {
  const names = new Set(routedPart(model)?.found.map(({ entry }) => entry));
  return new Set(model.graph.nodes.flatMap(({ name }, n) => (names.has(name) ? [n] : [])));
}

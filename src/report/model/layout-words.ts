/** Words the layout of a compared plan: what is cut over which mesh dims, and what is kept. */

import type { ComparedPipeline, ComparedPlan } from '../../recipes/compare/comparison.ts';
import { recomputeText } from '../../recipes/recompute-text.ts';
import { NAMED_RECIPES } from '../../recipes/registry.ts';
import { countedText, secondsText } from '../../units.ts';

/** The parts of a model that the mesh dims cut, by the name of the dim. */
const CUTS: Readonly<Record<string, string>> = {
  pp: 'the layers into stages',
  dp: 'the batch',
  dp_replicate: 'the batch',
  dp_shard: 'the batch',
  cp: 'the sequence',
  sp: 'the sequence',
  tp: 'heads, MLP width and vocabulary',
  ep: 'the routed experts',
  etp: 'the width of experts',
};

/** How attention meets a sequence that is cut. */
const CONTEXT: Readonly<Record<string, string>> = {
  ring: ', keys and values sent round a ring',
  cp: ', keys and values gathered',
  ulysses: ', heads and sequence exchanged around attention',
};

/** The states that the data ranks share, by the part of a plan's name. */
const STATES: Readonly<Record<string, string>> = {
  dp: 'keep parameters, gradients and optimizer states whole',
  zero1: 'cut optimizer states over the data ranks',
  zero2: 'cut gradients and optimizer states over the data ranks',
  fsdp: 'cut parameters, gradients and optimizer states over the data ranks',
  hsdp:
    'cut parameters, gradients and optimizer states over dp_shard, repeat them over ' +
    'dp_replicate',
};

/**
 * The layout as instructions, each without its full stop; of a graph, what its recipe cuts, and
 * nothing for an optimum, whose placements `plan` prints.
 */
export function layoutWords(plan: ComparedPlan, layers?: number): string[] {
  const { layout, pipeline } = plan;
  if (pipeline !== undefined) return [pipelineWords(pipeline)];
  if (layout === undefined) {
    const recipe = NAMED_RECIPES.find(({ name }) => name === plan.plan);
    return recipe === undefined
      ? []
      : [`cut ${recipe.shards.replace(/^(?=batch|layers|experts)/, 'the ')}`];
  }
  const parts = plan.plan.split('+');
  const states = parts.flatMap((part) => STATES[part] ?? []);
  return [cutWords(plan.mesh, parts), ...states, ...scheduleWords(plan, layers)];
}

/** `cut the calls into stages before mul_21; 8 microbatches by 1f1b, waiting 226 ms`. */
function pipelineWords({ cuts, microbatches, schedule, bubbleSeconds }: ComparedPipeline): string {
  return (
    `cut the calls into stages before ${cuts.join(', ')}; ${microbatches} microbatches by ` +
    `${schedule}, of which devices wait ${secondsText(bubbleSeconds)}`
  );
}

/** `cut the batch over dp=8, the sequence over cp=2, keys and values sent round a ring`. */
function cutWords(mesh: string, parts: readonly string[]): string {
  const over = new Map<string, string[]>();
  for (const dim of mesh.split(/[ ,]+/)) {
    const [name = '', size] = dim.split('=');
    const what = CUTS[name];
    if (what !== undefined && size !== '1') over.set(what, [...(over.get(what) ?? []), dim]);
  }
  const context = parts.find((part) => part in CONTEXT) ?? '';
  const clauses = [...over].map(([what, dims]) => {
    const how =
      what === CUTS.cp
        ? (CONTEXT[context] ?? '')
        : what === CUTS.tp && parts.includes('sp')
          ? ', and the sequence between them'
          : '';
    return `${what} over ${dims.join(' and ')}${how}`;
  });
  return clauses.length === 0 ? 'cut nothing' : `cut ${clauses.join('; cut ')}`;
}

function scheduleWords({ layout }: ComparedPlan, layers: number | undefined): string[] {
  if (layout === undefined) return [];
  const { sizes, chunks, schedule, microbatches, microbatch, pairsMicrobatches } = layout;
  const order =
    sizes.pp === 1 ? '' : `, by ${schedule}${chunks > 1 ? ` with ${chunks} chunks` : ''}`;
  const paired = pairsMicrobatches === true ? ', passes of two overlapped' : '';
  return [
    `${countedText(microbatches, 'microbatch', 'microbatches')} of ` +
      `${countedText(microbatch, 'sequence')} a data rank${order}${paired}; ` +
      recomputeText(layout, layers),
    ...(layout.placements === undefined
      ? []
      : [`place the model dims as ${layout.placements} does: cheaper in all than what is proven`]),
  ];
}

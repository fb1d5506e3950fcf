/**
 * The recipes that `compare --plans` knows, by name: the part that each mesh axis plays and the
 * words that `recipes list` prints.
 */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import type { Part, Recipe } from './recipes.ts';

/**
 * A recipe by the name that `compare --plans` takes: a parallelism strategy that people compose by
 * hand. It has axes, outermost first, and gives each a part; the words are those of its row in
 * `recipes list`.
 */
export interface NamedRecipe {
  readonly name: string;
  /** Names of its mesh dims, outermost first. */
  readonly axes: readonly string[];
  /** The action of each axis; absent for a recipe that is not a choice of the planning problem. */
  readonly parts?: readonly Part[];
  /** Why it has no parts. */
  readonly outside?: string;
  /** The recipes with parts that are nearest to one without. */
  readonly nearest?: readonly string[];
  readonly shards: string;
  readonly forward: string;
  readonly backward: string;
  readonly step: string;
  /** Axes that are another strategy's too. */
  readonly reuses: string;
}

const ONE_PLACEMENT =
  'in the planning problem, gradients and optimizer states follow their parameter; so this ' +
  'recipe is priced outside the problem';

const plan = (
  name: string,
  axes: readonly string[],
  parts: readonly Part[],
  words: Pick<NamedRecipe, 'shards' | 'forward' | 'backward' | 'step'> & {
    readonly reuses?: string;
  },
): NamedRecipe => ({ name, axes, parts, ...words, reuses: words.reuses ?? 'none' });

const TENSOR = 'heads, MLP width and vocabulary in column and row pairs';
const DATA_STEP = 'all_reduce of gradients over dp';
const FSDP_WORDS = 'all_gather of parameters, reduce_scatter of gradients';

/** The recipes that people know by name, in the order in which `recipes list` prints them. */
export const NAMED_RECIPES: readonly NamedRecipe[] = [
  plan('dp', ['dp'], ['data'], {
    shards: 'batch',
    forward: 'none',
    backward: 'none',
    step: DATA_STEP,
  }),
  ...(['zero1', 'zero2'] as const).map((name): NamedRecipe => ({
    name,
    axes: ['dp'],
    outside: ONE_PLACEMENT,
    nearest: ['dp', 'fsdp'],
    shards: name === 'zero1' ? 'batch; optimizer states' : 'batch; gradients and optimizer states',
    forward: 'none',
    backward: 'none',
    step: 'reduce_scatter of gradients, all_gather of parameters over dp',
    reuses: 'dp',
  })),
  plan('fsdp', ['dp_shard'], ['fsdp'], {
    shards: 'batch; parameters, gradients and optimizer states on their first dim',
    forward: 'all_gather of parameters before use',
    backward: FSDP_WORDS,
    step: 'none',
    reuses: 'dp',
  }),
  plan('tp', ['tp'], ['tensor-whole'], {
    shards: TENSOR,
    forward: 'all_reduce after each row-parallel product',
    backward: 'all_reduce at each column input',
    step: 'none',
  }),
  plan('tp+sp', ['tp'], ['tensor-sequence'], {
    shards: `${TENSOR}; between them the sequence`,
    forward: 'all_gather into, reduce_scatter out of each region',
    backward: 'reduce_scatter, all_gather',
    step: 'all_reduce of norm gradients over tp',
    reuses: 'tp',
  }),
  plan('ep', ['ep'], ['expert'], {
    shards: 'batch; routed experts',
    forward: 'all_to_all of tokens to experts and back',
    backward: 'the same, reversed',
    step: 'all_reduce of the other gradients',
    reuses: 'dp',
  }),
  plan('hsdp', ['dp_replicate', 'dp_shard'], ['data', 'fsdp'], {
    shards: 'batch over both; parameters, gradients and optimizer states over dp_shard',
    forward: 'all_gather of parameters over dp_shard',
    backward: `${FSDP_WORDS} over dp_shard`,
    step: 'all_reduce of gradient shards over dp_replicate',
    reuses: 'dp',
  }),
  plan('dp+tp', ['dp', 'tp'], ['data', 'tensor-whole'], {
    shards: `batch; ${TENSOR}`,
    forward: 'all_reduce over tp after each row-parallel product',
    backward: 'all_reduce over tp at each column input',
    step: DATA_STEP,
  }),
  plan('fsdp+tp', ['dp_shard', 'tp'], ['fsdp', 'tensor-whole'], {
    shards: `batch; ${TENSOR}; all states over dp_shard`,
    forward: 'all_gather of parameters over dp_shard, all_reduce over tp',
    backward: `${FSDP_WORDS} over dp_shard, all_reduce over tp`,
    step: 'none',
    reuses: 'dp',
  }),
  plan('dp+tp+sp', ['dp', 'tp'], ['data', 'tensor-sequence'], {
    shards: `batch; ${TENSOR}; between them the sequence over tp`,
    forward: 'all_gather into, reduce_scatter out of each region over tp',
    backward: 'reduce_scatter, all_gather over tp',
    step: `${DATA_STEP}; of norm gradients over tp too`,
    reuses: 'tp',
  }),
  plan('fsdp+tp+sp', ['dp_shard', 'tp'], ['fsdp', 'tensor-sequence'], {
    shards: `batch; ${TENSOR}; between them the sequence over tp; all states over dp_shard`,
    forward: 'all_gather of parameters over dp_shard; all_gather, reduce_scatter over tp',
    backward: `${FSDP_WORDS} over dp_shard; reduce_scatter, all_gather over tp`,
    step: 'all_reduce of norm gradients over tp',
    reuses: 'dp, tp',
  }),
  plan('dp+cp', ['dp', 'cp'], ['data', 'context'], {
    shards: 'batch; the sequence everywhere',
    forward: 'all_gather of keys and values over cp',
    backward: 'reduce_scatter of their gradients over cp',
    step: 'all_reduce of gradients over dp and cp',
  }),
  plan('fsdp+cp', ['dp_shard', 'cp'], ['fsdp', 'context-fsdp'], {
    shards: 'batch; the sequence everywhere; all states over dp_shard and cp',
    forward: 'all_gather of parameters over both, of keys and values over cp',
    backward: `${FSDP_WORDS} over both; reduce_scatter of key and value gradients over cp`,
    step: 'none',
    reuses: 'dp, cp',
  }),
  plan('dp+ulysses', ['dp', 'sp'], ['data', 'ulysses'], {
    shards: 'batch; the sequence, inside attention the heads',
    forward: 'all_to_all of q, k, v and of the output over sp',
    backward: 'the same, reversed',
    step: 'all_reduce of gradients over dp and sp',
  }),
  plan('fsdp+ulysses', ['dp_shard', 'sp'], ['fsdp', 'ulysses-fsdp'], {
    shards: 'batch; the sequence, inside attention the heads; all states over dp_shard and sp',
    forward: 'all_gather of parameters over both, all_to_all over sp',
    backward: `${FSDP_WORDS} over both, all_to_all over sp`,
    step: 'none',
    reuses: 'dp, sp',
  }),
  plan('dp+ep', ['dp', 'ep'], ['data', 'expert'], {
    shards: 'batch over both; routed experts over ep',
    forward: 'all_to_all of tokens to experts and back over ep',
    backward: 'the same, reversed',
    step: 'all_reduce of expert gradients over dp, of the others over both',
    reuses: 'dp',
  }),
  plan('fsdp+ep', ['dp_shard', 'ep'], ['fsdp', 'expert-fsdp'], {
    shards: 'batch and all states over both; routed experts over ep, their states over dp_shard',
    forward: 'all_gather of parameters over both, of experts over dp_shard; all_to_all of tokens',
    backward: `${FSDP_WORDS} over the same dims, all_to_all of tokens`,
    step: 'none',
    reuses: 'dp',
  }),
  plan('tp+ep+etp', ['ep', 'tp'], ['expert', 'tensor-expert'], {
    shards: `batch and routed experts over ep; ${TENSOR}, and each expert, over tp`,
    forward: 'all_to_all of tokens to experts and back over ep, all_reduce over tp',
    backward: 'the same, reversed',
    step: 'all_reduce of the other gradients over ep',
    reuses: 'dp, tp',
  }),
  plan('hsdp+tp', ['dp_replicate', 'dp_shard', 'tp'], ['data', 'fsdp', 'tensor-whole'], {
    shards: `batch over the outer two; ${TENSOR}; all states over dp_shard`,
    forward: 'all_gather of parameters over dp_shard, all_reduce over tp',
    backward: `${FSDP_WORDS} over dp_shard, all_reduce over tp`,
    step: 'all_reduce of gradient shards over dp_replicate',
    reuses: 'dp',
  }),
  plan('hsdp+tp+sp', ['dp_replicate', 'dp_shard', 'tp'], ['data', 'fsdp', 'tensor-sequence'], {
    shards:
      `batch over the outer two; ${TENSOR}; between them the sequence over tp; all states over ` +
      'dp_shard',
    forward: 'all_gather of parameters over dp_shard; all_gather, reduce_scatter over tp',
    backward: `${FSDP_WORDS} over dp_shard; reduce_scatter, all_gather over tp`,
    step: 'all_reduce of gradient shards over dp_replicate, of norm gradients over tp',
    reuses: 'dp, tp',
  }),
  plan('dp+cp+tp', ['dp', 'cp', 'tp'], ['data', 'context', 'tensor-whole'], {
    shards: `batch; the sequence over cp; ${TENSOR}`,
    forward: 'all_gather of keys and values over cp, all_reduce over tp',
    backward: 'reduce_scatter of their gradients over cp, all_reduce over tp',
    step: 'all_reduce of gradients over dp and cp',
  }),
  plan('fsdp+cp+tp', ['dp_shard', 'cp', 'tp'], ['fsdp', 'context-fsdp', 'tensor-whole'], {
    shards: `batch; the sequence over cp; ${TENSOR}; all states over dp_shard and cp`,
    forward:
      'all_gather of parameters over dp_shard and cp, of keys and values over cp, all_reduce ' +
      'over tp',
    backward: `${FSDP_WORDS} over dp_shard and cp; reduce_scatter over cp, all_reduce over tp`,
    step: 'none',
    reuses: 'dp, cp',
  }),
  {
    name: 'pp',
    axes: ['pp'],
    outside:
      'a stage is not a placement of a tensor: `plan --pp N` and `compare` cut a model into ' +
      'stages (a graph with --accumulate)',
    shards: 'layers',
    forward: 'send and receive of activations',
    backward: 'send and receive of gradients',
    step: 'none',
    reuses: 'none',
  },
];

/** Other names of the same recipes. */
const ALIASES: Readonly<Record<string, string>> = {
  ddp: 'dp',
  zero3: 'fsdp',
  'zero-1': 'zero1',
  'zero-2': 'zero2',
  'zero-3': 'fsdp',
};

/** Tells whether a recipe has this name or this alias. */
export function isRecipeName(name: string): boolean {
  return Object.hasOwn(ALIASES, name) || NAMED_RECIPES.some((p) => p.name === name);
}

/**
 * The recipe of this name, or of a name that it also goes by.
 *
 * @throws E_USAGE, with the nearest names, for a name that no recipe has
 */
export function namedRecipe(name: string): NamedRecipe {
  checkKinds('namedRecipe', { name: [name, 'string'] });
  const wanted = (Object.hasOwn(ALIASES, name) ? ALIASES[name] : undefined) ?? name;
  const found = NAMED_RECIPES.find((p) => p.name === wanted);
  if (found === undefined)
    throw new ShardwrightError('E_USAGE', `there is no recipe '${name}'`, {
      hint: suggestion(
        name,
        [...NAMED_RECIPES.map((p) => p.name), ...Object.keys(ALIASES)],
        'recipes',
      ),
    });
  return found;
}

/**
 * The parts of a recipe, for a planning problem whose mesh has as many dims as the recipe has axes.
 */
export function recipeOf(found: NamedRecipe): Recipe | undefined {
  return found.parts === undefined ? undefined : { name: found.name, parts: found.parts };
}

/**
 * Splits a policy, or the modules that are recomputed, into the part for the routed experts and the
 * part for the rest of a program. Modules have the names of Megatron-Core's `--recompute-modules`
 * (0.16, `TransformerConfig.recompute_modules`), which has no name for the activation of a dense
 * feed-forward layer: here `act`.
 */

/**
 * Kept: `none` recomputes nothing; `selective` keeps products and attention, `products` the
 * products (MaxText's `minimal`), `operators` attention and every second product (torchtitan's),
 * `full` what layers hand on.
 */
export const POLICIES = ['none', 'selective', 'full', 'products', 'operators'] as const;
export type Policy = (typeof POLICIES)[number];

/**
 * Parts of a layer that are recomputed while everything else is kept: attention without its
 * projections, the norms before projections and feed-forward layers, activation functions, the
 * products up from a latent with rotations, dense feed-forward layers, shared experts, and of
 * routed experts the activation functions or the whole layer with its exchanges.
 */
export const RECOMPUTE_MODULES = [
  'core_attn',
  'layernorm',
  'act',
  'mla_up_proj',
  'mlp',
  'shared_experts',
  'moe_act',
  'moe',
] as const;
export type RecomputeModule = (typeof RECOMPUTE_MODULES)[number];

/** Modules joined by `+`, in the order of `RECOMPUTE_MODULES`. */
export type ModuleSet = RecomputeModule | `${RecomputeModule}+${string}`;
export type Checkpoint = Policy | ModuleSet;

/** Modules that are recomputed with a whole module. */
const COVERS: Readonly<Partial<Record<RecomputeModule, readonly RecomputeModule[]>>> = {
  mlp: ['act'],
  moe: ['moe_act', 'shared_experts'],
};

/** The set of some modules; `none` of no modules. What another module covers is left out. */
export function moduleSet(modules: readonly RecomputeModule[]): ModuleSet | 'none' {
  const covered = new Set(modules.flatMap((m) => COVERS[m] ?? []));
  const names = RECOMPUTE_MODULES.filter((m) => modules.includes(m) && !covered.has(m));
  return names.length === 0 ? 'none' : (names.join('+') as ModuleSet);
}

/** The modules of a set; none of a policy. */
export function modulesOf(checkpoint: Checkpoint): readonly RecomputeModule[] {
  return isPolicy(checkpoint) ? [] : (checkpoint.split('+') as RecomputeModule[]);
}

export function isPolicy(checkpoint: Checkpoint): checkpoint is Policy {
  return (POLICIES as readonly string[]).includes(checkpoint);
}

/** The part of a checkpoint for a program without routed experts. */
export function programPart(checkpoint: Checkpoint): Checkpoint {
  if (isPolicy(checkpoint)) return checkpoint;
  const modules = modulesOf(checkpoint).map((m) => (m === 'moe' ? 'shared_experts' : m));
  return moduleSet(modules.filter((m) => m !== 'moe_act'));
}

/** The parts for routed experts: the policies, and their activation functions alone. */
export const ROUTED_PARTS = [...POLICIES, 'moe_act'] as const;
export type RoutedPart = (typeof ROUTED_PARTS)[number];

/** The part of a checkpoint for routed experts. */
export function routedPart(checkpoint: Checkpoint): RoutedPart {
  if (isPolicy(checkpoint)) return checkpoint;
  const modules = modulesOf(checkpoint);
  return modules.includes('moe') ? 'full' : modules.includes('moe_act') ? 'moe_act' : 'none';
}

const ROUTED_SETS: readonly (readonly RecomputeModule[])[] = [[], ['moe_act'], ['moe']];

/** The sets of modules that were priced for a program, with and without its experts. */
export function moduleSets(
  keptBytes: Readonly<Record<string, number>>,
  hasExperts: boolean,
): Checkpoint[] {
  const sets = (Object.keys(keptBytes) as Checkpoint[]).filter((c) => !isPolicy(c));
  const experts = hasExperts ? ROUTED_SETS : [[]];
  const joined = ['none' as const, ...sets].flatMap((set) =>
    experts.map((more) => moduleSet([...modulesOf(set), ...more])),
  );
  // A set of the whole layer of experts recomputes the shared ones too, whether they were priced
  // alone or not.
  const isPriced = (c: Checkpoint): boolean => Object.hasOwn(keptBytes, programPart(c));
  return [...new Set(joined.filter((c) => c !== 'none' && isPriced(c)))];
}

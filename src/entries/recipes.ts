/**
 * The entry `shardwright/recipes`: known ways to train a model. It has the recipes by name, their
 * prices and their lint, presets of modules, meshes of experts, stages of a pipeline and their
 * schedules, and the order of ranks in Megatron.
 *
 * @module shardwright/recipes
 */
export { auditChoice } from '../audit.ts';
export { priceRecipes, type RecipeResult } from '../recipes/compare/compare.ts';
export { mergeComparisons } from '../recipes/compare/conclude-comparison.ts';
export { nextBest, type RankedChoice, rankedChoices } from '../recipes/compare/next-best.ts';
export {
  denseMesh,
  DERIVED_AXES,
  type ExpertFold,
  expertFold,
  type FoldSizes,
  strategyGroups,
} from '../recipes/expert-mesh.ts';
export { type ModelFacts, modelFacts } from '../recipes/inputs/model-facts.ts';
export { type Finding, lint, type LintInput, lintPlan } from '../recipes/lint.ts';
export {
  fullyShard,
  type ModulePreset,
  modulePreset,
  type ModuleStyle,
  parallelizeModule,
} from '../recipes/module-presets.ts';
export { NAMED_RECIPES, type NamedRecipe, namedRecipe } from '../recipes/registry.ts';
export { type PipelineRun, type PipelineTimes, playPipeline } from '../simulate/pipeline/play.ts';
export {
  PIPELINE_SCHEDULES,
  type PipelineSchedule,
  type PipelineShape,
} from '../simulate/pipeline/schedules.ts';
export { type Partition, partitionStages, type PipelineUnit } from '../sweep/pipeline/partition.ts';
export { type LayerUnit, layerUnits, unsharded } from '../sweep/pipeline/units.ts';
export {
  MEGATRON_ORDERS,
  type MegatronMeshes,
  megatronMeshes,
  type MegatronSizes,
} from '../trainers/megatron/mesh-order.ts';
export {
  formatPipelineLayout,
  parsePipelineLayout,
  type PipelineLayout,
} from '../trainers/megatron/pipeline-layout.ts';

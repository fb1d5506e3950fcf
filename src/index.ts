/**
 * The entry `shardwright`: it makes a plan with its proof from a program, and answers questions
 * about plans. Everything takes plain records and returns plain records.
 *
 * The road: `trace` or `importGraph` gives a graph, `shard` its plan, `lower` the program of a
 * device, `verify` runs it with numbers, `simulate` plays its timeline, `compare` prices the
 * recipes, `audit` measures the distance of another plan from it, `explain` why a node is placed as
 * it is, `exportPlan` writes it for an engine. The other exports are their parts, and the
 * vocabulary of traced programs. `shardwright/notations`, `shardwright/checkpointing` and
 * `shardwright/solver` are parts of their own; this entry has their exports too.
 *
 * @module shardwright
 */
// The ten of the road.
export {
  type ExportedPlan,
  type ExportFile,
  type ExportLoss,
  type ExportResult,
  type ExportSource,
  exportSource,
} from './backend/target.ts';
export { type ExportOptions, exportPlan } from './export/export.ts';
export { EXPORT_TARGETS } from './export/targets.ts';
export { type GraphImportOptions, importGraph } from './import/import.ts';
export { lower, type LowerablePlan } from './lower/lower.ts';
export type { Infeasible, PlannedResult, ShardResult } from './plan/choice/result.ts';
export {
  explainNode as explain,
  type Forced,
  forceNode,
  type NodeExplanation,
  reopen,
  type Reopened,
} from './plan/questions/explain.ts';
export { shard, type ShardOptions, shardPrepared } from './plan/shard.ts';
export { type Audit, audit, type AuditOptions, type Edit } from './recipes/audit.ts';
export { compare, type CompareOptions } from './recipes/compare/compare-graph.ts';
export { simulate, type SimulateOptions, type Simulation } from './simulate/timeline/simulate.ts';
export { type Mismatch, type Verification, verify, type VerifyOptions } from './simulate/verify.ts';
export {
  type Capture,
  capture,
  input,
  type InputTree,
  type OutputTree,
  parameter,
  Tensor,
  trace,
  type TraceOptions,
} from './trace/trace.ts';

// Parts that have entries of their own.
export * from './entries/checkpointing.ts';
export * from './entries/notations.ts';
export * from './entries/solver.ts';

// Their parts, and the vocabulary of traced programs.
export type { CollectiveKind, CollectiveModel, CostRecord } from './cost/collective-model.ts';
export type { Cluster } from './cost/hardware/cluster.ts';
export {
  type CollectiveRow,
  parseCollectiveTable,
  tabledClusterText,
} from './cost/hardware/collective-table.ts';
export { clusterNames, loadCluster } from './cost/hardware/load-cluster.ts';
export { type PriceJump, priceJumps } from './cost/jumps.ts';
export { COST_PRESETS } from './cost/presets/names.ts';
export { collectiveModel } from './cost/presets/presets.ts';
export { ShardwrightError } from './errors.ts';
export { GraphBuilder } from './graph/build.ts';
export { graphHash } from './graph/hash.ts';
export { lintGraph } from './graph/lint.ts';
export { parseGraph } from './graph/text/parse.ts';
export { printGraph } from './graph/text/write.ts';
export type { Arg, DType, Graph, Node, Output, TensorType, ValueType } from './graph/types.ts';
export {
  type HloCollective,
  type HloOptions,
  type HloSummary,
  readHlo,
} from './import/hlo/collectives.ts';
export type { Advice } from './local-spmd/advice.ts';
export type {
  CheckOptions,
  CheckReport,
  LocalNotGlobal,
  ModeReport,
  StrippedRun,
} from './local-spmd/check.ts';
export { check, eraseable } from './simulate/strip.ts';
export { checkTypes, type CheckTypesOptions, type TypedGraph } from './local-spmd/check-types.ts';
export { type Mode, MODES, typeInMode } from './local-spmd/modes.ts';
export type { Meaning, OperandType } from './local-spmd/operator-types.ts';
export { typeCall } from './local-spmd/type-call.ts';
export type { Violation } from './local-spmd/typed.ts';
export type { SpecWord, TypeWord } from './local-spmd/words.ts';
export { type Cause, erase, type EraseOptions, why } from './lower/typed/erased.ts';
export { builtinOperators } from './ops/builtin.ts';
export { graphFlops } from './ops/flops.ts';
export { inferCall } from './ops/record/infer.ts';
export { defineOp, type OperatorRecord } from './ops/record/record.ts';
export { P, R, rule, S } from './ops/record/rule.ts';
export { OperatorTable } from './ops/record/table.ts';
export { OperatorRegistry } from './ops/registry.ts';
export {
  type Body,
  type Decompose,
  decomposedOp,
  type DecomposedSpec,
} from './ops/vjp/composite/decomposed.ts';
export { type Gradients, type Vjp, VjpCall, type VjpEntry, type Vjps } from './ops/vjp/vjp.ts';
export { joinForwardBackward } from './passes/autodiff/from-parts.ts';
export { jointGraph, type JointOptions, type Wanted } from './passes/autodiff/joint.ts';
export { type SavedValue, savedValues } from './passes/autodiff/saved.ts';
export { type Block, type Cfg, checkCfg, runCfg } from './passes/control/cfg/cfg.ts';
export { type CfgLoop, loopsOf } from './passes/control/cfg/cfg-flow.ts';
export { structure, type Structured } from './passes/control/cfg/structure.ts';
export {
  type BoundedLoopOptions,
  boundedLoopsToScans,
} from './passes/control/loops/bounded-loops.ts';
export { hoistInvariants, type HoistOptions } from './passes/control/loops/hoist-invariants.ts';
export { raiseLoops } from './passes/control/loops/raise-loops.ts';
export { type UnrollOptions, unrollScan } from './passes/control/loops/unroll-scan.ts';
export { predicate, type Predicated, type PredicateOptions } from './passes/control/predicate.ts';
export { forwardPart, withoutDeadCode } from './passes/dead-code.ts';
export {
  fusedComputeSeconds,
  type FusedGroup,
  fusedGroups,
  type FusedSeconds,
} from './passes/fusion/fusion.ts';
export { atSizes, type OpenSize, openSizes } from './passes/sizes/fix-sizes.ts';
export {
  adam,
  type AdamOptions,
  adamw,
  type Optimizer,
  sgd,
  type SgdOptions,
} from './passes/training/optimizer.ts';
export { trainStep, type TrainStepOptions } from './passes/training/train-step.ts';
export {
  type CheckedCollective,
  checkPlannedModes,
  type PlanCheckReport,
} from './plan/questions/spmd-check.ts';
export { type OffOnDifference, offOnDifference } from './simulate/off-on.ts';
export { type ReplicaFault, replicaFaults } from './simulate/ranks/replicas.ts';
export type {
  Validation as RuleCheck,
  Finding as RuleFinding,
} from './simulate/rule-check/check.ts';
export { checkRules, type RuleCheckOptions } from './simulate/rule-check/check-rules.ts';
export { type Admission, admit } from './strategy/admit.ts';
export {
  expandCall as expandRules,
  type OperatorCall,
  operatorCall,
  propagateCall as propagate,
  type PropagateCallOptions,
  type Propagated,
  type Strategy,
} from './strategy/operator-call.ts';
export { type CachedCapture, GraphCache, type GraphCacheOptions } from './trace/capture/cache.ts';
export { type BlockSpec, branch, captureCfg, jump, leave } from './trace/capture/control-cfg.ts';
export {
  captureRegions,
  type HostRead,
  type Region,
  type RegionCapture,
  type RegionOptions,
} from './trace/capture/regions.ts';
export { associativeScan } from './trace/control/associative-scan.ts';
export { checkpoint } from './trace/control/checkpoint.ts';
export { type BodyTree, cond, type CondOptions } from './trace/control/cond.ts';
export {
  foriLoop,
  map,
  scan,
  type ScanOptions,
  whileLoop,
  type WhileOptions,
} from './trace/control/loops.ts';
export type { Policy } from './trace/control/policy.ts';
export { type CustomOp, customOp, type CustomOpSpec } from './trace/custom/custom-op.ts';
export { customVjp } from './trace/custom/custom-vjp.ts';
export { MultiHeadAttention } from './trace/nn/attention.ts';
export { Conv2d } from './trace/nn/conv.ts';
export { Dropout } from './trace/nn/dropout.ts';
export { MLP, SwiGLU } from './trace/nn/feed-forward.ts';
export { Embedding, Linear } from './trace/nn/linear.ts';
export { MixtureOfExperts } from './trace/nn/moe.ts';
export { LayerNorm, RMSNorm } from './trace/nn/norm.ts';
export { GRUCell, LSTMCell } from './trace/nn/recurrent.ts';
export { rotate, type Rotation, rotation } from './trace/nn/rope.ts';
export { Transformer, TransformerBlock, type TransformerConfig } from './trace/nn/transformer.ts';
export {
  dim,
  type DimOptions,
  type DimSpec,
  randomKey,
  spec,
  TensorSpec,
} from './trace/record/spec.ts';
export { type Size, sizes, Sym } from './trace/sizes/sizes.ts';
export {
  allGatherInvariant,
  jaxAllGather,
  jaxAllToAll,
  pcast,
  type PieceOptions,
  ppermute,
  pscatter,
  psum,
  psumScatter,
  pvary,
} from './trace/spmd/jax-names.ts';
export { localMap, type LocalMapOptions } from './trace/spmd/local-map.ts';
export * as megatron from './trace/spmd/megatron.ts';
export {
  allGather,
  allReduce,
  allToAll,
  assertType,
  axisIndex,
  axisSize,
  contract,
  convert,
  outPartial,
  permute,
  redistribute,
  reduceScatter,
  reinterpret,
  type VerbTypes,
} from './trace/spmd/verbs.ts';
export { einsum } from './trace/tensor/einsum.ts';
export {
  arange,
  cat,
  crossEntropy,
  dropout,
  embedding,
  matmul,
  mseLoss,
  scaledDotProductAttention,
  splitKey,
  stack,
  stopGradient,
  where,
  zeros,
} from './trace/tensor/functional.ts';
export * as functional from './trace/tensor/functional.ts';
export { recompute, save } from './trace/tensor/retain.ts';
export { buffer, guardOn, isTraining, param, scope, withSharding } from './trace/tensor/state.ts';
export { apply, applyTuple } from './trace/tensor/tensor.ts';
/** Functions that modules call after the source-level front end has transformed them. */
export {
  type DeviceProgram,
  programAtRank,
  type ProgramValue,
  type RandomPiece,
} from './lower/program/program.ts';
export { type PromisedCollective, promisedCollectives } from './lower/promised.ts';
export {
  buildModel,
  type BuildOptions,
  countParameters,
  type ParameterCounts,
} from './models/build.ts';
export { MODEL_TYPES, type ModelConfig, parseModelConfig } from './models/families.ts';
export { knownModelConfig, modelEntries, type ModelEntry, modelEntry } from './models/registry.ts';
export {
  paddedVocabulary,
  tensorRanks,
  type VocabularyPad,
  type VocabularyPadding,
  vocabularyPadding,
} from './models/vocabulary.ts';
export { fromList, NDArray } from './ndarray/array.ts';
export { shrinkGraph, type ShrinkOptions, type Shrunk } from './passes/sizes/shrink.ts';
export { randomPlan } from './plan/choice/random-plan.ts';
export { transferPlan } from './plan/choice/transfer.ts';
export { prepare } from './plan/prepare/prepare.ts';
export type { Prepared } from './plan/prepare/prepared.ts';
export { checkPlan, type PlanCheck, type PlanDifference } from './plan/questions/check-plan.ts';
export {
  type Frontier,
  type FrontierMiss,
  type FrontierOptions,
  type FrontierPoint,
  type FrontierStep,
  memoryFrontier,
} from './plan/questions/memory-frontier.ts';
export { planAtEnds, type RangeEnd, rangeEnds } from './plan/questions/size-range.ts';
export type { PlanCertificate } from './plan/record/certificate.ts';
export { diffPlans, type PlanDiff } from './plan/record/diff.ts';
export {
  type PlanFolder,
  type PlanTexts,
  planTexts,
  readPlanFolder,
} from './plan/record/folder.ts';
export type { Plan } from './plan/record/types.ts';
export { DEFAULT_REQUEST, type Pin, type PlanRequest } from './plan/request/request.ts';
export { priceRecipes, type RecipeResult } from './recipes/compare/compare.ts';
export type { Comparison } from './recipes/compare/comparison.ts';
export { mergeComparisons } from './recipes/compare/conclude-comparison.ts';
export { nextBest, type RankedChoice, rankedChoices } from './recipes/compare/next-best.ts';
export {
  denseMesh,
  DERIVED_AXES,
  type ExpertFold,
  expertFold,
  type FoldSizes,
  strategyGroups,
} from './recipes/expert-mesh.ts';
export { type ModelFacts, modelFacts } from './recipes/inputs/model-facts.ts';
export { type Finding, lint, type LintInput, lintPlan } from './recipes/lint.ts';
export {
  fullyShard,
  type ModulePreset,
  modulePreset,
  type ModuleStyle,
  parallelizeModule,
} from './recipes/module-presets.ts';
export { NAMED_RECIPES, type NamedRecipe, namedRecipe } from './recipes/registry.ts';
export { annotatedProgram } from './report/analysis/program.ts';
export { type Drawings, drawParameters } from './report/html/drawings.ts';
export { htmlPage } from './report/html/page.ts';
export { type Report, type ReportInput, reportOf } from './report/model/data.ts';
export { analyse, type GatherOptions } from './report/model/gather.ts';
export { type EinshardParameter, einshardParameters } from './report/text/einshard-plan.ts';
export { planSummary } from './report/text/summary.ts';
export { markdownReport } from './report/written/markdown.ts';
export { textReport } from './report/written/plain-text.ts';
export {
  evaluateGraph,
  type EvaluateOptions,
  type Evaluation,
  type Value,
} from './simulate/evaluate.ts';
export { drawInputs } from './simulate/inputs.ts';
export type { OverlapCandidate } from './simulate/overlap/candidates.ts';
export { type OverlapPlan, overlapPlan } from './simulate/overlap/plan.ts';
export {
  type OverlapOptions,
  type OverlapSearch,
  searchOverlap,
} from './simulate/overlap/search.ts';
export { type PipelineRun, type PipelineTimes, playPipeline } from './simulate/pipeline/play.ts';
export {
  PIPELINE_SCHEDULES,
  type PipelineSchedule,
  type PipelineShape,
} from './simulate/pipeline/schedules.ts';
export { type DeviceRun, type ExecutedCollective, runDevices } from './simulate/ranks/devices.ts';
export { bucketProgram } from './simulate/timeline/bucket-program.ts';
export { play, type Timeline } from './simulate/timeline/play.ts';
export { pipelineTrace, timelineTrace, type TraceFile } from './simulate/timeline/trace.ts';
export { type Partition, partitionStages, type PipelineUnit } from './sweep/pipeline/partition.ts';
export { type LayerUnit, layerUnits, unsharded } from './sweep/pipeline/units.ts';
export type { ControlFlow, ControlSite, Variables } from './trace/record/control-interface.ts';
export * as sourceHooks from './trace/source/hooks.ts';
export {
  MEGATRON_ORDERS,
  type MegatronMeshes,
  megatronMeshes,
  type MegatronSizes,
} from './trainers/megatron-order.ts';
export {
  formatPipelineLayout,
  parsePipelineLayout,
  type PipelineLayout,
} from './trainers/pipeline-layout.ts';

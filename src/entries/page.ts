/**
 * The entry of the page that runs the planner in a browser (`site/`). It loads a model by name,
 * from a file or from a program, makes its plan, report and files, and draws notations. It imports
 * nothing of Node.
 */
export { exportSource } from '../backend/target.ts';
export {
  type AskedPipeline,
  askedPipeline,
  askedSchedule,
  forStages,
  inStages,
  OF_STAGES,
  pipelineText,
  requestOfStages,
  trainingGraph,
  withStagesOfMesh,
} from '../cli/commands/planning/plan-pipeline.ts';
export { MICROBATCHES_A_STAGE } from '../sweep/pipeline/microbatches.ts';
export { planningReport } from '../report/written/planning-report.ts';
export {
  parseBytes,
  parseCount,
  parseCounts,
  parsePriceFlag,
  parseTokens,
} from '../cli/input/flags/read.ts';
export { clusterNames, loadCluster } from '../cost/hardware/load-cluster.ts';
export { OPTIMIZERS } from '../cost/memory/state-bytes.ts';
export { defaultCostPreset } from '../cost/presets/presets.ts';
export { defined } from '../defined.ts';
export { ShardwrightError } from '../errors.ts';
export { exportFiles } from '../export/export.ts';
export { EXPORT_TARGETS } from '../export/targets.ts';
export { layoutOfText, questionAsked } from '../fidelity/asked-question.ts';
export { parseCsv } from '../fidelity/csv.ts';
export { RunPredictor } from '../fidelity/predict-run.ts';
export { type MeasuredRun, parseRuns } from '../fidelity/runs.ts';
export { forTrainer, trainerFacts } from '../fidelity/trainer-step.ts';
export { tunedConfig } from '../fidelity/tuned-config.ts';
export type { Graph } from '../graph/types.ts';
export { inferBy } from '../import/complete/infer.ts';
export { importOnDemand } from '../import/on-demand.ts';
export { parseMesh } from '../mesh/devices/mesh.ts';
export { isPending, Sharding } from '../mesh/sharding/sharding.ts';
export { fromDimView } from '../mesh/views/dim-view.ts';
export { isPartitionSpec, parsePartitionSpec } from '../mesh/views/partition-spec.ts';
export { buildModel } from '../models/build.ts';
export { parseModelConfig, readModelConfig } from '../models/families.ts';
export { modelEntries, modelEntry } from '../models/registry.ts';
export { drawSvg } from '../notations/draw/svg.ts';
export { offsetsDrawing, pendingNote, placementDrawing } from '../notations/draw/views.ts';
export { parseShardingFor } from '../notations/einshard/on-mesh.ts';
export { einshardMesh, toPlacements } from '../notations/einshard/placements.ts';
export { resolveEinshard } from '../notations/einshard/resolve.ts';
export { isEinshard } from '../notations/einshard/syntax.ts';
export { parseLayout } from '../notations/layout/parse.ts';
export { builtinOperators } from '../ops/builtin.ts';
export { atSizes } from '../passes/sizes/fix-sizes.ts';
export type { Infeasible } from '../plan/choice/result.ts';
export { prepare } from '../plan/prepare/prepare.ts';
export { explainNode, type Reopened } from '../plan/questions/explain.ts';
export { WhatIfHistory } from '../plan/questions/what-if-history.ts';
export { type PlanFolder, planTexts, readPlanFolder } from '../plan/record/folder.ts';
export { Deadline } from '../plan/request/deadline.ts';
export { DEFAULT_REQUEST, type PlanRequest } from '../plan/request/request.ts';
export { parsePin } from '../plan/restrict/pins.ts';
export { DEFAULT_RISK } from '../recipes/compare/best-plan.ts';
export type { Comparison } from '../recipes/compare/comparison.ts';
export { SolverLog } from '../report/analysis/incumbents.ts';
export { drawParameters } from '../report/html/drawings.ts';
export { htmlFile, htmlPage } from '../report/html/page.ts';
export { reportOf } from '../report/model/data.ts';
export { analyse } from '../report/model/gather.ts';
export {
  comparisonReport,
  comparisonSections,
  comparisonSubtitle,
  comparisonTitle,
} from '../report/sections/compared.ts';
export { comparedDecision, planningDecision } from '../report/sections/decision.ts';
export type { DecisionRow } from '../report/sections/decision-rows.ts';
export { comparedOptions } from '../report/sections/options.ts';
export { firstScreen } from '../report/model/first-screen.ts';
export { historyText } from '../report/text/explain.ts';
export { screenText } from '../report/text/first-screen.ts';
export { infeasibleText } from '../report/text/infeasible.ts';
export { stagesText } from '../report/text/stages.ts';
export { planSummary } from '../report/text/summary.ts';
export { tuneText } from '../report/text/tune.ts';
export { shardPrepared } from '../shard.ts';
export { PIPELINE_SCHEDULES } from '../simulate/pipeline/schedules.ts';
export type { Progress } from '../solver/types.ts';
export { compareModel } from '../sweep/compare-model.ts';
export { planGraphStages } from '../sweep/pipeline/graph-stages.ts';
export { checkPipeline, pipelineOfPlan, type PlanPipeline } from '../sweep/pipeline/plan.ts';
export { type AskedPoint, clustersNamed, pointsOf } from '../sweep/planning/asked-points.ts';
export { planningOf, type PlanningPoint, pointOf } from '../sweep/planning/planning.ts';
export { type AskedRun, withRun } from '../sweep/planning/run-question.ts';
export { serve as sweepThread } from '../sweep/threads/thread-main.ts';
export { modelOfFile } from '../trainers/model-of-file.ts';
export { bytesText, percentText, secondsText } from '../units.ts';
export { VERSION } from '../version.ts';

/**
 * The entry of the page that runs the planner in a browser (`site/`). It loads a model by name,
 * from a file or from a program, makes its plan, report and files, and draws notations. It imports
 * nothing of Node.
 */
export { exportSource } from '../backend/target.ts';
export { parseBytes } from '../cli/input/flags/read.ts';
export { clusterNames, loadCluster } from '../cost/hardware/load-cluster.ts';
export { defaultCostPreset } from '../cost/presets/presets.ts';
export { ShardwrightError } from '../errors.ts';
export { exportFiles } from '../export/export.ts';
export { EXPORT_TARGETS } from '../export/targets.ts';
export { forTrainer, questionForTrainer } from '../fidelity/trainer-step.ts';
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
export { comparedDecision } from '../report/sections/decision.ts';
export { comparedOptions } from '../report/sections/options.ts';
export { firstScreen } from '../report/model/first-screen.ts';
export { historyText } from '../report/text/explain.ts';
export { screenText } from '../report/text/first-screen.ts';
export { planSummary } from '../report/text/summary.ts';
export { shardPrepared } from '../shard.ts';
export type { Progress } from '../solver/types.ts';
export { compareModel } from '../sweep/compare-model.ts';
export { serve as sweepThread } from '../sweep/threads/thread-main.ts';
export { bytesText, percentText, secondsText } from '../units.ts';
export { VERSION } from '../version.ts';

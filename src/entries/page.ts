/**
 * The entry of the page that runs the planner in a browser (`site/`): a model goes in by name, by
 * file or as a program; its plan, report and files come out, and the drawings of notations. It
 * imports nothing of Node.
 */
export { parseBytes } from '../cli/input/flags/read.ts';
export { clusterNames, loadCluster } from '../cost/hardware/load-cluster.ts';
export { defaultCostPreset } from '../cost/presets/presets.ts';
export { ShardwrightError } from '../errors.ts';
export { exportPlan } from '../export/export.ts';
export { exportSource } from '../export/target.ts';
export { EXPORT_TARGETS } from '../export/targets.ts';
export type { Graph } from '../graph/types.ts';
export { inferBy } from '../import/complete/infer.ts';
export { importOnDemand } from '../import/on-demand.ts';
export { fromDimView } from '../mesh/views/dim-view.ts';
export { isPartitionSpec, parsePartitionSpec } from '../mesh/views/partition-spec.ts';
export { resolveEinshard } from '../mesh/einshard/resolve.ts';
export { isEinshard } from '../mesh/einshard/syntax.ts';
export { einshardMesh, toPlacements } from '../mesh/einshard/placements.ts';
export { parseShardingFor } from '../mesh/einshard/on-mesh.ts';
export { parseLayout } from '../mesh/layout/parse.ts';
export { parseMesh } from '../mesh/devices/mesh.ts';
export { isPending, Sharding } from '../mesh/sharding/sharding.ts';
export { modelEntries, modelEntry } from '../models/registry.ts';
export { buildModel } from '../models/build.ts';
export { parseModelConfig, readModelConfig } from '../models/families.ts';
export { builtinOperators } from '../ops/builtin.ts';
export { atSizes } from '../passes/sizes/fix-sizes.ts';
export { prepare } from '../plan/prepare.ts';
export { explainNode, forceNode, type Forced, type Reopened } from '../plan/questions/explain.ts';
export { planTexts, readPlanFolder, type PlanFolder } from '../plan/record/folder.ts';
export { Deadline } from '../plan/request/deadline.ts';
export { DEFAULT_REQUEST, type PlanRequest } from '../plan/request/request.ts';
export { parsePin } from '../plan/restrict/pins.ts';
export type { Infeasible } from '../plan/search/result.ts';
export { shardPrepared } from '../plan/shard.ts';
export { SolverLog } from '../report/analysis/incumbents.ts';
export { offsetsDrawing, pendingNote, placementDrawing } from '../report/draw/views.ts';
export { drawSvg } from '../report/draw/svg.ts';
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
export { forcedText } from '../report/text/explain.ts';
export { planSummary } from '../report/text/summary.ts';
export { VERSION } from '../version.ts';
export { bytesText, percentText, secondsText } from '../units.ts';
export { compareModel } from '../zoo/sweep/compare-model.ts';
export { serve as sweepThread } from '../zoo/sweep/threads/thread-main.ts';
export type { Progress } from '../solver/types.ts';

/**
 * The entry `shardwright/report`: a plan for people. It analyses a plan and writes it as a summary,
 * text, Markdown, an HTML page or an annotated program, and writes timelines for Perfetto.
 *
 * @module shardwright/report
 */
export { annotatedProgram } from '../report/analysis/program.ts';
export { type Drawings, drawParameters } from '../report/html/drawings.ts';
export { htmlPage } from '../report/html/page.ts';
export { type Report, type ReportInput, reportOf } from '../report/model/data.ts';
export { analyse, type GatherOptions } from '../report/model/gather.ts';
export { type ReportOrigin } from '../report/sections/decision-rows.ts';
export { type EinshardParameter, einshardParameters } from '../report/text/einshard-plan.ts';
export { planSummary } from '../report/text/summary.ts';
export { markdownReport } from '../report/written/markdown.ts';
export { textReport } from '../report/written/plain-text.ts';
export { pipelineTrace, timelineTrace, type TraceFile } from '../simulate/timeline/trace.ts';

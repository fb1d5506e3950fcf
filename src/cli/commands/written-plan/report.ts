/**
 * `report`: takes a plan or a comparison and writes it as HTML, Markdown, text, JSON or CSV; opens
 * it where that is asked for.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { PlanCheck } from '../../../plan/questions/check-plan.ts';
import type { PlanFolder } from '../../../plan/record/folder.ts';
import { REPORT_FORMATS, type ReportFormat } from '../../../report/formats.ts';
import { drawParameters } from '../../../report/html/drawings.ts';
import { htmlPage } from '../../../report/html/page.ts';
import { type Report, reportOf } from '../../../report/model/data.ts';
import { analyse } from '../../../report/model/gather.ts';
import { type ReportOrigin, RUN_TOKENS } from '../../../report/sections/decision-rows.ts';
import { stagesText } from '../../../report/text/stages.ts';
import { csvReport } from '../../../report/written/csv.ts';
import { markdownReport } from '../../../report/written/markdown.ts';
import { textReport } from '../../../report/written/plain-text.ts';
import { VERSION } from '../../../version.ts';
import { pipelineOf } from '../../input/pipeline-file.ts';
import { checked, loadPlan } from '../../input/plan-folder.ts';
import { isStagesFolder, readStages, reportOfStages } from '../../input/stages-folder.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { openFile } from '../../output/open-file.ts';
import { readProgress } from '../../output/plan-progress.ts';
import { tryFile, writeText } from '../../output/write-file.ts';
import type { ReportOptions } from './flags.ts';
import { comparisonText, readComparison } from './report-comparison.ts';

/** `report`: a plan, or a comparison that `compare --json` wrote, as one file. */
export async function reportCommand(
  path: string,
  options: ReportOptions,
  io: CliIo,
): Promise<number> {
  if (isStagesFolder(path)) return reportStages(path, options, io);
  const format = formatOf(options);
  const output = options.output ?? (options.open === true ? temporaryFile(format) : undefined);
  if (output !== undefined) tryFile(output, 'report');
  const comparison = readComparison(path);
  const text =
    comparison === undefined
      ? await reportText(path, format, options, io)
      : comparisonText(comparison, format, VERSION, originOf(options, true));
  if (output === undefined) io.stdout(text);
  else {
    writeText(output, text, 'report');
    io.stderr(`wrote ${output}\n`);
    if (options.open === true) await openFile(output, io);
  }
  return EXIT.ok;
}

/**
 * The stages of a pipeline and their schedule, as `plan` printed them: text, or JSON. Each stage
 * has a report of its own.
 *
 * @throws E_USAGE for another format
 */
function reportStages(path: string, options: ReportOptions, io: CliIo): number {
  const file = readStages(path);
  const stages = file.stages.map(({ folder }) => join(path, folder));
  const { json, format: named, output } = options;
  const isNamed = json === true || named !== undefined || output !== undefined;
  const format = isNamed ? formatOf(options) : 'text';
  if (format !== 'text' && format !== 'json')
    throw new ShardwrightError(
      'E_USAGE',
      `the stages of a pipeline have no report as ${format}, each stage has one`,
      { hint: `report ${stages[0] ?? path}; or --format text or json for all of them.` },
    );
  const report = reportOfStages(file);
  const reports = stages.map((stage) => `report ${stage}`).join('; ');
  const text =
    format === 'json'
      ? `${JSON.stringify(report)}\n`
      : `${stagesText(report, false)}\n\nreports    ${reports}\n`;
  if (options.output === undefined) io.stdout(text);
  else {
    writeText(options.output, text, 'report');
    io.stderr(`wrote ${options.output}\n`);
  }
  return EXIT.ok;
}

/** A file in a new folder for temporary files, for a report that is only looked at. */
function temporaryFile(format: ReportFormat): string {
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-report-'));
  return join(folder, `report.${format === 'text' ? 'txt' : format}`);
}

async function reportText(
  path: string,
  format: ReportFormat,
  options: ReportOptions,
  io: CliIo,
): Promise<string> {
  const folder = loadPlan(path);
  const { plan, graph } = folder;
  const check = checked(folder, path, builtinOperators(), io);
  if (format === 'csv') return csvReport(plan, graph);
  const drawings = drawParameters(plan, options.draw);
  const report = await gather(path, folder, check, options, io);
  if (format === 'json') return `${JSON.stringify(report)}\n`;
  const origin = { ...originOf(options), folder: folderOf(path) };
  if (format === 'md') return markdownReport(report, origin);
  return format === 'text' ? textReport(report, origin) : htmlPage(report, graph, drawings, origin);
}

/**
 * Who asks, and for what run.
 *
 * @throws E_USAGE for a run of a comparison, which has its own
 */
function originOf(
  { author, date, tokens, price, carbon }: ReportOptions,
  isComparison = false,
): ReportOrigin {
  const isAsked = [tokens, price, carbon].some((value) => value !== undefined);
  if (isAsked && isComparison)
    throw new ShardwrightError('E_USAGE', 'a comparison has the run that it was asked with', {
      hint: 'compare ... --tokens 15T --price 2.5USD --json, and report that.',
    });
  if (!isAsked) return defined({ author, date });
  return {
    ...defined({ author, date }),
    run: { tokens: tokens ?? RUN_TOKENS, ...defined({ price, carbon }) },
  };
}

/** The folder of a plan, as commands are told it. */
function folderOf(path: string): string {
  return path.replace(/[/\\]*(plan\.json)?$/, '') || '.';
}

async function gather(
  path: string,
  folder: PlanFolder,
  check: PlanCheck | undefined,
  options: ReportOptions,
  io: CliIo,
): Promise<Report> {
  const { plan, graph } = folder;
  const [pipeline, progress] = [pipelineOf(folder), readProgress(path)];
  const cluster = loadCluster(plan.request.cluster);
  const analysis = await analyse(folder, builtinOperators(), {
    recipes: options.recipes,
    whatIf: options.whatIf === true,
    ...(check === undefined
      ? {}
      : { opened: { plan, prepared: check.prepared, choice: check.choice } }),
    ...defined({ pipeline, progress }),
    onMissing: (line) => io.stderr(`left out: ${line}\n`),
    onProgress: (line) => io.stderr(`${line}\n`),
  });
  return reportOf({
    plan,
    cluster,
    analysis,
    isChecked: check !== undefined,
    version: VERSION,
    ...defined({ graph }),
  });
}

function formatOf({ format, json, output }: ReportOptions): ReportFormat {
  if (json === true) {
    if (format !== undefined && format !== 'json')
      throw new ShardwrightError('E_USAGE', `--json and --format ${format} are two formats`, {
        hint: 'give one of them.',
      });
    return 'json';
  }
  if (format !== undefined) return format;
  const ending = /\.(\w+)$/.exec(output ?? '')?.[1];
  return ending === 'txt' ? 'text' : (REPORT_FORMATS.find((f) => f === ending) ?? 'html');
}

import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { loadCluster } from '../cost/cluster.ts';
import { ShardwrightError } from '../errors.ts';
import { builtinOperators } from '../ops/builtin.ts';
import type { PlanFolder } from '../plan/folder.ts';
import { reopen } from '../plan/explain.ts';
import { csvReport } from '../report/csv.ts';
import { reportOf, type Report } from '../report/data.ts';
import { markdownReport } from '../report/markdown.ts';
import { drawParameters } from '../report/html/drawings.ts';
import { htmlPage } from '../report/html/page.ts';
import { priceRecipes, type RecipeResult } from '../zoo/compare.ts';
import { EXIT, type CliIo } from './io.ts';
import { parseChoice } from './options.ts';
import { loadPlan } from './plan-folder.ts';
import { writeText } from './write-file.ts';

export interface ReportOptions {
  readonly output?: string;
  readonly format?: string;
  readonly draw: readonly string[];
  readonly recipes: boolean;
  readonly json?: boolean;
}

const FORMATS = ['html', 'md', 'json', 'csv'] as const;

export async function reportCommand(path: string, options: ReportOptions, io: CliIo): Promise<number> {
  const format = formatOf(options);
  const folder = loadPlan(path);
  const text = await reportText(folder, format, options, io);
  if (options.output === undefined) io.stdout(text);
  else {
    writeText(options.output, text, 'report');
    io.stderr(`wrote ${options.output}\n`);
  }
  return EXIT.ok;
}

async function reportText(
  folder: PlanFolder,
  format: (typeof FORMATS)[number],
  options: ReportOptions,
  io: CliIo,
): Promise<string> {
  const { plan, graph } = folder;
  if (format === 'csv') return csvReport(plan, graph);
  const drawings = drawParameters(plan, options.draw);
  const report = await gather(folder, options, io);
  if (format === 'json') return `${JSON.stringify(report)}\n`;
  return format === 'md' ? markdownReport(report) : htmlPage(report, graph, drawings);
}

async function gather(
  { plan, program, graph, request }: PlanFolder,
  options: ReportOptions,
  io: CliIo,
): Promise<Report> {
  let recipes: readonly RecipeResult[] | undefined;
  let withoutRecipes = 'left out by --no-recipes';
  if (options.recipes) {
    if (program === undefined || request === undefined)
      withoutRecipes = 'the graph and the request are not beside the plan';
    else {
      try {
        recipes = await priceRecipes(reopen(plan, program, request, builtinOperators()).prepared);
      } catch (error) {
        // A plan that cannot be priced anew can still be read; the report says what is missing from it.
        if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
        withoutRecipes = error.message;
        io.stderr(`the plain recipes are left out: ${error.message}\n`);
      }
    }
  }
  return reportOf({
    plan,
    cluster: loadCluster(plan.request.cluster),
    version: packageVersion(),
    withoutRecipes,
    ...(graph !== undefined ? { graph } : {}),
    ...(recipes !== undefined ? { recipes } : {}),
  });
}

function formatOf({ format, json, output }: ReportOptions): (typeof FORMATS)[number] {
  if (json === true) {
    if (format !== undefined && format !== 'json')
      throw new ShardwrightError('E_USAGE', `--json and --format ${format} are two formats`, {
        hint: 'give one of them.',
      });
    return 'json';
  }
  if (format !== undefined) return parseChoice(format, '--format', FORMATS);
  const ending = /\.(\w+)$/.exec(output ?? '')?.[1];
  return FORMATS.find((f) => f === ending) ?? 'html';
}

function packageVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return z.object({ version: z.string() }).parse(JSON.parse(text)).version;
}

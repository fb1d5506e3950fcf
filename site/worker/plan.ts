/**
 * Plans a question and keeps the plan for what is asked of it afterwards. In: a question, who is
 * told of progress, a stop signal. Out: the report as a page, what another placement would cost,
 * and files.
 */
import { gzipSync, strToU8 } from 'fflate';

import {
  analyse,
  type AskedPipeline,
  bytesText,
  checkPipeline,
  Deadline,
  defined,
  drawParameters,
  explainNode,
  exportFiles,
  exportSource,
  firstScreen,
  forStages,
  forTrainer,
  type Graph,
  historyText,
  htmlPage,
  type Infeasible,
  inStages,
  loadCluster,
  OF_STAGES,
  pipelineOfPlan,
  pipelineText,
  type PlanFolder,
  type PlanPipeline,
  type PlanRequest,
  planSummary,
  planTexts,
  prepare,
  type Progress,
  readPlanFolder,
  type Reopened,
  reportOf,
  requestOfStages,
  screenText,
  secondsText,
  shardPrepared,
  ShardwrightError,
  SolverLog,
  trainerFacts,
  VERSION,
  WhatIfHistory,
} from '../../src/entries/page.ts';
import { explanationAnswer, LINES } from '../explanation.ts';
import type { Answers, FirstRow, Moment, Question, WhatIfAnswer } from '../protocol.ts';
import { type AskedGraph, table } from './model.ts';
import { graphStages, type StagedQuestion } from './stages.ts';

/** Who is told while a plan is looked for. */
export interface Listener {
  readonly moment: (moment: Moment) => void;
  readonly step: (text: string) => void;
  readonly summary: (text: string) => void;
}

interface Planned {
  readonly folder: PlanFolder;
  readonly opened: Reopened;
  readonly whatIf: WhatIfHistory;
  readonly texts: ReturnType<typeof planTexts>;
}

let planned: Planned | undefined;

export async function plan(
  asked: AskedGraph,
  given: Question,
  staged: StagedQuestion,
  signal: AbortSignal,
  listener: Listener,
): Promise<Answers['plan']> {
  planned = undefined;
  const { graph, isNamed } = asked;
  const { stages } = staged;
  const began = performance.now();
  const deadline = new Deadline(undefined, { signal });
  const sinceBegin = (): number => (performance.now() - began) / 1000;
  if (stages !== undefined && !isNamed) {
    listener.step('Cutting the graph into stages and planning each');
    const { text, seconds } = await graphStages(asked, given, { ...staged, stages }, deadline);
    listener.summary(text);
    return {
      html: '',
      nodes: [],
      planSeconds: sinceBegin(),
      first: [{ label: 'Step time', text: `${secondsText(seconds)} on ${stages.devices} stages` }],
    };
  }
  listener.step('Writing down what every placement costs');
  const named = forTrainer(staged.request, graph, isNamed);
  const task = stages === undefined ? undefined : stagesTask(named, stages, graph);
  const request = task === undefined ? named : requestOfStages(task.asked.request, task.pipeline);
  const prepared = prepare(graph, request, table(), deadline);
  listener.step('Looking for the cheapest plan');
  const log = new SolverLog(prepared);
  const hear = momentsOf(prepared, began, listener);
  const found = await shardPrepared(prepared, {
    deadline,
    isMicrobatch: task !== undefined,
    onProgress: (event) => (log.listen(event), hear(event)),
  });
  if (found.status === 'infeasible') throw infeasible(found);
  const pipeline = task?.cut(found.serial.prepared, found.choice);
  const planSeconds = sinceBegin();
  const { text, first } = screenOf(found, pipeline, task);
  listener.summary(text);
  listener.step('Writing the report');
  const html = await reported(found, pipeline, log, signal);
  const { seconds } = found.plan.objective;
  const { bound, gap } = found.plan.proof;
  return {
    html,
    nodes: found.plan.nodes.map(({ name }) => name),
    planSeconds,
    first,
    // The sums of a microbatch are not those of a step of stages.
    ...(pipeline === undefined ? { proof: { seconds, bound, gap } } : {}),
  };
}

type Found = Exclude<Awaited<ReturnType<typeof shardPrepared>>, Infeasible>;

/** The pipeline that a plan of one microbatch is cut into. @throws E_USAGE, E_UNSUPPORTED */
function stagesTask(named: PlanRequest, pipeline: AskedPipeline, graph: Graph) {
  checkPipeline(graph, pipeline);
  const request = forStages(named, pipeline, graph);
  const facts = trainerFacts(request);
  return {
    pipeline,
    asked: { request, budgetBytes: pipeline.budgetBytes },
    cut: (prepared: Found['serial']['prepared'], choice: Int32Array): PlanPipeline =>
      pipelineOfPlan(prepared, choice, { ...pipeline, facts }, table()),
  };
}

/** Rows of the first screen that stand above the form. */
const FIRST = ['do', 'step time', 'memory'];

/** The plan in short, and its first lines. */
function screenOf(
  found: Found,
  pipeline: PlanPipeline | undefined,
  task: ReturnType<typeof stagesTask> | undefined,
): { readonly text: string; readonly first: readonly FirstRow[] } {
  const { plan, recipes, choice } = found;
  const { model } = found.prepared;
  const settings = task?.asked ?? {
    request: plan.request,
    budgetBytes: plan.memory.budgetBytes,
  };
  const shown = inStages(plan, pipeline, task);
  const all = firstScreen({ plan: shown, model, choice, recipes, found, settings });
  // Those of stages stand in their own table, where no trainer runs them.
  const isTold = pipeline === undefined || pipeline.step !== undefined;
  const rows = isTold ? all : all.filter(({ label }) => !OF_STAGES.has(label));
  const how = { ...found, isMicrobatch: pipeline !== undefined };
  const details = planSummary(model.graph, plan, recipes, { ...settings, found: how });
  const stages = pipeline === undefined ? [] : [pipelineText(pipeline)];
  const first = rows.flatMap(({ label, texts }) => {
    if (!FIRST.includes(label)) return [];
    const text = label === 'do' ? texts.join('; ') : (texts[0] ?? '');
    return [{ label: label.charAt(0).toUpperCase() + label.slice(1), text }];
  });
  const step = { label: 'Step time', text: secondsText(pipeline?.seconds ?? 0) };
  return {
    text: [screenText(rows), ...stages, details].join('\n\n'),
    first: isTold ? first : [step],
  };
}

/** The report of a plan, which is kept for what is asked of it afterwards. */
async function reported(
  found: Found,
  pipeline: PlanPipeline | undefined,
  log: SolverLog,
  signal: AbortSignal,
): Promise<string> {
  const { plan } = found;
  const { program } = found.prepared.question;
  const said = pipeline === undefined ? undefined : `${JSON.stringify(pipeline, null, 1)}\n`;
  const texts = planTexts(plan, program, found.certificate, said);
  const folder = readPlanFolder(texts, 'plan.json');
  const opened: Reopened = { plan: folder.plan, prepared: found.prepared, choice: found.choice };
  const progress = log.incumbents(plan);
  const analysis = await analyse(folder, table(), {
    recipes: !signal.aborted,
    whatIf: false,
    opened,
    ...defined({ pipeline }),
    ...(progress === undefined ? {} : { progress: { ...progress, isOfPlan: true } }),
  });
  const cluster = loadCluster(plan.request.cluster);
  const drawings = drawParameters(plan, []);
  const report = reportOf({
    plan,
    cluster,
    analysis,
    version: VERSION,
    graph: found.prepared.model.graph,
  });
  planned = { folder, opened, whatIf: new WhatIfHistory(opened), texts };
  return htmlPage(report, found.prepared.model.graph, drawings);
}

/** Moments of a search in seconds of a step: at most ten a second, and every better plan. */
export function momentsOf(
  { model }: Pick<Reopened['prepared'], 'model'>,
  began: number,
  listener: Pick<Listener, 'moment'>,
): (event: Progress) => void {
  let [last, best] = [-Infinity, Infinity];
  const inSeconds = (units: number): number | null =>
    Number.isFinite(units) ? units / model.unitsPerSecond : null;
  return ({ phase, objective, bound }) => {
    const now = performance.now();
    if (now - last < 100 && objective >= best) return;
    [last, best] = [now, Math.min(best, objective)];
    listener.moment({
      phase,
      clockSeconds: (now - began) / 1000,
      seconds: inSeconds(objective),
      bound: inSeconds(bound),
    });
  };
}

/** @throws E_USAGE where nothing is planned yet */
function current(): Planned {
  if (planned === undefined)
    throw new ShardwrightError('E_USAGE', 'there is no plan yet', { hint: 'wait for it' });
  return planned;
}

export function explain(node: string): Answers['explain'] {
  return explanationAnswer(explainNode(current().opened, node));
}

export async function force(
  node: string,
  placement: string,
  signal: AbortSignal,
  listener: Listener,
): Promise<Answers['force']> {
  const { opened, whatIf } = current();
  const onProgress = momentsOf(opened.prepared, performance.now(), listener);
  const forced = await whatIf.ask(node, placement, { onProgress, signal });
  if ('status' in forced) throw infeasible(forced);
  return whatIfAnswer(whatIf);
}

/** Takes the last placement that was priced back, or up again; nothing is solved. */
export function moveWhatIf(kind: 'undo' | 'redo'): WhatIfAnswer {
  const { whatIf } = current();
  whatIf[kind]();
  return whatIfAnswer(whatIf);
}

function whatIfAnswer(history: WhatIfHistory): WhatIfAnswer {
  const { asked, canUndo, canRedo } = history;
  const pins = asked.map(({ pin }) => `${pin.node}=${pin.spec}`);
  return { text: historyText(history, LINES), pins, canUndo, canRedo };
}

/** The plan folder as `plan -o` writes it. */
export function planFolder(): Answers['folder'] {
  const { plan: text, graph, request, certificate, pipeline } = current().texts;
  return {
    files: {
      'plan.json': strToU8(text),
      'graph.swg': strToU8(graph),
      'request.json': strToU8(request),
      'certificate.json.gz': gzipSync(strToU8(certificate), { mtime: 0 }),
      ...(pipeline === undefined ? {} : { 'pipeline.json': strToU8(pipeline) }),
    },
  };
}

export function exported(target: string): Answers['export'] {
  const { folder } = current();
  const { plan, program, graph } = folder;
  if (program === undefined || graph === undefined)
    throw new ShardwrightError('E_INTERNAL', 'internal: the plan has no program beside it');
  const source = exportSource({ plan, program, graph }, table());
  // What the target cannot say is refused, as by the command: nobody reads a list of losses behind
  // a download.
  const { files } = exportFiles(source, target, { check: false });
  return { files: Object.fromEntries(files.map(({ name, text }) => [name, strToU8(text)])) };
}

function infeasible({
  conflict,
  smallestBudgetBytes: smallest,
  neededBytes: needed,
  enoughBytes: enough,
  budgetBytes,
}: Infeasible): ShardwrightError {
  const known = [
    ...(smallest === undefined ? [] : [`the smallest budget that works is ${bytesText(smallest)}`]),
    ...(needed === undefined ? [] : [`none needs less than ${bytesText(needed)}`]),
    ...(enough === undefined ? [] : [`a plan of ${bytesText(enough)} is known`]),
  ];
  const hint =
    known.length === 0
      ? 'change the pins, or the mesh'
      : `${known.join('; ')}; the budget was ${bytesText(budgetBytes)}`;
  return new ShardwrightError(
    'E_INFEASIBLE',
    `no plan exists; in the way: ${conflict.join(', ')}`,
    { hint },
  );
}

/**
 * Plans a question and keeps the plan for what is asked of it afterwards. In: a question, who is
 * told of progress, a stop signal. Out: the report as a page, what another placement would cost,
 * and files.
 */
import { gzipSync, strToU8 } from 'fflate';

import {
  analyse,
  bytesText,
  Deadline,
  DEFAULT_REQUEST,
  drawParameters,
  explainNode,
  exportFiles,
  exportSource,
  firstScreen,
  forTrainer,
  historyText,
  htmlPage,
  type Infeasible,
  loadCluster,
  parseBytes,
  parsePin,
  type PlanFolder,
  type PlanRequest,
  planSummary,
  planTexts,
  prepare,
  type Progress,
  readPlanFolder,
  type Reopened,
  reportOf,
  screenText,
  shardPrepared,
  ShardwrightError,
  SolverLog,
  VERSION,
  WhatIfHistory,
} from '../../src/entries/page.ts';
import { explanationAnswer, LINES } from '../explanation.ts';
import type { Answers, Moment, Question, WhatIfAnswer } from '../protocol.ts';
import { type AskedGraph, table } from './model.ts';

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

export function requestOf({ mesh, cluster, memory, pins }: Question): PlanRequest {
  return {
    ...DEFAULT_REQUEST,
    mesh,
    cluster,
    pins: pins.map(parsePin),
    ...(memory.trim() === '' ? {} : { memoryBytes: parseBytes(memory, 'budget') }),
  };
}

export async function plan(
  { graph, isNamed }: AskedGraph,
  question: Question,
  signal: AbortSignal,
  listener: Listener,
): Promise<Answers['plan']> {
  planned = undefined;
  const began = performance.now();
  const deadline = new Deadline(undefined, { signal });
  listener.step('Writing down what every placement costs');
  const request = forTrainer(requestOf(question), graph, isNamed);
  const prepared = prepare(graph, request, table(), deadline);
  listener.step('Looking for the cheapest plan');
  const log = new SolverLog(prepared);
  const hear = momentsOf(prepared, began, listener);
  const found = await shardPrepared(prepared, {
    deadline,
    onProgress: (event) => (log.listen(event), hear(event)),
  });
  if (found.status === 'infeasible') throw infeasible(found);
  const { plan, recipes } = found;
  const planSeconds = (performance.now() - began) / 1000;
  const { model } = found.prepared;
  const settings = { request: plan.request, budgetBytes: plan.memory.budgetBytes };
  const screen = firstScreen({ plan, model, choice: found.choice, recipes, found, settings });
  const details = planSummary(model.graph, plan, recipes, { ...settings, found });
  listener.summary(`${screenText(screen)}\n\n${details}`);
  listener.step('Writing the report');
  const texts = planTexts(plan, found.prepared.question.program, found.certificate);
  const folder = readPlanFolder(texts, 'plan.json');
  const opened: Reopened = { plan: folder.plan, prepared: found.prepared, choice: found.choice };
  const progress = log.incumbents(plan);
  const analysis = await analyse(folder, table(), {
    recipes: !signal.aborted,
    whatIf: false,
    opened,
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
  return {
    html: htmlPage(report, found.prepared.model.graph, drawings),
    nodes: plan.nodes.map(({ name }) => name),
    planSeconds,
    seconds: plan.objective.seconds,
    bound: plan.proof.bound,
    gap: plan.proof.gap,
  };
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
  const { plan: text, graph, request, certificate } = current().texts;
  return {
    files: {
      'plan.json': strToU8(text),
      'graph.swg': strToU8(graph),
      'request.json': strToU8(request),
      'certificate.json.gz': gzipSync(strToU8(certificate), { mtime: 0 }),
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

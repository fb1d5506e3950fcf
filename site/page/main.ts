/**
 * The page: a question is typed, dropped or read from the address; its plan appears as it is found,
 * and can be asked about.
 */
import style from 'virtual:report-style';

import type { GivenFile, PlanSource } from '../protocol.ts';
import own from '../style/page.css?raw';
import { download, downloadFiles } from './downloads.ts';
import { button, byId, fill, input, select, settled } from './elements.ts';
import { hasLocalPlanner, type LocalPlan, planLocally } from './local.ts';
import { startNotations } from './notations.ts';
import { Failed, Planner } from './planner.ts';
import { ProgramView } from './program-view.ts';
import { ProgressView } from './progress.ts';
import { addressOf, commandOf, QuestionForm, readAddress, type View, VIEWS } from './question.ts';
import { enliven, showReport, valueAt } from './report.ts';
import { WhatIf } from './what-if.ts';

/** Largest file that is read into the page. */
const MOST_BYTES = 256 * 2 ** 20;
/**
 * A file larger than this is given to the planner of this machine, where one is behind the page.
 */
const LARGE_BYTES = 4 * 2 ** 20;
/** Milliseconds that a search without a plan gets to end by itself once it was told to stop. */
const GRACE = 3000;

const sheet = document.createElement('style');
sheet.textContent = `${style}\n${own}`;
document.head.append(sheet);

const planner = new Planner();
/** Notations are drawn while the other one plans. */
const drawer = new Planner();
const progress = new ProgressView();
const form = new QuestionForm(settled(500, () => ask()));
const program = new ProgramView(() => form.question.mesh);
const whatIf = new WhatIf(source, (pins) => form.pin(pins));
const notations = startNotations(drawer);

let view: View = 'plan';
let file: GivenFile | undefined;
let html = '';
/** The view that asked for what is shown. */
let shownFor: View | undefined;
/** Names of models, which can be compared. */
let models: readonly string[] = [];
/**
 * What the planner of this machine is doing, and what it made last; the page's own has the plan
 * otherwise.
 */
let away: AbortController | undefined;
let local: LocalPlan | undefined;
let names: ReadonlySet<string> = new Set();
/** The planner has said what there is to choose from. */
let ready = false;
/** Number of the latest question: what an earlier one still says is not shown. */
let latest = 0;

/** Whoever has the plan. */
function source(): PlanSource {
  return local ?? planner;
}

function show(next: View): void {
  view = next;
  for (const tab of document.querySelectorAll<HTMLButtonElement>('#q-views button')) {
    if (tab.dataset.view === view) tab.setAttribute('aria-current', 'page');
    else tab.removeAttribute('aria-current');
  }
  for (const part of document.querySelectorAll<HTMLElement>('main [data-views]'))
    part.hidden = !(part.dataset.views ?? '').split(' ').includes(view);
  byId('q-progress', HTMLElement).hidden ||= byId('q-step', HTMLElement).textContent === '';
  byId('q-answer', HTMLElement).hidden = view !== shownFor;
  if (view === 'program') void program.open();
  if (view === 'notations') notations();
}

/** Asks what the form says, in place of what was asked before. */
function ask(): void {
  // What is typed before is asked at the start.
  if (view === 'notations' || !ready) return;
  if (planner.isBusy) planner.end();
  away?.abort();
  const { question } = form;
  history.replaceState(null, '', `#${addressOf(view, question)}`);
  void run(++latest);
}

async function run(mine: number): Promise<void> {
  const asked = view;
  const { question } = form;
  whatIf.close();
  progress.begin();
  const hears = {
    step: (text: string) => progress.step(text),
    moment: progress.hear.bind(progress),
    summary: (text: string) => {
      const place = byId('q-summary', HTMLElement);
      byId('q-answer', HTMLElement).classList.remove('stale');
      place.textContent = text;
      shownFor = asked;
      place.hidden = false;
      byId('q-answer', HTMLElement).hidden = view !== shownFor;
      byId('q-downloads', HTMLElement).hidden = true;
      byId('q-document', HTMLElement).replaceChildren();
    },
  };
  const began = performance.now();
  try {
    if (asked === 'compare') {
      if (!models.includes(question.model)) {
        progress.end(
          'Choose a model by name: all of its plans are priced on all meshes of these devices.',
        );
        return;
      }
      const answer = await planner.ask({ kind: 'compare', question }, hears);
      if (mine !== latest) return;
      byId('q-summary', HTMLElement).hidden = true;
      arrived(asked, answer.html, []);
    } else {
      local = undefined;
      if (
        file !== undefined &&
        asked === 'plan' &&
        question.model === 'file' &&
        input('q-local').checked
      ) {
        away = new AbortController();
        const made = await planLocally(question, file, hears, away.signal);
        if (mine !== latest) return;
        local = made;
        arrived(asked, made.html, made.nodes);
        progress.end(
          'Done by the planner of this machine in ' +
            `${((performance.now() - began) / 1000).toFixed(1)} s.`,
        );
        return;
      }
      const text = asked === 'program' ? { program: program.text } : {};
      const answer = await planner.ask(
        { kind: 'plan', question, ...(file === undefined ? {} : { file }), ...text },
        hears,
      );
      if (mine !== latest) return;
      document.documentElement.dataset.planSeconds = String(answer.planSeconds);
      progress.numbers(answer);
      arrived(asked, answer.html, answer.nodes);
    }
    progress.end(`Done in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    if (mine !== latest) return;
    if (error.fault.code === 'E_INTERRUPTED') progress.end('Stopped.');
    else {
      progress.fault(error.fault);
      byId('q-answer', HTMLElement).classList.add('stale');
    }
  }
}

function arrived(asked: View, page: string, nodes: readonly string[]): void {
  html = page;
  byId('q-answer', HTMLElement).classList.remove('stale');
  names = new Set(nodes);
  whatIf.nodes = nodes;
  shownFor = asked;
  byId('q-answer', HTMLElement).hidden = view !== shownFor;
  byId('q-downloads', HTMLElement).hidden = false;
  // A comparison has no plan of its own.
  byId('q-plan-files', HTMLElement).hidden = asked === 'compare';
  showReport(page);
}

async function take(given: File): Promise<void> {
  if (given.size > MOST_BYTES) {
    progress.begin();
    progress.fault({
      code: 'E_LIMIT',
      message: `${given.name} has ${given.size} bytes, more than ${MOST_BYTES}`,
      hint: 'give it to the command line: shardwright plan',
    });
    return;
  }
  file = { name: given.name, bytes: new Uint8Array(await given.arrayBuffer()) };
  input('q-model').value = 'file';
  if (given.size > LARGE_BYTES && hasLocalPlanner()) input('q-local').checked = true;
  ask();
}

function listen(): void {
  for (const tab of document.querySelectorAll<HTMLButtonElement>('#q-views button'))
    tab.addEventListener('click', () => {
      show(VIEWS.find((v) => v === tab.dataset.view) ?? 'plan');
      history.replaceState(null, '', `#${addressOf(view, form.question)}`);
      if (['plan', 'compare'].includes(view) && view !== shownFor) ask();
    });
  byId('q-form', HTMLFormElement).addEventListener('submit', (event) => {
    event.preventDefault();
    ask();
  });
  byId('q-form', HTMLFormElement).addEventListener('input', () => {
    if (view === 'program') whatIf.close();
  });
  const drop = byId('q-drop', HTMLElement);
  const isOver = (over: boolean) => (event: DragEvent) => {
    event.preventDefault();
    drop.classList.toggle('over', over);
  };
  document.addEventListener('dragover', isOver(true));
  document.addEventListener('dragleave', isOver(false));
  document.addEventListener('drop', (event) => {
    isOver(false)(event);
    const given = event.dataTransfer?.files[0];
    if (given !== undefined) void take(given);
  });
  input('q-local').addEventListener('change', () => {
    if (file !== undefined) ask();
  });
  input('q-file').addEventListener('change', () => {
    const given = input('q-file').files?.[0];
    if (given !== undefined) void take(given);
  });
  let stopped = 0;
  button('q-stop').addEventListener('click', () => {
    away?.abort();
    planner.stop();
    // A second press gives up; so does the first, a little later, where there is no plan to wait
    // for.
    if (stopped === latest) planner.end();
    stopped = latest;
    progress.step('Stopping with the best plan so far; press again to give it up.');
    const asked = latest;
    setTimeout(() => {
      if (asked === latest && planner.isBusy && !progress.hasPlan) planner.end();
    }, GRACE);
  });
  button('q-plan-program').addEventListener('click', () => ask());
  const point = (event: Event): void => {
    const name = valueAt(event.target, names);
    if (name !== undefined && html !== '') whatIf.open(name);
  };
  byId('q-document', HTMLElement).addEventListener('click', point);
  byId('q-document', HTMLElement).addEventListener('keydown', (event) => {
    if (event.key === 'Enter') point(event);
  });
  button('q-report').addEventListener('click', () => download('report.html', html, 'text/html'));
  button('q-command').addEventListener('click', () => void copyCommand());
  button('q-folder').addEventListener(
    'click',
    () =>
      void source()
        .ask({ kind: 'folder' })
        .then(({ files }) => downloadFiles('plan', files)),
  );
  button('q-export').addEventListener('click', () => void exportFiles());
  addEventListener('hashchange', () => {
    const asked = readAddress(location.hash);
    if (addressOf(asked.view, asked.question) === addressOf(view, form.question)) return;
    form.question = asked.question;
    show(asked.view);
    ask();
  });
}

async function copyCommand(): Promise<void> {
  const command = commandOf(view, form.question, file?.name);
  const words = byId('q-copied', HTMLElement);
  try {
    await navigator.clipboard.writeText(command);
    words.textContent = `Copied: ${command}`;
  } catch {
    // A page that may not write to the clipboard shows what is to be copied.
    words.textContent = command;
  }
}

async function exportFiles(): Promise<void> {
  const target = select('q-target').value;
  const words = byId('q-losses', HTMLElement);
  try {
    const { files } = await source().ask({ kind: 'export', target });
    words.textContent = '';
    downloadFiles(target, files);
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    words.textContent = [error.fault.message, error.fault.hint].filter((t) => t !== '').join('; ');
  }
}

async function start(): Promise<void> {
  enliven();
  byId('q-local-label', HTMLElement).hidden = !hasLocalPlanner();
  listen();
  const asked = readAddress(location.hash);
  form.question = asked.question;
  show(asked.view);
  const { clusters, targets, version, ...lists } = await drawer.ask({ kind: 'lists' });
  models = lists.models;
  fill(byId('q-models', HTMLDataListElement), ['demo', ...models]);
  form.offer(clusters, readAddress(location.hash).question.cluster);
  fill(select('q-target'), targets);
  byId('q-version', HTMLElement).textContent = `Shardwright ${version}`;
  ready = true;
  if (view === 'plan' || view === 'compare') ask();
}

void start();

/**
 * The page: a question is typed, dropped or read from the address; its plan appears as it is found,
 * and can be asked about.
 */
import style from 'virtual:report-style';

import CONFIG from '../../examples/torchtitan-llama3-8b.toml?raw';
import type { GivenFile, PlanSource, Question } from '../protocol.ts';
import own from '../style/page.css?raw';
import { addressOf, ASKING, questionText, readAddress, type View, VIEWS } from './address.ts';
import { cardOf } from './card.ts';
import { commandOf } from './command.ts';
import { download, downloadFiles } from './downloads.ts';
import { button, byId, fill, input, link, select, settled } from './elements.ts';
import { GalleryView } from './gallery-view.ts';
import { hasLocalPlanner, type LocalPlan, planLocally } from './local.ts';
import { startNotations } from './notations.ts';
import { Failed, type Hears, Planner } from './planner.ts';
import { ProgramView } from './program-view.ts';
import { ProgressView } from './progress.ts';
import { QuestionForm } from './question.ts';
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
const program = new ProgramView(() => form.question.mesh, follow);
const gallery = new GalleryView();
const whatIf = new WhatIf(source, (pins) => form.pin(pins));
const notations = startNotations(drawer);

let view: View = 'plan';
let file: GivenFile | undefined;
let html = '';
/** The configuration with the changes that were found. */
let edited = '';
/** The model that was taken for a configuration that names none. */
let modelTaken: string | undefined;
/** True if the page is a card in a page of somebody else. */
let isCard = false;
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
  const isTuned = view === 'tune';
  input('q-batch').placeholder = isTuned ? 'that of the file' : 'one a device';
  input('q-sequence').placeholder = isTuned ? 'that of the file' : "4096, or the model's";
  byId('q-progress', HTMLElement).hidden ||= byId('q-step', HTMLElement).textContent === '';
  byId('q-answer', HTMLElement).hidden = view !== shownFor;
  if (view === 'program') void program.open();
  if (view === 'notations') notations();
  if (view === 'gallery') void gallery.open();
}

/** The part of the address after `#`. */
function address(): string {
  return addressOf({ view, question: form.question, program: program.own, isCard });
}

/** Lets the address bar follow what is typed. */
function follow(): void {
  history.replaceState(null, '', `#${address()}`);
}

/** Asks what the form says, in place of what was asked before. */
function ask(): void {
  // What is typed before is asked at the start.
  if (!ready || !(ASKING.includes(view) || (view === 'program' && !program.isHeld))) return;
  if (planner.isBusy) planner.end();
  away?.abort();
  follow();
  void run(++latest);
}

async function run(mine: number): Promise<void> {
  const asked = view;
  const { question } = form;
  whatIf.close();
  progress.begin();
  const open = openQuestion(asked, question);
  if (open !== undefined) {
    progress.end(open);
    return;
  }
  const began = performance.now();
  try {
    const by = await (asked === 'compare' ? compare : asked === 'tune' ? tune : plan)({
      asked,
      question,
      mine,
      hears: hearsOf(asked),
    });
    if (mine !== latest) return;
    progress.end(`Done${by} in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
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

/** What the form does not say yet; undefined where it says all. */
function openQuestion(asked: View, { model, config }: Question): string | undefined {
  if (asked === 'compare' && !models.includes(model))
    return 'Choose a model by name: all of its plans are priced on all meshes of these devices.';
  if (asked === 'tune' && config.trim() === '')
    return 'Paste the configuration of your trainer: what to change in it stands here then.';
  return undefined;
}

/** A question on its way; `mine` is its number. */
interface Asking {
  readonly asked: View;
  readonly question: Question;
  readonly mine: number;
  readonly hears: Hears;
}

function hearsOf(asked: View): Hears {
  return {
    step: (text) => progress.step(text),
    moment: progress.hear.bind(progress),
    summary: (text) => {
      showSummary(asked, text);
      byId('q-downloads', HTMLElement).hidden = true;
      byId('q-document', HTMLElement).replaceChildren();
    },
  };
}

function showSummary(asked: View, text: string): void {
  const place = byId('q-summary', HTMLElement);
  byId('q-answer', HTMLElement).classList.remove('stale');
  place.textContent = text;
  place.hidden = text === '';
  shownFor = asked;
  byId('q-answer', HTMLElement).hidden = view !== shownFor;
}

/** @returns who has answered, in words behind 'Done' */
async function compare({ asked, question, mine, hears }: Asking): Promise<string> {
  const answer = await planner.ask({ kind: 'compare', question }, hears);
  if (mine !== latest) return '';
  showSummary(asked, '');
  progress.first(answer.first);
  arrived(asked, answer.html, []);
  return '';
}

async function tune({ asked, question, mine, hears }: Asking): Promise<string> {
  const answer = await planner.ask({ kind: 'tune', question }, hears);
  if (mine !== latest) return '';
  edited = answer.isEdited ? answer.edited : '';
  modelTaken = answer.model;
  progress.first([{ label: 'Your config', text: answer.headline.replace(/^config: /, '') }]);
  showSummary(asked, answer.text);
  arrived(asked, '', []);
  return '';
}

async function plan({ asked, question, mine, hears }: Asking): Promise<string> {
  local = undefined;
  if (
    file !== undefined &&
    asked === 'plan' &&
    question.model === 'file' &&
    input('q-local').checked
  ) {
    away = new AbortController();
    const made = await planLocally(question, file, hears, away.signal);
    if (mine !== latest) return '';
    local = made;
    arrived(asked, made.html, made.nodes);
    return ' by the planner of this machine';
  }
  const text = asked === 'program' ? { program: program.text } : {};
  const answer = await planner.ask(
    { kind: 'plan', question, ...(file === undefined ? {} : { file }), ...text },
    hears,
  );
  if (mine !== latest) return '';
  document.documentElement.dataset.planSeconds = String(answer.planSeconds);
  progress.first(answer.first);
  progress.numbers(answer.proof);
  arrived(asked, answer.html, answer.nodes);
  return '';
}

function arrived(asked: View, page: string, nodes: readonly string[]): void {
  html = page;
  byId('q-answer', HTMLElement).classList.remove('stale');
  names = new Set(nodes);
  whatIf.nodes = nodes;
  shownFor = asked;
  byId('q-answer', HTMLElement).hidden = view !== shownFor;
  byId('q-downloads', HTMLElement).hidden = false;
  // A comparison has no plan of its own; a configuration and stages of a graph have no report.
  byId('q-plan-files', HTMLElement).hidden = nodes.length === 0;
  button('q-report').hidden = page === '';
  button('q-edited').hidden = asked !== 'tune' || edited === '';
  if (page === '') byId('q-document', HTMLElement).replaceChildren();
  else showReport(page);
}

async function takeFile(given: File): Promise<void> {
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
      follow();
      if (ASKING.includes(view) && view !== shownFor) ask();
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
    if (given !== undefined) void takeFile(given);
  });
  input('q-local').addEventListener('change', () => {
    if (file !== undefined) ask();
  });
  input('q-file').addEventListener('change', () => {
    const given = input('q-file').files?.[0];
    if (given !== undefined) void takeFile(given);
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
  button('t-example').addEventListener('click', () => {
    form.question = { ...form.question, config: CONFIG, devices: '16' };
    ask();
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
  button('q-edited').addEventListener('click', () => download('config', edited, 'text/plain'));
  button('q-card').addEventListener('click', () => void copyCard());
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
    if (location.hash === `#${address()}`) return;
    take(location.hash);
    ask();
  });
}

/** Shows what an address asks. */
function take(hash: string): void {
  const asked = readAddress(hash);
  form.question = asked.question;
  isCard = asked.isCard;
  document.body.classList.toggle('card', isCard);
  const whole = link('q-whole');
  whole.href = `#${addressOf({ ...asked, isCard: false })}`;
  whole.textContent = `${questionText(asked)}: open in Shardwright`;
  if (asked.program !== '') program.hold(asked.program);
  show(asked.view);
  for (const what of asked.broken) {
    progress.begin();
    progress.fault({
      code: 'E_INPUT',
      message: `the address holds a ${what} that cannot be read`,
      hint: 'copy the whole link.',
    });
  }
}

async function copyCommand(): Promise<void> {
  const command = commandOf(view, form.question, { file: file?.name, model: modelTaken });
  await copy(command, `Copied: ${command}`);
}

async function copyCard(): Promise<void> {
  const hash = addressOf({ view, question: form.question, program: program.own, isCard: true });
  await copy(cardOf(new URL(`#${hash}`, location.href).href), 'Copied: put it into your page.');
}

/** Copies a text; a page that may not write to the clipboard shows what is to be copied. */
async function copy(text: string, said: string): Promise<void> {
  const words = byId('q-copied', HTMLElement);
  try {
    await navigator.clipboard.writeText(text);
    words.textContent = said;
  } catch {
    words.textContent = text;
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
  take(location.hash);
  const lists = await drawer.ask({ kind: 'lists' });
  models = lists.models;
  fill(byId('q-models', HTMLDataListElement), ['demo', ...models]);
  fill(byId('q-cluster-names', HTMLDataListElement), Object.keys(lists.clusters));
  form.offer(lists, readAddress(location.hash).question);
  fill(select('q-target'), lists.targets);
  byId('q-version', HTMLElement).textContent = `Shardwright ${lists.version}`;
  ready = true;
  if (ASKING.includes(view)) ask();
}

void start();

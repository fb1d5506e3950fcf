/**
 * The gallery: runs as they were published, and beside each what is predicted of it, computed when
 * the gallery is opened, one run after another.
 */
import { percentText, secondsText } from '../../src/units.ts';
import type { FamousRun } from '../protocol.ts';
import { byId } from './elements.ts';
import { Failed, Planner } from './planner.ts';

export class GalleryView {
  private isOpen = false;

  async open(): Promise<void> {
    if (this.isOpen) return;
    this.isOpen = true;
    // Of its own: a plan waits for no gallery.
    const planner = new Planner();
    const runs = await planner.ask({ kind: 'famous' });
    const rows = runs.map((run) => [run, rowOf(run)] as const);
    byId('g-runs', HTMLElement).replaceChildren(...rows.map(([, row]) => row));
    const words = byId('g-step', HTMLElement);
    const errors: number[] = [];
    for (const [k, [run, row]] of rows.entries()) {
      words.textContent = `Predicting ${k + 1} of ${runs.length}: ${run.name}.`;
      const [predicted, off] = [...row.cells].slice(-2);
      try {
        const { seconds } = await planner.ask({ kind: 'predict', run: run.id });
        const error = seconds / run.seconds - 1;
        errors.push(Math.abs(error));
        predicted.textContent = secondsText(seconds);
        off.textContent = `${error < 0 ? '−' : '+'}${percentText(Math.abs(error))}`;
      } catch (error) {
        if (!(error instanceof Failed)) throw error;
        predicted.textContent = error.fault.message;
      }
    }
    planner.end();
    const sorted = errors.toSorted((a, b) => a - b);
    const [low = 0, high = low] = [
      sorted[Math.floor((sorted.length - 1) / 2)],
      sorted[Math.ceil((sorted.length - 1) / 2)],
    ];
    words.textContent =
      `${errors.length} of ${runs.length} runs predicted; half of them within ` +
      `${percentText((low + high) / 2)} of what was published.`;
  }
}

function rowOf(run: FamousRun): HTMLTableRowElement {
  const row = document.createElement('tr');
  const name = document.createElement('th');
  name.scope = 'row';
  const source = document.createElement('a');
  source.href = sourceAddress(run.source);
  source.rel = 'noreferrer';
  source.textContent = run.name;
  source.title = run.source;
  name.append(source);
  row.append(name);
  const cells = [run.devices, run.layout, run.published, secondsText(run.seconds), '…', ''];
  for (const [k, text] of cells.entries()) {
    const cell = document.createElement('td');
    cell.textContent = text;
    cell.dataset.label = COLUMNS[k];
    if (k >= 3) cell.className = 'number';
    row.append(cell);
  }
  return row;
}

const COLUMNS = ['devices', 'cut', 'published', 'step', 'predicted', 'off by'];

/** `arXiv:2104.04473 table 1` or `owner/repository path`, as an address. */
function sourceAddress(source: string): string {
  const paper = /arXiv:(\d{4}\.\d{4,5})/.exec(source);
  if (paper !== null) return `https://arxiv.org/abs/${paper[1]}`;
  const [repository = ''] = /^[\w.-]+\/[\w.-]+/.exec(source) ?? [];
  return `https://github.com/${repository}`;
}

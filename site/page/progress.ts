/**
 * Shows a search while it runs: the best plan, the bound and the gap, as numbers and as the stairs
 * of the report.
 */
import { incumbentsFigure } from '../../src/report/figures/incumbents.ts';
import { percentText, secondsText } from '../../src/units.ts';
import type { Fault, FirstRow, Moment } from '../protocol.ts';
import { byId } from './elements.ts';

/** Moments that the stairs show. */
const MOST = 300;

export class ProgressView {
  private moments: Moment[] = [];
  private drawn = false;

  begin(): void {
    this.moments = [];
    byId('q-best-name', HTMLElement).textContent = 'Best plan so far';
    byId('q-bound-name', HTMLElement).textContent = 'No plan takes less than';
    byId('q-progress', HTMLElement).hidden = false;
    byId('q-stop', HTMLElement).hidden = false;
    for (const id of ['q-fault', 'q-numbers', 'q-first', 'q-chart'])
      byId(id, HTMLElement).hidden = true;
  }

  /** Shows the first lines of an answer above the form. */
  first(rows: readonly FirstRow[]): void {
    const place = byId('q-first', HTMLElement);
    place.hidden = rows.length === 0;
    place.replaceChildren(
      ...rows.flatMap(({ label, text, tone = '' }) => {
        const [name, said] = [document.createElement('dt'), document.createElement('dd')];
        name.textContent = label;
        said.textContent = text;
        said.className = tone;
        return [name, said];
      }),
    );
  }

  /** Tells whether there is a plan to stop with. */
  get hasPlan(): boolean {
    return this.moments.some(({ seconds }) => seconds !== null);
  }

  step(text: string): void {
    byId('q-step', HTMLElement).textContent = text;
  }

  hear(moment: Moment): void {
    this.moments.push(moment);
    if (this.moments.length > MOST) this.moments = this.moments.filter((_, k) => k % 2 === 1);
    this.numbers(moment);
    if (this.drawn) return;
    this.drawn = true;
    requestAnimationFrame(() => {
      this.drawn = false;
      this.draw();
    });
  }

  /** @param found its gap says 0 where its proof does; undefined: there are no numbers */
  numbers(
    found: (Pick<Moment, 'seconds' | 'bound'> & { readonly gap?: number }) | undefined,
  ): void {
    byId('q-numbers', HTMLElement).hidden = found === undefined;
    if (found === undefined) return;
    const { seconds, bound, gap } = found;
    byId('q-best', HTMLElement).textContent = seconds === null ? '–' : secondsText(seconds);
    byId('q-bound', HTMLElement).textContent = bound === null ? '–' : secondsText(bound);
    const known =
      gap ??
      (seconds === null || bound === null ? undefined : Math.max(0, (seconds - bound) / seconds));
    byId('q-gap', HTMLElement).textContent = known === undefined ? '–' : percentText(known);
  }

  end(text: string): void {
    this.step(text);
    byId('q-bound-name', HTMLElement).textContent = 'No plan has a smaller sum than';
    byId('q-best-name', HTMLElement).textContent = 'Sum of compute and communication';
    byId('q-stop', HTMLElement).hidden = true;
    byId('q-chart', HTMLElement).hidden = true;
  }

  fault({ code, message, hint }: Fault): void {
    this.end('');
    const place = byId('q-fault', HTMLElement);
    place.hidden = false;
    place.textContent = `${message.includes(code) ? '' : `${code} `}${message}${hint === '' ? '' : `\n${hint}`}`;
  }

  private draw(): void {
    const shown = this.moments.filter(({ seconds, bound }) => seconds !== null || bound !== null);
    if (shown.length < 2) return;
    const figure = incumbentsFigure(
      shown,
      shown.map((m) => m.clockSeconds),
    );
    const parsed = new DOMParser().parseFromString(figure.html, 'text/html');
    const drawing = parsed.querySelector('svg');
    // The report has a figure of that name, too.
    drawing?.querySelectorAll('[id]').forEach((element) => (element.id = `q-${element.id}`));
    drawing?.setAttribute('aria-labelledby', 'q-incumbents-title q-incumbents-text');
    const place = byId('q-chart', HTMLElement);
    place.hidden = drawing === null;
    place.replaceChildren(...(drawing === null ? [] : [drawing]));
  }
}

/**
 * Shows a report, which is a page of its own, as sections of this document. The parsed page runs no
 * scripts; the report itself has made names into text.
 */
import run from 'virtual:report-script';

import { byId } from './elements.ts';

export function showReport(html: string): void {
  const page = new DOMParser().parseFromString(html, 'text/html');
  const place = byId('q-document', HTMLElement);
  const heading = document.createElement('h2');
  heading.textContent = page.querySelector('h1')?.textContent ?? '';
  const subtitle = document.createElement('p');
  subtitle.className = 'soft';
  subtitle.textContent = page.querySelector('header .soft')?.textContent ?? '';
  const nav = page.querySelector('nav');
  const data = page.getElementById('shardwright-report');
  const style = document.createElement('style');
  style.textContent = page.querySelector('style')?.textContent ?? '';
  const parts = [heading, subtitle, nav, ...(page.querySelector('main')?.children ?? []), data];
  place.replaceChildren(style, ...parts.filter((part) => part !== null));
  // The address bar holds the question, so links inside the report lead by hand.
  for (const link of place.querySelectorAll<HTMLAnchorElement>('a[href^="#"]'))
    link.addEventListener('click', (event) => {
      event.preventDefault();
      const target = document.getElementById(link.hash.slice(1));
      target?.scrollIntoView({ behavior: 'smooth' });
      target?.setAttribute('tabindex', '-1');
      target?.focus({ preventScroll: true });
    });
  enliven();
}

/** The report's script expects a button for the theme that nobody listens to yet. */
export function enliven(): void {
  const theme = document.querySelector('button.theme');
  theme?.replaceWith(theme.cloneNode(true));
  run();
}

/** The name of the value in a line of the program, or behind a box of the graph. */
export function valueAt(
  target: EventTarget | null,
  names: ReadonlySet<string>,
): string | undefined {
  if (!(target instanceof Element)) return undefined;
  const line =
    target.closest('#program-lines pre > span')?.textContent ??
    target.closest('.node')?.textContent ??
    '';
  return /[\w.]+/g.exec(line) === null
    ? undefined
    : [...line.matchAll(/[A-Za-z_][\w.]*/g)].map(([name]) => name).find((name) => names.has(name));
}

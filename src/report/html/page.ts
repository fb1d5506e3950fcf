/** Writes the report of a plan as one self-contained HTML file. */

import { checkKinds } from '../../arguments.ts';
import type { Graph } from '../../graph/types.ts';
import { ofThemPadding } from '../../models/vocabulary.ts';
import { packageData } from '../../platform/platform.ts';
import { countedText } from '../../units.ts';
import { h, Markup, scriptJson } from '../markup.ts';
import type { Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { parameterElements } from '../model/parameters.ts';
import type { DecisionRow, ReportOrigin } from '../sections/decision-rows.ts';
import { planOptions } from '../sections/options.ts';
import { planSections } from '../sections/plan.ts';
import { figuresOf, planDecision } from '../sections/plan-decision.ts';
import { prose, sectionMarkup } from './blocks.ts';
import type { Drawings } from './drawings.ts';
import { drawnSection, graphSection, programText } from './program-section.ts';
import { pageStyle } from './style.ts';

/** The input of a page in addition to its sections. */
interface PageInput {
  /** Title of the window, and heading of the page. */
  readonly title: string;
  readonly heading: string;
  /** Under the heading. */
  readonly subtitle: string;
  /** The first screen for whoever decides; absent: the answer is all of it. */
  readonly decision?: readonly DecisionRow[];
  readonly answer: readonly { readonly label: string; readonly text: string }[];
  /** Sections that stand between the decision and the answer. */
  readonly options?: readonly Section[];
  readonly sections: readonly Section[];
  /** The same as JSON, for programs that read the page. */
  readonly data: unknown;
  readonly version: string;
  /** More rules for the style sheet, written by this program. */
  readonly style?: string;
}

/**
 * One HTML file: no network, no assets, readable without scripts, in light, dark and on paper. The
 * file also holds the data as JSON, the same value that `--format json` prints; of a long
 * comparison the part that the page shows.
 */
export function htmlFile({
  title,
  heading,
  subtitle,
  decision = [],
  options = [],
  answer,
  sections,
  data,
  version,
  style = '',
}: PageInput): string {
  const head = headOf(title, version, style);
  const body = h(
    'body',
    {},
    h(
      'a',
      { class: 'skip', href: `#${sections[0]?.id ?? ''}` },
      `Skip to ${sections[0]?.title ?? 'the text'}`,
    ),
    h(
      'header',
      {},
      h('div', {}, h('h1', {}, heading), h('div', { class: 'soft' }, subtitle)),
      h('button', { type: 'button', class: 'theme', hidden: true }, 'Dark'),
    ),
    h(
      'nav',
      { 'aria-label': 'Sections' },
      [...options, ...sections].map((s) => h('a', { href: `#${s.id}` }, s.title)),
    ),
    h(
      'main',
      {},
      decision.length === 0 ? [] : [answerMarkup(decision, 'Decision')],
      options.map(sectionMarkup),
      decision.length === 0 ? [] : [h('h2', { id: 'figures' }, 'The answer in figures')],
      answerMarkup(answer, 'Answer'),
      sections.map(sectionMarkup),
    ),
    h(
      'footer',
      {},
      `Written by Shardwright ${version}. One file; nothing is loaded from anywhere.`,
    ),
    Markup.trusted(
      `<script type="application/json" id="shardwright-report">${scriptJson(data)}</script>`,
    ),
    Markup.trusted(`<script>${packageData('report/page.js').trim()}</script>`),
  );
  return `<!doctype html>\n<html lang="en">${head.html}${body.html}</html>\n`;
}

function headOf(title: string, version: string, style: string): Markup {
  return h(
    'head',
    {},
    h('meta', { charset: 'utf-8' }),
    h('meta', { 'http-equiv': 'Content-Security-Policy', content: CSP }),
    h('meta', { name: 'viewport', content: 'width=device-width, initial-scale=1' }),
    h('meta', { name: 'generator', content: `Shardwright ${version}` }),
    h('title', {}, title),
    Markup.trusted(`<style>${pageStyle()}${style}</style>`),
  );
}

/** Labels with their texts; what warns is red, and says so in words. */
function answerMarkup(rows: readonly DecisionRow[], name: string): Markup {
  return h(
    'section',
    { 'aria-label': name },
    h(
      'dl',
      { class: 'answer' },
      rows.map(({ label, text, tone }) => [
        h('dt', {}, label),
        h('dd', tone === undefined ? {} : { class: tone }, prose(text)),
      ]),
    ),
  );
}

const CSP =
  "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; " +
  "base-uri 'none'; form-action 'none'";

function subtitleOf({ plan, mesh }: Report): string {
  const elements = parameterElements(plan);
  return (
    `A plan of ${countedText(plan.nodes.length, 'node')} with ` +
    `${countedText(elements, 'parameter')}${ofThemPadding(plan.paddedParameters)} on a mesh of ` +
    `${mesh.map((d) => `${d.name}=${d.size}`).join(', ')}`
  );
}

/**
 * The report of a plan as a page: what every format has, and the graph, the drawings and the
 * program.
 *
 * @param origin who asked, and when, as they say it
 */
export function htmlPage(
  report: Report,
  graph: Graph | undefined,
  drawings: Drawings,
  origin: ReportOrigin = {},
): string {
  checkKinds('htmlPage', {
    report: [report, 'report'],
    graph: [graph, 'graph', 'undefined'],
    drawings: [drawings, ['figures', 'style', 'left']],
    origin: [origin, 'record', 'undefined'],
  });
  const sections = planSections(report);
  // The program comes before the stages and the proof, because it is read more often.
  const at = sections.findIndex((s) => s.id === 'pipeline' || s.id === 'proof');
  return htmlFile({
    title: `Plan of ${report.model}`,
    heading: report.model,
    subtitle: subtitleOf(report),
    decision: planDecision(report, origin),
    options: planOptions(report, origin),
    answer: figuresOf(report),
    sections: [
      ...sections.slice(0, at),
      graphSection(report),
      drawnSection(drawings),
      programText(report, graph),
      ...sections.slice(at),
    ],
    data: report,
    version: report.versions.shardwright,
    style: drawings.style,
  });
}

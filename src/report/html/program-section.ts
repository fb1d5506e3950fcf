/** Makes the sections of the page that show the folded graph, the drawings and the program text. */

import type { Graph } from '../../graph/types.ts';
import { countText } from '../../units.ts';
import { graphFigure } from '../figures/graph.ts';
import { h } from '../markup.ts';
import type { Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import type { Drawings } from './drawings.ts';
import { programSection } from './program.ts';

/**
 * The folded graph, with a place where the page shows the strategies of the node that is chosen.
 */
export function graphSection(report: Report): Section {
  const { graph } = report;
  if (graph === null || graph.nodes.length === 0)
    return {
      id: 'graph',
      title: 'Graph',
      blocks: [{ kind: 'text', text: 'There is no graph to draw.' }],
    };
  return {
    id: 'graph',
    title: 'Graph',
    sheet: true,
    blocks: [
      {
        kind: 'text',
        text:
          `Left to right, equal layers drawn once. ${countText(graph.nodes.length)} boxes ` +
          `stand for ${countText(report.plan.nodes.length - graph.leftOut)} of ` +
          `${countText(report.plan.nodes.length)} lines; the others are views, constants and ` +
          'what hardly takes time. Forward and backward pass are drawn apart: what one saves ' +
          'for the other is not drawn. Below a name its placement; on an edge the change of ' +
          'placement that is paid there. Choose a box, by mouse or by keyboard (arrow keys, ' +
          'Enter), for its strategies.',
      },
      {
        kind: 'page',
        markup: [
          h(
            'div',
            {
              class: 'scroll graph',
              tabindex: 0,
              role: 'region',
              'aria-label': 'The folded program',
            },
            graphFigure(graph),
          ),
          h(
            'p',
            { class: 'soft onpaper' },
            'The drawing is on the page only: it is wider than paper.',
          ),
          h(
            'div',
            { id: 'strategies', 'aria-live': 'polite' },
            h('p', { class: 'soft' }, 'No node is chosen.'),
          ),
        ],
      },
    ],
  };
}

export function drawnSection(drawings: Drawings): Section {
  const none = drawings.figures.length + drawings.left.length === 0;
  return {
    id: 'drawings',
    title: 'Who holds what',
    sheet: true,
    blocks: [
      ...(drawings.figures.length > 0
        ? [{ kind: 'page', markup: [h('div', { class: 'drawings' }, drawings.figures)] } as const]
        : []),
      ...drawings.left.map((text) => ({ kind: 'text', text, soft: true }) as const),
      ...(none ? [{ kind: 'text', text: 'The plan has no parameter to draw.' } as const] : []),
    ],
  };
}

export function programText(report: Report, graph: Graph | undefined): Section {
  const head = { id: 'program', title: 'The program', sheet: true };
  if (graph === undefined)
    return {
      ...head,
      blocks: [
        {
          kind: 'text',
          text: 'The graph is not next to the plan, so its program cannot be shown.',
        },
      ],
    };
  return {
    ...head,
    blocks: [
      {
        kind: 'page',
        markup: [
          h(
            'p',
            {},
            'Every line with the placements of its inputs and results; above a line, the ' +
              'redistributions that its inputs need. ',
            `${countText(report.plan.nodes.length)} lines in all, equal neighbouring ` +
              'stretches folded. ',
            h('button', { type: 'button', class: 'all', hidden: true }, 'Open all'),
          ),
          h('div', { id: 'program-lines' }, programSection(graph, report.plan)),
        ],
      },
    ],
  };
}

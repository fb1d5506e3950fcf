/** Makes the section that says how to use a plan. */

import { type Block, bytes, code, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { dtensorText } from '../text/dtensor-text.ts';

export function whatToDo(report: Report): Section {
  const mesh = report.mesh.map((d) => d.name).join(', ');
  const blocks: Block[] = [
    ...report.warnings.map((text): Block => ({ kind: 'text', text: `Warning: ${text}` })),
    {
      kind: 'table',
      caption:
        'Every parameter, equal layers folded. Placement: one kind for each mesh dim ' +
        `(${mesh}); S(d) cuts dim d, R repeats.`,
      columns: [
        { head: 'Parameter', kind: 'name' },
        { head: `Placement (${mesh})`, kind: 'keep' },
        { head: 'Shape', kind: 'keep' },
        { head: 'Each, per device', kind: 'number' },
      ],
      rows: report.parameters.map((p) => [
        code(p.count > 1 ? `${p.name} ×${p.count}` : p.name),
        code(p.placement),
        code(`[${p.shape.join(', ')}]`),
        bytes(p.localBytes),
      ]),
      open: 24,
    },
  ];
  if (report.parameters.length > 0)
    blocks.push(
      {
        kind: 'text',
        text:
          'Its parameters for PyTorch DTensor, to copy. Parameters only: DTensor replicates ' +
          'the inputs and places all other values by its own rules. So compute, collectives ' +
          'and memory of a device differ from this plan.',
      },
      { kind: 'code', text: dtensorText(report.plan) },
    );
  return { id: 'what', title: 'What to do', blocks };
}

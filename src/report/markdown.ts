import { slowerText, visibleTerms, type Report } from './data.ts';
import { bytesText, countText, percentText, secondsText } from './units.ts';

/** The report as Markdown, with the same numbers as the page. Texts of files cannot make markup. */
export function markdownReport(report: Report): string {
  const { plan } = report;
  const out: string[] = [`# Plan of ${escapeMarkdown(report.model)}`, ''];
  for (const { label, text } of report.answer) out.push(`- **${label}**: ${escapeMarkdown(text)}`);
  const add = (title: string, head: readonly string[], rows: readonly (readonly string[])[]): void => {
    if (rows.length > 0) out.push('', `## ${title}`, '', row(head), row(head.map(() => '---')), ...rows.map((r) => row(r.map(escapeMarkdown)))); // prettier-ignore
  };
  const mesh = report.mesh.map((d) => d.name).join(', ');
  add(
    'What to do',
    ['Parameter', 'Shape', `Placement (${escapeMarkdown(mesh)})`, 'Each, per device'],
    report.parameters.map((p) => [p.count > 1 ? `${p.name} x${p.count}` : p.name, `[${p.shape.join(', ')}]`, p.placement, p.localBytes === null ? '-' : bytesText(p.localBytes)]), // prettier-ignore
  );
  const { seconds } = plan.objective;
  add(
    'Time',
    ['Term', 'Time', 'Of the step'],
    visibleTerms(report).map((t) => [
      t.term,
      signed(t.seconds),
      seconds > 0 ? percentText(t.seconds / seconds) : '0 %',
    ]),
  );
  add(
    'Collectives',
    ['Collective', 'Mesh dims', 'Devices', 'Hosts', 'Count', 'Bytes', 'Time'],
    report.collectives.map((c) => [c.kind, c.axes, countText(c.groupSize), countText(c.hosts), countText(c.count), bytesText(c.bytes), secondsText(c.seconds)]), // prettier-ignore
  );
  add(
    'Operators',
    ['Operator', 'Nodes', 'Compute', 'Communication'],
    report.operators.map((o) => [o.target, countText(o.count), secondsText(o.computeSeconds), secondsText(o.communicationSeconds)]), // prettier-ignore
  );
  add(
    'Against the plain recipes',
    ['Recipe', 'Step time', 'Slower by', 'Memory', 'Note'],
    (report.zoo ?? []).map(
      (r) =>
      r.seconds === null || r.peakBytes === null
        ? [r.name, '-', '-', '-', `does not fit: ${r.reason}`]
        : [r.name, secondsText(r.seconds), slowerText(r.seconds, seconds), bytesText(r.peakBytes), ''], // prettier-ignore
    ),
  );
  add('Proof', ['What', 'Value'], [
    ['Status', plan.proof.status],
    ['Proven lower bound', secondsText(plan.proof.bound)],
    ['Gap', percentText(plan.proof.gap)],
    ['Solved by', plan.proof.solver],
    ['Re-costed from the plan alone', secondsText(plan.proof.recheckedSeconds)],
    ...plan.proof.evidence.map((line) => ['Evidence', line]),
  ]); // prettier-ignore
  out.push(
    '',
    '## Assumptions',
    '',
    ...[...report.assumptions, ...report.missing].map((a) => `- ${escapeMarkdown(a)}`),
  );
  add(
    'Constants',
    ['Constant', 'Value', 'Unit', 'Source'],
    report.constants.map((c) => [c.name, c.value, c.unit, c.source]),
  );
  // Four spaces make a code block that no text can close.
  out.push('', '## Make it again', '', `    ${report.command.replace(/[\r\n]+/g, ' ')}`, '');
  return out.join('\n');
}

function signed(seconds: number): string {
  return seconds < 0 ? `-${secondsText(-seconds)}` : secondsText(seconds);
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

/** Text of a file as Markdown text: no links, no HTML, no table borders, no line breaks. */
export function escapeMarkdown(text: string): string {
  return text
    .replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]+/g, ' ')
    .replace(/&/g, '&amp;')
    .replace(/</g, '&lt;')
    .replace(/[\\`*_{}[\]|#~!]/g, (c) => `\\${c}`);
}

import { diffPlans } from '../plan/diff.ts';
import { diffText } from '../report/diff.ts';
import { EXIT, type CliIo } from './io.ts';
import { loadPlan } from './plan-folder.ts';

export interface DiffOptions {
  readonly json?: boolean;
}

export function diffCommand(left: string, right: string, options: DiffOptions, io: CliIo): number {
  const [a, b] = [loadPlan(left), loadPlan(right)];
  const parameters = new Set<string>();
  for (const { graph } of [a, b])
    for (const node of graph?.nodes ?? [])
      if (node.kind === 'placeholder' && node.meta.role === 'parameter') parameters.add(node.name);
  const diff = diffPlans(a.plan, b.plan, parameters);
  io.stdout(options.json === true ? `${JSON.stringify(diff)}\n` : `${diffText(diff, a.plan, b.plan)}\n`);
  return EXIT.ok;
}

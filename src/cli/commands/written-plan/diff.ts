/** `diff`: takes two written plans and prints their differences. */

import { ShardwrightError } from '../../../errors.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { diffPlans } from '../../../plan/record/diff.ts';
import type { Plan } from '../../../plan/record/types.ts';
import { diffText } from '../../../report/text/diff.ts';
import { checked, loadPlan } from '../../input/plan-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { DiffOptions } from './flags.ts';

export function diffCommand(left: string, right: string, options: DiffOptions, io: CliIo): number {
  const [a, b] = [loadPlan(left), loadPlan(right)];
  const table = builtinOperators();
  checked(a, left, table, io);
  checked(b, right, table, io);
  refuseStrangers(a.plan, b.plan);
  const parameters = new Set<string>();
  for (const { graph } of [a, b])
    for (const node of graph?.nodes ?? [])
      if (node.kind === 'placeholder' && node.meta.role === 'parameter') parameters.add(node.name);
  const diff = diffPlans(a.plan, b.plan, parameters);
  answer(io, options, diff, () => diffText(diff, a.plan, b.plan));
  return EXIT.ok;
}

/**
 * Refuses plans of two models that share nothing to compare. @throws E_PLAN where no parameter and
 * no node is in both
 */
function refuseStrangers(a: Plan, b: Plan): void {
  const names = (plan: Plan): string[] =>
    (plan.parameters.length > 0 ? plan.parameters : plan.nodes).map(({ name }) => name);
  const known = new Set(names(a));
  const shared = names(b).some((name) => known.has(name));
  if (shared || (known.size === 0 && names(b).length === 0)) return;
  throw new ShardwrightError(
    'E_PLAN',
    `the plans have nothing in common: ${a.model} and ${b.model} share no parameter`,
    { hint: 'give two plans of one model.' },
  );
}

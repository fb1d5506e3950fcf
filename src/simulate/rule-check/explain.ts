/** Sorts findings of the rule check into those that a known reason explains and open ones. */

import type { Explanation } from '../../ops/rules/explained.ts';
import type { Finding } from './check.ts';

export interface ExplainedFinding extends Finding {
  readonly reason: string;
}

interface Explained {
  /** Findings that no entry explains. */
  readonly open: readonly Finding[];
  readonly explained: readonly ExplainedFinding[];
  /** Entries that explain something. */
  readonly used: ReadonlySet<Explanation>;
}

/** Sorts findings into explained and open ones. */
export function explain(
  findings: readonly Finding[],
  kind: Explanation['finding'],
  explanations: readonly Explanation[],
): Explained {
  const entries = explanations
    .filter((e) => e.finding === kind)
    .map((entry) => ({ entry, operators: whole(entry.operators), rule: whole(entry.rule) }));
  const open: Finding[] = [];
  const explained: ExplainedFinding[] = [];
  const used = new Set<Explanation>();
  for (const finding of findings) {
    const found = entries.find(
      (e) =>
        e.operators.test(finding.operator) &&
        e.rule.test(finding.rule) &&
        (e.entry.call === undefined || e.entry.call.test(finding.call)),
    );
    if (found === undefined) open.push(finding);
    else {
      used.add(found.entry);
      explained.push({ ...finding, reason: found.entry.reason });
    }
  }
  return { open, explained, used };
}

function whole(pattern: RegExp): RegExp {
  return new RegExp(`^(?:${pattern.source})$`);
}

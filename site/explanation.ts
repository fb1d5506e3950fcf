/**
 * What is said about a value: its strategies as text, and the placements that it can have. In: an
 * explanation. Out: both.
 */
import type { NodeExplanation } from '../src/plan/questions/explain.ts';
import { explanationText } from '../src/report/text/explain.ts';
import type { Answers } from './protocol.ts';

/** Lines of a table in an answer. */
export const LINES = 12;

export function explanationAnswer(found: NodeExplanation): Answers['explain'] {
  const possible = found.strategies.filter((strategy) => strategy.class !== 'UNAVAILABLE');
  return {
    text: explanationText(found, LINES),
    placements: [...new Set(possible.map(({ spec }) => resultOf(spec)))],
  };
}

/** `S(0)R` of the strategy `S(0)R, RR -> S(0)R`. */
function resultOf(spec: string): string {
  return spec.slice(spec.lastIndexOf('->') + 1 || 0).replace(/^[> ]+/, '');
}

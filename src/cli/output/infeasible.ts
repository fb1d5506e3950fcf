/** Prints why there is no plan. */

import type { Infeasible } from '../../plan/choice/result.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import { infeasibleText } from '../../report/text/infeasible.ts';
import { type CliIo, EXIT } from './io.ts';

export function reportInfeasible(
  result: Infeasible,
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  io: CliIo,
  json: boolean,
): number {
  const { message, hint } = infeasibleText(result, request);
  const error = { code: 'E_INFEASIBLE', message, hint };
  if (json) io.stdout(`${JSON.stringify({ error, ...result, model: model.graph.name })}\n`);
  else io.stderr(`E_INFEASIBLE ${message}\n  hint: ${hint}\n`);
  return EXIT.infeasible;
}

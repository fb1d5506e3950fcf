/** The request of a plan. In: a question of the form. Out: what the planner is asked. */
import {
  DEFAULT_REQUEST,
  defined,
  OPTIMIZERS,
  parseBytes,
  parsePin,
  type PlanRequest,
  ShardwrightError,
} from '../../src/entries/page.ts';
import type { Question } from '../protocol.ts';

export function requestOf(question: Question): PlanRequest {
  const { mesh, cluster, memory, pins } = question;
  return {
    ...DEFAULT_REQUEST,
    mesh,
    cluster,
    pins: pins.map(parsePin),
    ...defined({ optimizer: optimizerOf(question) }),
    ...(memory.trim() === '' ? {} : { memoryBytes: parseBytes(memory, 'budget') }),
  };
}

/** The optimizer that is chosen; undefined for the default one. @throws E_USAGE */
export function optimizerOf({ optimizer }: Question): (typeof OPTIMIZERS)[number] | undefined {
  if (optimizer === '') return undefined;
  const known = OPTIMIZERS.find((name) => name === optimizer);
  if (known !== undefined) return known;
  throw new ShardwrightError('E_USAGE', `'${optimizer}' is not an optimizer`, {
    hint: `choose one of ${OPTIMIZERS.join(', ')}.`,
  });
}

/**
 * What-if questions. In: a request and a recipe that changes it. Out: the changed request and the
 * patch between the two.
 */
import { enablePatches, type Patch, produceWithPatches } from 'immer';

import { internalError } from '../../errors.ts';
import { prepare, type Prepared } from '../prepare.ts';
import type { PlanRequest, PricedRequest } from '../request/request.ts';
import { restrictionOf } from '../restrict/pins.ts';

/**
 * What-if questions: a request is changed by a recipe, and the patch between the two says what
 * changed.
 */

enablePatches();

/** A request that is being changed; the mutable form of `PlanRequest`. */
type RequestDraft = { -readonly [K in keyof PlanRequest]: PlanRequest[K] } & {
  pins: { node: string; spec: string }[];
};

interface ChangedRequest<R extends PlanRequest = PlanRequest> {
  readonly request: R;
  /** One line for each thing that changed, such as `pins: + lm_head.weight=S(0)R`. */
  readonly changes: readonly string[];
  /** Applied to the new request, these give the old one back. */
  readonly undo: readonly Patch[];
}

/** Changes a request, which itself stays as it is, and says what changed. */
export function changeRequest<R extends PlanRequest>(
  request: R,
  recipe: (draft: RequestDraft) => void,
): ChangedRequest<R> {
  const [next, , undo] = produceWithPatches(request, (draft) => recipe(draft as RequestDraft));
  const changes: string[] = [];
  for (const key of [...new Set([...Object.keys(request), ...Object.keys(next)])].sort()) {
    const before = valueOf(request, key);
    const after = valueOf(next, key);
    if (before === after) continue;
    if (key === 'pins') {
      const had = new Set(request.pins.map(pinText));
      const has = new Set(next.pins.map(pinText));
      for (const pin of had) if (!has.has(pin)) changes.push(`pins: - ${pin}`);
      for (const pin of has) if (!had.has(pin)) changes.push(`pins: + ${pin}`);
    } else
      changes.push(
        `${key}: ${JSON.stringify(before) ?? 'absent'} -> ${JSON.stringify(after) ?? 'absent'}`,
      );
  }
  return { request: next, changes, undo };
}

function valueOf(request: PlanRequest, key: string): unknown {
  return Object.entries(request).find(([name]) => name === key)?.[1];
}

function pinText({ node, spec }: { readonly node: string; readonly spec: string }): string {
  return `${node}=${spec}`;
}

/**
 * A prepared request with other pins: model and tables are those that are there, unless prices were
 * left out of them, and only the problem that the pins leave is made anew.
 *
 * @param request differs from the prepared one in its pins, or in whether those of the program
 *   hold, alone
 * @throws E_REF, E_PIN for pins that the graph does not admit
 */
export function withPins(prepared: Prepared, request: PricedRequest): Prepared {
  const rest = ({ pins: _, shardings: __, ...others }: PlanRequest): string =>
    JSON.stringify(Object.entries(others).sort());
  if (rest(request) !== rest(prepared.request))
    throw internalError('a request that differs in more than its pins');
  // Prices were left out because a plan with the pins as they were is known; with other pins they
  // may be what is left.
  if (prepared.model.ceilingSeconds !== undefined)
    return prepare(prepared.program, request, prepared.table);
  const { restriction, unpinned } = restrictionOf(prepared.model, request, prepared.given);
  return {
    ...prepared,
    request,
    unpinned,
    problem: restriction.problem(),
    compact: restriction.compact(),
    contradictions: restriction.contradictions(),
  };
}

/**
 * What-if questions: a request is changed by a recipe, and the patch between the two says what
 * changed.
 */
import { enablePatches, type Patch, produceWithPatches } from 'immer';

import type { PlanRequest } from '../request/request.ts';

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

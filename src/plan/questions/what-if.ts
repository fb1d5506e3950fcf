/**
 * What-if questions: a request is changed by a recipe, and the patch between the two says what
 * changed.
 */
import { enablePatches, type Patch, produceWithPatches } from 'immer';

import type { Pin, PlanRequest } from '../request/request.ts';

enablePatches();

/** A request that is being changed; the mutable form of `PlanRequest`. */
type RequestDraft = { -readonly [K in keyof PlanRequest]: PlanRequest[K] } & {
  pins: { node: string; spec: string }[];
};

interface ChangedRequest<R extends PlanRequest = PlanRequest> {
  readonly request: R;
  /** One line for each thing that changed, such as `pins: + lm_head.weight=S(0)R`. */
  readonly changes: readonly string[];
  /** The first make the new request of the old one; the second give the old one back. */
  readonly patches: readonly Patch[];
  readonly undo: readonly Patch[];
}

/** Changes a request, which itself stays as it is, and says what changed. */
export function changeRequest<R extends PlanRequest>(
  request: R,
  recipe: (draft: RequestDraft) => void,
): ChangedRequest<R> {
  const [next, patches, undo] = produceWithPatches(request, (draft) =>
    recipe(draft as RequestDraft),
  );
  return { request: next, changes: changesOf(request, next, patches), patches, undo };
}

/** The changes that patches make, a line each, in the order of the names of fields. */
export function changesOf(
  before: PlanRequest,
  after: PlanRequest,
  patches: readonly Patch[],
): string[] {
  const fields = [...new Set(patches.map(({ path: [field] }) => String(field)))].sort();
  return fields.flatMap((field) => {
    if (field === 'pins') return pinChanges(before, after);
    const [had, has] = [before, after].map((request) => JSON.stringify(valueOf(request, field)));
    return had === has ? [] : [`${field}: ${had ?? 'absent'} -> ${has ?? 'absent'}`];
  });
}

function pinChanges(before: PlanRequest, after: PlanRequest): string[] {
  const [had, has] = [before, after].map(({ pins }) => new Set(pins.map(pinText)));
  return [
    ...[...had].filter((pin) => !has.has(pin)).map((pin) => `pins: - ${pin}`),
    ...[...has].filter((pin) => !had.has(pin)).map((pin) => `pins: + ${pin}`),
  ];
}

function valueOf(request: PlanRequest, key: string): unknown {
  return Object.entries(request).find(([name]) => name === key)?.[1];
}

export function pinText({ node, spec }: Pin): string {
  return `${node}=${spec}`;
}

/** Remembers for the report where control flow was met. */

import { sourcePosition } from '../errors/position.ts';
import type { Recorder } from '../record/recorder.ts';

/** @param position where, as the report says it; by default where the program is now */
export function note(
  recorder: Recorder,
  kind: string,
  policy: 'operators' | 'guards' | 'opaque',
  reason: string,
  position: string | undefined = sourcePosition(),
): void {
  recorder.trace.sites.push({ kind, position: position ?? 'an unknown place', policy, reason });
}

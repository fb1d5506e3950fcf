/**
 * What the thread of a bound by parts does: `boundByParts` on its job. Posts `{ answer }`, the tree
 * of parts, at the end.
 */
import type { ThreadPort } from '../../platform/types.ts';
import { boundByParts, type PartsJob } from './parts.ts';

export function partsThread(port: ThreadPort, job: PartsJob): void {
  port.postMessage({ answer: boundByParts(job) });
}

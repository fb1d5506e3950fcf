/**
 * Runs `boundByParts` on a job in a thread, and posts `{ answer }`, the tree of parts, at the end.
 */
import type { ThreadPort } from '../../platform/types.ts';
import { boundByParts, type PartsJob } from './parts.ts';

export function partsThread(port: ThreadPort, job: PartsJob): void {
  port.postMessage({ answer: boundByParts(job) });
}

/**
 * Reads the comments between the statements of FX text: the place in the model's source, and the
 * policy of checkpointing.
 */

import type { Retention } from '../../../graph/types.ts';

/**
 * The instructions to PyTorch's partitioner about a node
 * (`torch.utils.checkpoint.CheckpointPolicy`).
 */
const RETENTIONS: ReadonlyMap<string, Retention> = new Map([
  ['MUST_SAVE', 'save'],
  ['PREFER_SAVE', 'save'],
  ['MUST_RECOMPUTE', 'recompute'],
  ['PREFER_RECOMPUTE', 'recompute'],
]);

/**
 * The contents of a comment; `source` is null where it does not mention the place, undefined where
 * it says that there is none.
 */
interface SourceComment {
  readonly save: Retention | undefined;
  readonly source: string | undefined | null;
}

/** Reads `# File: path:line in func, code: ...` and the annotations of activation checkpointing. */
export function readSourceComment(comment: string): SourceComment {
  const [, wish] =
    /^#(?: Annotation: [^\n]{0,512}?)? (?:ac_graph_id: \d{1,9} - |recompute: )(\w{1,32})/.exec(
      comment,
    ) ?? [];
  const save = wish === undefined ? undefined : RETENTIONS.get(wish);
  const at = comment.startsWith('# File: ')
    ? 8
    : /^# (?:Annotation|recompute|ac_graph_id)/.test(comment)
      ? comment.indexOf(' File: ') + 7
      : -1;
  if (at > 6) return { save, source: /^(.{0,4096}?:\d+) in /.exec(comment.slice(at))?.[1] };
  return { save, source: comment.includes('No stacktrace found') ? undefined : null };
}

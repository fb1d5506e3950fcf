/**
 * The fixed part of `program.py`, read from `data/export/torch-helpers.py`: the imports, the device
 * that the program runs on, and the helpers that it calls.
 */
import { internalError } from '../../../errors.ts';
import { packageData } from '../../../platform/platform.ts';

/** Functions of the file, in its order. */
export const HELPERS = [
  'wait',
  'begun',
  'pairs',
  'all_reduce',
  'all_gather',
  'reduce_scatter',
  'all_to_all',
  'all_reduce_coalesced',
  'all_gather_coalesced',
  'reduce_scatter_coalesced',
  'permute',
  'exchanged',
  'widened',
  'reordered',
  'laid',
  'part',
  'scan',
  'while_loop',
  'case',
  'native_dropout',
  'drawn',
  'flex_body',
  'flex_blocks',
  'flex_call',
  'flex_attention',
  'flex_attention_backward',
  'packed_scores',
  'packed_shares',
  'varlen_attention',
  'varlen_attention_backward',
] as const;

/** Name of a helper of `program.py`. */
export type Helper = (typeof HELPERS)[number];

/** Helpers that a helper calls itself. */
export const HELPER_USES: Readonly<Partial<Record<Helper, readonly Helper[]>>> = {
  begun: ['wait'],
  all_reduce: ['begun'],
  all_gather: ['begun'],
  reduce_scatter: ['begun'],
  all_to_all: ['begun', 'pairs'],
  all_reduce_coalesced: ['begun'],
  all_gather_coalesced: ['begun', 'pairs'],
  reduce_scatter_coalesced: ['begun'],
  permute: ['wait', 'pairs'],
  widened: ['wait'],
  flex_call: ['flex_body', 'flex_blocks'],
  flex_attention: ['flex_call'],
  flex_attention_backward: ['flex_call'],
  varlen_attention: ['packed_scores', 'packed_shares'],
  varlen_attention_backward: ['packed_scores', 'packed_shares'],
};

interface FixedText {
  readonly imports: string;
  /** The class `Here`, which needs MESH_NAMES, MESH_SIZES and GROUPS. */
  readonly here: string;
  readonly helper: (name: Helper) => string;
}

/** Cuts the file at the two empty lines between its definitions. */
export function fixedText(): FixedText {
  const [head, ...definitions] = packageData('export/torch-helpers.py').trimEnd().split('\n\n\n');
  const byName = new Map(
    definitions.map((text) => [/^(?:class|def) (\w+)/.exec(text)?.[1], `${text}\n`]),
  );
  const definition = (name: string): string => {
    const text = byName.get(name);
    if (text === undefined) throw internalError(`data/export/torch-helpers.py has no ${name}`);
    return text;
  };
  const imports = head.slice(head.indexOf('import torch\n'), head.indexOf('\n# An exported'));
  return { imports, here: definition('Here'), helper: definition };
}

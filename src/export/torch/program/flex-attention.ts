/**
 * Writes calls of flex attention, and of attention of packed sequences, as calls of the helpers of
 * `program.py`: the first hand PyTorch the bodies of this device, the others know what a CPU has no
 * kernel for.
 */
import type { Arg, Node } from '../../../graph/types.ts';
import { getOwn, isGraphRef } from '../../../graph/value.ts';
import type { Helper } from './helpers.ts';

/** Keywords that only prices need. */
const OF_PRICES: ReadonlySet<string> = new Set(['kept']);

type FlexTarget = Extract<Helper, 'flex_attention' | 'flex_attention_backward'>;

export function isFlexAttention(node: Node): node is Node & { readonly target: FlexTarget } {
  return node.target === 'flex_attention' || node.target === 'flex_attention_backward';
}

/** The names that the writer of a function gives. */
interface Writer {
  /** The text of an argument. */
  readonly argument: (arg: Arg) => string;
  /** The name of the function that a body is. */
  readonly body: (name: string) => string;
}

export function flexText({ target, args, kwargs }: Node, { argument, body }: Writer): string {
  const parts = ['here', ...args.map(argument)];
  for (const [key, arg] of Object.entries(kwargs)) {
    if (OF_PRICES.has(key)) continue;
    const text = arg !== null && isGraphRef(arg) ? body(arg.name) : argument(arg);
    parts.push(`${key}=${text}`);
  }
  return `${target}(${parts.join(', ')})`;
}

/** Helpers that calls of attention of packed sequences become, by their operators. */
const PACKED: Readonly<Record<string, Helper>> = {
  'torch_attn._varlen_attn.default': 'varlen_attention',
  'torch_attn._varlen_attn_backward.default': 'varlen_attention_backward',
};

/** The helper that a call of attention of packed sequences becomes; undefined for other calls. */
export function packedHelper({ target }: Node): Helper | undefined {
  return getOwn(PACKED, target);
}

/**
 * `aten.mm.default` of `torch.ops.aten.mm.default`, `cond` of `torch.ops.higher_order.cond`,
 * `operator.add` of `_operator.add`.
 */
export function targetName(written: string): string {
  if (written.startsWith('torch.ops.higher_order.')) return written.slice(23);
  if (written.startsWith('torch.ops.')) return written.slice(10);
  return written.startsWith('_operator.') ? written.slice(1) : written;
}

/** Targets whose arguments hold a dictionary of options, which is read as a list of pairs. */
export const WITH_OPTIONS: ReadonlySet<string> = new Set([
  'flex_attention',
  'flex_attention_backward',
]);

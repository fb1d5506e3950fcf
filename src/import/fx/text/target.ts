/**
 * `aten.mm.default` of `torch.ops.aten.mm.default`, `cond` of `torch.ops.higher_order.cond`,
 * `operator.add` of `_operator.add`.
 */
export function targetName(written: string): string {
  if (written.startsWith('torch.ops.higher_order.')) return written.slice(23);
  if (written.startsWith('torch.ops.')) return written.slice(10);
  return written.startsWith('_operator.') ? written.slice(1) : written;
}

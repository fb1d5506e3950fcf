/**
 * Groups public measured runs into families: sources that share a laboratory, a trainer and
 * machines, so that the error of one row predicts the error of the next. Only the statistics of
 * errors use the families; no price reads them.
 */

const FAMILIES: readonly (readonly [string, RegExp])[] = [
  ['vTrain single-node', /single-node/],
  ['vTrain multi-node', /multi-node/],
  ['BLOOM', /BLOOM/],
  ['Korthikanti, SC21, Megatron-LM', /Korthikanti|Megatron-LM/],
  ['llm-foundry', /llm-foundry/],
  ['TorchTitan', /TorchTitan|TorchAO/],
  ['Megatron-Bridge', /Bridge/],
  ['NeMo, Megatron-Core', /NeMo|Megatron-Core/],
  ['Bekman, nanotron', /Bekman|nanotron|ml-engineering/],
  ['MaxText', /MaxText/],
];

/** Names of the families, in the order in which tables have them. */
export const FAMILY_NAMES: readonly string[] = [...FAMILIES.map(([name]) => name), 'others'];

/** The family of a source; `others` where it is none that is known. */
export function familyOf(source: string): string {
  return FAMILIES.find(([, pattern]) => pattern.test(source))?.[0] ?? 'others';
}

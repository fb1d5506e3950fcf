/**
 * Finds the sizes of a transformer that launchers ask for, from the names and shapes of parameters
 * and the attention calls of a planned graph. A size is undefined where they do not show it.
 */
import type { ExportSource } from '../../backend/target.ts';
import { nodesByName } from '../../graph/nodes.ts';
import { isRef } from '../../graph/value.ts';
import { type PlanRoles, sizes } from './roles.ts';

interface ModelShape {
  readonly layers: number | undefined;
  readonly hidden: number | undefined;
  readonly feedForward: number | undefined;
  readonly heads: number | undefined;
  readonly keyHeads: number | undefined;
  readonly headWidth: number | undefined;
  readonly vocabulary: number | undefined;
  readonly gated: boolean;
  readonly is16Bit: boolean;
}

export function modelShape({ program }: ExportSource, { parameters }: PlanRoles): ModelShape {
  const numbers = parameters.flatMap(
    ({ name }) => /(?:^|\.)(?:layers|h|layer|blocks|block)\.(\d+)\./.exec(name)?.[1] ?? [],
  );
  const find = (pattern: RegExp): readonly number[] | undefined =>
    parameters.find(({ name }) => pattern.test(name))?.shape;
  const byName = nodesByName(program);
  const attention = program.nodes.find(
    ({ target }) => target.includes('scaled_dot_product') && !target.includes('backward'),
  );
  const [query] = attention?.args ?? [];
  const node = query !== undefined && isRef(query) ? byName.get(query.name) : undefined;
  const shape = node === undefined ? [] : sizes(node);
  const headWidth = shape[3];
  const table = find(/(embed_tokens|wte|tok_embeddings|word_embeddings)\.weight$/);
  const key = find(/(k_proj|wk)\.weight$/);
  const up = find(/(up_proj|gate_proj|w1|c_fc|fc1)\.weight$/);
  const hidden = table?.[1];
  const weights = program.nodes.filter(
    (n) => n.kind === 'placeholder' && n.meta.role === 'parameter',
  );
  return {
    layers: numbers.length === 0 ? undefined : Math.max(...numbers.map(Number)) + 1,
    hidden,
    feedForward: up === undefined ? undefined : up[0] === hidden ? up[1] : up[0],
    heads: shape[1],
    keyHeads:
      key === undefined || headWidth === undefined ? undefined : Math.min(...key) / headWidth,
    headWidth,
    vocabulary: table?.[0],
    gated: parameters.some(({ name }) => /gate_proj\.weight$/.test(name)),
    is16Bit: weights.some(({ type }) => type.kind === 'tensor' && type.dtype === 'bf16'),
  };
}

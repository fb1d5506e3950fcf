/** A model that layouts in tests are for: Llama 3 8B's sizes, with other layers or experts. */
import type { LayoutModel } from '../../src/trainers/layout/layout-draft.ts';

export function layoutModel(
  given: { readonly layers?: number; readonly routed?: boolean } = {},
): LayoutModel {
  const shape = {
    layers: given.layers ?? 32,
    width: 4096,
    heads: 32,
    keyHeads: 8,
    headWidth: 128,
    hidden: 14336,
    vocabulary: 128256,
  };
  return given.routed === true
    ? { shape, routed: { experts: 64, active: 8, hidden: 2048 } }
    : { shape };
}

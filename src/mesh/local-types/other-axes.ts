/**
 * Types what a verb of per-device code leaves of the cuts on other mesh axes, where the program is
 * global: every rank of the verb's axis holds a piece of its own local value there. The order of
 * the axes on a dim decides: the verb's axis cuts first, so that pieces which it joins are chunks
 * of which the other axis has a part each (`_S`), and chunks that it cuts must be whole. Source:
 * the verbs as `shapeAfter` of `ops/spmd` defines them; `test/local-spmd/other-axes.test.ts` runs
 * every case.
 */
import { type AxisType, chunksOf, cutOf, cutType } from './types.ts';

/** Dims at which a verb joins pieces and cuts them; `row` is one row of a dim 0 for each rank. */
interface Touched {
  readonly joined?: number | 'row' | undefined;
  readonly cut?: number | 'row' | undefined;
}

/** @param op name of a verb: a primitive, or `permute` */
export function touchedBy(op: string, src: AxisType, dst: AxisType): Touched {
  if (op === 'reinterpret' || op === 'all_reduce' || op === 'permute') return {};
  const own = (type: AxisType): number | 'row' | undefined =>
    cutOf(type) ?? (type === 'V' ? 'row' : undefined);
  const [from, to] = [own(src), own(dst)];
  if (op === 'all_to_all') return { joined: from, cut: to };
  if (from !== undefined && to === undefined) return { joined: from };
  if (from === undefined && to !== undefined) return { cut: to };
  return {};
}

/**
 * The type on another axis after a verb; undefined where the verb cuts what is in pieces there.
 *
 * @param ranks of the verb's axis
 */
export function afterVerb(type: AxisType, touched: Touched, ranks: number): AxisType | undefined {
  const before = chunksOf(type);
  if (before === undefined) return type;
  let { dim, chunks } = before;
  if (touched.cut === 'row') {
    if (dim === 0) return undefined;
    dim -= 1;
  } else if (touched.cut === dim) {
    if (chunks % ranks !== 0) return undefined;
    chunks /= ranks;
  }
  if (touched.joined === 'row') dim += 1;
  else if (touched.joined === dim) chunks *= ranks;
  return cutType(dim, chunks);
}

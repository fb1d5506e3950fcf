/** Composes two layouts as functions (CuTe's `composition`). */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { mergeColex } from './coalesce.ts';
import { type IntTree, isTuple, type Order } from './int-tree.ts';
import { type FlatMode, flatModes, fromModes, Layout, reverse } from './layout.ts';
import { byMode, checkModes, type Tiler, tilerText, viewTiler } from './tiler.ts';

/**
 * R = A o B, with R(c) = A(B(c)) for every coordinate c of B; the shape of B is compatible with
 * that of R. With a list, each mode of A is composed with its part; an integer n is `n:1`.
 *
 * Every mode s:d of B takes A apart from the left: d is divided out of A's sizes, which multiplies
 * the strides, and the first s of what is left are kept.
 *
 * @throws E_LAYOUT where a size does not divide, modes of B carry into each other, or an offset of
 * B is outside A; in `lex` also for a list that does not name every mode of A, since the mirrored
 * law would then speak of other modes
 */
export function composition(a: Layout, b: Tiler, order: Order): Layout {
  checkKinds('composition', {
    a: [a, 'layout'],
    b: [b, 'null', 'number', 'layout', 'tilers'],
    order: [order, 'string'],
  });
  const view = viewTiler(b);
  if (view.kind === 'nothing') return a;
  if (view.kind === 'modes') {
    checkModes(a, view.modes);
    if (order === 'lex' && view.modes.length < a.rank)
      throw new ShardwrightError(
        'E_LAYOUT',
        `the tiler ${tilerText(view.modes)} has ${view.modes.length} parts for ${a.rank} ` +
          `modes of ${a.text}`,
        { hint: 'in lex order name every mode; write _ for one that is left alone' },
      );
    return byMode(a, view.modes, (mode, part) => composition(mode, part, order));
  }
  if (order === 'lex') return reverse(composeColex(reverse(a), reverse(view.layout), 'lex'));
  return composeColex(a, view.layout, 'colex');
}

/**
 * @internal A o B in colex order, where B may go beyond A, whose last size goes on without end: 10
 * elements in tiles of 4 are 3 tiles, the last of which has 2 places outside. Source: CuTe, whose
 * programs mask these places.
 */
export function overTiled(a: Layout, b: Layout): Layout {
  return composeColex(a, b, 'colex', true);
}

function composeColex(a: Layout, b: Layout, told: Order, beyond = false): Layout {
  const flat = mergeColex(flatModes(a));
  if (flat.length === 0) flat.push({ size: 1, stride: 0 });
  /** Largest digit of each size of A that the modes of B reach together. */
  const reach = new Array<number>(flat.length).fill(0);
  const refuse = (why: string, mode?: FlatMode): never => {
    const [left, right] = told === 'lex' ? [reverse(a), reverse(b)] : [a, b];
    const where = mode === undefined ? '' : ` (mode ${mode.size}:${mode.stride})`;
    throw new ShardwrightError('E_LAYOUT', `${left.text} o ${right.text}: ${why}${where}`, {
      hint:
        'each size and stride of the second layout must divide, or be divided by, the sizes of ' +
        'the first in turn',
    });
  };
  const walk = (shape: IntTree, stride: IntTree): Layout => {
    if (isTuple(shape) && isTuple(stride)) {
      const parts = shape.map((s, i) => walk(s, stride[i]));
      return new Layout(
        parts.map((p) => p.shape),
        parts.map((p) => p.stride),
      );
    }
    const mode = { size: shape as number, stride: stride as number };
    return composeMode(flat, mode, reach, { beyond, refuse });
  };
  const result = walk(b.shape, b.stride);
  // The modes of B are composed one by one, which is right only if their sum carries from no digit
  // of A into the next: pycute returns a wrong layout here.
  for (let i = 0; i < flat.length - 1; i++)
    if (reach[i] >= flat[i].size)
      refuse(
        `modes of the second layout add up to ${reach[i]} inside size ${flat[i].size} and ` +
          'carry over',
      );
  // Every mode may stay inside while their sum does not, as the last tile of 10 elements cut by 4.
  if (!beyond && b.cosize > a.size)
    refuse(
      `it reaches offset ${b.cosize - 1} of the first layout, which has ${a.size} coordinates`,
    );
  return result;
}

/** One mode of B through the coalesced modes of A. */
function composeMode(
  flat: readonly FlatMode[],
  mode: FlatMode,
  reach: number[],
  { beyond, refuse }: { beyond: boolean; refuse: (why: string, mode: FlatMode) => never },
): Layout {
  if (mode.stride === 0) return new Layout(mode.size, 0);
  if (mode.size === 1) return new Layout(1, stepOf(flat, mode.stride));
  const out: FlatMode[] = [];
  let { size, stride } = mode;
  for (let i = 0; i < flat.length - 1 && size > 1; i++) {
    const { size: n, stride: step } = flat[i];
    if (stride >= n) {
      if (stride % n !== 0) refuse(`stride ${stride} is not divisible by size ${n}`, mode);
      stride /= n;
      continue;
    }
    if (n % stride !== 0) refuse(`size ${n} is not divisible by stride ${stride}`, mode);
    const there = n / stride;
    const kept = Math.min(there, size);
    if (size % kept !== 0) refuse(`size ${size} is not divisible by ${kept}`, mode);
    out.push({ size: kept, stride: stride * step });
    reach[i] += (kept - 1) * stride;
    size /= kept;
    stride = 1;
  }
  if (size > 1) {
    const last = flat[flat.length - 1];
    if (!beyond && (size - 1) * stride >= last.size)
      refuse('it reaches outside the first layout', mode);
    out.push({ size, stride: stride * last.stride });
  }
  return fromModes(out);
}

/**
 * The stride that a mode of size 1 gets. It says nothing; this is what the rule above leaves of it,
 * as in CuTe.
 */
function stepOf(flat: readonly FlatMode[], stride: number): number {
  let rest = stride;
  for (const { size } of flat.slice(0, -1)) rest = Math.ceil(rest / size);
  const step = rest * flat[flat.length - 1].stride;
  return Number.isSafeInteger(step) ? step : 0;
}

/** Builds the table of the placement kinds that come with Shardwright. */

import { suggestion } from '../../errors.ts';
import { INTERLEAVED } from './shards/interleaved.ts';
import { PlacementKinds, type PlacementKind } from './kinds.ts';
import { MaskPartial } from './partials/mask-partial.ts';
import { NormPartial } from './partials/norm-partial.ts';
import { Partial, REDUCE_OPS } from './partials/partial.ts';
import type { ReduceOp } from './placement.ts';
import { RAGGED } from './shards/ragged.ts';
import { REPLICATE } from './replicate.ts';
import { Shard } from './shards/shard.ts';
import { StridedShard } from './shards/strided.ts';

/** The kinds of placement that come with Shardwright. A new table each time; nothing is registered globally. */
export function builtinKinds(): PlacementKinds {
  return new PlacementKinds([REPLICATE_KIND, SHARD, STRIDED, PARTIAL, NORM, MASK, INTERLEAVED, RAGGED]);
}

const REPLICATE_KIND: PlacementKind = {
  kind: 'replicate',
  words: ['R', 'Replicate'],
  parse(scan, word) {
    if (word === 'Replicate' && scan.take('(')) scan.expect(')');
    return REPLICATE;
  },
};

const SHARD: PlacementKind = {
  kind: 'shard',
  words: ['S', 'Shard'],
  parse(scan, word) {
    if (word === 'S' && /\d/.test(scan.peek())) return Shard.of(scan.dim());
    scan.expect('(');
    scan.keyword('dim');
    const dim = scan.dim();
    scan.expect(')');
    return Shard.of(dim);
  },
};

const STRIDED: PlacementKind = {
  kind: 'strided',
  words: ['_S', '_StridedShard'],
  parse(scan) {
    scan.expect('(');
    scan.keyword('dim');
    const dim = scan.dim();
    scan.expect(',');
    scan.keyword('sf');
    scan.keyword('split_factor');
    const factor = scan.count('a stride factor of at least 1', 1);
    scan.expect(')');
    return factor === 1 ? Shard.of(dim) : new StridedShard(dim, factor);
  },
};

const PARTIAL: PlacementKind = {
  kind: 'partial',
  words: ['P', 'Partial'],
  parse(scan) {
    if (scan.peek() !== '(') return Partial.of('sum');
    scan.expect('(');
    scan.keyword('reduce_op');
    if (scan.take(')')) return Partial.of('sum');
    const start = scan.position;
    const op = scan.match(/'?[a-z]+'?/y)?.replaceAll("'", '') ?? '';
    if (!isReduceOp(op)) {
      scan.back(start);
      return scan.fail('a reduction', suggestion(op, REDUCE_OPS, 'reductions'));
    }
    scan.expect(')');
    return Partial.of(op);
  },
};

const NORM: PlacementKind = {
  kind: 'norm-partial',
  words: ['_NormP', '_NormPartial', 'NormPartial'],
  parse(scan) {
    scan.expect('(');
    scan.keyword('norm_type');
    const number = scan.match(/-?(?:inf|\d{1,22}(?:\.\d{1,22})?(?:e[+-]?\d{1,3})?)/y);
    if (number === undefined) return scan.fail('the p of a norm', 'as in _NormP(2) or _NormP(inf)');
    scan.expect(')');
    return new NormPartial(Number(number.replace('inf', 'Infinity')));
  },
};

const MASK: PlacementKind = {
  kind: 'mask-partial',
  words: ['MaskP', '_MaskPartial', 'MaskPartial'],
  parse(scan) {
    scan.expect('(');
    scan.expect('sum');
    scan.expect(',');
    const torch = scan.take('torch.Size(');
    const shape = scan.counts('a size', 0);
    if (torch) scan.expect(')');
    scan.expect(',');
    const dim = scan.count('a tensor dim', 0);
    if (dim >= shape.length) scan.fail(`a dim of the ${shape.length}-D table before this place (got ${dim})`);
    scan.expect(')');
    return new MaskPartial(shape, dim);
  },
};

function isReduceOp(word: string): word is ReduceOp {
  return (REDUCE_OPS as readonly string[]).includes(word);
}

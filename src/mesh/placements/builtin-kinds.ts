/** Builds the table of the placement kinds that come with Shardwright. */

import { PlacementKinds } from './kinds.ts';
import { MASK } from './partials/mask-partial.ts';
import { NORM } from './partials/norm-partial.ts';
import { PARTIAL } from './partials/partial.ts';
import { REPLICATE_KIND } from './replicate.ts';
import { INTERLEAVED } from './shards/interleaved.ts';
import { RAGGED } from './shards/ragged.ts';
import { SHARD } from './shards/shard.ts';
import { STRIDED } from './shards/strided.ts';

/**
 * The kinds of placement that come with Shardwright. A new table each time; nothing is registered
 * globally.
 */
export function builtinKinds(): PlacementKinds {
  return new PlacementKinds([
    REPLICATE_KIND,
    SHARD,
    STRIDED,
    PARTIAL,
    NORM,
    MASK,
    INTERLEAVED,
    RAGGED,
  ]);
}

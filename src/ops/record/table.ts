/** The table of operators, by name and alias, that every pass is given. */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { builtinKinds } from '../../mesh/placements/builtin-kinds.ts';
import { type PlacementKind, PlacementKinds } from '../../mesh/placements/kinds.ts';
import type { OperatorRecord } from './record.ts';

// Never changed: tables with other kinds have their own.
const BUILTIN_KINDS = builtinKinds();

/**
 * An immutable set of operator records by name and alias, with the kinds of placement that texts
 * about them may use. There is no global registry: a table is passed to who needs it.
 */
export class OperatorTable {
  private readonly byName: ReadonlyMap<string, OperatorRecord>;

  /** @param kinds placements that requests and plans may name; default those of Shardwright */
  constructor(
    readonly records: readonly OperatorRecord[],
    readonly kinds: PlacementKinds = BUILTIN_KINDS,
  ) {
    checkKinds('OperatorTable', {
      records: [records, 'list'],
      kinds: [kinds, ['register', 'remove', 'list'], 'undefined'],
    });
    checkItems('OperatorTable', 'records', records, ['name', 'aliases', 'schema']);
    const byName = new Map<string, OperatorRecord>();
    for (const record of records) {
      for (const name of [record.name, ...record.aliases]) {
        if (byName.has(name))
          throw new ShardwrightError('E_DUP', `operator '${name}' is defined twice`);
        byName.set(name, record);
      }
    }
    this.byName = byName;
  }

  get(target: string): OperatorRecord | undefined {
    return this.byName.get(target);
  }

  names(): string[] {
    return [...this.byName.keys()].sort();
  }

  /** A table with more records; a name that exists already is an error. */
  with(records: readonly OperatorRecord[]): OperatorTable {
    return new OperatorTable([...this.records, ...records], this.kinds);
  }

  /**
   * A table that also knows these kinds of placement, such as one made by `sliceKind`: requests may
   * then pin them and offer them as `cuts`. Plans with them are priced; lowering refuses cuts that
   * are not chunks.
   *
   * @throws E_DUP, E_PLACEMENT as `PlacementKinds.register`
   */
  withKinds(kinds: Iterable<PlacementKind>): OperatorTable {
    return new OperatorTable(this.records, new PlacementKinds([...this.kinds.list(), ...kinds]));
  }
}

import { ShardwrightError } from '../errors.ts';
import type { OperatorRecord } from './record.ts';

/** An immutable set of operator records by name and alias. There is no global registry: a table is passed to who needs it. */
export class OperatorTable {
  private readonly byName: ReadonlyMap<string, OperatorRecord>;

  constructor(readonly records: readonly OperatorRecord[]) {
    const byName = new Map<string, OperatorRecord>();
    for (const record of records) {
      for (const name of [record.name, ...record.aliases]) {
        if (byName.has(name)) throw new ShardwrightError('E_DUP', `operator '${name}' is defined twice`);
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
    return new OperatorTable([...this.records, ...records]);
  }
}

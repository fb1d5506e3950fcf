/**
 * Operators and rules of the user on top of a table. Registering a name twice is an error that
 * names both places; `replace` is the only way round, and every replacement is listed. Nothing is
 * global: a registry makes a new table.
 */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import type { OperatorRecord, TypedContext } from './record/record.ts';
import type { Rule } from './record/rule.ts';
import { OperatorTable } from './record/table.ts';
import { parseRulesFile, ruleRecord, rulesOf } from './rules/rules-file.ts';

interface RegisterOptions {
  /** Take the place of what is registered under these names already. */
  readonly replace?: boolean;
  /** The place of the registration, for error messages; default the file and line of the caller. */
  readonly site?: string;
}

/**
 * A rule function of the user: rules beyond those of the record, without the all-replicate rule.
 */
type RuleFunction = (ctx: TypedContext) => readonly Rule[];

interface Replacement {
  readonly name: string;
  readonly before: string;
  readonly after: string;
}

const BUILT_IN = 'built in';

/** Operators and rules of the user, on top of the built-in ones. */
export class OperatorRegistry {
  /** The replacements so far, in order. */
  readonly replaced: Replacement[] = [];
  private readonly records: Map<string, OperatorRecord>;
  /** The places where names, aliases included, and rules (`rule NAME`) were registered. */
  private readonly sites = new Map<string, string>();
  /** Canonical name by name or alias. */
  private readonly owner = new Map<string, string>();

  constructor(private readonly base: OperatorTable) {
    checkKinds('OperatorRegistry', { base: [base, 'operators'] });
    this.records = new Map(base.records.map((r) => [r.name, r]));
    for (const record of base.records)
      for (const name of [record.name, ...record.aliases]) {
        this.sites.set(name, BUILT_IN);
        this.owner.set(name, record.name);
      }
  }

  /** @throws E_DUP when a name of the record is taken, naming both places */
  registerOp(record: OperatorRecord, options: RegisterOptions = {}): void {
    const site = options.site ?? callSite();
    const names = [record.name, ...record.aliases];
    for (const name of names) this.claim(name, site, options.replace === true, 'operator');
    for (const name of names) {
      const owner = this.owner.get(name);
      if (owner !== undefined) this.release(owner, name);
    }
    for (const name of names) {
      this.sites.set(name, site);
      this.owner.set(name, record.name);
    }
    this.records.set(record.name, record);
  }

  /**
   * Adds rules to an operator that has a record.
   *
   * @throws E_DUP when rules were added already, E_UNKNOWN_OP when there is no such operator
   */
  registerRule(name: string, rules: RuleFunction, options: RegisterOptions = {}): void {
    const site = options.site ?? callSite();
    const canonical = this.owner.get(name);
    const record = canonical === undefined ? undefined : this.records.get(canonical);
    if (record === undefined)
      throw new ShardwrightError('E_UNKNOWN_OP', `there is no operator '${name}' to add rules to`, {
        hint: 'register a record with registerOp, or describe the operator in a rules file',
      });
    const key = `rule ${record.name}`;
    this.claim(key, site, options.replace === true, 'rules of');
    const before = this.plain.get(record.name) ?? record;
    this.plain.set(record.name, before);
    this.sites.set(key, site);
    this.records.set(record.name, {
      ...before,
      shard: (ctx) => [...before.shard(ctx), ...rules(ctx)],
    });
  }

  /**
   * Registers the operators and rules of a rules file (`parseRulesFile` says what it holds).
   *
   * @throws E_RULES with the JSON path for a malformed file; what `registerOp` and `registerRule`
   *   throw
   */
  registerRulesFile(text: string, options: RegisterOptions = {}): void {
    const site = options.site ?? callSite();
    for (const entry of parseRulesFile(text)) {
      const own = { ...options, site: `${site}, ${entry.path}` };
      if (entry.schema === undefined)
        this.registerRule(entry.name, (ctx) => rulesOf(entry, ctx), own);
      else this.registerOp(ruleRecord(entry, entry.schema), own);
    }
  }

  /** The table as it is now. */
  table(): OperatorTable {
    return new OperatorTable([...this.records.values()], this.base.kinds);
  }

  /** Records before rules were added to them. */
  private readonly plain = new Map<string, OperatorRecord>();

  private claim(name: string, site: string, replace: boolean, what: string): void {
    const before = this.sites.get(name);
    if (before === undefined) return;
    const shown = name.replace(/^rule /, '');
    if (!replace)
      throw new ShardwrightError(
        'E_DUP',
        `${what} '${shown}' is registered twice: ${before}, and ${site}`,
        {
          hint: 'take one of them away, or register the second with { replace: true }',
        },
      );
    this.replaced.push({ name: shown, before, after: site });
  }

  /** Takes a name from the record that has it; the record goes with its canonical name. */
  private release(owner: string, name: string): void {
    const record = this.records.get(owner);
    if (record === undefined) return;
    if (owner === name) {
      this.records.delete(owner);
      for (const alias of record.aliases)
        if (this.owner.get(alias) === owner) this.owner.delete(alias);
    } else
      this.records.set(owner, {
        ...record,
        aliases: record.aliases.filter((alias) => alias !== name),
      });
  }
}

/** File and line of the code that called into this module. */
function callSite(): string {
  const lines = (new Error().stack ?? '').split('\n').slice(1);
  const outside = lines.find((line) => !/registry\.[jt]s/.test(line)) ?? '';
  const found = /([^/\\()]+):(\d+):\d+\)?$/.exec(outside);
  return found === null ? 'a place unknown' : `${found[1]}:${found[2]}`;
}

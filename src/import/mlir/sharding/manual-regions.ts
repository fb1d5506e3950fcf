/**
 * Manual regions of GSPMD. Where Shardy has `sdy.manual_computation`, GSPMD marks the boundary
 * alone: a value enters by `@Sharding` (how the parts are cut) and `@SPMDFullToShardShape`, and
 * leaves by `@SPMDShardToFullShape`; everything computed from a local value in between belongs to
 * the region. Here the region is written out as Shardy does, with GSPMD's strings in place of
 * Shardy's shardings, so that both dialects become one graph.
 */

import { defined } from '../../../defined.ts';
import { itemAt } from '../../../item-at.ts';
import { TERMINATORS } from '../reducer.ts';
import type { MlirReader } from '../syntax/reader.ts';
import { freeUses } from '../syntax/scope.ts';
import {
  type Attributes,
  type BlockArgument,
  type MlirAttribute,
  type MlirModule,
  NO_ATTRIBUTES,
  type Operation,
  type Region,
  type Use,
} from '../syntax/syntax.ts';

interface ManualRegion {
  readonly entries: Operation[];
  readonly inside: Operation[];
  readonly exits: Operation[];
  /** Constants from outside that the region reads; they are repeated in it. */
  readonly constants: Map<string, Operation>;
}

/**
 * The module with its boundaries as regions. @throws E_UNSUPPORTED where the boundaries enclose no
 * region
 */
export function withManualRegions(module: MlirModule, reader: MlirReader): MlirModule {
  if (!reader.text.includes(ENTER) && !reader.text.includes(LEAVE)) return module;
  const functions = new Map(
    [...module.functions].map(([name, func]) => [
      name,
      func.body === undefined ? func : { ...func, body: rewritten(func.body, reader) },
    ]),
  );
  return { ...module, functions };
}

const ENTER = 'SPMDFullToShardShape';
const LEAVE = 'SPMDShardToFullShape';

function rewritten(region: Region, reader: MlirReader): Region {
  const operations = region.operations.map((op) =>
    op.regions.length === 0
      ? op
      : { ...op, regions: op.regions.map((inner) => rewritten(inner, reader)) },
  );
  if (!operations.some((op) => [ENTER, LEAVE].includes(customTarget(op) ?? '')))
    return { ...region, operations };
  return { ...region, operations: new RegionFinder(operations, reader).run() };
}

class RegionFinder {
  /** Region of every local value. */
  private readonly local = new Map<string, ManualRegion>();
  private readonly made = new Map<string, Operation>();
  private readonly uses = new Map<string, number>();
  private readonly dropped = new Set<Operation>();

  constructor(
    private readonly operations: readonly Operation[],
    private readonly reader: MlirReader,
  ) {
    for (const op of operations)
      for (const use of usesOf(op)) this.uses.set(use.id, (this.uses.get(use.id) ?? 0) + 1);
  }

  run(): Operation[] {
    const of = new Map<Operation, ManualRegion>();
    let current: ManualRegion | undefined;
    for (const op of this.operations) {
      for (const { id } of op.results) this.made.set(id, op);
      let region = this.regionOf(op);
      if (customTarget(op) === ENTER) {
        if (region !== undefined) this.refuse(op, 'a manual region inside another one');
        // Values that enter behind the end of a region begin the next one.
        if (current === undefined || current.exits.length > 0)
          current = { entries: [], inside: [], exits: [], constants: new Map() };
        region = current;
        region.entries.push(op);
        this.markLocal(op, region);
      } else if (customTarget(op) === LEAVE) {
        if (region === undefined)
          this.refuse(op, `@${LEAVE} of a value that is in no manual region`);
        region.exits.push(op);
      } else if (region !== undefined) {
        if (TERMINATORS.has(op.name))
          this.refuse(op, `a value of a manual region is returned without @${LEAVE}`);
        this.enclose(op, region);
      }
      if (region !== undefined) of.set(op, region);
    }
    return this.placed(of);
  }

  /** The region that the operation computes in, by its operands. */
  private regionOf(op: Operation): ManualRegion | undefined {
    let found: ManualRegion | undefined;
    for (const { id } of usesOf(op)) {
      const region = this.local.get(id);
      if (region === undefined) continue;
      if (found !== undefined && found !== region)
        this.refuse(op, 'an operation reads values of two manual regions');
      found = region;
    }
    return found;
  }

  private markLocal(op: Operation, region: ManualRegion): void {
    for (const { id } of op.results) this.local.set(id, region);
  }

  private enclose(op: Operation, region: ManualRegion): void {
    for (const use of usesOf(op)) {
      if (this.local.get(use.id) === region) continue;
      const source = this.made.get(use.id);
      if (source === undefined || source.operands.length > 0 || source.regions.length > 0)
        this.refuse(
          op,
          `a manual region reads '%${use.id}', which is not local to a device`,
          use.at,
        );
      region.constants.set(use.id, source);
    }
    region.inside.push(op);
    this.markLocal(op, region);
  }

  /** The operations outside, each region where its last result leaves it. */
  private placed(of: ReadonlyMap<Operation, ManualRegion>): Operation[] {
    const out: Operation[] = [];
    const open = new Map<string, ManualRegion>();
    for (const op of this.operations) {
      const region = of.get(op);
      if (region === undefined) {
        const early = usesOf(op).find(({ id }) => open.has(id));
        if (early !== undefined)
          this.refuse(op, `'%${early.id}' is read before its manual region has ended`, early.at);
        out.push(op);
        continue;
      }
      const last = region.exits[region.exits.length - 1] as Operation | undefined;
      if (last === undefined)
        this.refuse(itemAt(region.entries, 0), `a manual region without end: no @${LEAVE}`);
      if (customTarget(op) === LEAVE) for (const { id } of op.results) open.set(id, region);
      if (op !== last) continue;
      out.push(this.written(region));
      for (const [id, owner] of open) if (owner === region) open.delete(id);
    }
    return out.filter((op) => !this.dropped.has(op));
  }

  private written(region: ManualRegion): Operation {
    const { entries, exits, inside, constants } = region;
    const args: BlockArgument[] = [];
    const operands: Use[] = [];
    const inShardings: MlirAttribute[] = [];
    for (const op of entries) {
      const [group] = op.results;
      const [use] = op.operands;
      if (group === undefined || use === undefined || op.resultTypes.length !== 1)
        this.refuse(op, `@${ENTER} takes one value and gives one`);
      args.push({
        id: group.id,
        type: itemAt(op.resultTypes, 0),
        at: op.at,
        attributes: NO_ATTRIBUTES,
      });
      const constraint = this.constraintOf(use);
      inShardings.push(shardingText(constraint));
      operands.push(this.onlyFor(use, constraint) ?? use);
    }
    const returned = exits.map((op): Use => {
      const [use] = op.operands;
      if (use === undefined || op.resultTypes.length !== 1)
        this.refuse(op, `@${LEAVE} takes one value and gives one`);
      return this.onlyFor(use, this.constraintOf(use)) ?? use;
    });
    const { at, location } = itemAt(entries, 0);
    const terminator: Operation = {
      name: 'sdy.return',
      at,
      results: [],
      operands: returned,
      attributes: NO_ATTRIBUTES,
      regions: [],
      operandTypes: exits.map((op) => itemAt(op.operandTypes, 0)),
      resultTypes: [],
    };
    const attributes: Attributes = new Map<string, MlirAttribute>([
      ['in_shardings', { kind: 'list', items: inShardings }],
      ['out_shardings', { kind: 'list', items: exits.map(shardingText) }],
      ['manual_axes', shardingText(entries[0])],
    ]);
    const body = [
      ...constants.values(),
      ...inside.filter((op) => !this.dropped.has(op)),
      terminator,
    ];
    return {
      name: 'sdy.manual_computation',
      at,
      results: exits.flatMap((op) => [...op.results]),
      operands,
      attributes,
      regions: [{ args, operations: body, at }],
      operandTypes: entries.flatMap((op) => [...op.operandTypes]),
      resultTypes: exits.flatMap((op) => [...op.resultTypes]),
      ...defined({ location }),
    };
  }

  /** The `@Sharding` that makes a value. */
  private constraintOf(use: Use): Operation | undefined {
    const source = this.made.get(use.id);
    return source !== undefined &&
      customTarget(source) === 'Sharding' &&
      source.operands.length === 1
      ? source
      : undefined;
  }

  /**
   * The value before a constraint that only serves the boundary of a region; the constraint is left
   * out then.
   */
  private onlyFor(use: Use, constraint: Operation | undefined): Use | undefined {
    if (constraint === undefined || this.uses.get(use.id) !== 1) return undefined;
    this.dropped.add(constraint);
    return constraint.operands[0];
  }

  private refuse(op: Operation, message: string, at = op.at): never {
    throw this.reader.error(
      'E_UNSUPPORTED',
      message,
      at,
      'print the program with Shardy (JAX: jax.config.update("jax_use_shardy_partitioner", True))',
    );
  }
}

function customTarget(op: Operation): string | undefined {
  if (!op.name.endsWith('.custom_call')) return undefined;
  const target = op.attributes.get('call_target_name');
  return target?.kind === 'string' ? target.value : undefined;
}

function shardingText(op: Operation | undefined): MlirAttribute {
  const text = op?.attributes.get('mhlo.sharding');
  return text?.kind === 'string' ? text : { kind: 'unit' };
}

function usesOf(op: Operation): readonly Use[] {
  return op.regions.length === 0 ? op.operands : [...op.operands, ...freeUses(op.regions)];
}

/** Lists the collectives that the per-device program of a plan must contain. */
import { checkKinds } from '../arguments.ts';
import { internalError } from '../errors.ts';
import type { Node } from '../graph/types.ts';
import { COLLECTIVE_KINDS, type CollectiveKind } from '../mesh/collective-kinds.ts';
import { parseMesh } from '../mesh/devices/mesh.ts';
import { ShardingSpace } from '../mesh/sharding/space.ts';
import { bindCall, withOutputs } from '../ops/record/context.ts';
import type { TensorMeta } from '../ops/record/record.ts';
import type { InternalCollective } from '../ops/record/rule.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { PlannedProgram } from '../plan/record/planned.ts';
import type { Plan, PlannedRedistribution } from '../plan/record/types.ts';
import { type Dataflow, dataflow } from '../strategy/dataflow.ts';
import { rulesTaken } from '../strategy/rules-taken.ts';

/** A collective that a plan says will run. */
export interface PromisedCollective {
  readonly kind: CollectiveKind;
  readonly meshDims: readonly number[];
  /**
   * The bytes in the plan; null for a collective inside an operator's rule, which the plan gives
   * only seconds for.
   */
  readonly bytes: number | null;
  /** Bodies in each run of which it runs once, by scope of the opened graph; 0 is the program. */
  readonly scopes: readonly number[];
  /**
   * For a collective in a branch inside a region, the body that contains it, which may or may not
   * run.
   */
  readonly body?: string;
}

/**
 * The communication that a plan promises: the collectives of its redistributions, and those inside
 * the rules that its placements take. Groups of one device communicate nothing. The communication
 * of a body is promised for each of its runs.
 */
export function promisedCollectives(
  program: PlannedProgram,
  plan: Pick<Plan, 'request' | 'nodes' | 'outputs'>,
  table: OperatorTable,
): PromisedCollective[] {
  checkKinds('promisedCollectives', {
    program: [program, ['program', 'listed']],
    plan: [plan, ['request', 'nodes', 'outputs']],
    table: [table, 'operators'],
  });
  const promises = new Promises(program, plan, table);
  program.listed.nodes.forEach((node, n) => {
    promises.addInputs(node, n);
    promises.addRules(node, n);
  });
  promises.addOutputs();
  return promises.list;
}

class Promises {
  readonly list: PromisedCollective[] = [];
  private readonly operators: OperatorTable;
  private readonly space: ShardingSpace;
  private readonly flow: Dataflow;
  private readonly meetings: ReadonlyMap<string, readonly number[]>;

  constructor(
    private readonly program: PlannedProgram,
    private readonly plan: Pick<Plan, 'request' | 'nodes' | 'outputs'>,
    table: OperatorTable,
  ) {
    const { listed, opened } = program;
    this.operators = opened?.table ?? table;
    this.space = new ShardingSpace(parseMesh(plan.request.mesh), table.kinds);
    this.flow = dataflow(listed, this.operators, plan.request.sharing, opened?.loops);
    this.meetings = meetingScopes(opened);
  }

  /** Redistributions of the operands of a node. */
  addInputs(node: Node, n: number): void {
    const { listed, opened } = this.program;
    this.flow.inputs[n].forEach((value, i) => {
      const producer = listed.nodes[this.flow.values[value].node].name;
      const scopes = this.meetings.get(`${producer} ${node.name}`) ?? [
        opened?.loops.moveScope(producer, node.name) ?? 0,
      ];
      this.addMoves(
        this.plan.nodes[n].redistributions.filter((r) => r.input === i),
        scopes,
      );
    });
  }

  /** Collectives inside the rules that a node's placements take. */
  addRules(node: Node, n: number): void {
    const { flow, space, plan } = this;
    const record = node.kind === 'call' ? this.operators.get(node.target) : undefined;
    if (record === undefined || flow.alias[n] >= 0) return;
    const results = Array.from(flow.results[n], (id): TensorMeta | null =>
      id < 0 ? null : flow.values[id].meta,
    );
    const call = withOutputs(
      bindCall(record, node.args, node.kwargs, (name) => flow.values[flow.valueOf(name)].meta),
      results,
    );
    const ids = (texts: readonly string[]): number[] =>
      texts.map((text) => (text === '-' ? -1 : space.parse(text)));
    const { inputs, outputs } = plan.nodes[n];
    rulesTaken(space, record.shard(call), ids(inputs), ids(outputs)).forEach((rule, m) =>
      this.addRule(node, m, rule?.collectives ?? []),
    );
  }

  private addRule(node: Node, meshDim: number, collectives: readonly InternalCollective[]): void {
    const branched = new Set<string>();
    for (const { kind, site } of collectives) {
      const one = {
        kind,
        meshDims: [meshDim],
        bytes: null,
        scopes: [this.program.opened?.loops.scopeOf(node.name) ?? 0],
      };
      if (site?.times === undefined) this.list.push(one);
      // Each run of the branch has it; the rule lists it for each trip of the loops around.
      else if (!branched.has(site.node))
        this.list.push({
          ...one,
          body: `${node.name}/${site.node.slice(0, site.node.lastIndexOf('/'))}`,
        });
      if (site !== undefined) branched.add(site.node);
    }
  }

  /** Redistributions of the outputs; those of a carry run once in each run of its body. */
  addOutputs(): void {
    const { listed, opened } = this.program;
    const carries = new Map(opened?.carries.map(({ value, carry }) => [carry, value]));
    for (const { redistributions, role, of } of this.plan.outputs) {
      const value = role === 'carry' && of !== undefined ? carries.get(of) : undefined;
      if (opened === undefined || value === undefined || of === undefined)
        this.addMoves(redistributions, [0]);
      else {
        const producer = listed.nodes[this.flow.values[this.flow.valueOf(value)].node].name;
        this.addMoves(redistributions, [opened.loops.moveScope(producer, of)]);
      }
    }
  }

  private addMoves(
    redistributions: readonly PlannedRedistribution[],
    scopes: readonly number[],
  ): void {
    const { mesh } = this.space;
    for (const { collectives } of redistributions)
      for (const { kind, meshDims, bytes } of collectives) {
        const known = COLLECTIVE_KINDS.find((k) => k === kind);
        if (known === undefined) throw internalError(`the plan lists a collective '${kind}'`);
        const dims = meshDims.map((name) => mesh.indexOf(name));
        if (mesh.sizeOf(dims) > 1) this.list.push({ kind: known, meshDims: dims, bytes, scopes });
      }
  }
}

/**
 * Moves from one meeting of branches to the next, by the names of both: those of every later
 * branch.
 */
function meetingScopes(opened: PlannedProgram['opened']): Map<string, number[]> {
  const out = new Map<string, number[]>();
  for (const region of opened?.regions ?? []) {
    if (region.kind !== 'branch') continue;
    const scopes = region.bodies.map((body) => body.scope);
    for (const met of region.meets)
      for (let b = 0; b + 1 < met.length; b++)
        out.set(`${met[b + 1]} ${met[b]}`, scopes.slice(b + 1));
  }
  return out;
}

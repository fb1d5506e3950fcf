/**
 * Plans that are none: whatever their graph and request, nothing could be lowered or priced by
 * them. A plan that hangs together but says other things than follow from its graph is not damage;
 * `checkPlan` names those.
 */
import { ShardwrightError } from '../../errors.ts';
import type { Graph, Output } from '../../graph/types.ts';
import { COLLECTIVE_KINDS } from '../../mesh/collective-kinds.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { Dataflow } from '../../strategy/dataflow.ts';
import type { LowerablePlan } from './planned.ts';
import type { PlannedOutput, PlannedRedistribution } from './types.ts';

/** The program that a plan belongs to. */
interface PlannedOf {
  readonly graph: Graph;
  readonly flow: Dataflow;
  readonly space: ShardingSpace;
  /** Values that loops hand on: listed after what the program returns. */
  readonly carries: number;
}

/** @throws E_PLAN, with the JSON path, for a plan that does not hang together */
export function refuseDamaged(plan: Pick<LowerablePlan, 'nodes' | 'outputs'>, of: PlannedOf): void {
  new Reading(of).read(plan);
}

/**
 * Checks that a value which the next step reads instead of an input, and a gradient, has the
 * placement of that input.
 *
 * @param owner place of that input among the nodes; undefined for an output that belongs to no
 *   input
 * @throws E_PLAN when the plan could not be run a second time
 */
export function refuseChangedReturn(
  plan: Pick<LowerablePlan, 'nodes'>,
  { graph, space }: Pick<PlannedOf, 'graph' | 'space'>,
  { role }: Output,
  planned: PlannedOutput,
  owner: number | undefined,
): void {
  if (owner === undefined) return;
  const [enters] = plan.nodes[owner].outputs;
  if (space.parse(enters) === space.parse(planned.placement)) return;
  const { name } = graph.nodes[owner];
  throw new ShardwrightError(
    'E_PLAN',
    `the plan returns ${planned.value} (${role} of ${planned.of ?? ''}) as ` +
      `${planned.placement}, but ${name} enters as ${enters}`,
    {
      node: name,
      hint:
        'the next training step could not read it: give both one placement, or plan the graph ' +
        'again',
    },
  );
}

class Reading {
  /** Copies made so far, by value and placement. */
  private readonly made = new Set<string>();
  private readonly reused: { readonly key: string; readonly path: string }[] = [];
  private readonly dims: ReadonlySet<string>;

  constructor(private readonly of: PlannedOf) {
    this.dims = new Set(of.space.mesh.dims.map((dim) => dim.name));
  }

  read(plan: Pick<LowerablePlan, 'nodes' | 'outputs'>): void {
    const { graph, flow, carries } = this.of;
    this.count(plan.nodes, graph.nodes.length, '$.nodes', `nodes of graph ${graph.name}`);
    graph.nodes.forEach((node, n) => {
      const path = `$.nodes[${n}]`;
      const planned = plan.nodes[n];
      if (planned.name !== node.name)
        this.refuse(`${path}.name`, `it is '${planned.name}' where the graph has '${node.name}'`);
      const alias = flow.alias[n] >= 0;
      this.count(
        planned.inputs,
        alias ? 0 : flow.inputs[n].length,
        `${path}.inputs`,
        `tensor inputs of ${node.name}`,
      );
      this.count(
        planned.outputs,
        alias ? 1 : flow.results[n].length,
        `${path}.outputs`,
        `results of ${node.name}`,
      );
      planned.inputs.forEach((text, k) => this.placement(text, `${path}.inputs[${k}]`));
      planned.outputs.forEach((text, k) => {
        const isTensor = alias || flow.results[n][k] >= 0;
        if (isTensor || text !== '-') this.placement(text, `${path}.outputs[${k}]`);
      });
      this.moves(
        planned.redistributions,
        `${path}.redistributions`,
        (input) => flow.inputs[n][input],
      );
    });
    const returned = flow.outputs.filter(({ value }) => value >= 0);
    this.count(
      plan.outputs,
      returned.length + carries,
      '$.outputs',
      'values that the program returns or hands on',
    );
    plan.outputs.forEach((output, k) => {
      this.placement(output.placement, `$.outputs[${k}].placement`);
      const value = returned[k]?.value ?? valueNamed(flow, output.value);
      this.moves(output.redistributions, `$.outputs[${k}].redistributions`, () => value);
    });
    for (const { key, path } of this.reused)
      if (!this.made.has(key)) this.refuse(path, 'it takes a copy that nothing made');
  }

  private moves(
    moves: readonly PlannedRedistribution[],
    path: string,
    valueOf: (input: number) => number | undefined,
  ): void {
    moves.forEach((move, k) => {
      const at = `${path}[${k}]`;
      const value = valueOf(move.input);
      if (value === undefined) this.refuse(`${at}.input`, `there is no tensor input ${move.input}`);
      this.placement(move.from, `${at}.from`);
      this.placement(move.to, `${at}.to`);
      move.collectives.forEach(({ kind, meshDims }, c) => {
        if (!(COLLECTIVE_KINDS as readonly string[]).includes(kind))
          this.refuse(
            `${at}.collectives[${c}].kind`,
            `'${kind}' is none of ${COLLECTIVE_KINDS.join(', ')}`,
          );
        meshDims.forEach((dim, d) => {
          if (!this.dims.has(dim))
            this.refuse(
              `${at}.collectives[${c}].meshDims[${d}]`,
              `the mesh has no dim '${dim}', it has ${[...this.dims].join(', ')}`,
            );
        });
      });
      move.steps?.forEach(({ to }, s) => this.placement(to, `${at}.steps[${s}].to`));
      const last = move.steps?.at(-1);
      if (last !== undefined && last.to !== move.to)
        this.refuse(`${at}.steps`, `they end at ${last.to}, the move at ${move.to}`);
      const key = `${value} ${move.to}`;
      if (move.copy === 'made') this.made.add(key);
      if (move.copy === 'reused') this.reused.push({ key, path: `${at}.copy` });
    });
  }

  private placement(text: string, path: string): void {
    try {
      this.of.space.parse(text);
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
      this.refuse(path, error.message);
    }
  }

  private count(list: readonly unknown[], expected: number, path: string, what: string): void {
    if (list.length !== expected)
      this.refuse(
        path,
        `it has ${list.length} entries, expected ${expected}: one for each of the ${what}`,
      );
  }

  private refuse(path: string, why: string): never {
    throw new ShardwrightError('E_PLAN', `${path}: ${why}`, {
      path,
      hint: 'restore the plan file, or make the plan again.',
    });
  }
}

/** Value of a name in a plan, which may end in the position of the result: `split[1]`. */
function valueNamed(flow: Dataflow, name: string): number | undefined {
  const [, node, result = '0'] = /^(.*?)(?:\[(\d+)\])?$/.exec(name) ?? [];
  const n = flow.byName.get(node);
  return n === undefined
    ? undefined
    : flow.alias[n] >= 0
      ? flow.alias[n]
      : flow.results[n][Number(result)];
}

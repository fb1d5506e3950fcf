/**
 * Checks a written plan under a mode: it lists every collective of the plan with its place, the
 * types before and after, and the reason for it, in the form of `check` on a program. A
 * redistribution that nobody wrote is reported as strict mode reports it, with the verb that would
 * state it.
 */
import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import { nodesByName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import type { CheckReport } from '../../local-spmd/check.ts';
import type { Mode } from '../../local-spmd/modes.ts';
import type { ImplicitMove, Violation } from '../../local-spmd/typed.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { redistribution } from '../../mesh/local-types/primitives.ts';
import { isAxisType } from '../../mesh/local-types/types.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { tensorInputs } from '../../ops/record/context.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { spmdName, verbAxes } from '../../ops/spmd/operators.ts';
import { plannedProgram } from '../record/planned.ts';
import type { Plan, PlannedNode, PlannedRedistribution } from '../record/types.ts';

/** A collective of a plan. */
export interface CheckedCollective {
  /** The node that needs it; `output` where a result is brought to its placement. */
  readonly node: string;
  readonly source?: string;
  readonly kind: string;
  readonly meshDims: readonly string[];
  readonly bytes: number;
  readonly seconds: number;
  /** Runs of it where they are not one. */
  readonly times?: number;
  /** The value that changes; absent inside an operator. */
  readonly value?: string;
  readonly from: string;
  readonly to: string;
  readonly why: string;
}

export interface PlanCheckReport extends CheckReport {
  /** In the order in which the program runs them; copies that later uses share are there once. */
  readonly collectives: readonly CheckedCollective[];
}

/**
 * Checks a plan.
 *
 * @param program what was planned, with its bodies
 * @throws E_PLAN when the plan is not of this program
 */
export function checkPlannedModes(
  program: Graph,
  plan: Plan,
  table: OperatorTable,
  mode: Mode,
): PlanCheckReport {
  checkKinds('checkPlannedModes', {
    graph: [program, 'graph'],
    plan: [plan, 'plan'],
    table: [table, 'operators'],
  });
  const { listed, opened } = plannedProgram(program, plan, table);
  const reader = new PlanReader(listed, plan, opened?.table ?? table);
  const { implicit, violations, collectives } = reader.read();
  const strict = mode === 'strict';
  return {
    mode,
    eraseable: violations.length === 0,
    refusals: [],
    runs: [],
    violations: strict ? violations : [],
    localNotGlobal: [],
    implicit: strict ? [] : implicit,
    assumed: [],
    advice: [],
    collectives,
  };
}

/** A change of placement on one mesh dim. */
interface Change {
  readonly axis: string;
  readonly src: string;
  readonly dst: string;
}

class PlanReader {
  private readonly space: ShardingSpace;
  private readonly implicit: ImplicitMove[] = [];
  private readonly violations: Violation[] = [];
  private readonly collectives: CheckedCollective[] = [];
  private readonly nodes: ReadonlyMap<string, Node>;

  constructor(
    graph: Graph,
    private readonly plan: Plan,
    private readonly table: OperatorTable,
  ) {
    this.space = new ShardingSpace(parseMesh(plan.request.mesh), table.kinds);
    this.nodes = nodesByName(graph);
  }

  read(): Pick<PlanCheckReport, 'implicit' | 'violations' | 'collectives'> {
    for (const planned of this.plan.nodes) {
      const node = this.nodes.get(planned.name);
      const record = node === undefined ? undefined : this.table.get(node.target);
      const names =
        node === undefined || record === undefined
          ? []
          : tensorInputs(record, node.args, node.kwargs);
      for (const r of planned.redistributions)
        this.move(
          planned.name,
          names[r.input] ?? `input ${r.input}`,
          r,
          `input ${r.input} of %${planned.name}`,
        );
      this.inside(planned);
    }
    for (const { value, role, of, redistributions } of this.plan.outputs) {
      const what =
        role === 'carry'
          ? `the next %${of ?? '?'}`
          : role === 'grad'
            ? `the gradient of ${of ?? '?'}`
            : 'the result';
      for (const r of redistributions) this.move('output', value, r, what);
    }
    const { implicit, violations, collectives } = this;
    return { implicit, violations, collectives };
  }

  private move(node: string, value: string, r: PlannedRedistribution, use: string): void {
    if (r.copy === 'reused') return;
    const { mesh } = this.space;
    const [from, to] = [r.from, r.to].map((text) => this.space.get(this.space.parse(text)));
    const changes = mesh.names.flatMap((axis, m): Change[] => {
      const [src, dst] = [from.placements[m], to.placements[m]].map((p) =>
        p.text.replace('P(sum)', 'P'),
      );
      return src === dst || mesh.sizes[m] === 1 ? [] : [{ axis, src, dst }];
    });
    const written = changes.filter((change) => this.isWritten(node, change));
    const why =
      changes.length > 0 && written.length === changes.length
        ? `${use}: as written`
        : `${use} is wanted as ${r.to}`;
    const source = this.nodes.get(node)?.meta.source;
    const kept = r.copy === 'made' ? ', and so by later uses' : '';
    this.collectives.push(
      ...r.collectives.map(({ kind, meshDims, bytes, seconds }): CheckedCollective => ({
        node,
        ...defined({ source }),
        kind,
        meshDims,
        bytes,
        seconds,
        ...defined({ times: r.times }),
        value,
        from: r.from,
        to: r.to,
        why: `${why}${kept}`,
      })),
    );
    for (const change of changes)
      if (!written.includes(change)) this.forbid(node, value, r.from, change, source);
  }

  /** Tells whether the node is the verb that says this change. */
  private isWritten(node: string, { axis, src, dst }: Change): boolean {
    const verb = this.nodes.get(node);
    if (verb === undefined || spmdName(verb.target) !== 'redistribute') return false;
    const data = (word: unknown): unknown => (word === 'I' ? 'R' : word);
    const [, axes, , from, to] = verb.args;
    const names = typeof axes === 'string' ? verbAxes(axes) : [];
    return names.includes(axis) && data(from) === src && data(to) === dst;
  }

  private forbid(
    node: string,
    value: string,
    from: string,
    { axis, src, dst }: Change,
    source: string | undefined,
  ): void {
    const verb = verbOf(src, dst);
    const target = this.nodes.get(node)?.target ?? node;
    this.implicit.push({ node, meshDim: axis, value, kind: verb, from: src, to: dst });
    this.violations.push({
      node,
      meshDim: axis,
      rule: 'implicit redistribution',
      types: [`%${value}: ${from}`],
      fix: `${verb}(${value}, "${axis}", ${src}→${dst})`,
      message:
        `Implicit redistribution occurred for ${target} (%${node}): ${value} goes from ${src} ` +
        `to ${dst} on ${axis}${source === undefined ? '' : ` at ${source}`}`,
      ...defined({ source }),
    });
  }

  /**
   * Lists the collectives inside a call: those of a region are in its body, those of a rule nobody
   * wrote.
   */
  private inside({ name, target, inputs, outputs, times, inside = [] }: PlannedNode): void {
    const { mesh } = this.space;
    const here = this.nodes.get(name)?.meta.source;
    const onAxis = (texts: readonly string[], axis: string): string =>
      texts
        .map((text) =>
          text === '-'
            ? '-'
            : this.space.get(this.space.parse(text)).placements[mesh.indexOf(axis)].text,
        )
        .join(', ');
    const implied = new Set<string>();
    for (const { kind, meshDims, bytes, seconds, node, from, to, source, times: share } of inside) {
      const runs =
        share === undefined && times === undefined ? undefined : (times ?? 1) * (share ?? 1);
      const [axis] = meshDims;
      const place = source ?? here;
      const [before, after] = [from ?? onAxis(inputs, axis), to ?? onAxis(outputs, axis)];
      this.collectives.push({
        node: node === undefined ? name : `${name}/${node}`,
        ...defined({ source: place }),
        kind,
        meshDims,
        bytes,
        seconds,
        ...defined({ times: runs }),
        from: before,
        to: after,
        why:
          node === undefined
            ? `the rule of ${target} that takes ${before} on ${axis}`
            : 'as written in the region' +
              (share === undefined
                ? ''
                : `, in one branch of a condition (its price weighs ${share})`),
      });
      if (node !== undefined || implied.has(axis)) continue;
      implied.add(axis);
      this.implicit.push({ node: name, meshDim: axis, kind, from: before, to: after });
      this.violations.push({
        node: name,
        meshDim: axis,
        rule: 'implicit collective',
        types: inputs.map((spec, i) => `input ${i}: ${spec}`),
        fix: `write it in a localMap over "${axis}"`,
        message:
          `Implicit ${kind} inside ${target} (%${name}) on ${axis}: its operands are ${before} ` +
          `there${place === undefined ? '' : ` at ${place}`}`,
        ...defined({ source: place }),
      });
    }
  }
}

/** The verb that says a change; of placements that types do not know, how it is said in a plan. */
function verbOf(src: string, dst: string): string {
  if (!isAxisType(src) || !isAxisType(dst)) return 'redistribute';
  return redistribution(src, dst, { expert: true }).op;
}

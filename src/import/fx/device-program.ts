/**
 * Reads an FX text that is the program of one device, where lines above the class say of what:
 *
 * ```text
 * # One device of dp=2,tp=4
 * # Group 5: tp
 * # Placement of primals_1: S(0)R
 * # Placement of output 0: S(0)R
 * ```
 *
 * Inputs that no line names are equal on all devices. A gradient or an update is placed as what it
 * belongs to, and other results must be equal on all devices. Steps that torchtitan, Megatron or
 * DTensor were traced to are such texts; the groups are those of their functional collectives.
 */
import { defined } from '../../defined.ts';
import { localType, TO_GLOBAL, TO_LOCAL } from '../../graph/local-map.ts';
import { NameSet } from '../../graph/names.ts';
import type { Graph, Node, NodeMeta, Output, ValueType } from '../../graph/types.ts';
import { mapOperands, NO_KWARGS, ref } from '../../graph/value.ts';
import { type DeviceMesh, parseMesh } from '../../mesh/devices/mesh.ts';
import { typeOfPlacement } from '../../mesh/local-types/types.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { Scanner } from '../file/scan.ts';

const MESH = /^# One device of (\S+)$/m;
const GROUP = /^# Group (\S+): (\S+)$/gm;
const PLACEMENT = /^# Placement of (.+): (\S+)$/gm;
const COLLECTIVE = /^_?c10d_functional\./;

/**
 * The graph with its inputs cut and its results joined as the lines above it say; without such
 * lines the graph as it is.
 *
 * @throws E_TYPE for a line that names what is not there, or a placement that does not fit
 */
export function withBoundary(graph: Graph, text: string, scanner: Scanner): Graph {
  const head = text.slice(0, Math.max(0, text.search(/^\s*(?:\S+ )?class /m)));
  const mesh = MESH.exec(head)?.[1];
  const groups = new Map(
    [...head.matchAll(GROUP)].map(([, name = '', axes = '']) => [name, axes] as const),
  );
  const named = groups.size === 0 ? graph : withAxes(graph, groups);
  if (mesh === undefined) return named;
  const stated = new Map(
    [...head.matchAll(PLACEMENT)].map(({ 1: what = '', 2: placement = '', index }) => [
      what,
      { placement, index },
    ]),
  );
  return new Boundary(named, parseMesh(mesh), stated, scanner).run();
}

/** Groups of collectives under the names of their mesh axes. */
function withAxes(graph: Graph, groups: ReadonlyMap<string, string>): Graph {
  const nodes = graph.nodes.map((node): Node => {
    const group = node.args.at(-1);
    const axes = typeof group === 'string' ? groups.get(group) : undefined;
    if (axes === undefined || !COLLECTIVE.test(node.target)) return node;
    return { ...node, args: [...node.args.slice(0, -1), axes] };
  });
  const bodies = Object.entries(graph.subgraphs).map(
    ([name, body]) => [name, withAxes(body, groups)] as const,
  );
  return { ...graph, nodes, subgraphs: Object.fromEntries(bodies) };
}

/** A line that states a placement, and where it is. */
interface Statement {
  readonly placement: string;
  readonly index: number;
}

class Boundary {
  private readonly names: NameSet;
  /** Names of the pieces of inputs. */
  private readonly pieces = new Map<string, string>();
  private readonly placementOf = new Map<string, string>();
  private readonly read = new Set<string>();

  constructor(
    private readonly graph: Graph,
    private readonly mesh: DeviceMesh,
    private readonly stated: ReadonlyMap<string, Statement>,
    private readonly scanner: Scanner,
  ) {
    this.names = new NameSet(graph.nodes.map(({ name }) => name));
  }

  run(): Graph {
    const { graph } = this;
    const inputs = graph.nodes.filter(({ kind }) => kind === 'placeholder');
    const cuts = inputs.flatMap((node) => this.cut(node));
    const calls = graph.nodes
      .filter(({ kind }) => kind !== 'placeholder')
      .map((node) => mapOperands(node, (name) => this.pieces.get(name) ?? name));
    const joins: Node[] = [];
    const outputs = graph.outputs.map((output) => this.joined(output, calls, joins));
    for (const [what, { index }] of this.stated)
      if (!this.read.has(what))
        throw this.scanner.error(
          'E_TYPE',
          `the text has no '${what}'`,
          index,
          'name an input of the class, or output 0, output 1, ...',
        );
    const whole = inputs.map((node) => this.whole(node));
    const nodes = [...whole, ...cuts, ...calls, ...joins];
    return { ...graph, mesh: this.mesh.text, nodes, outputs };
  }

  /** The placement that a line states for something under one of its names. */
  private statedFor(...keys: readonly (string | undefined)[]): string | undefined {
    for (const key of keys) {
      const found = key === undefined ? undefined : this.stated.get(key);
      if (found === undefined || key === undefined) continue;
      this.read.add(key);
      return found.placement;
    }
    return undefined;
  }

  private cut({ name, type, meta }: Node): Node[] {
    const { roleName } = meta;
    const placement = this.statedFor(name, roleName) ?? this.equal();
    this.placementOf.set(name, placement);
    if (roleName !== undefined) this.placementOf.set(roleName, placement);
    if (type.kind !== 'tensor') return [];
    const piece = this.names.take(`${name}_piece`);
    this.pieces.set(name, piece);
    return [this.mark(TO_LOCAL, piece, name, placement, type, {})];
  }

  private whole(node: Node): Node {
    if (!this.pieces.has(node.name)) return node;
    const placement = this.placementOf.get(node.name) ?? this.equal();
    return { ...node, type: this.joinedType(node.name, node.type, placement) };
  }

  private joined(output: Output, calls: readonly Node[], joins: Node[]): Output {
    const { value, role, index, of } = output;
    if (value === null) return output;
    const given = role === 'output' ? this.statedFor(`output ${index ?? 0}`) : undefined;
    const belongs = of === undefined ? undefined : this.placementOf.get(of);
    const placement = given ?? belongs ?? this.equal();
    const piece = this.pieces.get(value) ?? value;
    const made = calls.find(({ name }) => name === piece);
    const type = made?.type ?? this.graph.nodes.find(({ name }) => name === value)?.type;
    if (type?.kind !== 'tensor') return output;
    const name = this.names.take(`${value}_whole`);
    const joinedType = this.joinedType(value, type, placement);
    const { phase } = made?.meta ?? {};
    joins.push(this.mark(TO_GLOBAL, name, piece, placement, joinedType, defined({ phase })));
    return { ...output, value: name };
  }

  private mark(
    target: string,
    name: string,
    of: string,
    placement: string,
    type: ValueType,
    meta: NodeMeta,
  ): Node {
    const args = [ref(of), this.mesh.text, placement];
    return { name, kind: 'call', target, args, kwargs: NO_KWARGS, type, meta };
  }

  /** The type of what pieces join to. @throws E_TYPE for a placement that does not fit */
  private joinedType(name: string, type: ValueType, placement: string): ValueType {
    const { mesh, scanner } = this;
    const at = [...this.stated.values()].find((one) => one.placement === placement)?.index ?? 0;
    try {
      const { placements } = parseSharding(placement, mesh);
      const spec = placements.map((one) => typeOfPlacement(one) ?? 'V');
      return localType(type, spec, mesh.dims, 'join', `%${name}`);
    } catch (error) {
      const what = error instanceof Error ? error.message : String(error);
      throw scanner.error('E_TYPE', what, at, `write one placement for each dim of ${mesh.text}`);
    }
  }

  private equal(): string {
    return this.mesh.dims.map(() => 'R').join('');
  }
}

/**
 * Finds the role of each mesh dim of a plan in a training recipe (data, FSDP, tensor, context or
 * expert parallel), and the name that a recipe has for the cut of each parameter. A parameter that
 * is gathered before it is used is fully sharded; one that is used in pieces is tensor parallel.
 */
import type { ExportSource } from '../../backend/target.ts';
import { runsBodies } from '../../graph/control.ts';
import { nodesByName, roleName } from '../../graph/nodes.ts';
import type { Arg, Node } from '../../graph/types.ts';
import { isList, isRef } from '../../graph/value.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';

export type MeshRole = 'data' | 'fsdp' | 'tensor' | 'context' | 'expert' | 'none';

export interface ParameterUse {
  readonly name: string;
  readonly shape: readonly number[];
  readonly stored: Sharding;
  /**
   * By mesh dim: the dim of the stored tensor that its readers have in pieces; -1 where they read
   * it whole.
   */
  readonly used: readonly number[];
  /**
   * True if a product reads it turned around, as a linear layer does: its first dim is that of the
   * outputs.
   */
  readonly outFirst: boolean;
  readonly isTable: boolean;
}

export interface PlanRoles {
  /** By mesh dim. */
  readonly roles: readonly MeshRole[];
  readonly parameters: readonly ParameterUse[];
  /** Sizes of the dims of each role, multiplied. */
  readonly degree: (role: MeshRole) => number;
  /** True if activations between the layers are cut along the sequence by a tensor-parallel dim. */
  readonly sequenceParallel: boolean;
  /** Sequences and tokens of a sequence, of the first integer input; undefined without one. */
  readonly batch: { readonly sequences: number; readonly tokens: number } | undefined;
}

const VIEWS =
  /^(aten\.(t|transpose|permute|view|reshape|_unsafe_view|_to_copy|to|detach|alias|clone|unsqueeze|expand)\.|prims\.convert_element_type|operator\.getitem|stablehlo\.(transpose|convert|reshape|optimization_barrier)$)/;
const PRODUCTS = /^aten\.(mm|addmm|bmm|linear|matmul|baddbmm)\./;

export function planRoles(source: ExportSource): PlanRoles {
  const { mesh, table, plan, program } = source;
  const planned = nodesByName(plan);
  const sharding = (text: string): Sharding => parseSharding(text, mesh, { kinds: table.kinds });
  const uses = parameterUses(source, sharding);
  const parameters = program.nodes.flatMap((node): ParameterUse[] => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'parameter') return [];
    const name = roleName(node);
    const use = uses.get(name);
    const stored = sharding(
      planned.get(node.name)?.outputs[0] ?? mesh.sizes.map(() => 'R').join(''),
    );
    return use === undefined ? [] : [{ name, shape: sizes(node), stored, ...use }];
  });
  const roles = mesh.sizes.map((size, m): MeshRole =>
    size === 1 ? 'none' : roleOf(source, parameters, sharding, m),
  );
  const tensor = roles.flatMap((role, m) => (role === 'tensor' ? [m] : []));
  return {
    roles,
    parameters,
    degree: (role) => mesh.sizeOf(roles.flatMap((r, m) => (r === role ? [m] : []))),
    sequenceParallel:
      tensor.length > 0 &&
      plan.nodes.some((node) => isCutAlong(node.target, node.outputs[0], tensor, sharding)),
    batch: batchOf(program.nodes),
  };
}

/** The parameter behind a value, and which of its dims each dim of the value is. */
interface Origin {
  readonly name: string;
  readonly dims: readonly number[];
  readonly turned: boolean;
}

/** How the forward pass uses a parameter. */
interface ForwardUse {
  readonly used: number[];
  outFirst: boolean;
  isTable: boolean;
}

/** The uses of all parameters in the forward pass, through views and in the bodies of loops. */
function parameterUses(
  { mesh, plan, program, graph }: ExportSource,
  sharding: (text: string) => Sharding,
): ReadonlyMap<string, ForwardUse> {
  const planned = nodesByName(plan);
  const origin = new Map<string, Origin>();
  const uses = new Map<string, ForwardUse>();
  const hasBodies = runsBodies(program);
  for (const node of (hasBodies ? graph : program).nodes) {
    if (node.kind === 'placeholder') {
      if (node.meta.role !== 'parameter') continue;
      const name = roleName(node);
      origin.set(node.name, { name, dims: sizes(node).map((_, d) => d), turned: false });
      uses.set(name, { used: mesh.sizes.map(() => -1), outFirst: false, isTable: false });
      continue;
    }
    if (node.meta.phase === 'backward' || node.meta.phase === 'optimizer') continue;
    const own = planned.get(node.name);
    operands(node).forEach((operand, i) => {
      const from = origin.get(operand);
      if (from === undefined) return;
      const dims = VIEWS.test(node.target) || isRow(node) ? viewDims(node, from.dims) : undefined;
      if (dims !== undefined) {
        const turns = node.target.startsWith('aten.t.') || node.target.startsWith('aten.transpose');
        if (!origin.has(node.name))
          origin.set(node.name, { ...from, dims, turned: from.turned !== turns });
        return;
      }
      const use = uses.get(from.name);
      const spec = own?.inputs[i];
      if (use === undefined || spec === undefined) return;
      sharding(spec).placements.forEach((p, m) => {
        if (p.dim !== undefined && mesh.sizes[m] > 1) use.used[m] = from.dims[p.dim] ?? -1;
      });
      if (PRODUCTS.test(node.target))
        use.outFirst ||= from.turned || node.target.startsWith('aten.linear');
      if (/^(aten\.embedding|stablehlo\.gather$)/.test(node.target)) use.isTable = true;
    });
  }
  return uses;
}

function isCutAlong(
  target: string,
  spec: string | undefined,
  dims: readonly number[],
  sharding: (text: string) => Sharding,
): boolean {
  if (spec === undefined || spec === '-' || !/norm|aten\.rsqrt/.test(target)) return false;
  const { placements } = sharding(spec);
  return dims.every((m) => placements[m].dim === 1);
}

function roleOf(
  source: ExportSource,
  parameters: readonly ParameterUse[],
  sharding: (text: string) => Sharding,
  m: number,
): MeshRole {
  const inPieces = parameters.filter(({ used }) => used[m] >= 0);
  const experts = inPieces.filter(({ shape, used }) => shape.length === 3 && used[m] === 0);
  // A table that is read in pieces is none of the layers, which may be gathered over the same dim.
  const isGathered = ({ isTable, stored, used }: ParameterUse): boolean =>
    !isTable && used[m] < 0 && stored.placements[m].dim !== undefined;
  const byLayers = inPieces.some(({ isTable }) => !isTable);
  if (byLayers || (inPieces.length > 0 && !parameters.some(isGathered)))
    return experts.length === inPieces.length ? 'expert' : 'tensor';
  if (parameters.some(({ stored }) => stored.placements[m].dim !== undefined)) return 'fsdp';
  const planned = nodesByName(source.plan);
  for (const node of source.program.nodes) {
    if (node.kind !== 'placeholder' || node.meta.role === 'parameter') continue;
    const spec = planned.get(node.name)?.outputs[0];
    const dim = spec === undefined ? undefined : sharding(spec).placements[m].dim;
    if (dim === 0) return 'data';
    if (dim === 1) return 'context';
  }
  // Values that are computed from inputs that all devices hold may still be cut.
  const rows = source.plan.nodes
    .map((node) => node.outputs[0])
    .filter((spec) => spec !== undefined && spec !== '-');
  const cuts = rows.map((spec) => sharding(spec).placements[m].dim);
  if (cuts.filter((d) => d === 0).length > cuts.length / 3) return 'data';
  return cuts.filter((d) => d === 1).length > cuts.length / 3 ? 'context' : 'none';
}

export function sizes(node: Node): number[] {
  if (node.type.kind !== 'tensor') return [];
  return node.type.shape.map((dim) => (typeof dim === 'number' ? dim : (dim.example ?? 1)));
}

function operands(node: Node): string[] {
  const names: string[] = [];
  const take = (arg: Arg): void => {
    if (isList(arg)) arg.forEach(take);
    else if (isRef(arg)) names.push(arg.name);
  };
  node.args.forEach(take);
  return names;
}

/** The row that a trip of a loop reads of a stack. */
function isRow({ target, args }: Node): boolean {
  return target === 'aten.select.int' && args[1] === 0;
}

/**
 * Dims of the parameter that the dims of a view are; undefined where the view splits or joins them.
 */
function viewDims(node: Node, dims: readonly number[]): readonly number[] | undefined {
  const { target, args } = node;
  const rank = dims.length;
  const at = (arg: Arg | undefined): number =>
    typeof arg === 'number' ? (arg < 0 ? arg + rank : arg) : 0;
  if (isRow(node)) return dims.slice(1);
  if (target.startsWith('aten.t.')) return [...dims].reverse();
  if (target.startsWith('aten.transpose')) {
    const out = [...dims];
    [out[at(args[1])], out[at(args[2])]] = [dims[at(args[2])], dims[at(args[1])]];
    return out;
  }
  if (target.startsWith('aten.permute') || target === 'stablehlo.transpose')
    return isList(args[1] ?? 0) ? (args[1] as readonly Arg[]).map((d) => dims[at(d)]) : undefined;
  const shape = sizes(node);
  return /view|reshape|expand|unsqueeze/.test(target)
    ? shape.length === rank
      ? dims
      : undefined
    : dims;
}

function batchOf(nodes: readonly Node[]): PlanRoles['batch'] {
  for (const node of nodes) {
    if (
      node.kind !== 'placeholder' ||
      node.meta.role === 'parameter' ||
      node.type.kind !== 'tensor'
    )
      continue;
    const shape = sizes(node);
    // Tokens: of PyTorch, or of JAX.
    if (shape.length === 2 && (node.type.dtype === 'i64' || node.type.dtype === 'i32'))
      return { sequences: shape[0], tokens: shape[1] };
  }
  return undefined;
}

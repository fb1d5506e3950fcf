/**
 * Writes the placements of inputs and outputs as PartitionSpecs, or gives the loss where there is
 * none. Source: `jax.sharding.PartitionSpec`: mesh dims of each tensor dim, major first.
 */
import type { ExportFile, ExportLoss, ExportSource, ReadPlacements } from '../../backend/target.ts';
import { ShardwrightError } from '../../errors.ts';
import { ownersOfOutputs } from '../../graph/carried.ts';
import { nodesByName, roleName } from '../../graph/nodes.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import { evenlyShardable, isPending, type Sharding } from '../../mesh/sharding/sharding.ts';
import { fromDimView, toDimView } from '../../mesh/views/dim-view.ts';
import { parsePartitionSpec, PartitionSpec } from '../../mesh/views/partition-spec.ts';
import type { ShardingText } from '../hlo/constraints.ts';

export interface SpecOf {
  /** Name behind the role, such as the parameter's; of an output its number. */
  readonly name: string;
  /** Name of the node. */
  readonly node: string;
  readonly role: string;
  readonly shape: readonly number[];
  /** The spec as Python writes it, `P("dp", None)`; `None` for an output that is absent. */
  readonly spec: string;
  readonly placement: string;
  readonly loss?: ExportLoss;
}

function sizesOf(node: Node): number[] {
  if (node.type.kind !== 'tensor') return [];
  return exampleShape(node.type);
}

/** One for each input of the program, in its order. */
export function inputShardings(source: ExportSource): SpecOf[] {
  const planned = nodesByName(source.plan);
  const nameOf = namesOfInputs(source.program);
  return source.program.nodes.flatMap((node) => {
    if (node.kind !== 'placeholder') return [];
    const placement = planned.get(node.name)?.outputs[0];
    if (placement === undefined)
      throw new ShardwrightError('E_PLAN', `the plan has no node ${node.name}`, {
        node: node.name,
      });
    return [
      specOf(
        {
          name: nameOf(node),
          node: node.name,
          role: node.meta.role ?? 'input',
          shape: sizesOf(node),
          placement,
        },
        source,
      ),
    ];
  });
}

/** A state has its own name where no other state has the same; else that of its parameter, too. */
function namesOfInputs({ nodes }: Graph): (node: Node) => string {
  const counts = new Map<string, number>();
  for (const { meta } of nodes)
    if (meta.stateName !== undefined)
      counts.set(meta.stateName, (counts.get(meta.stateName) ?? 0) + 1);
  return (node) => {
    const { stateName } = node.meta;
    if (stateName === undefined) return roleName(node);
    return counts.get(stateName) === 1 ? stateName : `${roleName(node)} ${stateName}`;
  };
}

/** One for each output of the program, in its order; `None` where it returns nothing. */
export function outputShardings(source: ExportSource): SpecOf[] {
  const { program, plan } = source;
  const shapes = new Map(program.nodes.map((node) => [node.name, sizesOf(node)]));
  // The plan lists what is returned, in order, before the carries of loops.
  let next = 0;
  return program.outputs.map((output, k) => {
    const name =
      output.of === undefined ? `output ${output.index ?? k}` : `${output.role} ${output.of}`;
    if (output.value === null)
      return { name, node: '', role: output.role, shape: [], spec: 'None', placement: '' };
    const placement = plan.outputs.at(next++)?.placement;
    if (placement === undefined)
      throw new ShardwrightError('E_PLAN', `the plan has no output ${output.value}`);
    const shape = shapes.get(output.value) ?? [];
    return specOf({ name, node: output.value, role: output.role, shape, placement }, source);
  });
}

/** Roles of outputs that are new values of inputs. */
const REPLACING: ReadonlySet<Output['role']> = new Set<Output['role']>(['mutation', 'newstate']);

/** By output, the place of the input that it is the new value of. */
export function replacedInputs(program: Graph): (number | undefined)[] {
  const ownerOf = ownersOfOutputs(program);
  const placeholders = program.nodes.filter(({ kind }) => kind === 'placeholder');
  return program.outputs.map((output) => {
    const at = output.value === null || !REPLACING.has(output.role) ? undefined : ownerOf(output);
    return at === undefined ? undefined : placeholders.indexOf(program.nodes[at]);
  });
}

function specOf(of: Omit<SpecOf, 'spec' | 'loss'>, { mesh, table }: ExportSource): SpecOf {
  const sharding = parseSharding(of.placement, mesh, { kinds: table.kinds });
  const lost = (instead: string): SpecOf => ({
    ...of,
    spec: 'P()',
    loss: { item: of.name, planned: `${of.placement} of [${of.shape.join(', ')}]`, instead },
  });
  if (sharding.placements.some(isPending))
    return lost('a pending reduction is not returned by shard_map: it stays inside');
  const spec = specText(sharding, mesh, of.shape);
  return 'refused' in spec ? lost(spec.refused) : { ...of, spec: spec.text };
}

/** The PartitionSpec of a sharding of no pending sums, as Python writes it. */
function specText(sharding: Sharding, mesh: DeviceMesh, shape: readonly number[]): ShardingText {
  const uneven = unevenDim(sharding, mesh, shape);
  if (uneven !== undefined) return { refused: uneven };
  const view = toDimView(sharding, mesh, shape);
  return 'refused' in view ? view : { text: pySpec(view.spec) };
}

/** The PartitionSpec of a value inside of a program. */
export function constraintText(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): ShardingText {
  return sharding.placements.some(isPending)
    ? { refused: `${sharding.text} is a pending reduction` }
    : specText(sharding, mesh, shape);
}

/** Why JAX cannot cut a tensor so; undefined where it can. */
function unevenDim(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): string | undefined {
  if (evenlyShardable(sharding, mesh, shape)) return undefined;
  for (const [dim, order] of sharding.orders) {
    const size = mesh.sizeOf(order);
    if (shape[dim] % size !== 0)
      return (
        `dim ${dim} of size ${shape[dim]} is not divisible by ${size} ` +
        `(${order.map((m) => mesh.names[m]).join(', ')})`
      );
  }
  return `${sharding.text} does not cut [${shape.join(', ')}] evenly`;
}

/** Trailing dims that are not cut are left out, as JAX prints a spec. */
function pySpec({ dims }: PartitionSpec): string {
  const last = dims.findLastIndex((axes) => axes.length > 0);
  return new PartitionSpec(dims.slice(0, last + 1)).text;
}

// ---- files
// -----------------------------------------------------------------------------

export function shardingsJson(
  mesh: DeviceMesh,
  inputs: readonly SpecOf[],
  outputs: readonly SpecOf[],
): string {
  const records = (list: readonly SpecOf[]): object[] =>
    list.map(({ name, node, role, shape, spec }) => ({ name, node, role, shape, spec }));
  const record = { mesh: mesh.text, inputs: records(inputs), outputs: records(outputs) };
  return `${JSON.stringify(record, null, 1)}\n`;
}

/** @throws E_SYNTAX for a file that is none of this target */
export function readJaxShardings(files: readonly ExportFile[], mesh: DeviceMesh): ReadPlacements {
  const file = files.find(({ name }) => name === 'shardings.json');
  const value: unknown = file === undefined ? undefined : JSON.parse(file.text);
  const parameters = new Map<string, string>();
  const nodes = new Map<string, { readonly outputs: readonly string[] }>();
  for (const record of inputsOf(value)) {
    const { sharding } = fromDimView(parsePartitionSpec(record.spec), mesh);
    nodes.set(record.node, { outputs: [sharding.text] });
    if (record.role === 'parameter') parameters.set(record.name, sharding.text);
  }
  return { parameters, nodes };
}

function inputsOf(value: unknown): { name: string; node: string; role: string; spec: string }[] {
  const list =
    typeof value === 'object' && value !== null && 'inputs' in value ? value.inputs : undefined;
  if (!Array.isArray(list))
    throw new ShardwrightError('E_SYNTAX', 'there is no shardings.json with a list of inputs');
  return list as { name: string; node: string; role: string; spec: string }[];
}

/**
 * Writes the placements of all inputs and outputs of `program.py` as a JSON record that every JSON
 * reader can read. Source of DTensor's words: `torch.distributed.tensor.placement_types`.
 */
import type { ExportedPlan } from '../../backend/target.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { hostSize } from '../../cost/hardware/topology.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { typesByName } from '../../graph/nodes.ts';
import type { Node, Output, TensorType } from '../../graph/types.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import { dtensorPlacements } from '../../mesh/sharding/mesh-view.ts';
import { torchDtype } from './program/arguments.ts';
import { sizeAt } from './program/sizes.ts';
import type { SplitProgram } from './program/split.ts';

/** A tensor that goes into the program or comes out of it. */
interface PlacedTensor {
  /** Name in the program. */
  readonly name: string;
  readonly role: string;
  /**
   * Fully qualified name of a parameter or buffer, name of an input; of a gradient, what it is the
   * gradient of.
   */
  readonly of?: string;
  /** Position among the user's inputs or outputs. */
  readonly index?: number;
  readonly dtype: string;
  /** Global sizes. */
  readonly shape: readonly number[];
  /** Strides of the captured tensor in elements, where they are not row-major. */
  readonly stride?: readonly number[];
  /** The placement as the plan writes it, `S(0)R`. */
  readonly placement: string;
  /**
   * One word for each mesh dim as DTensor has them: `R`, `S(0)`, `_S(0, 2)`, `P(sum)`. Strides that
   * are an order of mesh dims mean that order, also where the dim does not divide.
   */
  readonly dtensor: readonly string[];
  /** Sizes on the first device, or, where they differ, those of each device. */
  readonly local: readonly number[] | readonly (readonly number[])[];
  /** The parameter that this is another name of. */
  readonly tiedTo?: string;
}

export interface PlacementTable {
  readonly version: 1;
  readonly plan: string;
  readonly model: string;
  readonly mesh: { readonly names: readonly string[]; readonly sizes: readonly number[] };
  /** Hosts that one group of each mesh dim touches. */
  readonly hosts: readonly number[];
  /** Devices that share fast links: so many in a row, in the order of the mesh, lie on one host. */
  readonly devicesPerHost: number;
  readonly primals: readonly PlacedTensor[];
  readonly tangents: readonly PlacedTensor[];
  /**
   * User outputs, then new values of buffers, in the order in which `forward` returns them; null
   * for none.
   */
  readonly outputs: readonly (PlacedTensor | null)[];
  readonly gradients: readonly PlacedTensor[];
}

/** @throws E_UNSUPPORTED for a sharding of something whose sizes are not known */
export function placementTable(
  program: DeviceProgram,
  split: SplitProgram,
  plan: ExportedPlan,
  planHash: string,
): PlacementTable {
  const { mesh } = program;
  const tensors = new PlacedTensors(program, plan);
  return {
    version: 1,
    plan: planHash,
    model: plan.model,
    mesh: { names: mesh.names, sizes: mesh.sizes },
    hosts: plan.mesh.map(({ hosts }) => hosts),
    devicesPerHost: hostSize(loadCluster(plan.request.cluster), mesh),
    primals: split.inputs.map((node) => tensors.input(node)),
    tangents: split.tangents.map((node) => tensors.input(node)),
    outputs: split.outputs.map((of) => tensors.output(of)),
    gradients: split.gradients.flatMap((of) => tensors.output(of) ?? []),
  };
}

/** Inputs and outputs of a program, each with its placement. */
class PlacedTensors {
  /** Values outside of bodies, by their name in the program. */
  private readonly values: ReadonlyMap<string, DeviceProgram['values'][number]>;
  private readonly types: ReadonlyMap<string, Node['type']>;
  private readonly tied: ReadonlyMap<string, string>;

  constructor(
    private readonly program: DeviceProgram,
    plan: ExportedPlan,
  ) {
    this.values = new Map(
      program.values.filter(({ inBody }) => !inBody).map((value) => [value.local, value]),
    );
    this.types = typesByName(program.graph);
    this.tied = new Map(
      plan.parameters.flatMap(({ name, tiedTo }) =>
        tiedTo === undefined ? [] : [[name, tiedTo] as const],
      ),
    );
  }

  input(node: Node): PlacedTensor {
    const value = this.values.get(node.name);
    if (value === undefined)
      throw new ShardwrightError('E_UNSUPPORTED', `input ${node.name} is not a tensor`, {
        node: node.name,
      });
    const { role = 'input', roleName, roleIndex } = node.meta;
    const tiedTo = roleName === undefined ? undefined : this.tied.get(roleName);
    return this.placed(node.name, value.sharding, value.shape, {
      role,
      ...defined({ of: roleName, index: roleIndex, tiedTo }),
    });
  }

  /** Null where the program returns nothing. */
  output(of: Output): PlacedTensor | null {
    const { graph, outputs } = this.program;
    const sharding = outputs[graph.outputs.indexOf(of)] ?? null;
    if (of.value === null || sharding === null) return null;
    return this.placed(of.value, sharding, this.globalShape(of.value, sharding), {
      role: of.role,
      ...defined({ of: of.of, index: of.index }),
    });
  }

  private globalShape(name: string, sharding: number): readonly number[] {
    const value = this.program.values.find((v) => v.local === name && v.sharding === sharding);
    return value?.shape ?? globalOf(this.program, name, sharding);
  }

  private placed(
    name: string,
    sharding: number,
    shape: readonly number[],
    rest: Partial<PlacedTensor>,
  ): PlacedTensor {
    const { program } = this;
    const type = this.types.get(name);
    if (type?.kind !== 'tensor')
      throw new ShardwrightError('E_UNSUPPORTED', `${name} is not a tensor`, { node: name });
    const spec = program.space.get(sharding);
    const { of, index, tiedTo, stride } = rest;
    return {
      name,
      role: rest.role ?? 'value',
      ...defined({ of, index }),
      dtype: torchDtype(type.dtype),
      shape,
      ...defined({ stride }),
      placement: spec.text,
      dtensor: dtensorPlacements(spec, program.mesh).map(({ text }) => text),
      local: localShape(program, type),
      ...defined({ tiedTo }),
    };
  }
}

function localShape(program: DeviceProgram, type: TensorType): PlacedTensor['local'] {
  const byRank = program.mesh.devices.map((_, rank) =>
    type.shape.map((dim) => sizeAt(program, dim, rank)),
  );
  return byRank.every((shape) => shape.join() === byRank[0].join()) ? byRank[0] : byRank;
}

/** Global sizes of a moved value: each dim is the sum over the devices that cut it. */
function globalOf(program: DeviceProgram, name: string, sharding: number): number[] {
  const { mesh, space, graph } = program;
  const type = graph.nodes.find((node) => node.name === name)?.type;
  if (type?.kind !== 'tensor')
    throw new ShardwrightError('E_UNSUPPORTED', `${name} is not a tensor`, { node: name });
  const spec = space.get(sharding);
  return type.shape.map((dim, d) => {
    const cutBy = new Set(spec.orderOf(d));
    let size = 0;
    for (let rank = 0; rank < mesh.size; rank++) {
      const at = mesh.coordinates(rank);
      if (at.every((c, m) => cutBy.has(m) || c === 0)) size += sizeAt(program, dim, rank);
    }
    return size;
  });
}

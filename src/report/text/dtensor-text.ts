/** Prints the parameter placements of a plan as Python for `torch.distributed.tensor`. */

import { parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { Plan } from '../../plan/record/types.ts';
import { foldParameters } from '../model/parameters.ts';

/**
 * A part of a placement text: a kind, the dim that it cuts in parentheses, and its place in the
 * order of cuts in brackets.
 */
const PART = /(S|P|R|_S|Interleaved)(?:\(([^)]*)\))?(\[\d+\])?/g;

/**
 * The placements of all parameters as Python that `torch.distributed.tensor` reads: a mesh, one
 * placement for each mesh dim of every parameter, and the function that places a model. What
 * DTensor has no public word for is a comment, never another placement, and `place` then refuses
 * that parameter.
 */
export function dtensorText(plan: Plan): string {
  const sizes = plan.mesh.map((d) => d.size).join(', ');
  const names = plan.mesh.map((d) => `"${d.name}"`).join(', ');
  const comma = plan.mesh.length === 1 ? ',' : '';
  const space = new ShardingSpace(parseMesh(plan.request.mesh));
  const lines = placedNames(plan).map(({ name, placement }) => {
    const words = dtensorPlacements(space, placement);
    if (words === undefined) return `    # ${pythonText(name)}: ${placement} has no DTensor word`;
    return `    ${pythonText(name)}: [${words.join(', ')}],`;
  });
  return [
    '# Parameters only: all else is placed by DTensor, not as in the plan. Tensors that are ' +
      'not placed are taken as replicas:',
    '#   place(model)',
    '#   with implicit_replication():',
    '#       loss = model(inputs); loss.backward()',
    'import re',
    'from torch import nn',
    'from torch.distributed.device_mesh import init_device_mesh',
    'from torch.distributed.tensor import Replicate, Shard, distribute_tensor',
    'from torch.distributed.tensor.experimental import implicit_replication',
    '',
    'PLACEMENTS = {  # * stands for the number of a layer',
    ...lines,
    '}',
    '',
    'def place(model, device="cuda"):',
    `    mesh = init_device_mesh(device, (${sizes}${comma}), mesh_dim_names=(${names}${comma}))`,
    '    placed = {}  # a parameter with several names stays one',
    '    for name, parameter in list(model.named_parameters(remove_duplicate=False)):',
    String.raw`        folded = re.sub(r"(^|[._])\d+(?=[._]|$)", r"\1*", name)`,
    '        if parameter not in placed:',
    '            placements = PLACEMENTS[name] if name in PLACEMENTS else PLACEMENTS[folded]',
    '            whole = distribute_tensor(parameter.data, mesh, placements)',
    '            placed[parameter] = nn.Parameter(whole, requires_grad=parameter.requires_grad)',
    '        owner, _, leaf = name.rpartition(".")',
    '        model.get_submodule(owner).register_parameter(leaf, placed[parameter])',
  ].join('\n');
}

/**
 * Folded names with their placement; layers that are not all placed the same way are listed under
 * their own names.
 */
function placedNames(plan: Plan): { readonly name: string; readonly placement: string }[] {
  const fold = (name: string): string => name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
  const placements = new Map<string, Set<string>>();
  for (const p of plan.parameters) {
    const known = placements.get(fold(p.name));
    if (known === undefined) placements.set(fold(p.name), new Set([p.placement]));
    else known.add(p.placement);
  }
  const rows = foldParameters(plan).filter((row) => placements.get(fold(row.name))?.size === 1);
  const single = plan.parameters.filter(
    (p) => p.tiedTo !== undefined || (placements.get(fold(p.name))?.size ?? 0) > 1,
  );
  // Equal names may differ in shape; the placement is the same.
  return [
    ...new Map(
      [...rows, ...single].map(({ name, placement }) => [name, { name, placement }]),
    ).values(),
  ];
}

/**
 * Placements as DTensor writes them; undefined where the cuts of one dim are not in the order of
 * the mesh, or are not plain cuts.
 */
function dtensorPlacements(space: ShardingSpace, placement: string): string[] | undefined {
  const parts = [...placement.matchAll(PART)];
  if (
    parts.map(([whole]) => whole).join('') !== placement ||
    parts.length !== space.mesh.sizes.length
  )
    return undefined;
  const words: string[] = [];
  for (const [, kind, dim, order] of parts) {
    if (order !== undefined || (kind !== 'R' && kind !== 'S')) return undefined;
    words.push(kind === 'R' ? 'Replicate()' : `Shard(${dim})`);
  }
  return words;
}

/**
 * A JSON string is a Python string; what is beyond ASCII is escaped, and what could be taken for
 * markup.
 */
function pythonText(text: string): string {
  return JSON.stringify(text).replace(
    /[<>&\u007f-\uffff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

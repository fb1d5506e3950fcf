/**
 * `--target torch-dtensor` writes calls of `parallelize_module` and `fully_shard` where a plan can
 * be expressed by them, in `parallelize.py` and `placements.json`. DTensor then chooses the
 * collectives itself: measured, it ran other collectives than the plan and up to six times the
 * bytes; `--target torch` runs the plan as it is.
 */
import { lossLines } from '../backend/loss-lines.ts';
import { headLines, pyString, pyTuple } from '../backend/python-text.ts';
import type {
  ExportFile,
  ExportLoss,
  ExportResult,
  ExportSource,
  ExportTarget,
  ReadPlacements,
} from '../backend/target.ts';
import { ShardwrightError } from '../errors.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import { fromMeshView, toMeshView } from '../mesh/sharding/mesh-view.ts';
import { parseSharding } from '../mesh/sharding/parse.ts';
import { planRoles } from '../trainers/roles/roles.ts';
import { recipeLosses, type Style, tensorStyles } from '../trainers/roles/styles.ts';

const CALLS: Readonly<Record<Style, string>> = {
  colwise: 'ColwiseParallel()',
  rowwise: 'RowwiseParallel()',
  embedding_rowwise: 'RowwiseParallel(input_layouts=Replicate())',
  embedding_colwise: 'ColwiseParallel(output_layouts=Replicate())',
};

function write(source: ExportSource): ExportResult {
  const { mesh } = source;
  const roles = planRoles(source);
  const { modules, losses: styleLosses } = tensorStyles(roles, source);
  const { placements, losses: placementLosses } = placementsOf(source);
  const of = (role: string): string[] =>
    roles.roles.flatMap((own, m) => (own === role ? [mesh.names[m]] : []));
  const losses: ExportLoss[] = [
    ...recipeLosses(roles, source),
    ...styleLosses,
    ...roleLosses(of),
    ...placementLosses,
  ];
  const text = programText(source, {
    head: lossLines(losses),
    plans: modules.map(({ path, style }) => `    ${pyString(path)}: ${CALLS[style]},`),
    tensor: of('tensor').map(pyString),
    shards: [...of('data'), ...of('fsdp')].map(pyString),
    isSharded: of('fsdp').length > 0,
  });
  const notes = [
    'DTensor chooses the collectives: compare with --target torch, which runs those of the plan.',
  ];
  const known = propagatedPrice(source);
  return {
    files: [
      { name: 'parallelize.py', text },
      {
        name: 'placements.json',
        text: `${JSON.stringify({ mesh: mesh.text, parameters: placements }, null, 1)}\n`,
      },
    ],
    losses,
    notes: known === undefined ? notes : [...notes, known],
  };
}

/** Mesh dims that no call of the file uses. */
function roleLosses(of: (role: string) => readonly string[]): ExportLoss[] {
  const unused = ['context', 'expert'].flatMap((role) =>
    of(role).length === 0
      ? []
      : [
          {
            item: `mesh dim ${of(role).join(', ')}`,
            planned: `${role} parallel`,
            instead: 'no call of this file does it: use --target torch',
          },
        ],
  );
  const tensor = of('tensor');
  if (tensor.length <= 1) return unused;
  return [
    ...unused,
    {
      item: 'tensor parallelism',
      planned: `over ${tensor.join(', ')}`,
      instead: 'parallelize_module takes one mesh dim',
    },
  ];
}

/** Placements of the parameters as DTensor has them. */
function placementsOf({ mesh, plan, table }: ExportSource): {
  readonly placements: readonly { readonly name: string; readonly placement: string }[];
  readonly losses: readonly ExportLoss[];
} {
  const losses: ExportLoss[] = [];
  const placements = plan.parameters.map(({ name, placement }) => {
    const view = toMeshView(parseSharding(placement, mesh, { kinds: table.kinds }), mesh);
    if ('refused' in view) losses.push({ item: name, planned: placement, instead: view.refused });
    const text = 'refused' in view ? placement : view.placements.map((p) => p.text).join('');
    return { name, placement: text };
  });
  return { placements, losses };
}

/** The calls of `parallelize.py`; mesh dims are Python strings. */
interface Calls {
  readonly head: readonly string[];
  /** Lines of the table of modules. */
  readonly plans: readonly string[];
  readonly tensor: readonly string[];
  readonly shards: readonly string[];
  readonly isSharded: boolean;
}

function programText(
  source: ExportSource,
  { head, plans, tensor, shards, isSharded }: Calls,
): string {
  const { mesh } = source;
  return [
    ...[...headLines(source, 'torch-dtensor'), ...head].map((line) => `# ${line}`),
    'from torch.distributed.device_mesh import init_device_mesh',
    'from torch.distributed.fsdp import fully_shard',
    'from torch.distributed.tensor import Replicate',
    'from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, ' +
      'parallelize_module',
    '',
    `MESH_SHAPE = ${pyTuple(mesh.sizes.map(String))}`,
    `MESH_NAMES = ${pyTuple(mesh.names.map(pyString))}`,
    '# Modules by name; * is any one part of it.',
    'PLAN = {',
    ...plans,
    '}',
    '',
    '',
    'def parallelize(model, device_type="cuda", blocks=()):',
    '    """Cuts the modules of the plan, then shards the blocks and the rest of the model ' +
      'over the data-parallel dims."""',
    '    mesh = init_device_mesh(device_type, MESH_SHAPE, mesh_dim_names=MESH_NAMES)',
    ...(tensor.length > 0 ? [`    parallelize_module(model, mesh[${tensor[0]}], PLAN)`] : []),
    ...(isSharded
      ? [
          `    shards = mesh[${shards.length === 1 ? shards[0] : pyTuple(shards)}]`,
          '    for block in blocks:',
          '        fully_shard(block, mesh=shards, reshard_after_forward=True)',
          '    fully_shard(model, mesh=shards)',
        ]
      : []),
    '    return model',
    '',
  ].join('\n');
}

/** The extra price of node-by-node propagation, where the plan has that price. */
function propagatedPrice({ plan }: ExportSource): string | undefined {
  const { greedySeconds, objective } = plan;
  if (greedySeconds === null || greedySeconds === undefined || objective === undefined)
    return undefined;
  const more = (greedySeconds / objective.seconds - 1) * 100;
  return (
    `Node-by-node propagation, as DTensor does it, would take ${more.toFixed(1)} % more than ` +
    'the plan by its own prices.'
  );
}

function readBack(files: readonly ExportFile[], mesh: DeviceMesh): ReadPlacements {
  const file = files.find(({ name }) => name === 'placements.json');
  const value: unknown = JSON.parse(file?.text ?? 'null');
  const list =
    typeof value === 'object' && value !== null && 'parameters' in value
      ? value.parameters
      : undefined;
  if (!Array.isArray(list))
    throw new ShardwrightError('E_SYNTAX', 'there is no placements.json with parameters');
  const read = list as { name: string; placement: string }[];
  return {
    parameters: new Map(
      read.map(({ name, placement }) => [
        name,
        fromMeshView(parseSharding(placement, mesh).placements, mesh).text,
      ]),
    ),
  };
}

export const torchDtensorTarget: ExportTarget = {
  name: 'torch-dtensor',
  summary: 'parallelize_module and fully_shard calls, where the plan is one of theirs',
  triedWith: ['torch 2.13'],
  write,
  readBack,
};

/**
 * Refuses recipes that a trainer would not run, whatever losses are allowed: a mesh dim that cuts
 * no weight of a layer is not tensor parallelism, and heads are not cut in parts. Sources:
 * `TransformerConfig` of megatron-core 0.16 (`num_attention_heads`, `num_query_groups`), column and
 * row parallel layers of torch.distributed.tensor.parallel.
 */
import { type ExportSource, ownTarget } from '../../backend/target.ts';
import { ShardwrightError } from '../../errors.ts';
import { modelShape } from './model-shape.ts';
import type { PlanRoles } from './roles.ts';

/** A weight of a repeated layer. */
const IN_LAYER = /(?:^|\.)(?:layers|h|layer|blocks|block)\.\d+\./;

/** @throws E_EXPORT_LOSS naming the mesh dim, and the command that makes a plan of the trainer */
export function refuseUnsafe(source: ExportSource, roles: PlanRoles, trainer: string): void {
  const { mesh, plan } = source;
  const tensor = roles.roles.flatMap((role, m) => (role === 'tensor' ? [m] : []));
  const weights = roles.parameters.filter(
    ({ name, shape }) => IN_LAYER.test(name) && shape.length > 1,
  );
  const degree = roles.degree('tensor');
  const { heads, keyHeads } = modelShape(source, roles);
  const nearest = nearestPlan(source, roles, commonDivisor([degree, heads, keyHeads]));
  const fail = (what: string): ShardwrightError =>
    new ShardwrightError('E_EXPORT_LOSS', `${trainer} would not run this plan: ${what}`, {
      hint:
        'no flag writes it. The nearest plan that can be written: shardwright plan MODEL --mesh ' +
        `${nearest.mesh} --recipe ${nearest.recipe} --cluster ${plan.cluster} -o plan; or ` +
        `export with --target ${ownTarget(source.program)}.`,
      nearest,
    });
  const isWhole = (m: number): boolean => weights.every(({ used }) => used[m] < 0);
  const idle = weights.length === 0 ? undefined : tensor.find(isWhole);
  if (idle !== undefined)
    throw fail(
      `${mesh.names[idle]}=${mesh.sizes[idle]} cuts the embedding or the head and no ` +
        'weight of a layer, which is not tensor parallelism',
    );
  for (const [what, n] of [
    ['attention heads', heads],
    ['key and value heads', keyHeads],
  ] as const)
    if (degree > 1 && n !== undefined && n % degree !== 0)
      throw fail(`${n} ${what} do not divide over tensor parallelism of ${degree}`);
}

/**
 * The nearest known plan of as many devices: tensor parallelism over so many of them, which all
 * heads divide over, and data ranks for the rest.
 */
function nearestPlan(
  { mesh }: ExportSource,
  { roles }: PlanRoles,
  tensor: number,
): { readonly mesh: string; readonly recipe: string } {
  const ranks = mesh.size / tensor;
  const data = roles.includes('fsdp') ? 'fsdp' : 'dp';
  if (tensor === 1) return { mesh: `dp=${ranks}`, recipe: data };
  if (ranks === 1) return { mesh: `tp=${tensor}`, recipe: 'tp' };
  return { mesh: `dp=${ranks},tp=${tensor}`, recipe: `${data}+tp` };
}

/** The largest number that divides all of these that are known. */
function commonDivisor(numbers: readonly (number | undefined)[]): number {
  const pair = (a: number, b: number): number => (b === 0 ? a : pair(b, a % b));
  return numbers.flatMap((n) => (Number.isInteger(n) ? Number(n) : [])).reduce(pair, 0);
}

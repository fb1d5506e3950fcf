/**
 * Writes a local random call as a call that draws the values of the whole tensor and takes its own
 * part, so that generators of all devices stay equal and the numbers are those of one process. The
 * whole exists only briefly: for dropout only its mask, a byte for each element. Source: PyTorch's
 * generators, whose numbers depend on the size of the tensor that is drawn.
 */
import { pyList, pyTuple } from '../../../backend/python-text.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Node } from '../../../graph/types.ts';
import type { DeviceProgram, RandomPiece } from '../../../lower/program/program.ts';
import { Shard } from '../../../mesh/placements/shards/shard.ts';
import { StridedShard } from '../../../mesh/placements/shards/strided.ts';
import type { Helper } from './helpers.ts';

/** Calls whose first argument says size and dtype only. */
const LIKE = new Set(
  [
    'bernoulli.p',
    'bernoulli_.float',
    'normal_.default',
    'uniform_.default',
    'exponential_.default',
    'log_normal_.default',
    'geometric_.default',
    'cauchy_.default',
    'normal_functional.default',
    'uniform.default',
    'exponential.default',
    'log_normal.default',
    'geometric.default',
    'cauchy.default',
    'randint_like.default',
    'randint_like.low_dtype',
    'rand_like.default',
    'randn_like.default',
  ].map((name) => `aten.${name}`),
);
/** Calls that draw by the values of their operand: every element takes as many random numbers. */
const BY_OPERAND = new Set(['aten.bernoulli.default', 'aten.multinomial.default']);
/** Noise times a deviation plus a mean, with the place of the operand that says the dtype. */
const SCALED = new Map([
  ['aten.normal.Tensor_Tensor', 0],
  ['aten.normal.Tensor_float', 0],
  ['aten.normal.float_Tensor', 1],
]);
/** The position of their sizes among the arguments. */
const CREATED = new Map([
  ['aten.rand.default', 0],
  ['aten.randn.default', 0],
  ['aten.randint.default', 1],
  ['aten.randint.low', 2],
  ['aten.normal.float_float', 2],
]);
/** Attention draws only where it drops. */
const DROP = new Map([
  ['aten._scaled_dot_product_flash_attention_for_cpu.default', 3],
  ['aten._scaled_dot_product_flash_attention.default', 3],
  ['aten._scaled_dot_product_efficient_attention.default', 5],
  ['aten._scaled_dot_product_cudnn_attention.default', 5],
  ['aten.scaled_dot_product_attention.default', 4],
]);

/** A random call as text. */
interface RandomText {
  readonly text: string;
  readonly helpers: readonly Helper[];
}

/** Tells whether a call draws random numbers. */
export function draws({ random }: DeviceProgram, node: Node): boolean {
  // The backward pass of attention takes up the numbers of the forward call; it draws none.
  if (!random.has(node.name) || node.target.includes('_backward.')) return false;
  const at = DROP.get(node.target);
  if (at === undefined) return true;
  const rate = node.args[at];
  return typeof rate === 'number'
    ? rate > 0
    : typeof rate === 'object' &&
        rate !== null &&
        'kind' in rate &&
        rate.kind === 'float' &&
        rate.value > 0;
}

/**
 * The text of a random call whose result is cut; undefined where every device draws the whole, or
 * draws nothing.
 *
 * @param args its arguments as Python, keywords after positions
 * @throws E_UNSUPPORTED, with the node, for calls whose numbers would not be those of one device
 */
export function randomText(
  program: DeviceProgram,
  node: Node,
  args: readonly string[],
): RandomText | undefined {
  const piece = program.random.get(node.name);
  if (piece === undefined || !draws(program, node)) return undefined;
  const cuts = cutsOf(program, piece, node);
  if (cuts.length === 0) return undefined;
  const cutText = pyTuple(cuts.map((cut) => pyTuple(cut.map(String))));
  const whole = pyList(piece.shape.map(String));
  const order = piece.order === undefined ? undefined : pyTuple(piece.order.map(String));
  if (node.target === 'aten.native_dropout.default')
    return {
      text:
        `native_dropout(here, ${args.join(', ')}, ${whole}, ` +
        `${[cutText, ...(order === undefined ? [] : [order])].join(', ')})`,
      helpers: ['native_dropout', 'part'],
    };
  if (LIKE.has(node.target)) {
    const [like, ...rest] = args;
    const sizes = order === undefined ? `empty(${whole}` : `empty_permuted(${whole}, ${order}`;
    const empty = `torch.${sizes}, dtype=${like}.dtype, device=here.device)`;
    return {
      text: `part(here, ${node.target}(${[empty, ...rest].join(', ')}), ${cutText})`,
      helpers: ['part'],
    };
  }
  const likeAt = SCALED.get(node.target);
  if (likeAt !== undefined) {
    const [mean, std = '1.0'] = args.filter((arg) => !arg.startsWith('generator='));
    const sizes = order === undefined ? `empty(${whole}` : `empty_permuted(${whole}, ${order}`;
    const noise = `torch.${sizes}, dtype=${args[likeAt]}.dtype, device=here.device).normal_()`;
    // The calls of PyTorch's own kernel, in its order.
    return { text: `${std} * part(here, ${noise}, ${cutText}) + ${mean}`, helpers: ['part'] };
  }
  const sizesAt = CREATED.get(node.target);
  if (sizesAt !== undefined)
    return {
      text: `part(here, ${node.target}(${args.with(sizesAt, whole).join(', ')}), ${cutText})`,
      helpers: ['part'],
    };
  if (BY_OPERAND.has(node.target)) {
    const [operand, ...rest] = args;
    const draw = `lambda x: ${node.target}(${['x', ...rest].join(', ')})`;
    const places = [whole, cutText, ...(order === undefined ? [] : [order])].join(', ');
    return { text: `drawn(here, ${draw}, ${operand}, ${places})`, helpers: ['drawn', 'part'] };
  }
  throw new ShardwrightError(
    'E_UNSUPPORTED',
    `${node.target} draws numbers on parts that are not those of one device`,
    {
      node: node.name,
      hint: 'pin the node to R, or leave its dropout out.',
    },
  );
}

/** Mesh dim, tensor dim and chunks of each cut, in the order in which they are made. */
function cutsOf(
  { space, mesh }: DeviceProgram,
  { sharding }: RandomPiece,
  node: Node,
): [number, number, number][] {
  const spec = space.get(sharding);
  return [...spec.orders].flatMap(([dim, order]) =>
    order
      .filter((m) => mesh.sizes[m] > 1)
      .map((m): [number, number, number] => {
        const cut = spec.placements[m];
        if (cut instanceof Shard) return [m, dim, 1];
        if (cut instanceof StridedShard) return [m, dim, cut.factor];
        throw new ShardwrightError(
          'E_UNSUPPORTED',
          `random numbers in ${spec.text} are not exported`,
          { node: node.name },
        );
      }),
  );
}

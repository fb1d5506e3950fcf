/**
 * Rewrites convolutions with whole groups cut, and grouped products with cut rows, to calls with
 * local sizes.
 */
import { ref } from '../../graph/value.ts';
import { product } from '../../product.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { combine, minus, plus, type RankInt } from '../program/rank-int.ts';

/** Groups that a rank has: channels are cut between whole groups. */
const groupsAs =
  (argument: string): Rewrite =>
  (call) => {
    const pieces = product(call.meshDims('groups').map((m) => call.pieces.space.mesh.sizes[m]));
    return call.run({ [argument]: call.global.int(argument) / pieces });
  };
const groups = groupsAs('groups');

/**
 * Groups of rows, each with an expert. Where rows are cut, the ends of the groups are counted from
 * the rank's first row and clipped to its rows. Where experts are cut, the rank's own groups are
 * turned to the front, because groups start at row 0, and the rest is zero.
 */
const grouped: Rewrite = (call) => {
  const { emit } = call;
  let ends = call.tensor('offs');
  if (call.meshDims('offsets').length > 0) {
    const piece = tokens(call);
    const shifted = emit.call('aten.sub.Tensor', [ref(ends), emit.int(piece.start)]);
    ends = emit.call('aten.clamp.default', [ref(shifted), 0, emit.int(piece.rows)]);
  }
  if (call.meshDims('offset').length === 0) return call.run({ offs: ref(ends) });
  return new OwnGroups(call, ends).product();
};

/** A grouped product of the groups that a rank has. */
class OwnGroups {
  /** Dims of the operands: experts are the extra dim of one of them, or of the result. */
  private readonly form: string;

  constructor(
    private readonly call: LocalCall,
    private readonly ends: string,
  ) {
    this.form = call.global.inputs
      .slice(0, 2)
      .map((meta) => meta.shape.length)
      .join('x');
  }

  product(): ReturnType<Rewrite> {
    const { call, form } = this;
    const { emit } = call;
    const experts = this.experts();
    const [left, right] = [call.tensor('self'), call.tensor('mat2')];
    const rows =
      form === '3x2' ? emit.type(right).shape[1] : emit.type(left).shape[form === '2x3' ? 0 : 1];
    const last = plus(experts.start, experts.rows);
    // Row at which the first own group starts: the end of the group before.
    const starts = emit.call('aten.constant_pad_nd.default', [ref(this.ends), [1, 0], 0]);
    const first = this.part(starts, experts.start, plus(experts.start, 1));
    const ownEnds = this.part(this.ends, experts.start, last);
    const own = emit.call('aten.sub.Tensor', [ref(ownEnds), ref(first)]);
    const numbers = emit.call('aten.arange.default', [emit.int(rows)]);
    const around = combine([rows], 'rows at least one', (n) => Math.max(1, n));
    const turned = (by: 'add' | 'sub'): string => {
      const moved = emit.call(`aten.${by}.Tensor`, [ref(numbers), ref(first)]);
      return emit.call('aten.remainder.Scalar', [ref(moved), emit.int(around)]);
    };
    const forward = turned('add');
    if (form === '2x2')
      return call.run({
        self: ref(this.pick(left, 1, forward)),
        mat2: ref(this.pick(right, 0, forward)),
        offs: ref(own),
      });
    const dim = form === '2x3' ? 0 : 1;
    const operands =
      dim === 0
        ? { self: ref(this.pick(left, 0, forward)) }
        : { mat2: ref(this.pick(right, 1, forward)) };
    const made = call.runOne({ ...operands, offs: ref(own) }, false);
    // Rows after the last own group: the kernel leaves them unwritten.
    const done = this.part(own, minus(experts.rows, 1), experts.rows);
    const after = emit.call('aten.ge.Tensor', [ref(numbers), ref(done)]);
    const mask = dim === 0 ? emit.call('aten.unsqueeze.default', [ref(after), 1]) : after;
    const zeroed = emit.call('aten.masked_fill.Scalar', [ref(made), ref(mask), 0]);
    return [this.pick(zeroed, dim, turned('sub'), call.node.name)];
  }

  /** The experts of the rank. */
  private experts(): ReturnType<LocalCall['outputPiece']> {
    if (this.form === '2x3') return this.call.inputPiece('mat2', 0);
    return this.form === '3x2' ? this.call.inputPiece('self', 0) : this.call.outputPiece(0);
  }

  private part(value: string, from: RankInt, to: RankInt): string {
    const { emit } = this.call;
    return emit.call('aten.slice.Tensor', [ref(value), 0, emit.int(from), emit.int(to)]);
  }

  private pick(value: string, dim: number, index: string, name?: string): string {
    return this.call.emit.call(
      'aten.index_select.default',
      [ref(value), dim, ref(index)],
      name === undefined ? {} : { name },
    );
  }
}

/** The rows that the groups divide: those of the operand cut in the rule. */
function tokens(call: LocalCall) {
  const rule = call.rules.find((r) => r?.rewrite === 'offsets');
  const at = rule?.inputs.findIndex((slot) => slot?.kind === 'shard') ?? -1;
  const slot = rule?.inputs[at];
  if (slot?.kind !== 'shard') return call.unsupported('no operand is cut');
  return call.pieces.of(call.inputSpecs[at], slot.dim, call.global.inputs[at].shape[slot.dim]);
}

export const productRewrites: Rewrites = {
  'aten.convolution.default': groups,
  'aten.conv1d.default': groups,
  'aten.conv2d.default': groups,
  'aten.conv3d.default': groups,
  'aten.convolution_backward.default': groups,
  'aten._grouped_mm.default': grouped,
  'stablehlo.convolution': groupsAs('feature_group_count'),
};

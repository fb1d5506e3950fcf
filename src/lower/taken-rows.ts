/**
 * Takes the rows that a local call reads of the tensors that a device has (`Rule.takes`), and puts
 * the rows of its results back in their places.
 */
import { internalError } from '../errors.ts';
import { ref } from '../graph/value.ts';
import type { TypedContext } from '../ops/record/record.ts';
import type { Rule, TakenRows } from '../ops/record/rule.ts';
import { type Taken, takenBy, takenRows } from '../ops/record/taken-rows.ts';
import type { Emitter } from './program/emitter.ts';
import { type DimOrder, inRowMajor } from './program/memory-orders.ts';
import type { Piece, Pieces } from './program/pieces.ts';
import { atRank, combine, minus, plus, type RankInt, times } from './program/rank-int.ts';

/** A call that may take rows, and the writer of its program. */
interface TakingCall {
  readonly emit: Emitter;
  readonly pieces: Pieces;
  /** The call at global sizes. */
  readonly global: TypedContext;
  readonly inputSpecs: readonly number[];
  /** By input, then result: the memory order of the captured program, which the rows keep. */
  readonly orderOf: (tensor: number) => DimOrder;
}

/** Local names in place of those that the device has: operands before a call, results after it. */
interface LocalNames {
  readonly operands: (names: readonly string[]) => readonly string[];
  readonly results: (names: readonly (string | null)[]) => readonly (string | null)[];
}

/** The rows that a call takes under the rules of all mesh dims. */
export function takeRows(rules: readonly (Rule | undefined)[], call: TakingCall): LocalNames {
  const takes = takenRows(rules);
  if (takes === undefined) return { operands: (names) => names, results: (names) => names };
  const rows = new RowTaker(takes, call);
  const { length } = call.global.inputs;
  return {
    operands: (names) => names.map((name, i) => (takes.of.includes(i) ? rows.take(name, i) : name)),
    results: (names) =>
      names.map((name, k) =>
        name !== null && takes.of.includes(length + k) ? rows.put(name, length + k) : name,
      ),
  };
}

class RowTaker {
  /** Number of rows taken. */
  private readonly rows: RankInt;
  /** The first of them, counted from the first that the device has. */
  private readonly first: RankInt;
  /** Rows that the device has. */
  private readonly held: number;
  /** The numbers of the rows, where they are not neighbours. */
  private readonly numbers: string | undefined;

  constructor(
    private readonly takes: TakenRows,
    private readonly call: TakingCall,
  ) {
    const { dim, by, each, of } = takes;
    const { emit, pieces, global, inputSpecs } = call;
    const rowsOf = (input: number): Piece =>
      pieces.of(inputSpecs[input], dim, global.inputs[input].shape[dim]);
    const [{ start, rows: own }, has] = [rowsOf(by), rowsOf(of[0])];
    if (typeof has.rows !== 'number')
      throw internalError('rows are taken of a tensor that is cut unevenly');
    this.held = has.rows;
    const taken = (n: number): Taken => takenBy(takes, n, this.held, typeof own === 'number');
    const { step } = taken(atRank(own, 0));
    this.rows = combine([own], 'rows taken', (n) => taken(n).rows);
    const from = minus(start, times(has.start, each));
    this.first = combine([from], 'first row taken', (row) => Math.floor(row / each));
    if (this.rows === 1 || step === each) return;
    const counted = emit.call('prims.iota.default', [emit.int(this.rows)], {
      kwargs: {
        start: emit.int(from),
        step,
        dtype: { kind: 'dtype', dtype: 'i64' },
        device: { kind: 'device', word: 'cpu' },
        requires_grad: false,
      },
    });
    this.numbers = emit.call('aten.floor_divide.Scalar', [ref(counted), each]);
  }

  take(name: string, tensor: number): string {
    if (this.takesAll) return name;
    const { emit } = this.call;
    const { dim } = this.takes;
    if (this.numbers === undefined) {
      const end = plus(this.first, this.rows);
      const args = [ref(name), dim, emit.int(this.first), emit.int(end)];
      return emit.call('aten.slice.Tensor', args);
    }
    const numbers = ref(this.numbers);
    return this.inOrder(name, tensor, (rows, at) =>
      emit.call('aten.index_select.default', [ref(rows), at, numbers]),
    );
  }

  put(name: string, tensor: number): string {
    if (this.takesAll) return name;
    return this.inOrder(name, tensor, (rows, at) =>
      this.numbers === undefined ? this.padded(rows, at) : this.added(rows, at, this.numbers),
    );
  }

  private inOrder(name: string, tensor: number, act: (rows: string, at: number) => string): string {
    const order = this.call.orderOf(tensor);
    const at = order.indexOf(this.takes.dim);
    return inRowMajor(this.call.emit, name, order, (rows) => act(rows, at));
  }

  /** True if a device takes each of the rows that it has, in their order. */
  private get takesAll(): boolean {
    return this.numbers === undefined && this.rows === this.held;
  }

  /** The rows among rows of zeros. */
  private padded(name: string, dim: number): string {
    const { emit } = this.call;
    const pad: RankInt[] = new Array<RankInt>(2 * (emit.type(name).shape.length - dim)).fill(0);
    pad.splice(-2, 2, this.first, minus(this.held, plus(this.first, this.rows)));
    return emit.call('aten.constant_pad_nd.default', [ref(name), emit.ints(pad), 0]);
  }

  /** The rows added to rows of zeros: one may be taken several times. */
  private added(name: string, dim: number, numbers: string): string {
    const { emit } = this.call;
    const { dtype, shape } = emit.type(name);
    const whole = emit.ints(shape.map((size, d) => (d === dim ? this.held : size)));
    const zeros = emit.call('aten.full.default', [whole, 0], {
      kwargs: { dtype: { kind: 'dtype', dtype } },
    });
    return emit.call('aten.index_add.default', [ref(zeros), dim, ref(numbers), ref(name)]);
  }
}

/** A straight-line program in XLA's terms, as far as Alpa's small test programs need it. */
export type Op =
  | { readonly kind: 'parameter' | 'constant' | 'tuple' | 'replicated' | 'iota' }
  /**
   * What it computes decides its derivative, and whether two products may be summed before their
   * all-reduce.
   */
  | {
      readonly kind: 'elementwise';
      readonly does?: 'add' | 'multiply' | 'compare';
      readonly waitsFor?: Instruction;
    }
  /** Dims of one size on both sides keep their place: slices, pads, pooling windows. */
  | { readonly kind: 'window' }
  | { readonly kind: 'broadcast'; readonly dims: readonly number[] }
  | { readonly kind: 'transpose'; readonly permutation: readonly number[] }
  | { readonly kind: 'reshape' }
  | { readonly kind: 'reduce'; readonly dims: readonly number[] }
  | {
      readonly kind: 'dot';
      readonly batch: readonly (readonly [number, number])[];
      readonly contract: readonly (readonly [number, number])[];
    }
  | Convolution;

/**
 * A convolution: a product over channels with further dims that are never cut. Pairs are (dim of an
 * operand, dim of the result).
 */
export interface Convolution {
  readonly kind: 'conv';
  readonly left: readonly [number, number];
  readonly right: readonly [number, number];
  /** Dims of the two operands that are summed over; none in a depthwise convolution. */
  readonly contract?: readonly [number, number];
  /**
   * Dims of left operand, right operand and result that go together: the groups of a depthwise
   * convolution.
   */
  readonly together?: readonly [number, number, number];
}

export interface Instruction {
  readonly id: number;
  readonly shape: readonly number[];
  readonly op: Op;
  readonly operands: readonly Instruction[];
  /** Longest way from a parameter or constant. */
  readonly depth: number;
}

export class Hlo {
  readonly instructions: Instruction[] = [];
  /** Parameters and the values that replace them: equal specs. */
  readonly aliases: (readonly [Instruction, Instruction])[] = [];

  private put(op: Op, shape: readonly number[], ...operands: readonly Instruction[]): Instruction {
    const depth = operands.length === 0 ? 0 : 1 + Math.max(...operands.map((o) => o.depth));
    const made = { id: this.instructions.length, shape, op, operands, depth };
    this.instructions.push(made);
    return made;
  }

  parameter(...shape: number[]): Instruction {
    return this.put({ kind: 'parameter' }, shape);
  }
  constant(): Instruction {
    return this.put({ kind: 'constant' }, []);
  }
  /** Any operation on equal shapes, position by position. */
  elementwise(...operands: readonly Instruction[]): Instruction {
    return this.put({ kind: 'elementwise' }, operands[0].shape, ...operands);
  }
  add(a: Instruction, b: Instruction): Instruction {
    return this.put({ kind: 'elementwise', does: 'add' }, a.shape, a, b);
  }
  multiply(a: Instruction, b: Instruction): Instruction {
    return this.put({ kind: 'elementwise', does: 'multiply' }, a.shape, a, b);
  }
  compare(a: Instruction, b: Instruction): Instruction {
    return this.put({ kind: 'elementwise', does: 'compare' }, a.shape, a, b);
  }
  /**
   * The same value, not before `other` is there: what is made of it is not taken for what was made
   * before.
   */
  barrier(x: Instruction, other: Instruction): Instruction {
    return this.put({ kind: 'elementwise', waitsFor: other }, x.shape, x);
  }
  iota(...shape: number[]): Instruction {
    return this.put({ kind: 'iota' }, shape);
  }
  window(x: Instruction, ...shape: number[]): Instruction {
    return this.put({ kind: 'window' }, shape, x);
  }
  conv(
    op: Omit<Convolution, 'kind'>,
    shape: readonly number[],
    a: Instruction,
    b: Instruction,
  ): Instruction {
    return this.put({ kind: 'conv', ...op }, shape, a, b);
  }
  /** Dim i of the operand becomes dim dims[i]. */
  broadcast(x: Instruction, shape: readonly number[], dims: readonly number[] = []): Instruction {
    return this.put({ kind: 'broadcast', dims }, shape, x);
  }
  /** Dim i of the result is dim permutation[i] of the operand. */
  transpose(x: Instruction, ...permutation: number[]): Instruction {
    return this.put(
      { kind: 'transpose', permutation },
      permutation.map((d) => x.shape[d]),
      x,
    );
  }
  reshape(x: Instruction, ...shape: number[]): Instruction {
    return this.put({ kind: 'reshape' }, shape, x);
  }
  reduce(x: Instruction, ...dims: number[]): Instruction {
    return this.put(
      { kind: 'reduce', dims },
      x.shape.filter((_, d) => !dims.includes(d)),
      x,
    );
  }
  /**
   * Pairs of dims of the two sides; batch dims first in the result, then what is left of a, then of
   * b.
   */
  dot(
    a: Instruction,
    b: Instruction,
    contract: readonly (readonly [number, number])[] = [[1, 0]],
    batch: readonly (readonly [number, number])[] = [],
  ): Instruction {
    const pairs = [...contract, ...batch];
    const left = a.shape.filter((_, d) => !pairs.some(([x]) => x === d));
    const right = b.shape.filter((_, d) => !pairs.some(([, y]) => y === d));
    return this.put(
      { kind: 'dot', batch, contract },
      [...batch.map(([x]) => a.shape[x]), ...left, ...right],
      a,
      b,
    );
  }
  forceReplicated(x: Instruction): Instruction {
    return this.put({ kind: 'replicated' }, x.shape, x);
  }
  tuple(...operands: readonly Instruction[]): Instruction {
    return this.put({ kind: 'tuple' }, [], ...operands);
  }
  alias(parameter: Instruction, replacement: Instruction): void {
    this.aliases.push([parameter, replacement]);
  }
}

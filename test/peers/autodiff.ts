import type { Hlo, Instruction } from './hlo.ts';

/**
 * Appends the reverse pass of a program. An elementwise operation that is neither a sum nor a
 * product gets a derivative that reads its operands and the incoming gradient.
 * @param from instruction whose gradient is `seed`
 * @param wrt instructions whose gradients are asked for; all must reach `from`
 * @returns their gradients, in the order of `wrt`
 */
export function gradients(
  h: Hlo,
  from: Instruction,
  seed: Instruction,
  wrt: readonly Instruction[],
): Instruction[] {
  const active = new Set(wrt.map((w) => w.id));
  const program = h.instructions.slice(0, from.id + 1);
  for (const ins of program)
    if (ins.op.kind !== 'iota' && differentiable(ins).some((o) => active.has(o.id)))
      active.add(ins.id);
  const found = new Map<number, Instruction>([[from.id, seed]]);
  for (const ins of program.reverse()) {
    const g = found.get(ins.id);
    if (g === undefined) continue;
    ins.operands.forEach((operand, position) => {
      if (!active.has(operand.id) || !differentiable(ins).includes(operand)) return;
      const part = pulledBack(h, ins, position, g);
      if (part.shape.join() !== operand.shape.join())
        throw new Error(`a gradient of ${part.shape.join()} for ${operand.shape.join()}`);
      const sofar = found.get(operand.id);
      found.set(operand.id, sofar === undefined ? part : h.add(sofar, part));
    });
  }
  return wrt.map((w) => {
    const g = found.get(w.id);
    if (g === undefined) throw new Error(`instruction ${w.id} does not reach the result`);
    return g;
  });
}

function differentiable(ins: Instruction): readonly Instruction[] {
  return ins.op.kind === 'elementwise' && ins.op.does === 'compare' ? [] : ins.operands;
}

function pulledBack(h: Hlo, ins: Instruction, position: number, g: Instruction): Instruction {
  const { op, operands, shape } = ins;
  const operand = operands[position];
  switch (op.kind) {
    case 'elementwise':
      if (op.does === 'add') return g;
      if (op.does === 'multiply') return h.multiply(g, operands[1 - position]);
      return h.elementwise(g, ...operands);
    case 'broadcast': {
      const made = shape.map((_, d) => d).filter((d) => !op.dims.includes(d));
      return made.length === 0 ? g : h.reduce(g, ...made);
    }
    case 'transpose':
      return h.transpose(g, ...op.permutation.map((_, d) => op.permutation.indexOf(d)));
    case 'reshape':
      return h.reshape(g, ...operand.shape);
    case 'window':
      return h.window(g, ...operand.shape);
    case 'reduce':
      return h.broadcast(
        g,
        operand.shape,
        operand.shape.map((_, d) => d).filter((d) => !op.dims.includes(d)),
      );
    case 'dot':
      return dotBack(h, ins, position, g);
    case 'conv':
      return convBack(h, ins, position, g);
    default:
      throw new Error(`${op.kind} has no derivative`);
  }
}

function dotBack(h: Hlo, ins: Instruction, position: number, g: Instruction): Instruction {
  const { op, operands } = ins;
  if (op.kind !== 'dot') throw new Error('no dot');
  const { batch, contract } = op;
  const pairs = [...batch, ...contract];
  const free = ([0, 1] as const).map((side) =>
    operands[side].shape.map((_, d) => d).filter((d) => !pairs.some((p) => p[side] === d)),
  );
  const base = batch.length;
  const [a, b] = operands;
  if (position === 0) {
    // Result: batch, free of a, then what was contracted, in the order of b.
    const ends = [...contract].sort((p, q) => p[1] - q[1]).map(([x]) => x);
    const sum = free[1].map((d, k) => [base + free[0].length + k, d] as const);
    return ordered(
      h,
      h.dot(
        g,
        b,
        sum,
        batch.map(([, y], k) => [k, y]),
      ),
      [...batch.map(([x]) => x), ...free[0], ...ends],
    );
  }
  const ends = [...contract].sort((p, q) => p[0] - q[0]).map(([, y]) => y);
  const sum = free[0].map((d, k) => [d, base + k] as const);
  // Of the two ways round, the one that needs no transpose, as the compiler has it.
  const turned = [...batch.map(([, y]) => y), ...free[1], ...ends];
  if (turned.every((d, k) => d === k))
    return h.dot(
      g,
      a,
      sum.map(([x, y]) => [y, x] as const),
      batch.map(([x], k) => [k, x]),
    );
  return ordered(
    h,
    h.dot(
      a,
      g,
      sum,
      batch.map(([x], k) => [x, k]),
    ),
    [...batch.map(([, y]) => y), ...ends, ...free[1]],
  );
}

/** Transposes so that what is dim k becomes dim `place[k]`. */
function ordered(h: Hlo, x: Instruction, place: readonly number[]): Instruction {
  if (place.every((d, k) => d === k)) return x;
  return h.transpose(x, ...place.map((_, d) => place.indexOf(d)));
}

function convBack(h: Hlo, ins: Instruction, position: number, g: Instruction): Instruction {
  const { op, operands } = ins;
  if (op.kind !== 'conv') throw new Error('no convolution');
  const { left, right, contract, together } = op;
  const [a, b] = operands;
  if (together !== undefined) {
    const [ta, tb, to] = together;
    if (position === 0)
      return h.conv({ left: [left[1], left[0]], right, together: [to, tb, ta] }, a.shape, g, b);
    return h.conv(
      { left: [ta, tb], right: [to, tb], contract: [left[0], left[1]], together: [ta, to, tb] },
      b.shape,
      a,
      g,
    );
  }
  if (contract === undefined) throw new Error('no contraction');
  if (position === 0)
    return h.conv(
      {
        left: [left[1], left[0]],
        right: [contract[1], contract[0]],
        contract: [right[1], right[0]],
      },
      a.shape,
      g,
      b,
    );
  return h.conv(
    { left: [contract[0], contract[1]], right: [right[1], right[0]], contract: [left[0], left[1]] },
    b.shape,
    a,
    g,
  );
}

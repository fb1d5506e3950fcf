import { Hlo, type Instruction } from './hlo.ts';

/** The programs of Alpa's solver tests, written from their description. */

/** A chain of square layers with squared loss, its gradients and updates, all written out. */
export function mlp(layers: number, batch: number, width: number, bias = false): Hlo {
  const h = new Hlo();
  const x = h.parameter(batch, width);
  const y = h.parameter(batch, width);
  const weights = Array.from({ length: layers }, () => h.parameter(width, width));
  const biases = bias ? weights.map(() => h.parameter(width)) : [];
  const hidden: Instruction[] = [];
  let now = x;
  weights.forEach((w, i) => {
    now = h.dot(now, w);
    if (bias) now = h.elementwise(now, h.broadcast(biases[i], [batch, width], [1]));
    hidden.push(now);
  });
  const loss = h.elementwise(now, y);
  let gradient = h.elementwise(loss, h.broadcast(h.constant(), [batch, width]));
  const made: Instruction[] = [];
  const update = (parameter: Instruction, grad: Instruction): void => {
    const next = h.elementwise(parameter, grad);
    h.alias(parameter, next);
    made.push(next);
  };
  for (let i = layers - 1; i >= 0; i--) {
    // The second layer's gradient takes the last inner activation: a slip of the tests, kept.
    const inner = i === 1 && layers > 2 ? layers - 2 : i - 1;
    update(weights[i], h.dot(i === 0 ? x : hidden[inner], gradient, [[0, 0]]));
    if (bias) update(biases[i], h.reduce(gradient, 0));
    if (i > 0) gradient = h.dot(gradient, weights[i], [[1, 1]]);
  }
  h.tuple(...made);
  return h;
}

/**
 * A chain of square layers with bias, squared loss and one step of Adam: weight and bias with two
 * moments each, a counter.
 */
export function mlpWithAdam(
  layers: number,
  batch: number,
  width: number,
): Hlo & { readonly weights: readonly Instruction[] } {
  const h = new Hlo();
  const x = h.parameter(batch, width);
  const y = h.parameter(batch, width);
  const counter = h.parameter();
  const weights = Array.from({ length: layers }, () => h.parameter(width, width));
  const biases = weights.map(() => h.parameter(width));
  const inputs = [x];
  weights.forEach((w, i) => {
    inputs.push(h.elementwise(h.dot(inputs[i], w), h.broadcast(biases[i], [batch, width], [1])));
  });
  let gradient = h.elementwise(
    h.elementwise(inputs[layers], y),
    h.broadcast(h.constant(), [batch, width]),
  );
  const made: Instruction[] = [];
  const step = (parameter: Instruction, grad: Instruction): void => {
    const moments = [0, 1].map(() => {
      const old = h.parameter(...parameter.shape);
      const next = h.elementwise(old, grad);
      h.alias(old, next);
      return next;
    });
    const next = h.elementwise(parameter, ...moments, h.broadcast(counter, parameter.shape));
    h.alias(parameter, next);
    made.push(...moments, next);
  };
  for (let i = layers - 1; i >= 0; i--) {
    step(weights[i], h.dot(inputs[i], gradient, [[0, 0]]));
    step(biases[i], h.reduce(gradient, 0));
    if (i > 0) gradient = h.dot(gradient, weights[i], [[1, 1]]);
  }
  h.tuple(...made);
  return Object.assign(h, { weights });
}

/** Self-attention forward with a mask; `free` leaves the output where it falls. */
export function attention(b: number, s: number, width: number, heads: number, free = false): Hlo {
  const h = new Hlo();
  const d = width / heads;
  const x = h.parameter(b, s, width);
  const mask = h.parameter(b, s);
  const flat = h.reshape(x, b * s, width);
  const weights: Instruction[] = [];
  const projected = (): Instruction => {
    const w = h.parameter(width, heads, d);
    const c = h.parameter(heads, d);
    weights.push(w, c);
    const out = h.reshape(h.dot(flat, h.reshape(w, width, width)), b, s, heads, d);
    return h.elementwise(out, h.broadcast(c, [b, s, heads, d], [2, 3]));
  };
  const scaled = h.elementwise(projected(), h.broadcast(h.constant(), [b, s, heads, d]));
  const q = h.transpose(scaled, 0, 2, 1, 3);
  const k = h.transpose(projected(), 0, 2, 3, 1);
  const pairs = [
    [0, 0],
    [1, 1],
  ] as const;
  const scores = h.dot(q, k, [[3, 2]], pairs);
  const filled = (): Instruction => h.broadcast(h.constant(), [b, s]);
  const chosen = h.elementwise(h.elementwise(mask, filled()), filled(), filled());
  const masked = h.elementwise(scores, h.broadcast(chosen, [b, heads, s, s], [0, 3]));
  const most = h.broadcast(h.reduce(masked, 3), [b, heads, s, s], [0, 1, 2]);
  const exp = h.elementwise(h.elementwise(masked, most));
  const p = h.elementwise(exp, h.broadcast(h.reduce(exp, 3), [b, heads, s, s], [0, 1, 2]));
  const v = h.transpose(projected(), 0, 2, 3, 1);
  const mixed = h.reshape(h.transpose(h.dot(v, p, [[3, 3]], pairs), 0, 3, 1, 2), b * s, width);
  const w = h.parameter(width, heads, d);
  const c = h.parameter(width);
  weights.push(w, c);
  const out = h.reshape(h.dot(mixed, h.reshape(w, width, width)), b, s, width);
  const result = h.elementwise(out, h.broadcast(c, [b, s, width], [2]));
  h.tuple(free ? result : h.forceReplicated(result), ...weights);
  return h;
}

const [M, K, N] = [128, 2048, 128];
type Operands = readonly [Instruction, Instruction];

/**
 * A product of (128, 2048) and (2048, 128) whose result every device must have whole, with `dress`
 * around it.
 */
export function dressedDot(
  given: readonly (readonly number[])[],
  before: (h: Hlo, given: Operands) => Operands,
  after: (h: Hlo, out: Instruction) => Instruction,
): Hlo {
  const h = new Hlo();
  const [x, y] = before(h, [h.parameter(...given[0]), h.parameter(...given[1])]);
  h.tuple(h.forceReplicated(after(h, h.dot(x, y))));
  return h;
}

function thrice(h: Hlo, x: Instruction): Instruction {
  return h.transpose(h.transpose(h.transpose(x, 1, 0), 1, 0), 1, 0);
}

/** The dressings of A17 to A20: transposes and reshapes that change nothing. */
export const DRESSED: readonly (() => Hlo)[] = [
  () =>
    dressedDot(
      [
        [K, M],
        [N, K],
      ],
      (h, [x, y]) => [h.transpose(x, 1, 0), h.transpose(y, 1, 0)],
      (h, out) => h.transpose(out, 1, 0),
    ),
  () =>
    dressedDot(
      [
        [K, M],
        [N, K],
      ],
      (h, given) => [thrice(h, given[0]), thrice(h, given[1])],
      (h, out) => h.transpose(h.transpose(out, 1, 0), 1, 0),
    ),
  () =>
    dressedDot(
      [
        [M, K / 2, 2],
        [K / 2, 2, N],
      ],
      (h, [x, y]) => [h.reshape(x, M, K), h.reshape(y, K, N)],
      (_, out) => out,
    ),
  () =>
    dressedDot(
      [
        [M, K / 2, 2],
        [K / 2, 2, N],
      ],
      (h, [x, y]) => [
        h.reshape(h.reshape(h.reshape(x, M, K), M / 4, 4, K), M, K),
        h.reshape(h.reshape(h.reshape(y, K, N), K / 4, 4, N), K, N),
      ],
      (h, out) => h.reshape(out, M, 2, N / 2),
    ),
];

/**
 * Several products of the same operands added up, on top of `z` if there is one, then six
 * exponentials.
 */
export function summedDots(count: number, withStart: boolean): Hlo {
  const h = new Hlo();
  const x = h.parameter(M, K);
  const y = h.parameter(K, N);
  const products = Array.from({ length: count }, () => h.dot(x, y));
  let out: Instruction;
  if (withStart) {
    out = h.parameter(M / 4, 4, N);
    for (const product of products) out = h.elementwise(out, h.reshape(product, M / 4, 4, N));
    for (let i = 0; i < 6; i++) out = h.elementwise(out);
  } else out = h.elementwise(...products);
  h.tuple(h.forceReplicated(out));
  return h;
}

import { attentionBlock, bertLayer, Net, product } from './alpa-nets.ts';
import { gradients } from './autodiff.ts';
import type { Instruction } from './hlo.ts';

/** Further networks of Alpa's end-to-end tests: embeddings, experts, convolutions, microbatches. */

/** One row of `size` per number: numbers compared with a count along a new last dim. */
function oneHot(net: Net, numbers: Instruction, size: number): Instruction {
  const h = net.hlo;
  const shape = [...numbers.shape, size];
  return h.compare(
    h.broadcast(
      numbers,
      shape,
      numbers.shape.map((_, d) => d),
    ),
    h.iota(...shape),
  );
}

/** Rows of a table, as a product with one-hot rows: how Alpa writes an embedding. */
export function embedded(net: Net, numbers: Instruction, table: Instruction): Instruction {
  const h = net.hlo;
  const [b, s] = numbers.shape;
  const [rows, width] = table.shape;
  return h.reshape(h.dot(h.reshape(oneHot(net, numbers, rows), b * s, rows), table), b, s, width);
}

/**
 * Logits over a tied table, and the gradient of the log-likelihood of the labels with respect to
 * them.
 */
function tiedLogits(
  net: Net,
  x: Instruction,
  table: Instruction,
  bias: boolean,
): { logits: Instruction; seed: Instruction } {
  const h = net.hlo;
  const [b, s, width] = x.shape;
  const [size] = table.shape;
  const plain = h.reshape(h.dot(h.reshape(x, b * s, width), table, [[1, 1]]), b, s, size);
  const logits = bias
    ? h.add(plain, net.along(net.weight('decoder.bias', size), plain.shape))
    : plain;
  // Of the log of the softmax: incoming minus softmax times its sum, incoming being minus the
  // one-hot labels.
  const labels = oneHot(net, net.input(b, s), size);
  const sum = h.broadcast(h.reduce(labels, 2), logits.shape, [0, 1]);
  return { logits, seed: h.add(labels, h.multiply(net.softmax(logits), sum)) };
}

/** An embedding whose table also makes the logits. */
export function tiedEmbedding(size: number, width: number, b: number, s: number): Net {
  const net = new Net();
  const numbers = net.input(b, s);
  const table = net.weight('table', size, width);
  const { logits, seed } = tiedLogits(net, embedded(net, numbers, table), table, false);
  net.update(gradients(net.hlo, logits, seed, net.parameters), 'adam');
  return net;
}

/**
 * Bert with embeddings and a tied head; `experts` makes every other layer, from the first, one of
 * experts.
 */
export function bertLm(
  layers: number,
  b: number,
  s: number,
  width: number,
  heads: number,
  size: number,
  experts?: Experts,
): Net {
  const net = new Net();
  const h = net.hlo;
  const table = net.weight('table', size, width);
  const places = embedded(net, net.input(b, s), net.weight('places', s, width));
  let x = h.add(embedded(net, net.input(b, s), table), places);
  if (experts === undefined)
    x = h.add(x, embedded(net, net.input(b, s), net.weight('types', 2, width)));
  x = net.norm('embedding', x);
  const mask = net.input(b, s);
  for (let i = 0; i < layers; i++)
    x =
      experts !== undefined && i % 2 === 0
        ? expertLayer(net, `${i}`, x, mask, heads, experts)
        : bertLayer(net, `${i}`, x, mask, heads);
  if (experts === undefined) x = net.norm('head', h.elementwise(net.dense('head', x, width)));
  const { logits, seed } = tiedLogits(net, x, table, true);
  net.update(gradients(h, logits, seed, net.parameters), 'adam');
  return net;
}

export interface Experts {
  readonly number: number;
  /** Tokens of a group, among which experts are shared out. */
  readonly group: number;
}

/**
 * Attention, then two experts for each token. The gate is a softmax; taking its two largest entries
 * is elementwise within a group and stands as one operation, as all of it is cut by groups.
 */
export function expertLayer(
  net: Net,
  name: string,
  x: Instruction,
  mask: Instruction,
  heads: number,
  experts: Experts,
): Instruction {
  const h = net.hlo;
  const attended = attentionBlock(net, name, x, mask, heads);
  const [b, s, m] = x.shape;
  const { number: e, group } = experts;
  const [g, c, inner] = [(b * s) / group, (2 * group) / e, 4 * m];
  const tokens = h.reshape(attended, g, group, m);
  const gates = net.softmax(
    h.reshape(h.dot(h.reshape(tokens, g * group, m), net.weight(`${name}.wg`, m, e)), g, group, e),
  );
  const combine = h.elementwise(h.broadcast(gates, [g, group, e, c], [0, 1, 2]));
  const dispatch = h.compare(combine, combine);
  const sent = h.dot(h.reshape(dispatch, g, group, e * c), tokens, [[1, 1]], [[0, 0]]);
  const byExpert = h.reshape(h.transpose(h.reshape(sent, g, e, c, m), 1, 0, 2, 3), e, g * c, m);
  const wide = h.elementwise(
    h.dot(byExpert, net.weight(`${name}.wi`, e, m, inner), [[2, 1]], [[0, 0]]),
  );
  const narrow = h.dot(wide, net.weight(`${name}.wo`, e, inner, m), [[2, 1]], [[0, 0]]);
  const back = h.reshape(h.transpose(h.reshape(narrow, e, g, c, m), 1, 0, 2, 3), g, e * c, m);
  const out = h.reshape(
    h.dot(h.reshape(combine, g, group, e * c), back, [[2, 1]], [[0, 0]]),
    b,
    s,
    m,
  );
  return net.norm(`${name}.norm2`, h.add(out, attended));
}

export function trainedExperts(
  b: number,
  s: number,
  width: number,
  heads: number,
  experts: Experts,
): Net {
  const net = new Net();
  const x = net.input(b, s, width);
  net.train(expertLayer(net, '0', x, net.input(b, s), heads, experts), 'adam');
  return net;
}

/**
 * Two linear layers, two batched products over E parts of the width, two linear layers; plain
 * gradient descent.
 */
export function dotChain(b: number, e: number, m: number): Net {
  const net = new Net();
  const h = net.hlo;
  const part = m / e;
  let x = net.input(b, m);
  for (const name of ['0', '1']) x = net.dense(name, x, m, false);
  const parts = h.transpose(h.reshape(x, b, e, part), 1, 0, 2);
  const wide = h.dot(parts, net.weight('wi', e, part, 8 * m), [[2, 1]], [[0, 0]]);
  const narrow = h.dot(wide, net.weight('wo', e, 8 * m, part), [[2, 1]], [[0, 0]]);
  x = h.reshape(h.transpose(narrow, 1, 0, 2), b, m);
  for (const name of ['2', '3']) x = net.dense(name, x, m, false);
  net.train(x, 'sgd');
  return net;
}

function convolved(
  net: Net,
  name: string,
  x: Instruction,
  channels: number,
  stride: number,
  depthwise = false,
): Instruction {
  const [n, height, width, c] = x.shape;
  const out = [n, height / stride, width / stride, channels];
  if (depthwise)
    return net.hlo.conv(
      { left: [0, 0], right: [3, 3], together: [3, 3, 3] },
      out,
      x,
      net.weight(name, 3, 3, 1, channels),
    );
  return net.hlo.conv(
    { left: [0, 0], right: [3, 3], contract: [3, 2] },
    out,
    x,
    net.weight(name, 3, 3, c, channels),
  );
}

/**
 * Normalises every channel over the batch and the image; the running statistics are kept in the
 * net's state.
 */
function batchNorm(net: Net, name: string, x: Instruction, statistics: Instruction[]): Instruction {
  const h = net.hlo;
  const { shape } = x;
  const rows = [0, 1, 2];
  const mean = h.reduce(x, ...rows);
  const variance = h.add(h.reduce(h.multiply(x, x), ...rows), h.multiply(mean, mean));
  for (const now of [mean, variance]) {
    const old = h.parameter(shape[3]);
    net.state.push(old);
    const next = h.elementwise(old, now);
    h.alias(old, next);
    statistics.push(next);
  }
  const scaled = h.multiply(
    h.add(x, net.along(mean, shape)),
    net.along(h.elementwise(variance), shape),
  );
  return h.add(
    h.multiply(scaled, net.along(net.weight(`${name}.scale`, shape[3]), shape)),
    net.along(net.weight(`${name}.bias`, shape[3]), shape),
  );
}

/**
 * Convolutions of stride 2, each with normalisation, a nonlinearity and pooling; or the depthwise
 * sandwich.
 */
export function convNet(
  layers: number,
  n: number,
  image: number,
  channels: number,
  depthwise = false,
): Net {
  const net = new Net();
  const h = net.hlo;
  const statistics: Instruction[] = [];
  let x = net.input(n, image, image, channels);
  if (depthwise) {
    x = convolved(net, '0', x, 8 * channels, 1);
    x = convolved(net, '1', x, 8 * channels, 1, true);
    x = batchNorm(net, 'n', h.elementwise(convolved(net, '2', x, channels, 1)), statistics);
  } else
    for (let i = 0; i < layers; i++) {
      x = h.elementwise(batchNorm(net, `${i}`, convolved(net, `${i}`, x, channels, 2), statistics));
      x = h.window(x, ...x.shape);
    }
  net.train(x, 'momentum');
  return net;
}

/** Two linear layers without bias, something between them; plain gradient descent. */
export function sandwich(
  rows: readonly number[],
  widths: readonly [number, number, number],
  between: (net: Net, x: Instruction) => Instruction,
): Net {
  const net = new Net();
  const x = net.dense('0', net.input(...rows, widths[0]), widths[1], false);
  net.train(net.dense('1', between(net, x), widths[2], false), 'sgd');
  return net;
}

/** A random mask made of the numbers of all entries. */
export function dropout(net: Net, x: Instruction): Instruction {
  const h = net.hlo;
  return h.multiply(x, h.reshape(h.elementwise(h.iota(product(x.shape))), ...x.shape));
}

/**
 * Two linear layers whose gradients are summed up over microbatches before one step with momentum.
 */
export function accumulatedMlp(
  batch: number,
  width: number,
): Net & { readonly sums: Instruction[]; readonly gradients: Instruction[] } {
  const net = new Net();
  const h = net.hlo;
  let x = net.input(batch, width);
  for (const name of ['0', '1']) x = net.dense(name, x, width);
  const seed = h.multiply(h.add(x, net.input(batch, width)), net.constant(batch, width));
  const found = gradients(h, x, seed, net.parameters);
  const sums = found.map((g) => {
    const old = h.parameter(...g.shape);
    const next = h.add(old, g);
    h.alias(old, next);
    return next;
  });
  net.update(sums, 'momentum');
  return Object.assign(net, { sums, gradients: found });
}

import { gradients } from './autodiff.ts';
import { Hlo, type Instruction } from './hlo.ts';

/**
 * The networks of Alpa's end-to-end tests, forward written from their description, backward
 * derived, with an optimizer step. Left out, as they cost nothing and decide nothing: dropout's
 * random masks, means' divisions, the loss itself.
 */
export type Optimizer = 'adam' | 'momentum' | 'sgd' | 'adafactor';

export class Net {
  readonly hlo = new Hlo();
  readonly parameters: Instruction[] = [];
  readonly named = new Map<string, Instruction>();
  readonly state: Instruction[] = [];
  readonly batched: Instruction[] = [];

  input(...shape: number[]): Instruction {
    const x = this.hlo.parameter(...shape);
    this.batched.push(x);
    return x;
  }
  weight(name: string, ...shape: number[]): Instruction {
    const known = this.named.get(name);
    if (known !== undefined) return known;
    const w = this.hlo.parameter(...shape);
    this.parameters.push(w);
    this.named.set(name, w);
    return w;
  }
  constant(...shape: number[]): Instruction {
    return this.hlo.broadcast(this.hlo.constant(), shape);
  }
  /** x of any rank times a matrix over its last dim, plus a bias. */
  dense(name: string, x: Instruction, width: number, bias = true): Instruction {
    const h = this.hlo;
    const inner = x.shape[x.shape.length - 1];
    const rows = x.shape.slice(0, -1);
    const flat = rows.length === 1 ? x : h.reshape(x, product(rows), inner);
    const out = h.dot(flat, this.weight(name, inner, width));
    const shaped = rows.length === 1 ? out : h.reshape(out, ...rows, width);
    return bias
      ? h.add(shaped, this.along(this.weight(`${name}.bias`, width), shaped.shape))
      : shaped;
  }
  /** A vector along the last dim. */
  along(v: Instruction, shape: readonly number[]): Instruction {
    return this.hlo.broadcast(v, shape, [shape.length - 1]);
  }
  norm(name: string, x: Instruction): Instruction {
    const h = this.hlo;
    const last = x.shape.length - 1;
    const rows = Array.from({ length: last }, (_, d) => d);
    const mean = h.reduce(x, last);
    const variance = h.add(h.reduce(h.multiply(x, x), last), h.multiply(mean, mean));
    const centred = h.add(x, h.broadcast(mean, x.shape, rows));
    const scaled = h.multiply(centred, h.broadcast(h.elementwise(variance), x.shape, rows));
    const { shape } = x;
    return h.add(
      h.multiply(scaled, this.along(this.weight(`${name}.scale`, shape[last]), shape)),
      this.along(this.weight(`${name}.bias`, shape[last]), shape),
    );
  }
  /** Exponentials over the last dim divided by their sum. */
  softmax(x: Instruction): Instruction {
    const h = this.hlo;
    const last = x.shape.length - 1;
    const rows = Array.from({ length: last }, (_, d) => d);
    // The maximum is a constant for the derivative: a comparison stands for it.
    const most = h.broadcast(h.reduce(h.compare(x, x), last), x.shape, rows);
    const exp = h.elementwise(h.add(x, most));
    return h.multiply(exp, h.broadcast(h.elementwise(h.reduce(exp, last)), x.shape, rows));
  }
  /**
   * Gradients of the squared distance from a target, and one step of the optimizer. @returns
   * gradients
   */
  train(out: Instruction, optimizer: Optimizer): Instruction[] {
    const h = this.hlo;
    const target = this.input(...out.shape);
    const seed = h.multiply(h.add(out, target), this.constant(...out.shape));
    const found = gradients(h, out, seed, this.parameters);
    this.update(found, optimizer);
    return found;
  }
  /** One optimizer step from gradients of all parameters; ends the program. */
  update(found: readonly Instruction[], optimizer: Optimizer): void {
    const h = this.hlo;
    const counter = h.parameter();
    const made = this.parameters.flatMap((parameter, i) => {
      if (optimizer === 'adafactor') return this.factored(parameter, found[i]);
      const moments = Array.from({ length: { adam: 2, momentum: 1, sgd: 0 }[optimizer] }, () => {
        const old = h.parameter(...parameter.shape);
        this.state.push(old);
        const next = h.elementwise(old, found[i]);
        h.alias(old, next);
        return next;
      });
      const next = h.elementwise(
        parameter,
        ...(moments.length > 0 ? moments : [found[i]]),
        h.broadcast(counter, parameter.shape),
      );
      h.alias(parameter, next);
      return [...moments, next];
    });
    h.tuple(...made);
  }

  /**
   * Adafactor: second moments of rows and columns instead of all entries, an update scaled by its
   * own and the parameter's mean square. @returns new state and parameter
   */
  private factored(parameter: Instruction, g: Instruction): Instruction[] {
    const h = this.hlo;
    const { shape } = parameter;
    const all = shape.map((_, d) => d);
    const square = h.multiply(g, g);
    const kept = shape.length === 1 ? [[]] : [[1], [0]];
    const made = kept.map((dims) => {
      const mean = dims.length === 0 ? square : h.reduce(square, ...dims);
      const old = h.parameter(...mean.shape);
      this.state.push(old);
      const next = h.elementwise(old, mean);
      h.alias(old, next);
      return next;
    });
    const spread = made.map((m, k) => (shape.length === 1 ? m : h.broadcast(m, shape, [k])));
    const scaled = h.elementwise(g, ...spread);
    const size = (x: Instruction): Instruction =>
      h.broadcast(h.reduce(h.multiply(x, x), ...all), shape);
    const next = h.elementwise(parameter, h.elementwise(scaled, size(scaled)), size(parameter));
    h.alias(parameter, next);
    return [...made, next];
  }
}

export function product(sizes: readonly number[]): number {
  return sizes.reduce((a, b) => a * b, 1);
}

/** Linear layers of one width with bias, a nonlinearity between them. */
export function trainedMlp(
  layers: number,
  batch: number,
  width: number,
  optimizer: Optimizer = 'adam',
): Net {
  const net = new Net();
  let x = net.input(batch, width);
  for (let i = 0; i < layers; i++) {
    x = net.dense(`${i}`, x, width);
    if (i < layers - 1) x = net.hlo.elementwise(x);
  }
  net.train(x, optimizer);
  return net;
}

/** One attention block: queries, values and keys in one matrix, heads outermost in its columns. */
export function attentionBlock(
  net: Net,
  name: string,
  x: Instruction,
  mask: Instruction,
  heads: number,
): Instruction {
  const h = net.hlo;
  const [b, s, width] = x.shape;
  const d = width / heads;
  const qvk = h.reshape(net.dense(`${name}.qvk`, x, 3 * width), b, s, width, 3);
  const part = (): Instruction => h.reshape(h.window(qvk, b, s, width, 1), b, s, heads, d);
  const [q, v, k] = [part(), part(), part()];
  const pairs = [
    [0, 0],
    [1, 1],
  ] as const;
  const scores = h.dot(h.transpose(q, 0, 2, 1, 3), h.transpose(k, 0, 2, 3, 1), [[3, 2]], pairs);
  const masked = h.add(scores, h.broadcast(h.compare(mask, mask), scores.shape, [0, 3]));
  const mixed = h.dot(h.transpose(v, 0, 2, 3, 1), net.softmax(masked), [[3, 3]], pairs);
  const joined = h.reshape(h.transpose(mixed, 0, 3, 1, 2), b, s, width);
  return net.norm(`${name}.norm`, h.add(net.dense(`${name}.out`, joined, width), x));
}

export function bertLayer(
  net: Net,
  name: string,
  x: Instruction,
  mask: Instruction,
  heads: number,
): Instruction {
  const h = net.hlo;
  const attended = attentionBlock(net, name, x, mask, heads);
  const width = x.shape[2];
  const inner = h.elementwise(net.dense(`${name}.ff1`, attended, 4 * width));
  return net.norm(`${name}.norm2`, h.add(net.dense(`${name}.ff2`, inner, width), attended));
}

/** Bert layers with Adam; with `remat` every layer is computed anew for its backward pass. */
export function bert(
  layers: number,
  b: number,
  s: number,
  width: number,
  heads: number,
  remat = false,
): Net {
  const net = new Net();
  const h = net.hlo;
  const x = net.input(b, s, width);
  const mask = net.input(b, s);
  const inputs = [x];
  for (let i = 0; i < layers; i++) inputs.push(bertLayer(net, `${i}`, inputs[i], mask, heads));
  const out = inputs[layers];
  if (!remat) {
    net.train(out, 'adam');
    return net;
  }
  const target = net.input(...out.shape);
  let g = h.multiply(h.add(out, target), net.constant(...out.shape));
  const found = new Map<Instruction, Instruction>();
  for (let i = layers - 1; i >= 0; i--) {
    const own = net.parameters.filter((p) =>
      [...net.named].some(([name, w]) => w === p && name.startsWith(`${i}.`)),
    );
    const input = h.barrier(inputs[i], g);
    const again = bertLayer(net, `${i}`, input, mask, heads);
    const asked = i > 0 ? [...own, input] : own;
    const made = gradients(h, again, g, asked);
    own.forEach((p, k) => found.set(p, made[k]));
    g = made[own.length] ?? g;
  }
  net.update(
    net.parameters.map((p) => found.get(p) ?? g),
    'adam',
  );
  return net;
}

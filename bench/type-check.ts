/**
 * CPU seconds of typing the 32 layers of Llama-3 8B in strict mode, on dp=8,tp=8: the forward
 * program with every cast that Megatron has, and the same with its gradient. Tracing and importing
 * are left out. The aim is below one second for the forward program.
 *
 *     npx tsx bench/type-check.ts [layers]
 */
import { jointGraph } from '../src/entries/graph.ts';
import {
  allReduce,
  assertType,
  checkTypes,
  contract,
  convert,
  outPartial,
} from '../src/entries/local-spmd.ts';
import { cat } from '../src/entries/trace.ts';
import { type Graph, input, parameter, type Tensor, trace } from '../src/index.ts';

const layers = Number(process.argv[2] ?? 32);
const [batch, sequence, hidden, heads, groups, width, inner] = [16, 8192, 4096, 32, 8, 128, 14336];

const used = (x: Tensor, axis: string): Tensor => convert(x, axis, { src: 'I', dst: 'R' });
/** A weight: equal on dp, where each rank has other rows of the batch. */
const weight = (w: Tensor, spec: string): Tensor => used(assertType(w, spec), 'dp');
const columns = (w: Tensor): Tensor => weight(w, 'P("tp", None)');
const rows = (w: Tensor): Tensor => weight(w, 'P(None, "tp")');
const whole = (w: Tensor): Tensor => weight(w, 'P(None)');
const complete = (y: Tensor): Tensor => allReduce(outPartial(y, 'tp'), 'tp', { dst: 'I' });

function norm(x: Tensor, scale: Tensor): Tensor {
  return x.mul(x.mul(x).mean(-1, true).add(1e-5).rsqrt()).mul(whole(scale));
}

/** Queries and keys turned by their positions, which are numbers that all ranks know. */
function turned(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
  const half = width / 2;
  const [a, b] = [x.narrow(3, 0, half), x.narrow(3, half, half)];
  return x.mul(cos).add(cat([b.neg(), a], 3).mul(sin));
}

const shapes = {
  wq: [heads * width, hidden],
  wk: [groups * width, hidden],
  wv: [groups * width, hidden],
  wo: [hidden, heads * width],
  w1: [inner, hidden],
  w3: [inner, hidden],
  w2: [hidden, inner],
  before: [hidden],
  between: [hidden],
} as const;
type Layer = Record<keyof typeof shapes, Tensor>;

function layer(x: Tensor, w: Layer, cos: Tensor, sin: Tensor): Tensor {
  const a = used(norm(x, w.before), 'tp');
  const head = (m: Tensor, n: number): Tensor =>
    contract('bsh,oh->bso', a, columns(m)).view(batch, sequence, n, width).transpose(1, 2);
  const q = turned(head(w.wq, heads), cos, sin).view(
    batch,
    groups,
    heads / groups,
    sequence,
    width,
  );
  const [k, v] = [turned(head(w.wk, groups), cos, sin), head(w.wv, groups)];
  const scores = contract('bgnsd,bgtd->bgnst', q, k)
    .mul(width ** -0.5)
    .softmax(-1);
  const out = contract('bgnst,bgtd->bsgnd', scores, v).view(batch, sequence, heads * width);
  const y = x.add(complete(contract('bsi,hi->bsh', out, rows(w.wo))));
  const m = used(norm(y, w.between), 'tp');
  const gate = contract('bsh,ih->bsi', m, columns(w.w1)).silu();
  const up = contract('bsh,ih->bsi', m, columns(w.w3));
  return y.add(complete(contract('bsi,hi->bsh', gate.mul(up), rows(w.w2))));
}

function llama(): Graph {
  const one = Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => [name, parameter([...shape], 'bf16')]),
  );
  const inputs = {
    x: input([batch, sequence, hidden], 'bf16'),
    cos: input([sequence, width], 'bf16'),
    sin: input([sequence, width], 'bf16'),
    layers: Array.from({ length: layers }, () => one),
  };
  return trace(
    ({ x, cos, sin, layers }) => {
      const known = (t: Tensor): Tensor => used(used(assertType(t, 'P(None, None)'), 'dp'), 'tp');
      const [c, s] = [known(cos), known(sin)];
      return (layers as Layer[]).reduce(
        (now, w) => layer(now, w, c, s),
        assertType(x, 'P("dp", None, None)'),
      );
    },
    inputs,
    { mesh: 'dp=8,tp=8' },
  );
}

function timed(what: string, graph: Graph, types: Readonly<Record<string, string>> = {}): void {
  const before = process.cpuUsage();
  const { violations, types: typed } = checkTypes(graph, { mode: 'strict', types });
  const { user, system } = process.cpuUsage(before);
  console.log(
    `${what}: ${((user + system) / 1e6).toFixed(2)} CPU-seconds for ${typed.size} values of ` +
      `${layers} layers, ${violations.length} violations`,
  );
  if (violations.length > 0)
    console.log(`  the first: ${violations[0].message}; ${violations[0].fix}`);
}

const graph = llama();
timed('forward', graph);
timed('forward, again', llama());
timed('with gradient', jointGraph(graph), { tangents_1: 'P("dp", None, None)' });

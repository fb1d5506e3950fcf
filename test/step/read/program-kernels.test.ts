import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { FITTED } from '../../../src/cost/kernels/fitted.ts';
import { DEFAULT_SOFTWARE, type StepSoftware } from '../../../src/cost/kernels/software.ts';
import { DTYPE_BYTES } from '../../../src/graph/types.ts';
import { elementCount } from '../../../src/graph/value.ts';
import { parseModelConfig } from '../../../src/models/families.ts';
import { bind } from '../../../src/ops/record/infer.ts';
import { graphUnits } from '../../../src/step/read/graph-units.ts';
import { programKernels } from '../../../src/step/read/program-kernels.ts';
import { dataflow } from '../../../src/strategy/dataflow.ts';
import { lossProgram, withBackward } from '../../../src/sweep/model/representative-layers.ts';
import { TABLE } from '../../plan/support.ts';

const [batch, sequence, hidden, ffn] = [2, 512, 1024, 4096];
const tokens = batch * sequence;
const config = JSON.stringify({
  model_type: 'llama',
  num_hidden_layers: 3,
  hidden_size: hidden,
  num_attention_heads: 16,
  num_key_value_heads: 16,
  intermediate_size: ffn,
  vocab_size: 2048,
  max_position_embeddings: sequence,
  torch_dtype: 'bfloat16',
});
const graph = withBackward(
  lossProgram(parseModelConfig(config), { batch, sequence }, 3, TABLE),
  TABLE,
);
const { phases } = dataflow(graph, TABLE, true);
const units = graphUnits(graph, phases, 3, TABLE);
const cluster = loadCluster('dgx-a100-80gb');

function priced(software: Partial<StepSoftware>): ReturnType<typeof programKernels> {
  const types = new Map(graph.nodes.map((n) => [n.name, n.type]));
  const bytesOf = (i: number): number => {
    const { type } = graph.nodes[i];
    const items = type.kind === 'tuple' ? type.items : [type];
    return Math.max(
      0,
      ...items.map((t) =>
        t.kind === 'tensor' ? (elementCount(t) ?? 0) * DTYPE_BYTES[t.dtype] : 0,
      ),
    );
  };
  const contextOf = (i: number): ReturnType<typeof bind> =>
    graph.nodes[i].kind === 'call' && TABLE.get(graph.nodes[i].target) !== undefined
      ? bind(TABLE, graph.nodes[i], (name) => types.get(name) ?? graph.nodes[i].type)
      : undefined;
  const system = { cluster, software: { ...DEFAULT_SOFTWARE, ...software }, constants: FITTED };
  return programKernels({ graph, units, table: TABLE, bytesOf, contextOf }, system);
}

const rate = cluster.memoryBytesPerSecond * cluster.memoryEfficiency;
const bytesOfSeconds = (seconds: number, kernels: number): number =>
  ((seconds - kernels * FITTED.kernelGapSeconds) * rate) / FITTED.pointwiseTraffic;

describe('calls of a program as kernels', () => {
  const of = (path: string, pass: string): number[] =>
    [...graph.nodes.keys()].filter(
      (i) =>
        (graph.nodes[i].meta.path ?? '').endsWith(path) &&
        units.pass[i] === pass &&
        phases[i] === 'forward',
    );
  const total = (list: readonly number[], values: Float64Array): number =>
    list.reduce((sum, i) => sum + values[i], 0);

  it.each([
    ['fused', {}],
    ['op by op', { fusedPointwise: false, compiled: false }],
  ])('a norm is one kernel that reads its input and writes its result (%s)', (_, software) => {
    const { seconds, kernels } = priced(software);
    const norm = of('layers.1.input_layernorm', 'forward');
    expect(norm.length).toBeGreaterThan(6);
    expect(total(norm, kernels)).toBe(1);
    const unfused = 'fusedPointwise' in software ? FITTED.unfusedTraffic : 1;
    const bytes = bytesOfSeconds(total(norm, seconds), 1) / unfused;
    // Where gradients are made op by op, they also read what was widened and scaled.
    if (unfused === 1) expect(bytes / (2 * 2 * tokens * hidden)).toBeCloseTo(1, 2);
  });

  it('gate times up reads two products and writes one tensor; op by op it writes and reads the activation too', () => {
    const activation = of('layers.1.mlp', 'forward');
    const fused = priced({});
    expect(total(activation, fused.kernels)).toBe(1);
    expect(bytesOfSeconds(total(activation, fused.seconds), 1)).toBeCloseTo(
      3 * 2 * tokens * ffn,
      -2,
    );
    const eager = priced({ fusedPointwise: false });
    expect(total(activation, eager.kernels)).toBe(2);
    expect(bytesOfSeconds(total(activation, eager.seconds), 2) / FITTED.unfusedTraffic).toBeCloseTo(
      5 * 2 * tokens * ffn,
      -2,
    );
  });

  it('fusing never adds traffic or kernels, and products stay kernels of their own', () => {
    const fused = priced({});
    const eager = priced({ fusedPointwise: false });
    const all = [...graph.nodes.keys()];
    expect(total(all, fused.seconds)).toBeLessThan(total(all, eager.seconds));
    expect(total(all, fused.kernels)).toBeLessThan(0.8 * total(all, eager.kernels));
    const products = all.filter((i) => TABLE.get(graph.nodes[i].target)?.cls === 'matmul');
    expect(total(products, fused.kernels)).toBeCloseTo(products.length, 9);
    const together = priced({ fusedProjections: true });
    expect(total(products, together.kernels)).toBeLessThan(products.length);
    expect(total(products, together.seconds)).toBeLessThan(total(products, fused.seconds));
  });
});

import { describe, expect, test } from 'vitest';
import { input, parameter } from '../../src/trace/spec.ts';
import type { Tensor } from '../../src/trace/tensor.ts';
import { trace } from '../../src/trace/trace.ts';
import { planFor } from './support.ts';

/** Cuts beyond plain shards, asked for in the request. */
const graph = trace(({ x, qkv }: Record<'x' | 'qkv', Tensor>) => x.matmul(qkv).gelu(), {
  x: input([64, 64]),
  qkv: parameter([64, 32]),
});
const SECTIONS = 'Interleaved(0, [16, 8, 8])';

describe('cuts of the request', () => {
  test('a fused weight cut by its sections passes through product and activation as it is', async () => {
    const pins = ['qkv', 'gelu'].map((node) => ({ node, spec: 'Interleaved(1, [16, 8, 8])' }));
    const plan = await planFor(graph, 'tp=2', { cuts: [SECTIONS], pins });
    const [product] = plan.nodes.filter((n) => n.target === 'aten.mm.default');
    expect([product.inputs, product.outputs]).toEqual([['R', 'Interleaved(1, [16, 8, 8])'], ['Interleaved(1, [16, 8, 8])']]); // prettier-ignore
    expect(plan.proof.status).toBe('optimal');
    // 64 rows of half the 32 columns.
    expect(plan.memory.parameterBytes).toBe(64 * 16 * 4);
  });

  test('gathering one is priced', async () => {
    const pins = [{ node: 'qkv', spec: 'Interleaved(1, [16, 8, 8])' }, { node: 'mm', spec: 'R' }]; // prettier-ignore
    const plan = await planFor(graph, 'tp=2', { cuts: [SECTIONS], pins });
    expect(plan.objective.communicationSeconds).toBeGreaterThan(0);
  });

  test('what was not asked for is not offered, and a plain shard is no further cut', async () => {
    const pins = [{ node: 'qkv', spec: 'Interleaved(1, [16, 8, 8])' }];
    await expect(planFor(graph, 'tp=2', { pins })).rejects.toThrow(/'qkv' \[64, 32\] cannot be Interleaved/);
    await expect(planFor(graph, 'tp=2', { cuts: ['S(0)'] })).rejects.toThrow(/'S\(0\)' is no cut beyond a plain shard/);
    await expect(planFor(graph, 'tp=2', { cuts: ['R'] })).rejects.toThrow(/no cut beyond a plain shard/);
    await expect(planFor(graph, 'tp=2', { cuts: ['Sideways(0)'] })).rejects.toThrow(/Sideways/);
  });
});

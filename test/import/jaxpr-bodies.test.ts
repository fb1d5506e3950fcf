import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { infer } from './support-jax.ts';

const read = (text: string): Graph => importGraph(text, { infer });
const targets = (graph: Graph): string[] =>
  graph.nodes.filter((n) => n.kind === 'call').map((n) => n.target);

describe('a result of jit that nothing reads, which JAX prints as _', () => {
  /** Three of five results are dropped, as JAX 0.10.2 prints `two(x)[2]`. */
  const text = (result: string): string => `{ lambda ; a:f32[8,16]. let
    _:f32[8,2] ${result}:i32[8,2] b:f32[8,3] _:i32[8,3] _:f32[8,16] = jit[
      name=two
      jaxpr={ lambda ; a:f32[8,16]. let
          _:f32[8,2] _:i32[8,2] = top_k[axis=1 k=2] a
          c:f32[8,16] = neg a
          b:f32[8,3] _:i32[8,3] = top_k[axis=1 k=3] c
          _:f32[8,16] = mul a 2.0:f32[]
        in (_, _, b, _, _) }
    ] a
    e:f32[8,3] = neg b
  in (e,) }`;

  test('is not a result of the call', () => {
    const graph = read(text('_'));
    expect(targets(graph)).toEqual(['call', 'operator.getitem', 'stablehlo.negate']);
    expect(graph.subgraphs.two.outputs.length).toBe(1);
    expect(graph.nodes.find((n) => n.target === 'call')?.type).toMatchObject({
      kind: 'tuple',
      items: [{ shape: [8, 3] }],
    });
  });

  test('is refused where the call names it', () => {
    expect(() => read(text('d'))).toThrow("'d' is read, but the body of jit drops it");
  });
});

describe('platform_index', () => {
  const text = (platforms: string): string => `{ lambda ; a:f32[8,8]. let
    b:i32[] = platform_index[platforms=(${platforms})]
    c:f32[8,8] = cond[
      branches=(
        { lambda ; d:f32[8,8]. let e:f32[8,8] = sin d in (e,) }
        { lambda ; f:f32[8,8]. let g:f32[8,8] = cos f in (g,) }
      )
      branches_platforms=(${platforms})
    ] b a
  in (c,) }`;

  test.each([
    ["('cpu',), None", 'stablehlo.cosine', 'by default'],
    ["('cuda', 'rocm'), ('cpu',)", 'stablehlo.sine', 'of cuda'],
  ])('%s takes %s alone, and a note says so', (platforms, target, told) => {
    const graph = read(text(platforms));
    expect(targets(graph).filter((t) => t !== 'stablehlo.constant')).toEqual([
      'call',
      'operator.getitem',
    ]);
    expect(Object.values(graph.subgraphs).map(targets)).toEqual([[target]]);
    expect(graph.notes?.join()).toContain(`the branch ${told} is taken`);
  });

  test('is refused where no branch is for the devices of a cluster', () => {
    expect(() => read(text("('cpu',), ('tpu',)"))).toThrow('branches for cpu, tpu alone');
  });
});

test('a StableHLO case with one branch is a call', () => {
  const graph = read(`module @m {
  func.func public @main(%arg0: tensor<8x8xf32>, %arg1: tensor<i32>) -> tensor<8x8xf32> {
    %1 = "stablehlo.case"(%arg1) ({
      %2 = stablehlo.sine %arg0 : tensor<8x8xf32>
      stablehlo.return %2 : tensor<8x8xf32>
    }) : (tensor<i32>) -> tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
}`);
  expect(targets(graph)).toContain('call');
  expect(targets(graph)).not.toContain('case');
});

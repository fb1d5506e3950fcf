import { describe, expect, it } from 'vitest';

import { indexGraph } from '../../../src/graph/order.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph, Node } from '../../../src/graph/types.ts';
import { programFlops } from '../../../src/ops/program-flops.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { savedValues } from '../../../src/passes/autodiff/saved.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { checkpoint } from '../../../src/trace/control/checkpoint.ts';
import { cond } from '../../../src/trace/control/cond.ts';
import { scan } from '../../../src/trace/control/loops.ts';
import { Transformer } from '../../../src/trace/nn/transformer.ts';
import { randomKey, spec } from '../../../src/trace/record/spec.ts';
import { dropout } from '../../../src/trace/tensor/functional.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { apply } from '../../../src/trace/tensor/tensor.ts';
import { capture, type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../../trace/support.ts';
import {
  expectClose,
  expectGradients,
  gradients,
  numbers,
  placeholders,
  run,
  table,
  type Values,
} from '../control-support.ts';

/** The Llama of `test/trace/nn/torch.test.ts`, its blocks as checkpoint regions or plain. */
function llama(checkpointed: boolean, size: 'record' | 'small' = 'record'): Graph {
  const config =
    size === 'record'
      ? { vocabulary: 512, width: 64, hidden: 128, layers: 2, heads: 4, keyHeads: 2 }
      : {
          vocabulary: 12,
          width: 8,
          hidden: 6,
          layers: 2,
          heads: 2,
          keyHeads: 1,
          dtype: 'f64' as const,
        };
  const net = new Transformer({ ...config, checkpoint: checkpointed });
  const ids = size === 'record' ? spec([2, 32], 'i64') : spec([2, 3], 'i64');
  return trace(({ x, y }) => net.loss(x, y), { x: ids, y: ids });
}

/**
 * Values of the forward pass that calls of these nodes read in the backward pass; inputs of the
 * program are none.
 */
function readBy(joint: Graph, isReader: (node: Node) => boolean): string[] {
  const { userStart, users } = indexGraph(joint);
  return joint.nodes.flatMap((node, i) => {
    if (node.kind !== 'call' || node.meta.phase !== 'forward') return [];
    for (let k = userStart[i]; k < userStart[i + 1]; k++) {
      const user = joint.nodes[users[k]];
      if (user.meta.phase === 'backward' && isReader(user)) return [node.name];
    }
    return [];
  });
}

const backwardOf = (graph: Graph): number =>
  programFlops(jointGraph(graph, { seed: 1 }), table).backward;
const savedBytes = (graph: Graph): number =>
  savedValues(jointGraph(graph, { seed: 1 })).reduce(
    (n, v) => n + (v.placeholder ? 0 : (v.bytes ?? NaN)),
    0,
  );

describe('checkpoint around each block of a Llama', () => {
  const [plain, kept] = [llama(false), llama(true)];

  it('blocks keep their inputs only: the hidden state that enters and the rotation', () => {
    const joint = jointGraph(kept, { seed: 1 });
    const types = new Map(joint.nodes.map((node) => [node.name, node.type]));
    const shapes = readBy(joint, (user) => user.target === 'call').map((name) => {
      const type = types.get(name);
      return type?.kind === 'tensor' ? type.shape : undefined;
    });
    // Two blocks: embeddings and the first block's result, 2 x 32 tokens of width 64; cosine and
    // sine, 32 x 16.
    expect(shapes).toEqual([
      [2, 32, 64],
      [1, 32, 16],
      [1, 32, 16],
      [2, 32, 64],
    ]);
    // Nothing that a block computes crosses: what else is saved stands outside of the blocks.
    const inside = (name: string): boolean =>
      joint.nodes.find((node) => node.name === name)?.meta.path?.startsWith('model.layers.') ===
      true;
    expect(savedValues(joint).filter((v) => !v.placeholder && inside(v.name))).toEqual([]);
    expect(savedBytes(plain) / savedBytes(kept)).toBeGreaterThan(3);
  });

  it('the forward work of the blocks appears once more, as PyTorch counts it', () => {
    const { forward } = programFlops(plain, table);
    expect(programFlops(kept, table).forward).toBe(forward);
    // 64 tokens; the head is 64 x 512, the rotation's outer product 8 x 32, the rest are the two
    // blocks.
    const blocks = forward - 2 * 64 * 64 * 512 - 2 * 8 * 32;
    // The last product of a block, 128 x 64, makes the block's result, which no gradient of the
    // block reads. torch 2.13 stops there too: FlopCounterMode over torch.utils.checkpoint counts
    // 7,340,032 more without attention, which is this.
    const last = 2 * (2 * 64 * 128 * 64);
    expect(backwardOf(plain)).toBe(29_884_416);
    expect(backwardOf(kept) - backwardOf(plain)).toBe(blocks - last);
    expect(blocks - last - 1_048_576).toBe(7_340_032);
  });

  it('checkpoint regions leave the gradients unchanged', () => {
    const graphs = [llama(false, 'small'), llama(true, 'small')];
    const names = placeholders(graphs[0]).flatMap((n) =>
      n.meta.role === 'parameter' ? [n.meta.roleName ?? ''] : [],
    );
    const values: Values = Object.fromEntries(
      placeholders(graphs[0]).map(({ meta, type }, i) => {
        const count =
          type.kind === 'tensor' ? type.shape.reduce<number>((n, d) => n * Number(d), 1) : 0;
        const drawn = numbers(count, i + 1);
        return [
          meta.roleName ?? '',
          meta.role === 'input' ? drawn.map((v) => Math.floor((v + 1) * 6)) : drawn,
        ];
      }),
    );
    expect(placeholders(graphs[1]).map((n) => n.meta.roleName)).toEqual(
      placeholders(graphs[0]).map((n) => n.meta.roleName),
    );
    expect(run(graphs[1], values)).toEqual(run(graphs[0], values));
    const [a, b] = graphs.map((graph) => gradients(graph, values, names));
    expect(names).toHaveLength(21);
    for (const name of names) expectClose(b[name] ?? [], a[name] ?? [NaN], 1e-12, name);
  });

  it('written out for planning, the repeated work stands in the backward pass', () => {
    const joint = jointGraph(kept, { seed: 1 });
    const flat = plannable(joint, table);
    expect(flat.nodes.some((node) => node.target === 'call')).toBe(false);
    const { forward, backward } = programFlops(joint, table);
    expect(programFlops(flat, table)).toMatchObject({ forward, backward });
    const again = flat.nodes.filter(
      (n) => n.meta.phase === 'backward' && n.target === 'aten.silu.default',
    );
    expect(again).toHaveLength(2);
  });
});

describe('checkpoint', () => {
  it('is one call; arguments and what the body reads are its operands, and the report names it', () => {
    const { graph, report } = capture(
      ({ x }: { x: Tensor }) => {
        const w = param('w', { shape: [3], dtype: 'f64' });
        const [y, { z, n }] = checkpoint(
          (a: Tensor, k: number) => [a.mul(w), { z: a.sum().mul(k), n: 'kept' }] as const,
          x,
          2,
        );
        expect(n).toBe('kept');
        return y.sum().add(z);
      },
      { x: spec([3], 'f64') },
    );
    expect(graph.nodes.filter((n) => n.kind === 'call').map((n) => n.target)).toEqual([
      'call',
      'operator.getitem',
      'operator.getitem',
      'aten.sum.default',
      'aten.add.Tensor',
    ]);
    expect(report.controlFlow).toMatchObject([{ kind: 'checkpoint', policy: 'operators' }]);
    expect(run(graph, { x: [1, 2, 3], w: [10, 20, 30] })).toEqual([[10 + 40 + 90 + 12]]);
    expectGradients(graph, { x: [1, 2, 3], w: [10, 20, 30] }, ['x', 'w']);
  });

  it('nests, stands in the body of a scan, and holds conditions', () => {
    const graph = trace(
      ({ x, w }: { x: Tensor; w: Tensor }) =>
        scan(
          (h, row: Tensor) => [
            checkpoint(
              (a: Tensor) =>
                checkpoint((b: Tensor) => b.mul(w).tanh(), a).add(
                  cond(
                    row.sum().gt(0),
                    () => row.sin(),
                    () => row.cos(),
                  ),
                ),
              h,
            ),
            null,
          ],
          x.select(0, 0),
          x,
        )[0].sum(),
      { x: spec([3, 2], 'f64'), w: spec([2], 'f64') },
    );
    expectGradients(graph, { x: numbers(6, 3), w: numbers(2, 4) }, ['x', 'w']);
  });

  it('a random operator with a key draws the same numbers again; without one it is refused', () => {
    const keyed = ({ x, key }: { x: Tensor; key: Tensor }): Tensor[] => {
      const y = checkpoint((a: Tensor) => dropout(a.mul(a), 0.5, key), x);
      return [y, y.sum()];
    };
    const graph = trace(keyed, { x: spec([16], 'f64'), key: randomKey() });
    const joint = jointGraph(graph, { seed: 1, wrt: ['x'] });
    const x = numbers(16, 5);
    const [y, , dx] = run(joint, { x, key: [7] });
    // y = 2 x^2 or 0, so its derivative is 4 x where y is not 0.
    expect(new Set(y?.map((v) => v === 0)).size).toBe(2);
    expectClose(
      dx ?? [],
      x.map((v, i) => (y?.[i] === 0 ? 0 : 4 * v)),
      1e-12,
    );
    // Tracing takes no random operator without a key; graphs from elsewhere have them.
    const pure = trace(
      ({ x: a }: { x: Tensor }) =>
        checkpoint((b: Tensor) => apply('aten.zeros_like.default', [b]).mul(b), a).sum(),
      { x: spec([4], 'f64') },
    );
    const keyless = parseGraph(printGraph(pure).replaceAll('aten.zeros_like', 'aten.rand_like'));
    expect(errorOf(() => jointGraph(keyless, { seed: 1, wrt: ['x'] })).code).toBe('E_NO_VJP');
  });

  it('an in-place operator of the body is refused', () => {
    expect(
      errorOf(() =>
        trace(
          ({ x }: { x: Tensor }) => checkpoint((a: Tensor) => apply('aten.relu_.default', [a]), x),
          { x: spec([2]) },
        ),
      ).code,
    ).toBe('E_HOP_MUTATION');
  });
});

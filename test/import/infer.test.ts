import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import type { TensorType, ValueType } from '../../src/graph/types.ts';
import { isRef, tensorType } from '../../src/graph/value.ts';
import { importGraph, type Infer } from '../../src/import/import.ts';
import { text } from './fixtures.ts';

/** Rules of the few operators that the MLP graphs hold; written from their definitions. */
const infer: Infer = (call, typeOf) => {
  const tensor = (at: number): TensorType => {
    const arg = call.args[at];
    const type: ValueType | undefined =
      arg !== undefined && isRef(arg) ? typeOf(arg.name) : undefined;
    if (type?.kind !== 'tensor')
      throw new ShardwrightError('E_TYPE', `${call.target}: argument ${at} must be a tensor`);
    return type;
  };
  const make = (at: number, shape: TensorType['shape']): TensorType =>
    tensorType(tensor(at).dtype, shape);
  switch (call.target) {
    case 'aten.t.default':
      return make(0, [...tensor(0).shape].reverse());
    case 'aten.mm.default':
      return make(0, [tensor(0).shape[0], tensor(1).shape[1]]);
    case 'aten.addmm.default':
      return make(1, [tensor(1).shape[0], tensor(2).shape[1]]);
    case 'aten.relu.default':
    case 'aten.detach.default':
    case 'aten.threshold_backward.default':
      return tensor(0);
    case 'aten.sum.dim_IntList':
      return make(0, [1, tensor(0).shape[1]]);
    case 'aten.view.default':
      return make(0, call.args[1] as number[]);
    default:
      return undefined;
  }
};

function refusal(input: string, rule: Infer): ShardwrightError {
  try {
    importGraph(input, { infer: rule, file: 'm.txt' });
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
  throw new Error('the import was not refused');
}

/** The text without the annotations of calls. */
function erased(source: string): string {
  return source.replaceAll(/^( *\w+): "[^"]*" =/gm, '$1 =');
}

describe('operator rules at import', () => {
  const joint = text('mlp/joint.readable.txt.gz');

  test('erased annotations are inferred again', () => {
    const inferred = importGraph(erased(joint), { infer });
    const stated = importGraph(joint, { infer });
    const shapes = (nodes: typeof stated.nodes): unknown =>
      nodes.map((n) => [n.name, n.type.kind === 'tensor' && [n.type.dtype, n.type.shape]]);
    expect(shapes(inferred.nodes)).toEqual(shapes(stated.nodes));
  });

  test('a wrong annotation is refused at its line with both types', () => {
    const wrong = joint.replace('addmm: "f32[8, 256]', 'addmm: "f32[8, 255]');
    const error = refusal(wrong, infer);
    expect(error.headline).toBe(
      'm.txt:8:9: E_TYPE addmm: the file says f32[8, 255], but aten.addmm.default gives f32[8, 256]',
    );
    expect(error.details.node).toBe('addmm');
    expect(error.details.hint).toContain('write f32[8, 256]');
    // The public call compares without being asked.
    expect(() => importGraph(wrong)).toThrow(
      'the file says f32[8, 255], but aten.addmm.default gives f32[8, 256]',
    );
  });

  test('an operand that does not fit is refused at its call', () => {
    const error = refusal(joint.replace('aten.t.default(primals_1)', 'aten.t.default(3)'), infer);
    expect(error.headline).toBe('m.txt:7:9: E_TYPE t: aten.t.default: argument 0 must be a tensor');
  });

  test('unknown operators without types come in one error with counts and first lines', () => {
    const unknown = erased(text('llama-tiny/joint.readable.txt.gz'))
      .replace('aten.silu.default', 'foo.one.default')
      .replaceAll('aten.rsqrt.default', 'foo.two.default')
      .replace('aten.cos.default', 'foo.three.default');
    const anything: Infer = (call) => {
      if (call.target.startsWith('foo.')) return undefined;
      const single = tensorType('f32', []);
      return /getitem|flash|nll_loss_forward/.test(call.target)
        ? { kind: 'tuple', items: [single, single, single] }
        : single;
    };
    const error = refusal(unknown, (call, typeOf) =>
      call.target === 'operator.getitem' ? undefined : anything(call, typeOf),
    );
    expect(error.code).toBe('E_UNKNOWN_OP');
    expect(error.message).toMatch(
      /^3 unknown operators whose results have no type: foo\.three\.default \(1 call, first in line \d+\), foo\.two\.default \(5 calls, first in line \d+\), foo\.one\.default \(1 call, first in line \d+\)$/,
    );
    expect(error.details.position?.line).toBeGreaterThan(50);
  });

  test('unknown operators with types are legal', () => {
    const graph = importGraph(joint.replaceAll('aten.relu.default', 'foo.bar.default'), { infer });
    expect(graph.nodes.find((n) => n.target === 'foo.bar.default')?.type).toEqual(
      tensorType('f32', [8, 256]),
    );
  });

  test('a tuple is rebuilt from the lines that read it, and the gap is noted', () => {
    const graph = importGraph(text('convnet/joint.readable.txt.gz'), { infer: false });
    const backward = graph.nodes.find((n) => n.name === 'convolution_backward_1');
    expect(backward?.type.kind === 'tuple' && backward.type.items.map((t) => t.kind)).toEqual([
      'none',
      'tensor',
      'tensor',
    ]);
    expect(graph.notes?.join(' ')).toContain('never read and have no type in the text: 1;');
  });
});

import { describe, expect, test } from 'vitest';

import { importGraph, importModel } from '../../src/import/import.ts';
import { answerKey, packed, text } from './fixtures.ts';
import { content, infer, inputTypes, refusal } from './twins.ts';

const COPIES = [
  'mlp/joint',
  'mlp/export',
  'mlp/forward',
  'mlp/backward',
  'mlp-dynamic/export',
  'convnet/joint',
  'convnet/export_core',
  'gpt2-2l/export',
  'llama-tiny/export',
  'llama-tiny/joint',
  'hop-cond/export',
  'hop-while/export',
  'hop-scan/export',
  'hop-map/export',
  'hop-scan-joint/joint',
];

describe('str(graph) gives the graph of the readable twin', () => {
  test.each(COPIES)('%s', (id) => {
    const inputs = inputTypes(answerKey(id).shapes);
    const { graph, format } = importModel(packed(`${id}.graph.txt.gz`), { infer, inputs });
    expect(format).toBe('fx-graph');
    expect(content(graph)).toEqual(
      content(importGraph(packed(`${id}.readable.txt.gz`), { infer })),
    );
  });
});

const HEAD =
  'graph():\n    %x : Tensor "f32[4, 16]"[num_users=1] = placeholder[target=x]\n    %w : [num_users=1] = placeholder[target=w](default=None)\n';
const inputs = { w: 'f32[16, 16]' };

function told(body: string): string {
  const { code, message, details } = refusal(() => importGraph(HEAD + body, { infer, inputs }));
  expect(details.hint ?? '').not.toBe('');
  return `${code} ${details.position?.line}:${details.position?.column} ${message}`;
}

describe('hand-written texts', () => {
  const MM =
    '    %mm : [num_users=1] = call_function[target=torch.ops.aten.mm.default](args = (%x, %w), kwargs = {})\n';
  const RETURN = '    return (mm,)\n';

  test('types in the text, types from the option, a devices and dtypes without quotes', () => {
    const graph = importGraph(`${HEAD}${MM}    return mm\n`, { infer, inputs });
    expect(graph.nodes.map((n) => n.type)).toMatchObject([
      { shape: [4, 16] },
      { shape: [16, 16] },
      { shape: [4, 16] },
    ]);
    const full =
      'graph():\n    %z : [num_users=1] = call_function[target=torch.ops.aten.full.default](args = ([2, 2], -inf), kwargs = {dtype: torch.float32, device: cuda:0, pin_memory: False})\n    return [z, None]';
    const made = importGraph(full, { infer });
    expect(made.nodes[0].kwargs).toEqual({
      dtype: { kind: 'dtype', dtype: 'f32' },
      device: { kind: 'device', word: 'cuda:0' },
      pin_memory: false,
    });
    expect(made.nodes[0].args).toEqual([[2, 2], { kind: 'float', value: -Infinity }]);
    expect(made.outputs.map((o) => o.value)).toEqual(['z', null]);
  });

  test('an einsum equation has one reading; other strings with commas are refused', () => {
    const einsum = (args: string): string =>
      `${HEAD}    %e : Tensor "f32[4, 16]"[num_users=1] = call_function[target=torch.ops.aten.einsum.default](args = (${args}), kwargs = {})\n    return (e,)\n`;
    expect(importGraph(einsum('ij, jk -> ik, [%x, %w]'), { inputs }).nodes[2].args[0]).toBe(
      'ij, jk -> ik',
    );
    expect(importGraph(einsum('ij,jk->ik, [%x, %w]'), { inputs }).nodes[2].args[0]).toBe(
      'ij,jk->ik',
    );
    const other = MM.replace('(%x, %w)', '(%x, %w, one, two)');
    expect(told(other + RETURN)).toBe(
      'E_SYNTAX 4:96 a string without quotes can be read in several ways here',
    );
  });

  test.each([
    ['an undefined value', MM.replace('%w)', '%v)') + RETURN, `E_REF 4:88 'v' is not defined`],
    ['a value twice', MM + MM + RETURN, `E_DUP 5:5 'mm' is defined twice`],
    [
      'a wrong count of users',
      MM.replace('num_users=1', 'num_users=3') + RETURN,
      `E_SYNTAX 4:5 'mm' says num_users=3, but 1 nodes use it`,
    ],
    ['no return', MM, 'E_SYNTAX 1:1 graph Graph has no return line'],
    [
      'an open list',
      MM.replace('%w),', '%w,') + RETURN,
      'E_SYNTAX 4:91 a string without quotes can be read in several ways here',
    ],
    [
      'a call of a module',
      MM.replace('call_function', 'call_module') + RETURN,
      'E_UNSUPPORTED 4:5 the module torch.ops.aten.mm.default is called',
    ],
    [
      'an unknown kind',
      MM.replace('call_function', 'call_magic') + RETURN,
      `E_SYNTAX 4:5 expected placeholder, get_attr, call_function or call_method, found 'call_magic'`,
    ],
    [
      'a dictionary',
      MM.replace('%w)', '{1: %w})') + RETURN,
      'E_UNSUPPORTED 4:87 a dictionary is passed as an argument',
    ],
    [
      'a returned number',
      MM + '    return (3,)\n',
      'E_UNSUPPORTED 5:13 something else than values and None is returned',
    ],
    [
      'text behind a node',
      MM.replace('{})', '{}) x') + RETURN,
      `E_SYNTAX 4:105 expected the end of the line, found 'x'`,
    ],
    [
      'a wrong operand',
      MM.replace('(%x, %w)', '(%w, %x)') + RETURN,
      'E_TYPE 4:5 mm: aten.mm.default: ',
    ],
  ])('%s', (_what, body, message) => {
    expect(told(body)).toContain(message);
  });

  test('an input without a type names the option', () => {
    const error = refusal(() => importGraph(text('mlp/joint.graph.txt.gz')));
    expect([error.headline, error.details.hint]).toEqual([
      `2:5: E_TYPE input 'primals_1' has no type`,
      expect.stringContaining('option inputs'),
    ]);
  });

  test('100,000 brackets and a name of 1 MiB', () => {
    expect(told(MM.replace('(%x, %w)', `(%x, ${'['.repeat(100_000)}`))).toMatch(
      /^E_LIMIT 4:\d+ lists nest deeper than 256$/,
    );
    expect(told(MM.replace('%mm', `%${'m'.repeat(2 ** 20)}`))).toMatch(
      /^E_LIMIT 4:6 a name of 1048576 characters/,
    );
  });
});

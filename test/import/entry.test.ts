import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { gzipSync, zipSync } from 'fflate';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { readModelFile } from '../../src/cli/input/read-model-file.ts';
import { parametersOf } from '../../src/graph/parameters.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import { applyRoles } from '../../src/import/complete/roles.ts';
import { detectFormat } from '../../src/import/detect.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { refusal } from '../support/thrown.ts';
import { packed, text } from './fixtures.ts';

const bytes = (content: string): Uint8Array => new TextEncoder().encode(content);

describe('detection by content', () => {
  const zip = (name: string): Uint8Array => zipSync({ [name]: bytes('{}') });
  test.each<[string, Uint8Array | string]>([
    ['fx', 'class GraphModule(torch.nn.Module):\n    def forward(self):\n'],
    [
      'fx',
      '# ExportedProgram:\nimport torch\nfrom torch import device\n\nclass Repro(torch.nn.Module):\n',
    ],
    ['fx', 'torch/fx/_lazy_graph_module.py class <lambda>(torch.nn.Module):\n'],
    ['exported-program', 'ExportedProgram:\n    class GraphModule(torch.nn.Module):\n'],
    ['fx-graph', 'graph():\n    %x : [num_users=1] = placeholder[target=x]\n'],
    [
      'torch-log',
      'V1120 11:01:03.362000 13582 torch/_dynamo/output_graph.py:2835] [0/0] [__graph_code] TRACED GRAPH\n',
    ],
    [
      'torch-trace',
      'V1120 11:01:03.362000 13582 torch/_logging/structured.py:22] {"str": ["a.py", 0]}\n',
    ],
    ['stablehlo', '#loc = loc(unknown)\nmodule @jit_f {\n'],
    ['stablehlo', '// class A(B):\nmodule attributes {} {\n'],
    ['stablehlo', 'sdy.mesh @mesh = <["x"=2]>\n'],
    ['hlo', 'HloModule jit_f, entry_computation_layout={}\n'],
    ['jaxpr', '{ lambda ; a:f32[4]. let b:f32[4] = sin a in (b,) }'],
    ['jaxpr', 'let f = { lambda ; a:f32[4]. let in (a,) } in\n{ lambda ; b:f32[4]. let in (b,) }'],
    ['pt2-json', '{"graph_module": {"graph": {}}, "schema_version": {"major": 8}}'],
    ['hf-config', '{\n  "architectures": ["LlamaForCausalLM"],\n  "model_type": "llama"\n}'],
    ['plan', '{"version": 1, "mesh": {}, "proof": {}}'],
    ['swgraph', '# a comment\nswgraph 1\ngraph @main {\n}\n'],
    ['pt2', zip('mlp/models/model.json')],
    ['pt2', zip('serialized_exported_program.json')],
    ['onnx', Uint8Array.of(0x08, 0x0a, 0x12, 1, 65, 0x3a, 2, 8, 1)],
  ])('%s', (format, content) => {
    expect(detectFormat(content)).toBe(format);
    if (typeof content === 'string') expect(detectFormat(bytes(content))).toBe(format);
  });

  test('compiled text is named as what it is; so is a packed twin', () => {
    const error = refusal(() =>
      importGraph(gzipSync(bytes('HloModule jit_f, is_scheduled=true\n')), { file: 'a.hlo.gz' }),
    );
    expect(error.headline).toBe(
      'a.hlo.gz: E_UNSUPPORTED this is HLO text, the program of one device as a compiler made it, and not a graph to plan',
    );
    expect(error.details.hint).toContain('as_text()');
  });

  test.each(['', '   \n', 'hello world', '{"a": 1}', '\u0000\u0001', '# only a comment'])(
    '%j fits no format',
    (content) => {
      const error = refusal(() => importGraph(content));
      expect(error.code).toBe('E_FORMAT_UNKNOWN');
      expect(error.message).toContain(JSON.stringify(content.slice(0, 60)));
      expect(error.details.hint).toContain('swgraph');
    },
  );

  test('a zip without a model, and a protobuf that is none', () => {
    expect(refusal(() => detectFormat(zip('weights/a.bin'))).code).toBe('E_FORMAT_UNKNOWN');
    expect(refusal(() => detectFormat(Uint8Array.of(0x08, 0x0a, 0x12, 100, 1))).code).toBe(
      'E_FORMAT_UNKNOWN',
    );
  });

  test('--format decides where given; an unknown one gets a suggestion', () => {
    const source = `"odd start"\n${text('mlp/joint.readable.txt.gz')}`;
    expect(refusal(() => importGraph(source)).code).toBe('E_FORMAT_UNKNOWN');
    expect(refusal(() => importGraph(source, { format: 'fx' })).headline).toContain(
      '1:1: E_SYNTAX',
    );
    const format = 'swgrap' as 'swgraph';
    expect(refusal(() => importGraph(source, { format })).details.hint).toBe(
      `did you mean 'swgraph'?`,
    );
  });

  test('a byte order mark does not matter; the format is reported', () => {
    const source = text('mlp/joint.readable.txt.gz');
    const { graph, format } = importModel(bytes(`\ufeff${source}`), { name: 'mlp' });
    expect([format, graph.name, graph.nodes.length]).toEqual(['fx', 'mlp', 28]);
  });
});

describe('role corrections', () => {
  const plain = importGraph(packed('gpt2-2l/joint.readable.txt.gz'));
  const named = importGraph(packed('gpt2-2l/joint.expanded.txt.gz'));
  const [wte, head] = ['model.transformer.wte.weight', 'model.lm_head.weight'];

  test('--tie makes two parameters one, counted once', () => {
    expect(parametersOf(named)).toHaveLength(29);
    expect(named.notes?.join(' ')).toContain(
      `Parameter without a gradient: ${head}. For the second name of a tied weight, --tie`,
    );
    const tied = applyRoles(named, { ties: [[head, wte]] });
    expect(tied.ties).toEqual([[wte, head]]);
    // What was asked for is not asked again; what was not is.
    expect(tied.notes?.join(' ')).not.toContain('--tie');
    expect(tied.notes).toHaveLength(named.notes!.length - 1);
    expect(applyRoles(named, { roles: { [head]: 'buffer' } }).notes?.join(' ')).not.toContain(
      '--tie',
    );
    expect(applyRoles(named, { roles: { [wte]: 'parameter' } }).notes).toEqual(named.notes);
    const [first] = parametersOf(tied);
    expect([first.name, first.elements, first.bytes, first.placeholders.length]).toEqual([
      wte,
      38597376,
      154389504,
      2,
    ]);
    expect(parametersOf(tied)).toHaveLength(28);
    const gradient = tied.outputs.find(({ role, of }) => role === 'grad' && of === head);
    expect(gradient?.value).toBeNull();
    expect(parseGraph(printGraph(tied)).ties).toEqual(tied.ties);
    // The same through the import options; ties that share a name are one group.
    const twice = importGraph(packed('gpt2-2l/joint.expanded.txt.gz'), {
      ties: [
        [wte, head],
        [head, wte],
      ],
    });
    expect(twice.ties).toEqual(tied.ties);
  });

  test('--role states a role by either name of the input', () => {
    const input = plain.nodes.find(
      (n) => n.meta.role === 'input' && n.type.kind === 'tensor' && n.type.dtype === 'f32',
    );
    expect(input?.name).toMatch(/^primals_\d+$/);
    const changed = applyRoles(plain, { roles: { [input!.name]: 'parameter' } });
    expect(changed.nodes.find((n) => n.name === input!.name)?.meta).toMatchObject({
      role: 'parameter',
    });
    expect(changed.nodes.find((n) => n.name === input!.name)?.meta.inferred).toBeUndefined();
    expect(parametersOf(changed)).toHaveLength(29);
    expect(parametersOf(plain)).toHaveLength(28);
    expect(parametersOf(applyRoles(named, { roles: { [head]: 'buffer' } }))).toHaveLength(28);
  });

  test('wrong names, tangents and unequal ties are refused', () => {
    const told = (run: () => unknown): string => refusal(run).headline;
    expect(told(() => applyRoles(named, { roles: { 'model.lm_head.wieght': 'input' } }))).toBe(
      `E_REF --role model.lm_head.wieght=input: there is no input 'model.lm_head.wieght'`,
    );
    expect(
      refusal(() => applyRoles(named, { roles: { 'model.lm_head.wieght': 'input' } })).details.hint,
    ).toContain(head);
    expect(told(() => applyRoles(named, { roles: { tangents_1: 'input' } }))).toContain('E_TYPE');
    expect(
      told(() => applyRoles(named, { ties: [[wte, 'model.transformer.wpe.weight']] })),
    ).toMatch(
      /^E_TYPE --tie model\.transformer\.wte\.weight=model\.transformer\.wpe\.weight: .*tied parameters have one type/,
    );
    expect(told(() => applyRoles(named, { ties: [[wte, 'nothing']] }))).toContain(
      `E_REF --tie ${wte}=nothing: there is no input 'nothing'`,
    );
    expect(told(() => applyRoles(plain, { ties: [['primals_1', 'primals_30']] }))).toMatch(
      /^E_TYPE --tie primals_1=primals_30: .*only parameters can be tied/,
    );
  });
});

describe('readModelFile', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'shardwright-'));
    writeFileSync(join(folder, 'm.fx.txt'), text('mlp/joint.readable.txt.gz'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test('reads a file; a missing file, a folder and a file above the limit are refused', () => {
    const path = join(folder, 'm.fx.txt');
    expect(importGraph(readModelFile(path)).nodes).toHaveLength(28);
    expect(refusal(() => readModelFile(join(folder, 'no.txt'))).headline).toContain(
      'E_FILE there is no file',
    );
    expect(refusal(() => readModelFile(folder)).headline).toContain('is a folder');
    const large = refusal(() => readModelFile(path, 100));
    expect([large.code, large.message]).toEqual([
      'E_LIMIT',
      expect.stringMatching(/has \d+ bytes, more than 100$/),
    ]);
  });
});

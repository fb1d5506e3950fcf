import { describe, expect, test } from 'vitest';

import { nodeText, printGraph } from '../../src/graph/text/write.ts';
import type { Node } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';

/** Graph text lines of the calls that a body of statements makes. */
function lines(body: string, inputs = 'x: "f32[4, 16]", y: "f32[4, 16]", n: "Sym(s0)"'): string[] {
  const indented = body
    .trim()
    .split('\n')
    .map((line) => `        ${line.trim()}\n`)
    .join('');
  const graph = importGraph(
    `class G(torch.nn.Module):\n    def forward(self, ${inputs}):\n${indented}        return (x,)\n`,
    { infer: false }, // the calls are made up
  );
  return graph.nodes
    .filter((node) => node.kind !== 'placeholder')
    .map((node: Node) => nodeText(node));
}

describe('the grammar of FX text, statement by statement', () => {
  test('calls: positional, keywords, lists, literals of every kind', () => {
    expect(
      lines(`
        a: "f32[4]" = torch.ops.aten.op.default(x, [1, -2, n], 1.0, 1e-05, -inf, nan, None, True, 'a"b\\n', dtype = torch.float32)
        b: "i64[]" = torch.ops.aten.slice.Tensor(x, 0, 0, 9223372036854775807);  a = None
        c: "f32[4]" = torch.ops.aten.op.default(x, device = device(type='cuda', index=1), layout = torch.strided, memory_format = torch.contiguous_format)
        d: "f32[4]" = torch.ops.aten.op.default(x, (1,), (), [[x], [None]], torch.device('cpu'), 2.)`),
    ).toEqual([
      '%a = aten.op.default(%x, [1, -2, %n], 1.0, 0.00001, -inf, nan, none, true, "a\\"b\\n", dtype=dtype:f32): f32[4] ; forward',
      '%b = aten.slice.Tensor(%x, 0, 0, 9223372036854775807): i64[] ; forward',
      '%c = aten.op.default(%x, device=device:cuda:1, layout=layout:strided, memory_format=layout:contiguous_format): f32[4] ; forward',
      '%d = aten.op.default(%x, [1], [], [[%x], [none]], device:cpu, 2.0): f32[4] ; forward',
    ]);
  });

  test('integers beyond 2^53 stay exact, and 1 is not 1.0', () => {
    const graph = importGraph(
      'class G(torch.nn.Module):\n    def forward(self, x: "f32[4]"):\n        a: "f32[4]" = torch.ops.aten.op.default(x, 9007199254740993, 1, 1.0)\n        return (a,)\n',
    );
    expect(graph.nodes[1].args.slice(1)).toEqual([
      9007199254740993n,
      1,
      { kind: 'float', value: 1 },
    ]);
  });

  test('getitem by number, by name, by slices; infix; prefix; methods and attributes', () => {
    expect(
      lines(`
        t: "f32[4]" = x[0]
        u: "f32[4]" = x['name']
        s: "f32[4]" = x[(slice(None, None, None), None)]
        v: "f32[4]" = x[1:, ::2]
        m: "Sym(2*s0)" = 2 * n
        k: "f32[4]" = x @ y
        g: "b8[]" = n >= 3
        o: "f32[4]" = -x
        q: "f32[4]" = x.view(8, n)
        r: "Sym(4)" = x.shape
        z: "f32[4]" = torch.nn.functional.relu(x)
        w: "Sym(s0)" = torch.sym_max(n, 4)`),
    ).toEqual([
      '%t = operator.getitem(%x, 0): f32[4] ; forward',
      '%u = operator.getitem(%x, "name"): f32[4] ; forward',
      '%s = operator.getitem(%x, [slice(none, none, none), none]): f32[4] ; forward',
      '%v = operator.getitem(%x, [slice(1, none, none), slice(none, none, 2)]): f32[4] ; forward',
      '%m = operator.mul(2, %n): sym(2*s0) ; forward',
      '%k = operator.matmul(%x, %y): f32[4] ; forward',
      '%g = operator.ge(%n, 3): b8[] ; forward',
      '%o = operator.neg(%x): f32[4] ; forward',
      '%q = torch.Tensor.view(%x, 8, %n): f32[4] ; forward',
      '%r = builtins.getattr(%x, "shape"): sym(4) ; forward',
      '%z = torch.nn.functional.relu(%x): f32[4] ; forward',
      '%w = torch.sym_max(%n, 4): sym(s0) ; forward',
    ]);
  });

  test('aliases make no node; a value passed through and returned twice is legal', () => {
    const graph = importGraph(
      'class G(torch.nn.Module):\n    def forward(self, L_x_ : "f32[4]"):\n        l_x_ = L_x_\n        a: "f32[4]" = torch.ops.aten.neg.default(l_x_);  l_x_ = None\n        b = a\n        return (b, a, L_x_, None)\n',
    );
    expect(graph.nodes.map((n) => n.name)).toEqual(['L_x_', 'a']);
    expect(graph.outputs.map((o) => o.value)).toEqual(['a', 'a', 'L_x_', null]);
    expect(graph.nodes[0].meta).toMatchObject({ role: 'input', roleName: 'x', inferred: true });
  });

  test('annotations: strides, devices, scalars, symbols, DTensor as a given sharding, wrappers', () => {
    const inputs = [
      'a: "bf16[2, 512][512, 1]cuda:0"',
      'b: "f32[4, 16][1, 4]cpu"',
      'c: "f32[][]cpu"',
      `d: "f32[2*((s77//2)), Max(1, u0)]"`,
      'e: "DTensor(f32[8, 16], S(0)R)"',
      'f: "MyTensor(i64[3])"',
      'x: "f8e4m3fn[0]"',
    ];
    const graph = importGraph(
      `class G(torch.nn.Module):\n    def forward(self, ${inputs.join(', ')}):\n        return (x,)\n`,
    );
    expect(graph.nodes.map((n) => n.type)).toEqual([
      { kind: 'tensor', dtype: 'bf16', shape: [2, 512] },
      { kind: 'tensor', dtype: 'f32', shape: [4, 16], stride: [1, 4] },
      { kind: 'tensor', dtype: 'f32', shape: [] },
      { kind: 'tensor', dtype: 'f32', shape: [{ sym: '2*((s77//2))' }, { sym: 'Max(1, u0)' }] },
      { kind: 'tensor', dtype: 'f32', shape: [8, 16], given: 'S(0)R' },
      { kind: 'tensor', dtype: 'i64', shape: [3] },
      { kind: 'tensor', dtype: 'f8e4m3fn', shape: [0] },
    ]);
  });

  test('comments may hold brackets and quotes; sources follow them; a path may precede the class', () => {
    const graph = importGraph(
      `# made by [a ( "tool\nimport torch\n\ntorch/fx/_lazy_graph_module.py class <lambda>(torch.nn.Module):\n    def forward(self, x: "f32[4]"):\n` +
        `        # No stacktrace found for following nodes\n        a: "f32[4]" = torch.ops.aten.neg.default(x)  # ([{ "\n\n` +
        `        # File: my dir/m.py:12 in forward, code: y = f("in [" in x)\n        b: "f32[4]" = torch.ops.aten.neg.default(\n            a,  # first\n        )\n        return b\n`,
      { format: 'fx' },
    );
    expect(graph.name).toBe('<lambda>');
    expect(graph.nodes.map((n) => [n.name, n.meta.source, n.meta.line])).toEqual([
      ['x', undefined, 5],
      ['a', undefined, 7],
      ['b', 'my dir/m.py:12', 10],
    ]);
    expect(printGraph(graph)).toContain('graph @"<lambda>" {');
  });

  test('inputs may be unpacked, typed by the header or by declarations', () => {
    const graph = importGraph(
      'class G(torch.nn.Module):\n    def forward(self, x: "f32[4]", y):\n        y: "f32[2]"\n        return (x, y)\n',
    );
    expect(graph.nodes.map((n) => n.type)).toEqual([
      { kind: 'tensor', dtype: 'f32', shape: [4] },
      { kind: 'tensor', dtype: 'f32', shape: [2] },
    ]);
    const unlifted = importGraph(
      'class G(torch.nn.Module):\n    def forward(self, x: "f32[4]"):\n        x, = fx_pytree.tree_flatten_spec(([x], {}), self._in_spec)\n        return pytree.tree_unflatten((x,), self._out_spec)\n',
    );
    expect(unlifted.nodes.map((n) => n.name)).toEqual(['x']);
  });

  test('Dynamo names give module paths and roles', () => {
    const graph = importGraph(
      'class G(torch.nn.Module):\n    def forward(self, L_self_modules_h_modules_0_modules_q_proj_parameters_weight_: "f32[4]", L_self_buffers_mask_: "b8[4]", L_x_: "f32[4]"):\n        return (L_x_,)\n',
    );
    expect(graph.nodes.map((n) => [n.meta.role, n.meta.roleName])).toEqual([
      ['parameter', 'h.0.q_proj.weight'],
      ['buffer', 'mask'],
      ['input', 'x'],
    ]);
  });
});

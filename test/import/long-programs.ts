/**
 * Programs of any length, as text: a chain, and as many inputs, outputs, updates or bodies as there
 * are calls. Bench and test read the same.
 */

export interface LongProgram {
  readonly name: string;
  /** A name that tells the format. */
  readonly file: string;
  /** A text with about so many nodes. */
  readonly write: (nodes: number) => string;
}

const CALLS = ['mm.default', 'add.Tensor', 'relu.default'] as const;
const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

export const LONG_PROGRAMS: readonly LongProgram[] = [
  {
    name: 'FX, a chain',
    file: 'chain.fx.txt',
    write: (nodes) => {
      const lines = [
        'class G(torch.nn.Module):',
        '    def forward(self, a):',
        '        a: "f32[64, 64][64, 1]cpu"',
      ];
      let last = 'a';
      for (const i of range(nodes)) {
        const call = CALLS[i % 3];
        const operands = call === 'relu.default' ? last : `${last}, a`;
        const freed = last === 'a' ? '' : `;  ${last} = None`;
        lines.push(
          `        v_${i}: "f32[64, 64][64, 1]cpu" = torch.ops.aten.${call}(${operands})${freed}`,
        );
        last = `v_${i}`;
      }
      return [...lines, `        return (${last},)`, ''].join('\n');
    },
  },
  {
    name: 'FX, as many inputs as calls',
    file: 'inputs.fx.txt',
    write: (nodes) => {
      const inputs = range(nodes >> 1);
      return [
        'class G(torch.nn.Module):',
        `    def forward(self, ${inputs.map((i) => `x${i}`).join(', ')}):`,
        ...inputs.map((i) => `        x${i}: "f32[64][1]cpu"`),
        ...inputs.map(
          (i) =>
            `        v_${i}: "f32[64][1]cpu" = torch.ops.aten.add.Tensor(${i === 0 ? 'x0' : `v_${i - 1}`}, x${i})`,
        ),
        `        return (v_${inputs.length - 1},)`,
        '',
      ].join('\n');
    },
  },
  {
    name: 'FX, as many outputs as calls',
    file: 'outputs.fx.txt',
    write: (nodes) => {
      const calls = range(nodes);
      return [
        'class G(torch.nn.Module):',
        '    def forward(self, x):',
        '        x: "f32[64][1]cpu"',
        ...calls.map((i) => `        v_${i}: "f32[64][1]cpu" = torch.ops.aten.relu.default(x)`),
        `        return (${calls.map((i) => `v_${i}`).join(', ')})`,
        '',
      ].join('\n');
    },
  },
  {
    name: 'StableHLO, a chain',
    file: 'chain.mlir',
    write: (nodes) => {
      const type = 'tensor<64x64xf32>';
      const value = (i: number): string => (i < 0 ? '%arg0' : `%${i}`);
      const calls = range(nodes).map((i) =>
        i % 2 === 0
          ? `    %${i} = stablehlo.tanh ${value(i - 1)} : ${type}`
          : `    %${i} = stablehlo.add ${value(i - 1)}, %arg0 : ${type}`,
      );
      return [
        'module @m {',
        `  func.func public @main(%arg0: ${type}) -> ${type} {`,
        ...calls,
        `    return ${value(nodes - 1)} : ${type}`,
        '  }',
        '}',
        '',
      ].join('\n');
    },
  },
  {
    name: 'jaxpr, a chain',
    file: 'chain.jaxpr.txt',
    write: (nodes) => {
      const value = (i: number): string => (i < 0 ? 'a' : `v${i}`);
      const calls = range(nodes).map(
        (i) =>
          `    v${i}:f32[64,64] = ${i % 2 === 0 ? `tanh ${value(i - 1)}` : `add ${value(i - 1)} a`}`,
      );
      return ['{ lambda ; a:f32[64,64]. let', ...calls, `  in (${value(nodes - 1)},) }`, ''].join(
        '\n',
      );
    },
  },
  {
    name: 'FX, one buffer changed in place by every call',
    file: 'in-place.fx.txt',
    write: (nodes) => {
      const calls = range(nodes).map(
        (i) => `        v_${i}: "f32[64][1]cpu" = torch.ops.aten.add_.Tensor(x, y)`,
      );
      const inputs = ['x', 'y'].map((x) => `        ${x}: "f32[64][1]cpu"`);
      return [
        'class G(torch.nn.Module):',
        '    def forward(self, x, y):',
        ...inputs,
        ...calls,
        `        return (v_${nodes - 1},)`,
        '',
      ].join('\n');
    },
  },
  {
    name: 'StableHLO, a train step of as many donated inputs as calls',
    file: 'donated.mlir',
    write: (nodes) => {
      const type = 'tensor<64xf32>';
      const all = range(nodes);
      const inputs = all.map((i) => `%a${i}: ${type} {tf.aliasing_output = ${i} : i32}`);
      const calls = all.map(
        (i) => `    %${i} = stablehlo.add %a${i}, ${i === 0 ? '%a0' : `%${i - 1}`} : ${type}`,
      );
      const types = all.map(() => type).join(', ');
      return [
        'module @m {',
        `  func.func public @main(${inputs.join(', ')}) -> (${types}) {`,
        ...calls,
        `    return ${all.map((i) => `%${i}`).join(', ')} : ${types}`,
        '  }',
        '}',
        '',
      ].join('\n');
    },
  },
  {
    name: 'StableHLO, branches on a converted bool',
    file: 'cases.mlir',
    write: (nodes) => {
      const type = 'tensor<64xf32>';
      const calls = range(nodes >> 2).flatMap((i) => {
        const before = i === 0 ? '%x' : `%${i - 1}`;
        return [
          `    %c${i} = stablehlo.convert %p : (tensor<i1>) -> tensor<i32>`,
          `    %${i} = "stablehlo.case"(%c${i}) ({`,
          `      %t = stablehlo.tanh ${before} : ${type}`,
          `      stablehlo.return %t : ${type}`,
          `    }, { stablehlo.return ${before} : ${type} }) : (tensor<i32>) -> ${type}`,
        ];
      });
      return [
        'module @m {',
        `  func.func public @main(%x: ${type}, %p: tensor<i1>) -> ${type} {`,
        ...calls,
        `    return %${(nodes >> 2) - 1} : ${type}`,
        '  }',
        '}',
        '',
      ].join('\n');
    },
  },
  {
    name: 'jaxpr, inner programs of one name',
    file: 'inner.jaxpr.txt',
    write: (nodes) => {
      const calls = range(nodes >> 1).map(
        (i) =>
          `    v${i}:f32[64] = pjit[name=f jaxpr={ lambda ; b:f32[64]. let c:f32[64] = tanh b in (c,) }] ${i === 0 ? 'a' : `v${i - 1}`}`,
      );
      return ['{ lambda ; a:f32[64]. let', ...calls, `  in (v${(nodes >> 1) - 1},) }`, ''].join(
        '\n',
      );
    },
  },
];

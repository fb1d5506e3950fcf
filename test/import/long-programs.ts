/** Programs of any length, as text: a chain, and as many inputs or outputs as there are calls. Bench and test read the same. */

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
      const lines = ['class G(torch.nn.Module):', '    def forward(self, a):', '        a: "f32[64, 64][64, 1]cpu"'];
      let last = 'a';
      for (const i of range(nodes)) {
        const call = CALLS[i % 3];
        const operands = call === 'relu.default' ? last : `${last}, a`;
        const freed = last === 'a' ? '' : `;  ${last} = None`;
        lines.push(`        v_${i}: "f32[64, 64][64, 1]cpu" = torch.ops.aten.${call}(${operands})${freed}`);
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
        ...inputs.map((i) => `        v_${i}: "f32[64][1]cpu" = torch.ops.aten.add.Tensor(${i === 0 ? 'x0' : `v_${i - 1}`}, x${i})`), // prettier-ignore
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
      const calls = range(nodes).map((i) => (i % 2 === 0 ? `    %${i} = stablehlo.tanh ${value(i - 1)} : ${type}` : `    %${i} = stablehlo.add ${value(i - 1)}, %arg0 : ${type}`)); // prettier-ignore
      return ['module @m {', `  func.func public @main(%arg0: ${type}) -> ${type} {`, ...calls, `    return ${value(nodes - 1)} : ${type}`, '  }', '}', ''].join('\n'); // prettier-ignore
    },
  },
  {
    name: 'jaxpr, a chain',
    file: 'chain.jaxpr.txt',
    write: (nodes) => {
      const value = (i: number): string => (i < 0 ? 'a' : `v${i}`);
      const calls = range(nodes).map((i) => `    v${i}:f32[64,64] = ${i % 2 === 0 ? `tanh ${value(i - 1)}` : `add ${value(i - 1)} a`}`); // prettier-ignore
      return ['{ lambda ; a:f32[64,64]. let', ...calls, `  in (${value(nodes - 1)},) }`, ''].join('\n');
    },
  },
];

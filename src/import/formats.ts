/** The formats that content detection knows, with the names that files usually have. */

export const FORMATS = {
  fx: { title: 'FX text of print_readable()', names: '.readable.txt, .fx.txt, .py' },
  'exported-program': { title: 'str(ExportedProgram)', names: '.ep.txt' },
  'fx-graph': { title: 'str(graph) of FX', names: '.graph.txt' },
  'torch-log': { title: 'TORCH_LOGS output', names: '.log' },
  'torch-trace': { title: 'TORCH_TRACE output', names: '.log' },
  pt2: { title: 'torch.export archive', names: '.pt2' },
  'pt2-json': { title: 'torch.export model.json', names: '.model.json' },
  stablehlo: { title: 'StableHLO text', names: '.mlir' },
  hlo: { title: 'HLO text', names: '.hlo' },
  jaxpr: { title: 'jaxpr text', names: '.jaxpr.txt' },
  onnx: { title: 'ONNX model', names: '.onnx' },
  'hf-config': { title: 'Hugging Face config', names: 'config.json' },
  swgraph: { title: 'Shardwright graph text', names: '.swg' },
  plan: { title: 'Shardwright plan', names: 'plan.json' },
} as const;

export type Format = keyof typeof FORMATS;
export const FORMAT_NAMES = Object.keys(FORMATS) as Format[];

/** The formats that `importGraph` reads in this version. */
export const READABLE: readonly Format[] = [
  'fx',
  'exported-program',
  'fx-graph',
  'torch-log',
  'torch-trace',
  'pt2',
  'pt2-json',
  'onnx',
  'stablehlo',
  'jaxpr',
  'swgraph',
];

export function isFormat(name: string): name is Format {
  return Object.hasOwn(FORMATS, name);
}

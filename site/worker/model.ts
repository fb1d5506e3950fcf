/** Loads the graph and the operators of a question: a model by name, a dropped file or the demo. */
import demo from 'virtual:demo';

import {
  atSizes,
  buildModel,
  builtinOperators,
  defined,
  type Graph,
  importOnDemand,
  inferBy,
  modelEntry,
  parseMesh,
  parseModelConfig,
  readModelConfig,
  ShardwrightError,
} from '../../src/entries/page.ts';
import type { GivenFile, Question } from '../protocol.ts';

type Table = ReturnType<typeof builtinOperators>;

let operators: Table | undefined;

/** The operators, made once. */
export function table(): Table {
  return (operators ??= builtinOperators());
}

const DEMO = 'demo';

/** The program of a question. */
export interface AskedGraph {
  readonly graph: Graph;
  /** Whether it was made from the name or the config of a model. */
  readonly isNamed: boolean;
  /** True if it was traced, which gives a forward pass; absent: it was not. */
  readonly isTraced?: boolean;
}

export async function graphOf(
  question: Question,
  file: GivenFile | undefined,
): Promise<AskedGraph> {
  const { model } = question;
  if (model === DEMO) return imported({ name: 'llama3-8b-2l-b16.fx.txt.gz', bytes: demoBytes() });
  if (model === 'file') {
    if (file === undefined)
      throw new ShardwrightError('E_USAGE', 'no file was given', {
        hint: 'drop one, or choose a model',
      });
    return isConfig(file)
      ? built(
          parseModelConfig(new TextDecoder().decode(file.bytes), file.name),
          file.name,
          question,
        )
      : imported(file);
  }
  const entry = modelEntry(model);
  return built(readModelConfig(entry.config), entry.name, question);
}

async function imported({ name, bytes }: GivenFile): Promise<AskedGraph> {
  const { graph } = await importOnDemand(bytes, {
    file: name,
    name: name
      .replace(/(\.(gz|txt|py|fx|readable|swg|mlir|jaxpr|pt2|onnx|json|model|graph|ep|log))+$/, '')
      .replace(/[\r\n]+/g, ' '),
    infer: inferBy(table()),
  });
  return { graph: atSizes(graph, new Map()), isNamed: false };
}

function built(
  config: ReturnType<typeof readModelConfig>,
  name: string,
  question: Question,
): AskedGraph {
  const graph = buildModel(config, {
    name,
    table: table(),
    training: true,
    ...defined({
      // One sequence a device, as the command takes it.
      batch: count('batch', question.batch) ?? parseMesh(question.mesh).size,
      seq: count('sequence', question.sequence),
      layers: count('layers', question.layers),
    }),
  });
  return { graph: atSizes(graph, new Map()), isNamed: true };
}

/** A whole number; undefined where none is given. @throws E_USAGE */
export function count(name: string, text: string): number | undefined {
  if (text.trim() === '') return undefined;
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1)
    throw new ShardwrightError('E_USAGE', `'${text}' is not a whole number of 1 or more`, {
      hint: `give another ${name}, or none`,
    });
  return value;
}

/** Tells whether a file is the config of a model, as Hugging Face publishes it. */
function isConfig({ name, bytes }: GivenFile): boolean {
  if (!name.endsWith('.json') || bytes.length > 1 << 20) return false;
  return /"(model_type|architectures)"/.test(new TextDecoder().decode(bytes));
}

function demoBytes(): Uint8Array {
  return Uint8Array.from(atob(demo), (c) => c.charCodeAt(0));
}
